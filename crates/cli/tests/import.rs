//! Models of others on the command line: imported, and asked by ids.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

fn run(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_whatwhere"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path)
}

#[test]
fn a_model_is_imported_and_asked_by_ids() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let (path, out) = (fixture("families/t5"), out.to_str().unwrap());
    let path = path.to_str().unwrap();
    let imported = run(&["import", path, "--out", out, "--json"], "");
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&imported.stdout).unwrap();
    assert_eq!((&summary["family"], &summary["tokenizer"]), (&"t5".into(), &false.into()));
    let again = run(&["import", path, "--out", out], "");
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("holds a run already\nhint: name another folder"));
    let logits = run(&["logits", out, "--json"], "1 2 3|4 5\n6|7\n");
    assert!(logits.status.success(), "{}", text(&logits.stderr));
    let lines: Vec<serde_json::Value> =
        text(&logits.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let places = |line: &serde_json::Value| line["logits"].as_array().unwrap().len();
    assert_eq!((places(&lines[0]), places(&lines[1])), (2, 1));
    assert_eq!(lines[0]["logits"][0].as_array().unwrap().len(), 67);
    for (input, said) in [
        ("1 2\n", "line 1: an encoder-decoder needs ids of a source and of a target"),
        ("1|99\n", "id 99 is outside the vocabulary, expected 0 to 66"),
        ("1|x\n", "found \"x\", expected token ids such as 1 2 3"),
        ("|\n", "found no ids"),
    ] {
        let refused = run(&["logits", out, "--json"], input);
        assert_eq!(refused.status.code(), Some(1), "{input}");
        assert!(text(&refused.stderr).contains(said), "{input}: {}", text(&refused.stderr));
    }
    let spoken = run(&["translate", out], "a b\n");
    assert!(text(&spoken.stderr).contains("this run has no tokenizer"), "{}", text(&spoken.stderr));
}

