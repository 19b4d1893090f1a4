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
        entry: |bytes| folder("model.safetensors", bytes),
        whole: || whole("families/llama/model.safetensors"),
    },
    Reader {
        name: "model_config",
        entry: |bytes| folder("config.json", bytes),
        whole: || whole("families/llama/config.json"),
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

/// A model folder of which one file is other bytes.
fn folder(name: &str, bytes: &[u8]) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    for file in ["config.json", "model.safetensors"] {
        let bytes = if file == name { bytes } else { &whole(&format!("families/llama/{file}")) };
        fs::write(folder.path().join(file), bytes).expect("a file");
    }
    import(folder.path(), &folder.path().join("run"), &mut |_, _| {}).is_ok()
}
