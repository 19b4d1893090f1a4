//! `whatwhere show` as people meet it: names in, a folder of pictures out.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::{fs, path::Path, process::Stdio};

use tempfile::TempDir;

use common::{command, out, refused};

/// A folder with a small run in `run`.
fn trained() -> TempDir {
    let folder = TempDir::new().unwrap();
    let text = "what a token looks at, and where it stands\n".repeat(20);
    fs::write(folder.path().join("text.txt"), text).unwrap();
    let settings =
        ["model.width=16", "model.layers=1", "model.attention.heads=2", "training.steps=3"];
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    let small = ["--set", "training.length=24", "--set", "training.evaluate_batches=1"];
    let args = ["train", "--preset", "tiny", "--data", "text.txt", "--out", "run"];
    out(folder.path(), &args.into_iter().chain(settings).chain(small).collect::<Vec<_>>());
    folder
}

#[test]
fn choices_are_drawn_into_a_folder_of_their_name() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let paths = out(at, &["show", "position", "rotary", "--set", "base=500"]);
    let paths: Vec<&str> = paths.lines().collect();
    assert_eq!(paths[0], "show/position-rotary/index.html");
    assert!(paths.contains(&"show/position-rotary/rotary-similarity.svg"), "{paths:?}");
    for path in paths {
        let text = fs::read_to_string(at.join(path)).unwrap();
        assert!(text.contains("<svg") && text.contains("</svg>"), "{path}");
        assert!(!text.contains("<script") && !text.contains("src="), "{path} needs nothing else");
    }
    let json = out(at, &["show", "pattern", "window", "--json", "--out", "here"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["page"], "here/index.html");
    assert_eq!(json["pictures"][0], "here/window-map.svg");
    // Tables that learn are drawn as the seed has them.
    let drawn = |out_folder: &str| {
        out(at, &["show", "position", "all", "--length", "20", "--out", out_folder]);
        fs::read(at.join(out_folder).join("index.html")).unwrap()
    };
    assert!(drawn("one") == drawn("two"), "the same picture every time");
}

#[test]
fn a_run_is_drawn_and_its_scores_split() {
    let folder = trained();
    let at = folder.path();
    let paths = out(at, &["show", "attention", "run", "--text", "what and where"]);
    assert!(paths.contains("show/attention-run/decoder-layer0-head1.svg"), "{paths}");
    fs::write(at.join("words.txt"), "a token").unwrap();
    let paths = out(at, &["show", "split", "run", "--file", "words.txt", "--head", "1"]);
    assert!(paths.contains("show/split-run/decoder-layer0-head1-3.svg"), "{paths}");
    let html = fs::read_to_string(at.join("show/split-run/index.html")).unwrap();
    assert!(html.contains("score = content + distance + content × distance"), "polar's terms");
}

#[test]
fn heads_are_measured_over_a_text_or_over_what_was_held_out() {
    let folder = trained();
    let at = folder.path();
    let json = out(at, &["show", "heads", "run", "--text", "what (and) where", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&json).unwrap();
    let heads = found["heads"].as_array().unwrap();
    assert_eq!(heads.len(), 2);
    assert_eq!(heads[1]["head"], 1);
    assert!(heads[0]["previous"]["weight"].as_f64().unwrap() > 0.0);
    assert!(heads[0]["loss_without"].is_number());
    assert_eq!(found["pruning"].as_array().unwrap().len(), 3);
    assert_eq!(found["tokens"], 15);
    assert_eq!(found["page"], "show/heads-run/index.html");
    let table = out(at, &["show", "heads", "run", "--held-out", "1"]);
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[0].starts_with("head\trole\tprevious\tfirst"), "{table}");
    assert!(rows[0].ends_with("loss without"), "{table}");
    assert_eq!(rows.len(), 4, "{table}");
    assert!(rows[3].starts_with("decoder, uniform"), "{table}");
    let html = fs::read_to_string(at.join("show/heads-run/index.html")).unwrap();
    assert!(html.contains("held-out data") && html.contains("Loss against heads left"));
    let (error, _) = refused(at, &["show", "heads", "run", "--held-out", "0"]);
    assert!(error.contains("expected at least 1 batch"), "{error}");
}

#[test]
fn what_is_wrong_is_said_with_what_would_be_right() {
    let folder = trained();
    let cases: [(&[&str], &str, i32); 8] = [
        (&["position", "rotry"], "no position is called rotry; there are none, sinusoidal", 1),
        (&["position", "rotary", "--set", "bas=3"], "unknown field `bas`", 1),
        (&["pattern", "widow"], "no pattern is called widow; there are full, causal", 1),
        (&["pattern", "full", "--length", "0"], "--length 0 is outside 1 to", 2),
        (&["attention", "run"], "--text", 2),
        (&["attention", "nowhere", "--text", "a"], "nowhere holds no run", 1),
        (&["attention", "run", "--text", "a", "--layer", "7"], "found layer 7, expected 0 to 0", 1),
        (&["split", "run", "--file", "none.txt"], "none.txt could not be read", 1),
    ];
    for (args, expected, code) in cases {
        let args: Vec<&str> = ["show"].into_iter().chain(args.iter().copied()).collect();
        let (error, found) = refused(folder.path(), &args);
        assert!(error.contains(expected), "{args:?}: {error}");
        assert_eq!(found, Some(code), "{args:?}");
    }
    assert!(!folder.path().join("show").exists(), "nothing is written");
}

/// One map of 8 000 × 8 000 weights would hold 256 MB.
#[cfg(target_os = "linux")]
#[test]
fn a_long_text_is_drawn_without_a_map_of_all_pairs() {
    const MOST: u64 = 160 << 10; // KiB
    let folder = trained();
    let at = folder.path();
    fs::write(at.join("long.txt"), &"what and ".repeat(900)[..8000]).unwrap();
    let attention = ["show", "attention", "run", "--file", "long.txt", "--out", "long"];
    let heads = ["show", "heads", "run", "--file", "long.txt", "--out", "heads", "--no-ablation"];
    assert!((1..MOST).contains(&peak(at, &attention)), "attention");
    let html = fs::read_to_string(at.join("long/index.html")).unwrap();
    assert!(html.contains("8000 queries and 8000 keys"));
    assert!((1..MOST).contains(&peak(at, &heads)), "heads");
    let html = fs::read_to_string(at.join("heads/index.html")).unwrap();
    assert!(html.contains("Heads over 8000 tokens"));
}

/// The most memory a command held, in KiB.
#[cfg(target_os = "linux")]
fn peak(at: &Path, args: &[&str]) -> u64 {
    let mut child = command(at, args).stdout(Stdio::null()).spawn().unwrap();
    let (status, mut peak) = (format!("/proc/{}/status", child.id()), 0);
    // What would be as large stays there for much longer than a millisecond.
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let found = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        peak = peak.max(found.unwrap_or(0));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(child.wait().unwrap().success());
    peak
}
