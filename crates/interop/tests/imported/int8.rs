//! GGUF's `Q8_0` and int8 weights: the same blocks.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use whatwhere_interop::import;
use whatwhere_training::{Run, Storage, Weights, quantize};

use crate::common::{Golden, distance};

const FILE: &str = "llama_q8_0";

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/gguf").join(name)
}

/// Scales and levels of every `Q8_0` tensor, found in the file by what they must decode to: the bytes of a block are the
/// scale's and 32 levels.
fn blocks(path: &Path) -> BTreeMap<Vec<u8>, usize> {
    let file = fs::read(path).unwrap();
    let mut blocks: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    // Tensors are aligned by 32 bytes, and blocks of 34 follow each other: every even place can begin one.
    for at in (0..file.len().saturating_sub(34)).step_by(2) {
        *blocks.entry(file[at..at + 34].to_vec()).or_default() += 1;
    }
    blocks
}

#[test]
fn blocks_of_a_q8_0_file_are_kept_to_the_bit() {
    let out = tempfile::tempdir().unwrap();
    let (run, stored) = (out.path().join("run"), out.path().join("int8"));
    let path = fixture(&format!("{FILE}.gguf"));
    import(&path, &run, &mut |_, _| {}).unwrap();
    quantize(&run, &stored, Storage::Int8).unwrap();
    let there = blocks(&path);
    let opened = [Run::open_with(&run, Some(Weights::Int8)), Run::open_with(&stored, None)];
    let opened = opened.map(Result::unwrap);
    let [direct, again] = opened.each_ref().map(|run| run.model().int8_values().unwrap());
    assert_eq!(direct, again);
    let mut seen = 0;
    for (name, values) in direct {
        let [rows, columns] = values.shape();
        let [_, scale_columns] = values.scales_shape();
        let (from, to) = if values.is_table() { (columns, rows) } else { (rows, columns) };
        if from % 32 != 0 {
            continue; // The file has it in another form.
        }
        for column in 0..to {
            for block in 0..from / 32 {
                let at = |channel: usize| match values.is_table() {
                    true => column * columns + channel,
                    false => channel * columns + column,
                };
                let scale = match values.is_table() {
                    true => column * scale_columns + block,
                    false => block * scale_columns + column,
                };
                let mut bytes = values.scales()[scale].to_le_bytes().to_vec();
                bytes.extend((0..32).map(|c| values.levels()[at(32 * block + c)].cast_unsigned()));
                assert!(there.contains_key(&bytes), "{name}: column {column}, block {block}");
                seen += 1;
            }
        }
    }
    assert!(seen > 400, "{seen} blocks");
    let golden = Golden::read(&fixture(&format!("{FILE}.golden.safetensors")));
    for run in &opened {
        let far = distance(
            &run.logits(None, &golden.ids("input_ids")).unwrap().0,
            &golden.floats("logits").0,
        );
        // The file has the way down from the feed-forward in F16, and here it is of int8, too; inputs are int8 as well.
        assert!(far < 5e-2, "{far:e}");
    }
}
