//! Files that ask for more than they hold, and ids that a model does not know: refused in words, before anything is made.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};
use whatwhere_interop::import;
use whatwhere_training::Run;

use crate::{entries::READERS, writer::gguf};

fn families() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/families")
}

fn config_of(folder: &Path) -> Map<String, Value> {
    serde_json::from_slice(&fs::read(folder.join("config.json")).unwrap()).unwrap()
}

/// A model folder with this config, and these bytes as its tensors.
fn folder(config: &Value, tensors: &[u8], out: &Path) -> PathBuf {
    let folder = out.join("model");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    fs::write(folder.join("model.safetensors"), tensors).unwrap();
    folder
}

fn refusal(path: &Path, out: &Path) -> String {
    let message = import(path, &out.join("run"), &mut |_, _| {}).unwrap_err().to_string();
    assert!(!out.join("run").exists(), "{message}");
    message
}

/// Safetensors with a header of this text and so many bytes of data.
fn safetensors(header: &Value, data: usize) -> Vec<u8> {
    let header = header.to_string().into_bytes();
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header);
    out.resize(out.len() + data, 0);
    out
}

#[test]
fn sizes_beyond_the_files_are_refused_before_anything_is_made() {
    let empty = safetensors(&json!({}), 0);
    // As many as the settings allow: tens of gigabytes of values that no file stores.
    let (width, layers) = (1 << 20, 10_000);
    let olmo = json!({
        "model_type": "olmo", "vocab_size": 64, "hidden_size": width, "num_hidden_layers": layers,
        "num_attention_heads": 1 << 10, "intermediate_size": 64, "max_position_embeddings": 64,
    });
    let bloom = json!({
        "model_type": "bloom", "vocab_size": 64, "hidden_size": width, "n_layer": layers, "n_head": width,
    });
    let mpt = json!({
        "model_type": "mpt", "vocab_size": 64, "d_model": width, "n_layers": layers, "n_heads": width,
        "attn_config": { "alibi": true },
    });
    for config in [&olmo, &bloom, &mpt] {
        let out = tempfile::tempdir().unwrap();
        let message = refusal(&folder(config, &empty, out.path()), out.path());
        assert!(message.contains("10000 attentions of width 1048576"), "{message}");
    }
    for (family, key) in [("bloom", "n_head"), ("mpt", "n_heads")] {
        let out = tempfile::tempdir().unwrap();
        let mut config = config_of(&families().join(family));
        config.insert(key.into(), 2_000_000_000.into());
        let tensors = fs::read(families().join(family).join("model.safetensors")).unwrap();
        let message = refusal(&folder(&config.into(), &tensors, out.path()), out.path());
        assert!(message.contains("heads"), "{family}: {message}");
    }
    // Norms of queries and keys for heads that no matrix has.
    let out = tempfile::tempdir().unwrap();
    let mut config = config_of(&families().join("qwen3"));
    config.insert("head_dim".into(), 2_000_000_000.into());
    let tensors = fs::read(families().join("qwen3/model.safetensors")).unwrap();
    let message = refusal(&folder(&config.into(), &tensors, out.path()), out.path());
    assert!(message.contains("heads of 2000000000 channels"), "{message}");
    // A vocabulary that the table of embeddings does not have is named by the tensor.
    let out = tempfile::tempdir().unwrap();
    let mut config = config_of(&families().join("llama"));
    config.insert("vocab_size".into(), 2_000_000_000.into());
    let tensors = fs::read(families().join("llama/model.safetensors")).unwrap();
    let message = refusal(&folder(&config.into(), &tensors, out.path()), out.path());
    assert!(message.contains("tensor model.embed_tokens.weight: found shape"), "{message}");
    assert!(message.contains("expected shape [2000000000, "), "{message}");
}

#[test]
fn tensors_that_share_bytes_are_refused() {
    let out = tempfile::tempdir().unwrap();
    let info = |from: usize, to: usize| json!({ "dtype": "F32", "shape": [(to - from) / 4], "data_offsets": [from, to] });
    let config = Value::Object(config_of(&families().join("llama")));
    for (header, named) in [
        (json!({ "a": info(0, 64), "b": info(0, 64) }), "tensor b: found byte"),
        (json!({ "a": info(0, 64), "b": info(60, 124) }), "tensor b: found byte"),
        (json!({ "a": info(4, 8), "b": info(0, 64) }), "tensor a: found byte"),
    ] {
        let message = refusal(&folder(&config, &safetensors(&header, 128), out.path()), out.path());
        assert!(message.contains(named), "{header}: {message}");
    }
    let tensor = |name: &str| (name.to_owned(), vec![16], vec![0; 64]);
    let mut file = gguf(&json!({}), &[tensor("first"), tensor("second")]);
    let at = file.windows(6).position(|bytes| bytes == b"second").unwrap();
    // After the name stand the number of sizes, a size, the type and the offset.
    file[at + 6 + 4 + 8 + 4..][..8].fill(0);
    let path = out.path().join("x.gguf");
    fs::write(&path, file).unwrap();
    let message = refusal(&path, out.path());
    assert!(message.contains("tensor second: found byte"), "{message}");
}

