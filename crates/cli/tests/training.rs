//! Training as people meet it: from a text file to an answer, through kills, other thread counts and bad input.

mod common;

use std::{
    fs,
    io::{Read, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use tempfile::TempDir;

use common::{command, out, refusal, run};

const SMALL: [&str; 14] = [
    "--set",
    "model.width=16",
    "--set",
    "model.layers=1",
    "--set",
    "training.length=24",
    "--set",
    "training.batch=4",
    "--set",
    "training.evaluate_every=20",
    "--set",
    "training.evaluate_batches=1",
    "--set",
    "training.checkpoint_every=1",
];

fn text() -> String {
    "나는 학교에 간다. Attention is what a token looks at, position is where. 한국어도 됩니다!\n"
        .repeat(40)
}

fn with<'a>(args: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    args.iter().chain(more).copied().collect()
}

#[test]
fn a_killed_run_resumes_to_the_same_bits() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::write(at.join("text.txt"), text()).unwrap();
    let train = ["train", "--preset", "tiny", "--data", "text.txt", "--set", "training.steps=60"];
    let train = with(&train, &SMALL);
    out(at, &with(&train, &["--out", "whole"]));
    // Kills at moments that differ, each run going on from what the last one left.
    let mut kills = 0;
    for (attempt, delay) in [40, 90, 60, 130, 70, 110].into_iter().enumerate() {
        let begun = at.join("killed/config.toml").exists();
        let more: &[&str] =
            if begun { &["--out", "killed", "--resume"] } else { &["--out", "killed"] };
        // A kill before the settings are written leaves a folder without a run; it is started again.
        if !begun && attempt > 0 {
            fs::remove_dir_all(at.join("killed")).ok();
        }
        let mut child = command(at, &with(&train, more)).stdout(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(delay));
        if child.try_wait().unwrap().is_none() {
            child.kill().unwrap();
            kills += 1;
        }
        child.wait().unwrap();
    }
    assert!(kills > 0, "no run was still going when it was to be killed");
    let begun = at.join("killed/config.toml").exists();
    let more: &[&str] = if begun { &["--out", "killed", "--resume"] } else { &["--out", "killed"] };
    out(at, &with(&train, more));
    for file in ["last.safetensors", "model.safetensors"] {
        let read = |run: &str| fs::read(at.join(run).join(file)).unwrap();
        assert!(read("whole") == read("killed"), "{file} differs after {kills} kills");
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::write(at.join("text.txt"), text()).unwrap();
    let train = [
        "train",
        "--preset",
        "tiny",
        "--data",
        "text.txt",
        "--set",
        "training.steps=6",
        "--set",
        "model.width=64",
        "--set",
        "training.length=96",
        "--set",
        "training.evaluate_every=6",
    ];
    let mut files = Vec::new();
    for threads in ["1", "2", "4"] {
        let status = command(at, &with(&train, &["--out", threads]))
            .env("RAYON_NUM_THREADS", threads)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        files.push(fs::read(at.join(threads).join("last.safetensors")).unwrap());
    }
    assert!(files[0] == files[1], "two threads differ from one");
    assert!(files[0] == files[2], "four threads differ from one");
}

#[test]
fn text_becomes_a_model_that_writes_fills_and_is_measured() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::write(at.join("text.txt"), text()).unwrap();
    let bpe = [
        "--data",
        "text.txt",
        "--set",
        "data.tokenizer.kind=bpe",
        "--set",
        "data.tokenizer.vocabulary=300",
        "--set",
        "training.steps=20",
    ];
    let train = with(&with(&["train", "--preset", "tiny"], &bpe), &SMALL);
    let said = out(at, &with(&train, &["--out", "writer", "--json"]));
    let outcome: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((outcome["ending"].as_str(), outcome["step"].as_u64()), (Some("done"), Some(20)));
    let written = out(at, &["generate", "writer", "나는", "--tokens", "20", "--temperature", "0"]);
    assert!(written.starts_with("나는"), "{written}");
    let object: serde_json::Value =
        serde_json::from_str(&out(at, &["generate", "writer", "간다", "--tokens", "5", "--json"]))
            .unwrap();
    assert_eq!(object["prompt"], "간다");
    let measured: serde_json::Value =
        serde_json::from_str(&out(at, &["evaluate", "writer", "--json"])).unwrap();
    assert!(measured["bits_per_byte"].as_f64().unwrap() > 0.0);
    let whole = out(at, &["evaluate", "writer", "--data", "text.txt"]);
    assert!(whole.contains("perplexity\t"), "{whole}");
    let train = with(&with(&["train", "--preset", "masked"], &bpe), &SMALL);
    out(at, &with(&train, &["--out", "filler", "--set", "model.attention.heads=2"]));
    let filled = out(at, &["fill", "filler", "나는 [MASK] 간다", "--top", "3"]);
    assert_eq!(filled.lines().count(), 1 + 3, "{filled}");
    assert!(filled.starts_with("blank\tprobability\ttoken\n"), "{filled}");
    // All there is to offer: no special token, and a line for each, also for the end of a line.
    let all = out(at, &["fill", "filler", "나는 [MASK] 간다", "--top", "1000"]);
    assert!(all.lines().skip(1).all(|line| line.split('\t').count() == 3), "{all}");
    assert!(all.contains("\\n") && !all.contains("<mask>") && !all.contains("<padding>"), "{all}");
    let list: serde_json::Value = serde_json::from_str(&out(
        at,
        &["fill", "filler", "나는 [MASK] 간다", "--top", "1000", "--json"],
    ))
    .unwrap();
    assert_eq!(list.as_array().unwrap().len(), all.lines().count() - 1);
}

