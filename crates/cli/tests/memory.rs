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

/// What is trained: a preset, its data, and what is changed.
struct Case(&'static str, &'static str, &'static str);

impl Case {
    fn sets(&self) -> impl Iterator<Item = &str> {
        self.2.split(' ')
    }
}

/// Many parameters, many activations, and operations that keep more or less.
const CASES: [Case; 20] = [
    Case("tiny", "text.txt", "width=256 layers=3 batch=16 length=128 heads=4"),
    Case("tiny", "text.txt", "width=768 layers=3 batch=1 length=16 heads=4"),
    Case("tiny", "text.txt", "width=64 layers=4 batch=16 length=512 heads=4"),
    Case("tiny", "text.txt", "width=128 layers=6 batch=8 length=256 model.recompute=block heads=4"),
    Case(
        "tiny",
        "text.txt",
        "width=128 layers=3 batch=8 length=256 score=general optimizer=sgd heads=4",
    ),
    Case(
        "tiny",
        "text.txt",
        "width=128 layers=3 batch=8 length=256 model.activation=swiglu model.attention.kv_heads=1 heads=4",
    ),
    Case(
        "tiny",
        "text.txt",
        "width=128 layers=3 batch=8 length=256 position={kind='shaw',values=false,queries=true} heads=4",
    ),
    Case(
        "tiny",
        "text.txt",
        "model.recurrent=gru width=128 layers=3 batch=16 length=128 model.attention={}",
    ),
    Case(
        "tiny",
        "text.txt",
        "model.recurrent=lstm width=256 layers=2 batch=8 length=128 model.attention={}",
    ),
    Case(
        "tiny",
        "text.txt",
        "mixing=linear position=rotary width=128 layers=3 batch=8 length=256 heads=4",
    ),
    Case(
        "tiny",
        "text.txt",
        "mixing=retention position=none width=128 layers=3 batch=8 length=256 heads=4",
    ),
    Case(
        "tiny",
        "text.txt",
        "mixing=retention position=polar width=128 layers=3 batch=8 length=256 heads=4",
    ),
    Case(
        "tiny",
        "text.txt",
        "mixing=gated_delta position=rotary width=128 layers=3 batch=8 length=256 heads=4",
    ),
    Case(
        "tiny",
        "text.txt",
        "mixing=gated_linear position=none width=128 layers=3 batch=8 length=256 heads=4",
    ),
    Case("tiny", "text.txt", "precision=bf16 width=128 layers=3 batch=8 length=256 heads=4"),
    Case("tiny", "text.txt", "accumulate=4 width=512 layers=3 batch=4 length=64 heads=4"),
    Case("tiny", "text.txt", "lora.rank=4 width=512 layers=3 batch=4 length=64 heads=4"),
    Case(
        "masked",
        "text.txt",
        "data.tokenizer=bytes width=128 layers=3 batch=16 length=128 heads=4",
    ),
    Case(
        "classify",
        "labeled.tsv",
        "data.tokenizer=bytes data.source.field=1 data.source.label_field=2 width=128 layers=3 batch=16 length=128",
    ),
    Case(
        "translation",
        "pairs.tsv",
        "data.tokenizer=bytes width=128 model.encoder_layers=3 layers=3 batch=16 length=128 heads=4",
    ),
];

fn command(folder: &Path, verb: &[&str], case: &Case) -> Command {
    command_of(folder, verb, case, case.sets())
}

/// [`command`] with other changes than the case's.
fn command_of<'a>(
    folder: &Path,
    verb: &[&str],
    case: &Case,
    sets: impl Iterator<Item = &'a str>,
) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_whatwhere"));
    command.args(verb).args(["--preset", case.0, "--data", case.1]).current_dir(folder);
    for set in sets {
        command.args(["--set", set]);
    }
    command.env("RAYON_NUM_THREADS", "2");
    command
}

/// The most memory of a training process after three updates and an evaluation.
fn measured(folder: &Path, case: &Case) -> f64 {
    let out = TempDir::new().unwrap();
    let (run, base) = (out.path().join("run"), out.path().join("base"));
    let [run_name, base_name] = [&run, &base].map(|path| path.to_str().unwrap());
    let mut verb = vec!["train", "--out", run_name];
    let sets = |steps: &str, command: &mut Command| {
        let often =
            ["training.log_every=1", "training.evaluate_every=2", "training.evaluate_batches=1"];
        let steps = format!("training.steps={steps}");
        for set in often.into_iter().chain([&steps[..]]) {
            command.args(["--set", set]);
        }
    };
    // Adapters need weights to adapt.
    let is_adapter = |set: &&str| set.starts_with("lora.");
    if case.sets().any(|set| is_adapter(&set)) {
        let whole = case.sets().filter(|set| !is_adapter(set));
        let mut command = command_of(folder, &["train", "--out", base_name], case, whole);
        sets("1", &mut command);
        assert!(command.stderr(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());
        verb.extend(["--from", base_name]);
    }
    let mut command = command(folder, &verb, case);
    sets("1000", &mut command);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
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
    // Rows as long as they may be.
    let line = &"Attention is what a token looks at, position is where. ".repeat(3)[..120];
    fs::write(folder.path().join("pairs.tsv"), format!("{line}\t{line}\n").repeat(300)).unwrap();
    let labeled = format!("{line}\tyes\n{line}\tno\n").repeat(150);
    fs::write(folder.path().join("labeled.tsv"), labeled).unwrap();
    for case in &CASES {
        let output = command(folder.path(), &["config", "--resources", "--json"], case).output();
        let object: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        let estimated = object["memory"]["total"].as_f64().unwrap();
        let measured = measured(folder.path(), case);
        let far = (estimated - measured).abs() / measured;
        println!("{estimated:.3e} estimated, {measured:.3e} measured, {far:.3}: {:?}", case.2);
        assert!(far < FAR, "{estimated:.3e} estimated, {measured:.3e} measured: {:?}", case.2);
        assert!(object["machine"].as_f64().unwrap() > measured);
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_number() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("text.txt"), "some words\n".repeat(400)).unwrap();
    for sets in ["width=100000", "batch=100000000 length=16"] {
        let case = Case("tiny", "text.txt", sets);
        let output = command(folder.path(), &["train", "--out", "run"], &case).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.starts_with("error: training needs about "), "{message}");
        assert!(message.contains(" GB; there are ") || message.contains("parameters"), "{message}");
        assert!(!folder.path().join("run").exists(), "a refused run leaves no folder");
    }
    let case = Case("tiny", "text.txt", "width=1024");
    let output = command(folder.path(), &["config", "--resources"], &case).output();
    let table = String::from_utf8(output.unwrap().stdout).unwrap();
    for word in ["parameters ", "weights ", "optimizer ", "activations ", "total ", "machine "] {
        assert!(table.contains(word), "{word} in {table}");
    }
}
