//! GGUF files by llama.cpp's converter, and files that lie.

use std::{fs, path::PathBuf};

use serde_json::json;
use whatwhere_interop::import;
use whatwhere_training::Run;
use whatwhere_transformer::Sequences;

use crate::{
    common::{Golden, distance},
    writer::gguf,
};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/gguf")
}

#[test]
fn every_gguf_file_gives_the_logits_of_its_weights() {
    let mut wrong = Vec::new();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.extension().is_none_or(|end| end != "gguf") || name == "blocks" {
            continue;
        }
        let own = folder().join(format!("{name}.golden.safetensors"));
        let of = name.rsplit_once('_').unwrap().0;
        let family = folder().join(format!("../families/{of}/golden.safetensors"));
        let golden = Golden::read(if own.is_file() { &own } else { &family });
        let out = tempfile::tempdir().unwrap();
        let run = import(&path, &out.path().join("run"), &mut |_, _| {}).map_err(|e| e.to_string());
        let run = run.and_then(|_| Run::open(out.path().join("run")).map_err(|e| e.to_string()));
        let run = match run {
            Ok(run) => run,
            Err(error) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        let ids = golden.ids("input_ids");
        let (found, want) = match golden.has("hidden") {
            true => {
                let found =
                    run.model().hidden(None, &Sequences::from_rows(&ids), Default::default());
                (found.unwrap().into_data().try_into_vec().unwrap(), golden.floats("hidden").0)
            }
            false => (run.logits(None, &ids).unwrap().0, golden.floats("logits").0),
        };
        let far = distance(&found, &want);
        if far > 1e-4 || found.len() != want.len() {
            wrong.push(format!("{name}: logits differ by {far:e} of the largest"));
        }
        let tokenizer = run.tokenizer().unwrap();
        assert_eq!(tokenizer.end(), Some(2), "{name}");
        assert!(run.imported.as_ref().unwrap().chat_template.is_some(), "{name}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn files_that_lie_are_refused_in_words() {
    let whole = fs::read(folder().join("llama_f32.gguf")).unwrap();
    let tensor = |name: &str, shape: &[usize]| {
        let bytes = vec![0; 4 * shape.iter().product::<usize>()];
        (name.to_owned(), shape.to_vec(), bytes)
    };
    let lying = |at: usize, bytes: &[u8]| {
        let mut file = whole.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    let llama = json!({ "general.architecture": "llama", "llama.new_trick": 1, "llama.embedding_length": 8,
        "llama.attention.head_count": 2, "llama.context_length": 8, "llama.block_count": 1,
        "llama.feed_forward_length": 8 });
    let cases = [
        (whole[..10].to_vec(), "cut short"),
        (whole[..40].to_vec(), "tensors, expected no more than"),
        (whole[..whole.len() - 9].to_vec(), "expected whole blocks within"),
        (lying(0, b"GGML"), "other bytes than GGUF"),
        (lying(4, &9u32.to_le_bytes()), "GGUF version 9"),
        (lying(8, &u64::MAX.to_le_bytes()), "tensors, expected no more than"),
        (lying(16, &u64::MAX.to_le_bytes()), "values, expected no more than"),
        (lying(24, &u64::MAX.to_le_bytes()), "bytes of a text"),
        (gguf(&json!({ "general.architecture": "bloom9" }), &[]), "expected one of llama"),
        (gguf(&llama, &[]), "llama.new_trick = 1, expected no such key"),
        (gguf(&json!({ "a": [[[1]]] }), &[]), "lists in lists"),
        (
            gguf(&json!({ "general.alignment": 7 }), &[tensor("x", &[2])]),
            "general.alignment = 7, expected a power of two",
        ),
    ];
    for (file, expected) in cases {
        let out = tempfile::tempdir().unwrap();
        let path = out.path().join("x.gguf");
        fs::write(&path, file).unwrap();
        let message =
            import(&path, &out.path().join("run"), &mut |_, _| {}).unwrap_err().to_string();
        assert!(message.contains("x.gguf") && message.contains(expected), "{expected}: {message}");
    }
}