#[test]
fn lines_are_translated_one_for_one() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let lines: String = (0..60).map(|i| format!("a b c {i}\t가 나 다 {i}\n")).collect();
    fs::write(at.join("pairs.tsv"), lines).unwrap();
    let train = [
        "train",
        "--preset",
        "translation",
        "--data",
        "pairs.tsv",
        "--set",
        "training.steps=10",
        "--set",
        "data.tokenizer.vocabulary=300",
        "--set",
        "model.attention.heads=2",
        "--set",
        "model.attention.position={kind='learned',length=64}",
        "--set",
        "training.batch={tokens=256}",
    ];
    let small: Vec<&str> =
        SMALL.iter().copied().filter(|word| *word != "training.batch=4").collect();
    let small = small.join(" ").replace("--set --set", "--set");
    let small: Vec<&str> = small.split(' ').collect();
    out(at, &with(&with(&train, &small), &["--out", "run"]));
    let mut child = command(at, &["translate", "run"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all("a b c 7\n\nc b a\n".as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let good = String::from_utf8(output.stdout).unwrap();
    assert_eq!(good.lines().count(), 3);
    assert_eq!(good.lines().nth(1), Some(""), "an empty line stays empty");
    // One line beyond the table of positions and one that is no text: the others are where they were.
    let long = "a b c ".repeat(40);
    for flag in [None, Some("--json")] {
        let mut child = command(at, &["translate", "run"])
            .args(flag)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = [b"a b c 7\n", long.as_bytes(), b"\n\xFF\xFE\nc b a\n"].concat();
        child.stdin.take().unwrap().write_all(&lines).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("line 2: ") && said.contains("longer than the table"), "{said}");
        assert!(said.contains("line 3: is not UTF-8") && said.contains("2 of 4 lines"), "{said}");
        let found = String::from_utf8(output.stdout).unwrap();
        if flag.is_none() {
            let good: Vec<&str> = good.lines().collect();
            assert_eq!(found.lines().collect::<Vec<_>>(), [good[0], "", "", good[2]]);
        } else {
            let objects: Vec<serde_json::Value> =
                found.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert!(objects[1]["target"].is_null() && objects[1]["error"].is_string());
            assert!(objects[3]["target"].is_string() && objects[3]["error"].is_null());
        }
    }
    let measured: serde_json::Value =
        serde_json::from_str(&out(at, &["evaluate", "run", "--json", "--beam", "2"])).unwrap();
    assert!(measured["bleu"].is_number() && measured["chrf"].is_number(), "{measured}");
}

/// A small decoder trained on the text, with these settings otherwise.
fn trained(at: &Path, out_folder: &str, more: &[&str]) {
    fs::write(at.join("text.txt"), text()).expect("the folder is writable");
    let train = ["train", "--preset", "tiny", "--data", "text.txt", "--set", "training.steps=20"];
    let train = with(&with(&train, &SMALL), &["--out", out_folder]);
    out(at, &with(&train, more));
}

#[test]
fn a_reader_that_leaves_ends_the_writing_at_once() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    trained(at, "run", &[]);
    // Far more tokens than could be written before the test is given up.
    let mut child = command(at, &["generate", "run", "나는", "--tokens", "1000000000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut some = [0; 20];
    child.stdout.as_mut().unwrap().read_exact(&mut some).unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn words_that_nobody_reads_end_no_run() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::write(at.join("text.txt"), text()).unwrap();
    let train = ["train", "--preset", "tiny", "--data", "text.txt", "--verbose"];
    let train = with(&with(&train, &SMALL), &["--set", "training.steps=40"]);
    let mut child = command(at, &with(&train, &["--out", "run"]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stdout).unwrap().contains("done after 40 updates"));
    // An error that nobody reads is still one.
    let mut child = command(at, &with(&train, &["--out", "run"])).stderr(Stdio::piped()).spawn();
    drop(child.as_mut().unwrap().stderr.take());
    assert_eq!(child.unwrap().wait().unwrap().code(), Some(2));
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_ends_with_130_and_can_go_on() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::write(at.join("text.txt"), text()).unwrap();
    let train = ["train", "--preset", "tiny", "--data", "text.txt", "--out", "run"];
    let train = with(&with(&train, &SMALL), &["--set", "training.steps=1000000000", "--json"]);
    let child = command(at, &train).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !at.join("run/config.toml").exists() {
        thread::sleep(Duration::from_millis(20));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let outcome: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outcome["ending"], "interrupted");
    let hint = String::from_utf8(output.stderr).unwrap();
    assert!(hint.starts_with("held out for validation: "), "{hint}");
    assert!(hint.ends_with("\nhint: whatwhere train --resume --out run\n"), "{hint}");
}

#[test]
fn nothing_measured_is_no_success() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    trained(at, "run", &[]);
    let output = run(at, &["extrapolate", "run", "--lengths", "100000000"]);
    assert_eq!(output.status.code(), Some(1));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("the text has only"), "{table}");
    assert!(out(at, &["extrapolate", "run", "--lengths", "24"]).contains("run\t–\t24\t"));
}

