//! One entry for each reader of files: any bytes in, no panic out. `readers.rs` beside this file calls them with a bounded
//! number of broken files, the targets in `fuzz/` without a bound.

use std::{
    fs,
    path::{Path, PathBuf},
};

use whatwhere_interop::{doctor::Sample, import};

/// A reader: its name, its entry, and a file it reads without complaint.
pub(crate) struct Reader {
    pub(crate) name: &'static str,
    pub(crate) entry: fn(&[u8]) -> bool,
    pub(crate) whole: fn() -> Vec<u8>,
}

/// Every reader of files. An entry returns whether the file was accepted.
pub(crate) const READERS: &[Reader] = &[
    Reader { name: "gguf", entry: gguf, whole: || whole("gguf/llama_q8_0.gguf") },
    Reader {
        name: "model_safetensors",
        entry: tensors,
        whole: || whole("families/llama/model.safetensors"),
    },
    Reader { name: "model_config", entry: config, whole: || whole("families/llama/config.json") },
    Reader {
        name: "tokenizer_config",
        entry: |bytes| folder("llama", "tokenizer_config.json", bytes),
        whole: || {
            br#"{"bos_token": {"content": "<s>"}, "chat_template": [{"name": "default", "template": "{{ 1 }}"}]}"#.to_vec()
        },
    },
    Reader {
        name: "generation_config",
        entry: |bytes| folder("llama", "generation_config.json", bytes),
        whole: || whole("families/llama/generation_config.json"),
    },
    Reader {
        name: "chat_template",
        entry: |bytes| folder("llama", "chat_template.jinja", bytes),
        whole: || b"{% for m in messages %}{{ m['content'] }}{% endfor %}".to_vec(),
    },
    Reader {
        name: "reference_safetensors",
        entry: reference,
        whole: || whole("families/llama/golden.safetensors"),
    },
    Reader {
        name: "reference_json",
        entry: reference,
        whole: || br#"{"ids": [1, 2], "source": [3], "logits": [[0.5, -1e3], [2, 0]]}"#.to_vec(),
    },
];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|folder| folder.join("fixtures"))
        .find(|folder| folder.join("families").is_dir())
        .expect("the repository's fixtures")
}

fn whole(path: &str) -> Vec<u8> {
    fs::read(fixtures().join(path)).expect("a fixture")
}

fn gguf(bytes: &[u8]) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.gguf");
    fs::write(&path, bytes).expect("a file");
    import(&path, &folder.path().join("run"), &mut |_, _| {}).is_ok()
}

fn reference(bytes: &[u8]) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("logits");
    fs::write(&path, bytes).expect("a file");
    Sample::read(&path, None).is_ok()
}

/// A config beside the tensors of its own family, if it says a known one.
fn config(bytes: &[u8]) -> bool {
    folder(&family(bytes).unwrap_or_else(|| "llama".into()), "config.json", bytes)
}

/// The first fixture of the family that a config names.
fn family(bytes: &[u8]) -> Option<String> {
    let named = |bytes: &[u8]| -> Option<String> {
        let config: serde_json::Value = serde_json::from_slice(bytes).ok()?;
        Some(config["model_type"].as_str()?.to_owned())
    };
    let wanted = named(bytes)?;
    let entries = fs::read_dir(fixtures().join("families")).expect("fixtures");
    let mut folders: Vec<PathBuf> =
        entries.map(|entry| entry.expect("a folder that can be listed").path()).collect();
    folders.sort();
    let is_whole = |folder: &&PathBuf| {
        let config = fs::read(folder.join("config.json"));
        folder.join("model.safetensors").is_file()
            && config.is_ok_and(|bytes| named(&bytes).as_ref() == Some(&wanted))
    };
    let found = folders.iter().find(is_whole)?;
    Some(found.file_name()?.to_string_lossy().into_owned())
}

/// Tensors of any of these families, which have a turn of every kind.
fn tensors(bytes: &[u8]) -> bool {
    let families = ["llama", "bloom", "gpt2", "opt", "roberta", "stablelm", "t5", "xlnet"];
    // All of them are asked: a file that one refuses may trip another.
    families.map(|family| folder(family, "model.safetensors", bytes)).contains(&true)
}

/// A model folder of which one file is other bytes, or which has one more.
fn folder(family: &str, name: &str, bytes: &[u8]) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    for file in ["config.json", "model.safetensors"] {
        let bytes = whole(&format!("families/{family}/{file}"));
        fs::write(folder.path().join(file), bytes).expect("a file");
    }
    fs::write(folder.path().join(name), bytes).expect("a file");
    import(folder.path(), &folder.path().join("run"), &mut |_, _| {}).is_ok()
}
