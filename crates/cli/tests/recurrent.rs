//! Recurrent runs as people meet them: trained, asked, looked into, compared, and the claim about them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::{fs, io::Write, process::Stdio};

use serde_json::Value;
use tempfile::TempDir;

use common::{command, out, refusal};

/// Sentences of 2 to 13 words and the same backwards, as Multi30k's files are called.
fn pairs() -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, count) in [("train", 60), ("val", 12), ("test_2016_flickr", 24)] {
        let (mut source, mut target) = (String::new(), String::new());
        for line in 0..count {
            let word =
                |at: usize| ["one", "two", "three", "four", "five"][(line * 7 + at * at) % 5];
            let words: Vec<&str> = (0..2 + line % 12).map(word).collect();
            source += &format!("{}\n", words.join(" "));
            let back: Vec<&str> = words.iter().rev().copied().collect();
            target += &format!("{}\n", back.join(" "));
        }
        fs::write(folder.path().join(format!("{name}.en")), source).unwrap();
        fs::write(folder.path().join(format!("{name}.de")), target).unwrap();
    }
    folder
}

const SMALL: [&str; 6] = [
    "model.width=16",
    "data.tokenizer=characters",
    "training.steps=3",
    "training.batch.tokens=256",
    "training.evaluate_every=3",
    "training.length=96",
];

fn sets<'a>(sets: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    sets.iter().flat_map(|set| ["--set", set])
}

#[test]
fn a_recurrent_translator_is_trained_asked_and_looked_into() {
    let folder = pairs();
    let at = folder.path();
    for attends in ["none", "before", "after"] {
        let own = format!("model.attends={attends}");
        let all = [&SMALL[..], &[&own]].concat();
        let args = ["train", "--preset", "recurrent", "--data", ".", "--out", attends];
        out(at, &args.into_iter().chain(sets(&all)).collect::<Vec<_>>());
        let found: Value =
            serde_json::from_str(&out(at, &["evaluate", attends, "--json"])).unwrap();
        assert!(found["loss"].as_f64().unwrap() > 0.0, "{found}");
        let mut child = command(at, &["translate", attends])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"one two\nthree\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 2);
        let show = ["show", "attention", attends, "--text", "one two", "--target", "two one"];
        if attends == "none" {
            let message = refusal(at, &show);
            assert!(message.contains("without attention has no weights to look at"), "{message}");
            continue;
        }
        assert!(out(at, &show).contains("index.html"));
        let page = fs::read_to_string(at.join(format!("show/attention-{attends}/index.html")));
        assert!(page.unwrap().contains("A GRU encoder-decoder of 1 layers"));
        out(at, &["doctor", attends]);
        let message = refusal(at, &["export", attends, "--to", "onnx", "--out", "graph"]);
        assert!(message.contains("recurrent = gru"), "{message}");
        let message = refusal(at, &["convert", attends, "--position", "rotary", "--out", "other"]);
        assert!(message.contains("recurrent = gru"), "{message}");
        let message = refusal(at, &["quantize", attends, "--out", "small"]);
        assert!(message.contains("a recurrence has no int8 layers"), "{message}");
    }
}

#[test]
fn a_recurrent_language_model_writes_and_is_written_out() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::write(at.join("text.txt"), "what a token looks at, and where it stands\n".repeat(30))
        .unwrap();
    let settings = [
        "model.recurrent=lstm",
        "model.attention={}",
        "model.width=16",
        "training.steps=3",
        "training.length=24",
        "training.evaluate_batches=1",
    ];
    let args = ["train", "--preset", "tiny", "--data", "text.txt", "--out", "run"];
    out(at, &args.into_iter().chain(sets(&settings)).collect::<Vec<_>>());
    let written = out(at, &["generate", "run", "what", "--tokens", "20", "--seed", "1"]);
    assert!(written.starts_with("what"), "{written}");
    let lengths = out(at, &["extrapolate", "run", "--lengths", "24,48", "--json"]);
    assert_eq!(lengths.lines().count(), 2, "no rotary to scale: {lengths}");
    let config = out(at, &["config", "run/config.toml"]);
    assert!(config.contains("recurrent = \"lstm\""), "{config}");
    fs::write(at.join("again.toml"), &config).unwrap();
    assert_eq!(out(at, &["config", "again.toml"]), config);
    let choices = out(at, &["config", "--choices", "recurrent"]);
    assert!(choices.contains("gru") && choices.contains("lstm"), "{choices}");
    let message = refusal(at, &["train", "--preset", "tiny", "--set", "model.recurrent=gru"]);
    assert!(
        message.contains("attention.position = \"polar\": a recurrence has no self-attention"),
        "{message}"
    );
    let settings: Vec<&str> = settings.into_iter().chain(["training.precision=bf16"]).collect();
    let args = ["train", "--preset", "tiny", "--data", "text.txt", "--out", "rounded"];
    let message = refusal(at, &args.into_iter().chain(sets(&settings)).collect::<Vec<_>>());
    assert!(message.contains("precision = bf16: a recurrence computes in f32"), "{message}");
}

#[test]
fn the_claim_about_forgetting_ends_with_judgements_by_length() {
    let folder = pairs();
    let at = folder.path();
    let args = ["reproduce", "forgetting", "--data", ".", "--seeds", "1", "--json"];
    let found = out(at, &args.into_iter().chain(sets(&SMALL)).collect::<Vec<_>>());
    let found: Value = serde_json::from_str(&found).unwrap();
    let findings = found["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 6);
    for finding in findings {
        assert_ne!(finding["judgement"], "not_measured", "{finding}");
    }
    let folder = at.join("reproductions/forgetting");
    let text = fs::read_to_string(folder.join("results.json")).unwrap();
    let results: Value = serde_json::from_str(&text).unwrap();
    for cell in results[0]["cells"].as_array().unwrap() {
        let quarters = cell["runs"][0]["bleu_by_words"].as_array().unwrap();
        let least: Vec<u64> = quarters.iter().map(|q| q["least"].as_u64().unwrap()).collect();
        assert_eq!(least, [2, 5, 8, 11], "{cell}");
        let pairs: u64 = quarters.iter().map(|quarter| quarter["pairs"].as_u64().unwrap()).sum();
        assert_eq!(pairs, 24);
    }
    let report = fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(report.contains("BLEU against the length of a sentence"));
    assert!(report.contains("GRU encoder-decoder"), "the model in words");
}
