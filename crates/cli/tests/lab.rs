//! Comparisons as people and scripts meet them: words, exit codes, files.

mod common;

use std::fs;

use common::{run, text};

/// Small enough for a test.
const TINY: [&str; 16] = [
    "--set",
    "model.width=16",
    "--set",
    "model.layers=1",
    "--set",
    "model.attention.heads=2",
    "--set",
    "training.length=32",
    "--set",
    "training.batch=2",
    "--set",
    "training.evaluate_batches=1",
    "--budget",
    "steps=3",
    "--tokens",
    "256",
];

#[test]
fn a_comparison_prints_a_table_a_verdict_and_the_path_of_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let mut args = vec!["compare", "--over", "position=rotary,alibi", "--out", "c"];
    args.extend(TINY);
    let output = run(folder.path(), &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let words = text(&output.stdout);
    for expected in [
        "at 512",
        " has the lowest loss at the trained length: ",
        "One seed",
        "report: c/report.html",
    ] {
        assert!(words.contains(expected), "{expected} in {words}");
    }
    assert!(!words.contains('\x1b'));
    for file in [
        "report.html",
        "comparison.json",
        "results.csv",
        "results.json",
        "charts/lengths.svg",
        "runs/rotary/seed-0/model.safetensors",
    ] {
        assert!(folder.path().join("c").join(file).is_file(), "{file}");
    }

    args.push("--json");
    let output = run(folder.path(), &args);
    assert!(text(&output.stderr).contains("from before"), "{}", text(&output.stderr));
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["results"][0]["cells"][1]["name"], "alibi");

    let output = run(
        folder.path(),
        &[
            "extrapolate",
            "c/runs/rotary/seed-0",
            "--lengths",
            "32,64",
            "--tokens",
            "128",
            "--page",
            "p.html",
        ],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 1 + 2 + 3, "{}", text(&output.stdout));
    assert!(fs::read_to_string(folder.path().join("p.html")).unwrap().contains("<svg"));
}

#[test]
fn a_task_is_tried_at_lengths_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        "data.source={kind=\"copy\",longest=4}",
        "model.width=16",
        "model.layers=1",
        "model.attention.heads=2",
        "training.steps=2",
        "training.length=16",
        "training.evaluate_batches=1",
    ];
    let sets = settings.iter().flat_map(|setting| ["--set", setting]);
    let args: Vec<&str> = ["train", "--out", "run"].into_iter().chain(sets).collect();
    let output = run(folder.path(), &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output =
        run(folder.path(), &["extrapolate", "run", "--plain", "--json", "--page", "p.html"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("lengths are letters, digits, pairs or symbols"));
    let found: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let lengths: Vec<u64> = found.iter().map(|at| at["length"].as_u64().unwrap()).collect();
    assert_eq!(lengths, [4, 8, 16]);
    assert!(found.iter().all(|at| at["accuracy"].is_number()), "{found:?}");
    assert!(
        fs::read_to_string(folder.path().join("p.html"))
            .unwrap()
            .contains("Examples of one length")
    );
}

#[test]
fn wrong_requests_are_refused_before_anything_trains() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&[&str], &str); 11] = [
        (&["compare"], "nothing to compare"),
        (
            &["compare", "--over", "dropout=0,0.5"],
            "say which: model.dropout, model.attention.dropout",
        ),
        (
            &["compare", "--over", "position=rotary", "--search", "2", "--range", "heads=7,9"],
            "--search: every sample of rotary is refused",
        ),
        (
            &["compare", "--over", "position=rotary", "--search", "2", "--range", "widht=64"],
            "--range widht=64: no setting is called widht",
        ),
        (&["compare", "--over", "position=rotary,rotry"], "expected one of `none`"),
        (&["compare", "--over", "postion=rotary"], "no setting is called postion; there are"),
        (
            &["compare", "--over", "position=rotary", "--seeds", "0"],
            "--seeds 0: expected at least 1",
        ),
        (&["compare", "--over", "position=rotary", "--budget", "hours=3"], "expected steps=800"),
        (
            &["compare", "--over", "position=rotary", "--baseline", "alibi"],
            "no cell is called so; there are rotary",
        ),
        (&["compare", "--over", "position=rotary", "--search", "1"], "expected at least 2 samples"),
        (&["reproduce", "everything"], "no claim is called everything"),
    ];
    for (args, words) in cases {
        let output = run(folder.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(words), "{args:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let output = run(folder.path(), &["reproduce", "jsb"]);
    assert!(text(&output.stderr).contains("jsb needs --data"), "{}", text(&output.stderr));
}

#[test]
fn a_comparison_in_which_nothing_trains_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut args = vec!["compare", "--data", "missing.txt", "--over", "position=rotary,alibi"];
    args.extend(TINY);
    let output = run(folder.path(), &args);
    assert_eq!(output.status.code(), Some(1));
    let words = text(&output.stderr);
    assert!(words.contains("no cell could be trained: missing.txt: No such file"), "{words}");
    assert!(!folder.path().join("comparisons/run-position/report.html").exists());
}