#[test]
fn an_imported_file_is_a_run_for_the_other_verbs() {
    let folder = tempfile::tempdir().unwrap();
    let (out, data) = (folder.path().join("run"), folder.path().join("text.txt"));
    std::fs::write(&data, "the dog and the cat\n".repeat(60)).unwrap();
    let path = fixture("gguf/llama_f16.gguf");
    let (path, out, data) = (path.to_str().unwrap(), out.to_str().unwrap(), data.to_str().unwrap());
    let imported = run(&["import", path, "--out", out], "");
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    let cases: [&[&str]; 4] = [
        &["generate", out, "the ", "--tokens", "5", "--json"],
        &[
            "evaluate",
            out,
            "--data",
            data,
            "--batches",
            "2",
            "--set",
            "training.length=32",
            "--json",
        ],
        &["extrapolate", out, "--lengths", "16,32", "--data", data],
        &["embed", out, "--pooling", "last", "--normalize", "--json"],
    ];
    for arguments in cases {
        let output = run(arguments, "the cat\n");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        assert!(!output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_trained_run_goes_out_and_comes_back_with_its_logits() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("text.txt"), "the dog and the cat and the bird\n".repeat(40)).unwrap();
    let data = serde_json::Value::from(at("text.txt"));
    let train = |out: &str, more: &str| {
        let settings = format!(
            "[data]\nsource = {{ kind = 'text', path = {data} }}\n[model]\nwidth = 32\nlayers = 2\n{more}\n[model.attention]\nheads = 4\n[training]\nsteps = 1\nbatch = 2\n\
             length = 16\nevaluate_batches = 1\n"
        );
        std::fs::write(at("settings.toml"), settings).unwrap();
        let trained = run(&["train", &at("settings.toml"), "--out", &at(out)], "");
        assert!(trained.status.success(), "{}", text(&trained.stderr));
    };
    for (name, family, more) in [
        ("llama", "llama", "activation = 'swiglu'\ntied = false"),
        (
            "gpt2",
            "gpt2",
            "activation = 'gelu_tanh'\nnorm = 'layer'\nbias = true\nalternate = [{ bias = true, position = 'learned' }]",
        ),
    ] {
        train(name, more);
        let exported = run(
            &[
                "export",
                &at(name),
                "--to",
                "huggingface",
                "--out",
                &at(&format!("{name}-hf")),
                "--json",
            ],
            "",
        );
        assert!(exported.status.success(), "{}", text(&exported.stderr));
        let said: serde_json::Value = serde_json::from_slice(&exported.stdout).unwrap();
        assert_eq!(said["family"], family);
        let imported =
            run(&["import", &at(&format!("{name}-hf")), "--out", &at(&format!("{name}-back"))], "");
        assert!(imported.status.success(), "{}", text(&imported.stderr));
        let logits = |out: &str| text(&run(&["logits", &at(out), "--json"], "1 2 3 4\n").stdout);
        let (first, again) = (logits(name), logits(&format!("{name}-back")));
        assert!(first.starts_with("{\"logits\"") && first == again);
    }
    train("polar", "alternate = [{ position = 'polar' }]");
    let refused = run(&["export", &at("polar"), "--to", "huggingface", "--out", &at("no")], "");
    assert!(
        text(&refused.stderr).contains("no family of transformers"),
        "{}",
        text(&refused.stderr)
    );
}

#[test]
fn a_run_is_quantized_and_says_what_it_costs() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let trained = run(
        &[
            "train",
            "--out",
            &at("run"),
            "--set",
            "steps=3",
            "--set",
            "model.width=32",
            "--set",
            "model.layers=1",
            "--set",
            "training.length=64",
            "--set",
            "training.batch=512",
        ],
        "",
    );
    assert!(trained.status.success(), "{}", text(&trained.stderr));
    let quantized = run(&["quantize", &at("run"), "--out", &at("int8"), "--json"], "");
    assert!(quantized.status.success(), "{}", text(&quantized.stderr));
    let said: serde_json::Value = serde_json::from_slice(&quantized.stdout).unwrap();
    assert!(said["bytes"].as_u64().unwrap() < said["bytes_before"].as_u64().unwrap() / 2);
    let again = run(&["quantize", &at("run"), "--out", &at("int8")], "");
    assert_eq!(again.status.code(), Some(2), "{}", text(&again.stderr));
    let evaluate = |run_: &str, more: &[&str]| {
        let mut arguments = vec!["evaluate", run_, "--batches", "2"];
        arguments.extend(more);
        let evaluated = run(&arguments, "");
        assert!(evaluated.status.success(), "{}", text(&evaluated.stderr));
        text(&evaluated.stdout)
    };
    let said = evaluate(&at("run"), &["--weights", "int8"]);
    let line = said.lines().find(|line| line.starts_with("int8 costs")).unwrap();
    let cost: f64 = line.split(['\t', ' ']).find_map(|word| word.parse().ok()).unwrap();
    assert!(cost.abs() < 0.005 && line.contains("bits per byte"), "{line}");
    let json = |run: &str, more: &[&str]| -> serde_json::Value {
        serde_json::from_str(&evaluate(run, &[more, &["--json"]].concat())).unwrap()
    };
    let (direct, stored) = (json(&at("run"), &["--weights", "int8"]), json(&at("int8"), &[]));
    assert_eq!(direct["loss"], stored["loss"]);
    let exact = json(&at("run"), &[]);
    assert_eq!(direct["f32"]["loss"], exact["loss"]);
    assert!(exact["f32"].is_null() && stored["f32"].is_null());
    assert_ne!(direct["loss"], exact["loss"]);
    for weights in ["f32", "int8"] {
        let written =
            run(&["generate", &at("run"), "a", "--tokens", "5", "--weights", weights], "");
        assert!(written.status.success(), "{}", text(&written.stderr));
    }
    let refused = run(&["generate", &at("run"), "a", "--weights", "int4"], "");
    assert!(text(&refused.stderr).contains("int8"), "{}", text(&refused.stderr));
}
