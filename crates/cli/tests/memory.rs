//! Estimates of memory against what the system counts, and the refusal of what does not fit.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use tempfile::TempDir;

/// How far an estimate may be from what is measured.
const FAR: f64 = 0.2;

/// Many parameters, many activations, and operations that keep more or less.
const SHAPES: [&[&str]; 9] = [
    &["model.width=256", "model.layers=3", "training.batch=16", "training.length=128"],
    &["model.width=768", "model.layers=3", "training.batch=1", "training.length=16"],
    &["model.width=64", "model.layers=4", "training.batch=16", "training.length=512"],
    &[
        "model.width=128",
        "model.layers=6",
        "training.batch=8",
        "training.length=256",
        "model.recompute=block",
    ],
    &[
        "model.width=128",
        "model.layers=3",
        "training.batch=8",
        "training.length=256",
        "model.attention.score=general",
        "training.optimizer=sgd",
    ],
    &[
        "model.width=128",
        "model.layers=3",
        "training.batch=8",
        "training.length=256",
        "model.activation=swiglu",
        "model.attention.kv_heads=1",
    ],
    &[
        "model.width=128",
        "model.layers=3",
        "training.batch=8",
        "training.length=256",
        "model.attention.position={kind='shaw',values=false,queries=true}",
    ],
    &[
        "model.recurrent=gru",
        "model.width=128",
        "model.layers=3",
        "training.batch=16",
        "training.length=128",
    ],
    &[
        "model.recurrent=lstm",
        "model.width=256",
        "model.layers=2",
        "training.batch=8",
        "training.length=128",
    ],
];

fn command(folder: &Path, verb: &[&str], sets: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_whatwhere"));
    command.args(verb).args(["--preset", "tiny", "--data", "text.txt"]).current_dir(folder);
    for set in sets {
        command.args(["--set", set]);
    }
    command.env("RAYON_NUM_THREADS", "2");
    command
}

/// The most memory of a training process after three updates and an evaluation.
fn measured(folder: &Path, sets: &[&str]) -> f64 {
    let often =
        ["training.log_every=1", "training.evaluate_every=2", "training.evaluate_batches=1"];
    let sets: Vec<&str> =
        sets.iter().copied().chain(often).chain(["training.steps=1000"]).collect();
    let out = TempDir::new().unwrap();
    let run = out.path().join("run");
    let verb = ["train", "--out", run.to_str().unwrap()];
    let mut child = command(folder, &verb, &sets).stdout(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0.0;
    loop {
        let status = fs::read_to_string(&status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib: Option<f64> = line.and_then(|l| l.trim().strip_suffix("kB")?.trim().parse().ok());
        peak = kib.map_or(peak, |kib| kib * 1024.0);
        let records = fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
        if records.contains("\"step\":3") {
            break;
        }
        assert!(child.try_wait().unwrap().is_none(), "training ended");
        thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    peak
}

#[test]
fn memory_is_known_before_a_model_is_made() {
    let folder = TempDir::new().unwrap();
    let text = "Attention is what a token looks at, position is where.\n".repeat(400);
    fs::write(folder.path().join("text.txt"), text).unwrap();
    for shape in SHAPES {
        let is_recurrent = shape[0].starts_with("model.recurrent");
        let attention = if is_recurrent { "model.attention={}" } else { "model.attention.heads=4" };
        let sets: Vec<&str> = shape.iter().copied().chain([attention]).collect();
        let output = command(folder.path(), &["config", "--resources", "--json"], &sets).output();
        let object: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        let estimated = object["memory"]["total"].as_f64().unwrap();
        let measured = measured(folder.path(), &sets);
        let far = (estimated - measured).abs() / measured;
        println!("{estimated:.3e} estimated, {measured:.3e} measured, {far:.3}: {shape:?}");
        assert!(far < FAR, "{estimated:.3e} estimated, {measured:.3e} measured: {shape:?}");
        assert!(object["machine"].as_f64().unwrap() > measured);
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_number() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("text.txt"), "some words\n".repeat(400)).unwrap();
    for sets in [&["model.width=100000"][..], &["training.batch=100000000", "training.length=16"]] {
        let output = command(folder.path(), &["train", "--out", "run"], sets).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.starts_with("error: training needs about "), "{message}");
        assert!(message.contains(" GB; there are ") || message.contains("parameters"), "{message}");
        assert!(!folder.path().join("run").exists(), "a refused run leaves no folder");
    }
    let output = command(folder.path(), &["config", "--resources"], &["model.width=1024"]).output();
    let table = String::from_utf8(output.unwrap().stdout).unwrap();
    for word in ["parameters ", "weights ", "optimizer ", "activations ", "total ", "machine "] {
        assert!(table.contains(word), "{word} in {table}");
    }
}