#[test]
fn a_comparison_leaves_the_report_of_another_alone() {
    let folder = tempfile::tempdir().unwrap();
    let compare = |args: &[&str]| {
        let lengths = ["--lengths", "0"];
        run(folder.path(), &[&["compare"][..], args, &TINY, &lengths].concat())
    };
    for (over, name) in [("position=none,alibi", "position"), ("kv_heads=1,2", "kv_heads")] {
        let output = compare(&["--over", over]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report = format!("comparisons/run-{name}/report.html");
        assert!(text(&output.stdout).contains(&report), "{}", text(&output.stdout));
    }
    let path = folder.path().join("comparisons/run-position/report.html");
    let before = fs::read_to_string(&path).unwrap();
    let output = compare(&["--over", "position=none,rotary"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    let words = text(&output.stderr);
    assert!(words.contains("run-position holds another comparison, over"), "{words}");

    // The same comparison with a run that fails now: its weights are gone and another process has its folder.
    let cell = folder.path().join("comparisons/run-position/runs/alibi/seed-0");
    fs::write(cell.join("config.toml"), "broken").unwrap();
    let output = compare(&["--over", "position=none,alibi"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("a cell failed"), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
}

#[test]
fn nothing_measured_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["compare", "--over", "position=alibi", "--lengths", "0", "--out", "c"];
    let output = run(folder.path(), &[&args[..], &TINY].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output =
        run(folder.path(), &["extrapolate", "c/runs/alibi/seed-0", "--lengths", "900000000"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("the text has only"), "{}", text(&output.stdout));
}

#[test]
fn claims_are_listed_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let list = run(folder.path(), &["reproduce"]);
    assert!(text(&list.stdout).contains("reported: test NLL 0.5081 with rotary"));
    let output = run(folder.path(), &["reproduce", "order", "scaling"]);
    let words = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        words.contains("agrees: an untrained encoder with position none cannot tell order"),
        "{words}"
    );
    assert!(folder.path().join("reproductions/order/findings.json").is_file());
}

#[test]
fn what_is_held_out_is_said_and_a_dash_has_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("d")).unwrap();
    let text: String = (0..500).map(|i| format!("line {i} of a text\n")).collect();
    fs::write(folder.path().join("d/input.txt"), &text).unwrap();
    fs::write(folder.path().join("d/SOURCE.md"), "Where it came from.\n").unwrap();
    let mut args = vec!["compare", "--over", "position=rotary,alibi", "--out", "c", "--data", "d"];
    args.extend(TINY);
    args.extend(["--lengths", "32,4096"]);
    let output = run(folder.path(), &args);
    assert!(output.status.success(), "{}", self::text(&output.stderr));
    let bytes = text.len().div_ceil(10);
    let held = format!("1 document, {bytes} bytes at the end of input.txt");
    let warning = format!("warning: only {} tokens are held out for validation", bytes + 1);
    let dash = format!("no loss at 4096: the text has only {bytes} tokens to predict");
    let report = fs::read_to_string(folder.path().join("c/report.html")).unwrap();
    for (where_, said) in [
        ("standard error", self::text(&output.stderr)),
        ("standard output", self::text(&output.stdout)),
        ("the report", &report),
    ] {
        assert!(said.contains(&held), "{held} in {where_}: {said}");
        assert!(said.to_lowercase().contains(&warning), "{warning} in {where_}: {said}");
    }
    assert!(self::text(&output.stdout).contains(&dash), "{}", self::text(&output.stdout));
    assert!(report.to_lowercase().contains(&dash), "{report}");
    let run = folder.path().join("c/runs/rotary/seed-0/data.json");
    let data: serde_json::Value = serde_json::from_slice(&fs::read(run).unwrap()).unwrap();
    assert_eq!(data["splits"]["valid"]["tokens"], bytes + 1);
}
