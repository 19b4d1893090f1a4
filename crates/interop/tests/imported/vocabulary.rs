//! Tokenizers of folders without a `tokenizer.json`.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};
use whatwhere_interop::import;
use whatwhere_training::Run;

/// A fixture's model with these files beside it, as a run.
fn run(family: &str, files: &[(&str, String)]) -> Result<Run, String> {
    let out = tempfile::tempdir().unwrap();
    let model = out.path().join("model");
    fs::create_dir(&model).unwrap();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/families");
    for name in ["config.json", "model.safetensors"] {
        fs::copy(root.join(family).join(name), model.join(name)).unwrap();
    }
    for (name, text) in files {
        fs::write(model.join(name), text).unwrap();
    }
    let summary = import(&model, &out.path().join("run"), &mut |_, _| {});
    let summary = summary.map_err(|e| e.to_string())?;
    if let Some(name) = summary.unread_tokenizer {
        return Err(format!("unread: {name}"));
    }
    Run::open(out.path().join("run")).map_err(|e| e.to_string())
}

fn words() -> String {
    let first = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##re", "cat", "Cat", "cafe"];
    let rest = (first.len()..67).map(|id| format!("[unused{id}]"));
    first.map(String::from).into_iter().chain(rest).map(|word| word + "\n").collect()
}

#[test]
fn word_pieces_are_built_of_their_list() {
    let lower = run("bert", &[("vocab.txt", words())]).unwrap();
    assert_eq!(lower.encode("There the CAFÉ").unwrap(), [2, 5, 6, 5, 9, 3]);
    assert_eq!(lower.tokenizer().unwrap().mask(), Some(4));
    assert_eq!(lower.fill("the [MASK] cat", 2).unwrap().len(), 1);
    let cased = json!({ "do_lower_case": false, "tokenizer_class": "BertTokenizer" }).to_string();
    let cased = run("bert", &[("vocab.txt", words()), ("tokenizer_config.json", cased)]).unwrap();
    assert_eq!(cased.encode("the Cat The").unwrap(), [2, 5, 8, 1, 3]);
    // What another class makes of the same file is not known.
    let other = json!({ "tokenizer_class": "BertJapaneseTokenizer" }).to_string();
    let other = run("bert", &[("vocab.txt", words()), ("tokenizer_config.json", other)]);
    assert_eq!(other.err().as_deref(), Some("unread: vocab.txt"));
    let broken = run("bert", &[("vocab.txt", "a\nb\n".into())]).err().unwrap();
    assert!(broken.contains("vocab.txt: found no token [CLS]"), "{broken}");
}

#[test]
fn byte_level_pieces_are_built_of_their_list_and_merges() {
    let tokens = [
        "<s>", "<pad>", "</s>", "<unk>", "<mask>", "t", "h", "e", "Ġ", "th", "the", "Ġthe", "Ġt",
        "Ġth",
    ];
    let vocabulary: Map<String, Value> =
        tokens.iter().enumerate().map(|(id, token)| ((*token).to_owned(), id.into())).collect();
    let merges = "#version: 0.2\nt h\nth e\nĠ the\n";
    let files =
        [("vocab.json", Value::Object(vocabulary).to_string()), ("merges.txt", merges.into())];
    let framed = run("roberta", &files).unwrap();
    assert_eq!(framed.encode("the the").unwrap(), [0, 10, 11, 2]);
    // The mask takes the blank before it along.
    assert_eq!(framed.encode("").unwrap(), [0, 2]);
    assert_eq!(framed.tokenizer().unwrap().mask(), Some(4));
    let plain = run("gpt2", &files).unwrap();
    assert_eq!(plain.encode("the the").unwrap(), [10, 11]);
    let broken = [files[0].clone(), ("merges.txt", "t h e\n".into())];
    let broken = run("gpt2", &broken).err().unwrap();
    assert!(broken.contains("merges.txt: found \"t h e\""), "{broken}");
}

/// Published vocabularies, where they are at hand.
#[test]
fn published_vocabularies_cut_as_their_own_tokenizers_do() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let root = env::var_os("WHATWHERE_SHARED").map_or(root, PathBuf::from).join("data/tokenizers");
    if !root.is_dir() {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: no data/tokenizers in ../shared or $WHATWHERE_SHARED"
        );
        return;
    }
    let file = |path: &Path| fs::read_to_string(path).unwrap();
    let bert = root.join("bert_base_uncased");
    let said = ("tokenizer_config.json", file(&bert.join("tokenizer_config.json")));
    let built = run("bert", &[("vocab.txt", file(&bert.join("vocab.txt"))), said.clone()]).unwrap();
    let own = run("bert", &[("tokenizer.json", file(&bert.join("tokenizer.json"))), said]).unwrap();
    for text in [
        "Hello world",
        "naïve Café — it's 3.14!",
        "注意 mechanisms\tand\nlines",
        "unaffable supercalifragilistic",
        "",
    ] {
        assert_eq!(built.encode(text).unwrap(), own.encode(text).unwrap(), "{text}");
        let ids = own.tokenizer().unwrap().encode(text).unwrap();
        let back = |run: &Run| run.tokenizer().unwrap().decode(&ids);
        assert_eq!(back(&built), back(&own), "{text}");
    }
    let gpt2 = root.join("gpt2");
    let files = ["vocab.json", "merges.txt"].map(|name| (name, file(&gpt2.join(name))));
    let built = run("gpt2", &files).unwrap();
    assert_eq!(built.encode("Hello world").unwrap(), [15496, 995]);
    // Without "!", whose id is that of the special token of the fixture: it has no text.
    let text = "naïve Café — it's of 3.14\n  注意";
    let ids = built.encode(text).unwrap();
    assert_eq!(built.tokenizer().unwrap().decode(&ids), text);
}