#[test]
fn what_gguf_is_not_imported_is_refused_with_the_reason() {
    for (values, said) in [
        (
            json!({ "general.architecture": "qwen2moe" }),
            "\"qwen2moe\" is not imported: it is a mixture of experts",
        ),
        (json!({ "general.architecture": "deepseek2" }), "it is multi-head latent attention"),
        (json!({ "general.architecture": "mamba" }), "it is a recurrent state"),
        (
            json!({ "general.architecture": "llama", "split.count": 3, "split.no": 0 }),
            "split.count = 3, one of 3 files, expected a model in one: llama-gguf-split --merge",
        ),
    ] {
        let out = tempfile::tempdir().unwrap();
        let path = out.path().join("x.gguf");
        fs::write(&path, gguf(&values, &[])).unwrap();
        let message = refusal(&path, out.path());
        assert!(message.contains(said), "{message}");
    }
}

#[test]
fn special_ids_beyond_the_vocabulary_are_refused_or_said() {
    let model = families().join("marian");
    let tensors = fs::read(model.join("model.safetensors")).unwrap();
    for (key, id) in [("decoder_start_token_id", 67), ("forced_bos_token_id", 99)] {
        let out = tempfile::tempdir().unwrap();
        let mut config = config_of(&model);
        config.insert(key.into(), id.into());
        let message = refusal(&folder(&config.into(), &tensors, out.path()), out.path());
        let said = format!("config.json: {key} = {id}, expected an id of a vocabulary of 67");
        assert!(message.contains(&said), "{message}");
    }
    let out = tempfile::tempdir().unwrap();
    let mut config = config_of(&model);
    config.insert("eos_token_id".into(), json!([0, 67]));
    let folder = folder(&config.into(), &tensors, out.path());
    let generation = json!({ "bos_token_id": 70, "decoder_start_token_id": 66 });
    fs::write(folder.join("generation_config.json"), generation.to_string()).unwrap();
    let summary = import(&folder, &out.path().join("run"), &mut |_, _| {}).unwrap();
    assert_eq!(summary.unknown_tokens, ["bos_token_id = 70", "eos_token_id = 67"]);
    let specials = Run::open(out.path().join("run")).unwrap().imported.unwrap().specials;
    assert_eq!((specials.begin, specials.ends), (None, vec![0]));
}

/// What BART's older files say of the first token of every target.
#[test]
fn the_older_words_for_a_forced_first_token_are_understood() {
    let model = families().join("bart");
    let tensors = fs::read(model.join("model.safetensors")).unwrap();
    for (flag, forced) in [(true, Some(5)), (false, None)] {
        let out = tempfile::tempdir().unwrap();
        let mut config = config_of(&model);
        config.remove("forced_bos_token_id");
        config.insert("force_bos_token_to_be_generated".into(), flag.into());
        config.insert("bos_token_id".into(), 5.into());
        let folder = folder(&config.into(), &tensors, out.path());
        import(&folder, &out.path().join("run"), &mut |_, _| {}).unwrap();
        let imported = Run::open(out.path().join("run")).unwrap().imported.unwrap();
        assert_eq!(imported.specials.forced_begin, forced);
    }
}

/// Every size of every family's config as other sizes: none of them may end in more than words.
#[test]
fn configs_of_every_family_with_other_sizes_do_not_panic() {
    let reader = READERS.iter().find(|reader| reader.name == "model_config").unwrap();
    let mut one_of_each = BTreeMap::new();
    let entries = fs::read_dir(families()).unwrap().map(|entry| entry.unwrap().path());
    for folder in BTreeSet::from_iter(entries) {
        if folder.join("model.safetensors").is_file() {
            let config = config_of(&folder);
            one_of_each.entry(config["model_type"].to_string()).or_insert(config);
        }
    }
    assert!(one_of_each.len() > 25, "{:?}", one_of_each.keys());
    let (mut read, mut tried) = (0, 0);
    for config in one_of_each.values() {
        read += usize::from((reader.entry)(Value::Object(config.clone()).to_string().as_bytes()));
        for (key, _) in config.iter().filter(|(_, value)| value.is_number()) {
            for other in [json!(0), json!(10_000), json!(1 << 20), json!(2_147_483_647), json!("x")]
            {
                let mut changed = config.clone();
                changed.insert(key.clone(), other);
                (reader.entry)(Value::Object(changed).to_string().as_bytes());
                tried += 1;
            }
        }
    }
    assert_eq!(read, one_of_each.len(), "each is read with the tensors of its own family");
    assert!(tried > 1000, "{tried}");
}
