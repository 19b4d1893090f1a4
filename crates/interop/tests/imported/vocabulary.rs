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

fn pieces(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pieces").join(name)
}

/// The texts of SentencePiece's own program and the numbers of their pieces.
fn asked() -> Vec<(String, Vec<u32>)> {
    let all: Vec<Value> =
        serde_json::from_slice(&fs::read(pieces("unigram.json")).unwrap()).unwrap();
    let one = |asked: &Value| {
        let ids = serde_json::from_value(asked["ids"].clone()).unwrap();
        (asked["text"].as_str().unwrap().to_owned(), ids)
    };
    all.iter().map(one).collect()
}

/// A fixture beside these files, imported.
fn with_files(family: &str, files: &[(&str, Vec<u8>)]) -> (tempfile::TempDir, Run) {
    let out = tempfile::tempdir().unwrap();
    let model = out.path().join("model");
    fs::create_dir(&model).unwrap();
    let fixture =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/families").join(family);
    for name in ["config.json", "model.safetensors"] {
        fs::copy(fixture.join(name), model.join(name)).unwrap();
    }
    for (name, bytes) in files {
        fs::write(model.join(name), bytes).unwrap();
    }
    let summary = import(&model, &out.path().join("run"), &mut |_, _| {}).unwrap();
    assert!(summary.tokenizer, "{family}: {summary:?}");
    let run = Run::open(out.path().join("run")).unwrap();
    (out, run)
}

#[test]
fn pieces_cut_texts_as_sentencepiece_does() {
    let file = fs::read(pieces("unigram.model")).unwrap();
    let (_folder, run) = with_files("t5", &[("spiece.model", file)]);
    for (text, ids) in asked() {
        let found = run.encode(&text).unwrap();
        assert_eq!(found, [&ids[..], &[1]].concat(), "{text:?}");
        if !ids.contains(&2) {
            let words: Vec<&str> = text.split_whitespace().collect();
            assert_eq!(run.tokenizer().unwrap().decode(&found), words.join(" "));
        }
    }
    let specials = run.imported.as_ref().unwrap().specials.clone();
    assert_eq!((specials.ends, specials.padding, specials.unknown), (vec![1], Some(0), Some(2)));
    let extra = run.encode("the <extra_id_0>").unwrap();
    assert!(extra.contains(&159), "{extra:?}");
}

/// Marian's tokens have numbers of their own, in `vocab.json`, and its languages are tokens.
#[test]
fn pieces_have_the_numbers_of_the_list() {
    let file = fs::read(pieces("unigram.model")).unwrap();
    let (folder, _) = with_files("t5", &[("spiece.model", file.clone())]);
    let built = fs::read(folder.path().join("run/tokenizer.json")).unwrap();
    let built: Value = serde_json::from_slice(&built).unwrap();
    let name = |id: u32| built["model"]["vocab"][id as usize][0].as_str().unwrap().to_owned();
    let other = |id: u32| 60 - id;
    let mut listed: Map<String, Value> = (1..60).map(|id| (name(id), other(id).into())).collect();
    listed.insert("<pad>".into(), 60.into());
    listed.insert(">>fr<<".into(), 0.into());
    let (_folder, run) = with_files(
        "marian",
        &[
            ("source.spm", file.clone()),
            ("target.spm", file),
            ("vocab.json", Value::Object(listed).to_string().into_bytes()),
        ],
    );
    for (text, ids) in asked() {
        let want: Vec<u32> = ids.iter().map(|id| other(*id)).chain([other(1)]).collect();
        assert_eq!(run.encode(&text).unwrap(), want, "{text:?}");
    }
    assert_eq!(run.encode(">>fr<< rains.").unwrap()[0], 0);
}

#[test]
fn broken_pieces_are_not_read_and_named() {
    let file = fs::read(pieces("unigram.model")).unwrap();
    for length in [1, 20, 100, file.len() - 1] {
        let out = tempfile::tempdir().unwrap();
        let fixture = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/families/t5");
        for name in ["config.json", "model.safetensors"] {
            fs::copy(fixture.join(name), out.path().join(name)).unwrap();
        }
        fs::write(out.path().join("spiece.model"), &file[..length]).unwrap();
        let summary = import(out.path(), &out.path().join("run"), &mut |_, _| {}).unwrap();
        assert_eq!(summary.unread_tokenizer.as_deref(), Some("spiece.model"), "{length}");
    }
}