#[test]
fn a_prompt_is_not_printed_before_a_refusal_and_not_cut_in_silence() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    trained(at, "run", &["--set", "model.attention.position={kind='learned',length=24}"]);
    let message = refusal(at, &["generate", "run", "It was", "--top-p", "0"]);
    assert!(message.contains("top_p = 0"), "{message}");
    let long = "It was the best of times, it was the worst of times";
    let output = run(at, &["generate", "run", long, "--tokens", "3"]);
    assert!(output.status.success());
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("the prompt has 51 tokens, the model knows 24 positions"),
        "{message}"
    );
    assert!(String::from_utf8(output.stdout).unwrap().starts_with(long));
    assert_eq!(out(at, &["generate", "run", "It", "--tokens", "0"]), "It\n");
}

#[test]
fn bad_input_is_refused_in_words_and_makes_no_folder() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::write(at.join("empty.txt"), "").unwrap();
    fs::write(at.join("line.txt"), "x\n").unwrap();
    fs::write(at.join("bytes.txt"), [0xFF, 0xFE, 0x80]).unwrap();
    fs::write(at.join("text.txt"), text()).unwrap();
    fs::write(at.join("broken.toml"), "[model]\nwidht = 3\n").unwrap();
    let cases: [(&[&str], &str); 9] = [
        (
            &["train", "--preset", "tiny", "--data", "nowhere.txt"],
            "error: nowhere.txt: No such file or directory (os error 2)\n",
        ),
        (&["train", "--preset", "tiny", "--data", "empty.txt"], "empty"),
        (&["train", "--preset", "tiny", "--data", "line.txt"], "tokens"),
        (&["train", "--preset", "tiny", "--data", "bytes.txt"], "UTF-8"),
        (&["train", "--preset", "teeny"], "no preset is called teeny; there are tiny"),
        (&["train", "broken.toml"], "unknown field `widht`, expected one of"),
        (
            &["train", "--preset", "tiny", "--set", "model.layers=x"],
            "--set model.layers=x: invalid type: string \"x\"",
        ),
        (
            &["train", "--preset", "tiny", "--set", "model.attention.position=rotry"],
            "unknown variant `rotry`, expected one of `none`",
        ),
        (&["generate", "nowhere"], "holds no run"),
    ];
    for (args, expected) in cases {
        let message = refusal(at, args);
        assert!(
            message.starts_with("error: ") && message.contains(expected),
            "{args:?}: {message}"
        );
    }
    assert!(!at.join("runs").exists(), "a refused run leaves no folder");
}
