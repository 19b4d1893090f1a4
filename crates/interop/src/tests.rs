//! There and back: what a family's table takes from a file it gives back, for every model of the fixtures.

use std::{collections::BTreeMap, fs, path::PathBuf};

use whatwhere_transformer::Parameter;

use crate::{
    exchange::take,
    give::{Ours, plan},
    huggingface,
    tensors::Array,
};

/// A norm's distance from 1 loses a few bits where 1 is added.
const TOLERANCE: f32 = 1e-6;

#[test]
fn every_family_comes_and_goes() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/families");
    let (mut done, mut wrong) = (0, Vec::new());
    for entry in fs::read_dir(root).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.join("config.json").is_file() {
            continue;
        }
        let name = folder.display().to_string();
        let (names, tensors, settings) = match huggingface::open(&folder) {
            Ok(huggingface::Opened { names, tensors, settings, .. }) => (names, tensors, settings),
            Err(_) => continue,
        };
        let ours = take(&names, &tensors, &settings, &mut |_, _| {}).unwrap();
        let by_name = Ours::of(&ours);
        let theirs: BTreeMap<String, Array> = plan(&names, &by_name, &settings)
            .unwrap()
            .into_iter()
            .map(|piece| (piece.name.clone(), piece.make(&by_name).unwrap()))
            .collect();
        for (tensor, array) in &theirs {
            let entry = tensors.entries.get(tensor);
            let Some(entry) = entry else {
                wrong.push(format!("{name}: {tensor} is new"));
                continue;
            };
            assert_eq!(entry.shape, array.shape, "{name}: {tensor}");
        }
        let again = take(&names, &theirs, &settings, &mut |_, _| {});
        same(&name, &ours, &again.unwrap_or_else(|e| panic!("{name}: {e}")));
        done += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(done >= 8, "found {done} models that can be imported");
}

fn same(name: &str, ours: &[Parameter], again: &[Parameter]) {
    assert_eq!(ours.len(), again.len(), "{name}");
    for (a, b) in ours.iter().zip(again) {
        assert_eq!((&a.name, &a.shape), (&b.name, &b.shape), "{name}");
        let far = a.values.iter().zip(&b.values).fold(0f32, |far, (a, b)| far.max((a - b).abs()));
        assert!(far <= TOLERANCE, "{name}: {} differs by {far:e}", a.name);
    }
}

#[test]
fn what_is_missing_left_over_or_of_another_shape_is_named() {
    let folder =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/families/llama_llama3");
    let opened = huggingface::open(&folder).unwrap();
    let read = |name: &String| (name.clone(), opened.tensors.read(name).unwrap());
    let whole: BTreeMap<String, Array> = opened.tensors.entries.keys().map(read).collect();
    let refusal = |source: &BTreeMap<String, Array>| {
        take(&opened.names, source, &opened.settings, &mut |_, _| {}).unwrap_err().to_string()
    };
    let query = "model.layers.1.self_attn.q_proj.weight";
    let mut missing = whole.clone();
    missing.remove(query);
    let said = refusal(&missing);
    assert!(
        said.starts_with(&format!("tensor {query}: found nothing, expected one for")),
        "{said}"
    );
    let mut left = whole.clone();
    left.insert("model.layers.0.router.weight".into(), Array { shape: vec![1], values: vec![1.0] });
    let said = refusal(&left);
    assert!(said.starts_with("tensor model.layers.0.router.weight: found shape [1]"), "{said}");
    let mut other = whole;
    other.insert(query.into(), Array { shape: vec![3, 5], values: vec![0.0; 15] });
    let said = refusal(&other);
    assert!(
        said.contains(&format!("tensor {query}: found shape [3, 5], expected shape [")),
        "{said}"
    );
}
