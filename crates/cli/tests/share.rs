//! Several processes on one comparison, as people start them: together on one folder, or by numbers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// Small enough for a test, long enough to be killed in the middle.
const SETTINGS: [&str; 9] = [
    "model.width=16",
    "model.layers=1",
    "model.attention.heads=2",
    "training.length=32",
    "training.batch=2",
    "training.evaluate_batches=1",
    "training.evaluate_every=20",
    "training.checkpoint_every=5",
    "training.log_every=1",
];
const CELLS: &str = "position=rotary,alibi,none";

fn compare<'a>(out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["compare", "--tokens", "256", "--lengths", "64", "--out", out];
    args.extend(SETTINGS.iter().flat_map(|setting| ["--set", setting]));
    args.extend(more);
    args
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_whatwhere"));
    command.args(args).current_dir(folder).env("RAYON_NUM_THREADS", "1");
    command
}

fn run(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().expect("the command starts")
}

fn spawn(folder: &Path, args: &[&str]) -> Child {
    let mut command = command(folder, args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command writes UTF-8")
}

/// Standard output of a command that must succeed.
fn out(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

/// Every run folder of a comparison that has begun, by its path below `runs`.
fn begun(comparison: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let folders = |path: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(path).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
    };
    let runs = comparison.join("runs");
    for folder in folders(&runs).iter().flat_map(|cell| folders(cell)) {
        let name = folder.strip_prefix(&runs).unwrap().to_string_lossy().into_owned();
        if folder.join("config.toml").is_file() {
            found.insert(name, folder);
        }
    }
    found
}

/// What a run came to, without what clocks and systems say.
fn outcome(folder: &Path) -> Value {
    let text = fs::read(folder.join("outcome.json")).expect("an outcome");
    let mut outcome: Value = serde_json::from_slice(&text).expect("JSON");
    let cost = outcome["trained"]["cost"].as_object_mut().expect("a cost");
    for key in ["tokens_per_second", "stretches", "load", "peak_memory", "machines"] {
        assert!(cost.remove(key).is_some(), "{key}");
    }
    outcome
}

/// Every run of two comparisons has the same files, and every update of it was recorded once.
fn assert_same(alone: &Path, shared: &Path, runs: usize) {
    let (alone, shared) = (begun(alone), begun(shared));
    let names = |runs: &BTreeMap<String, PathBuf>| runs.keys().cloned().collect::<Vec<_>>();
    assert_eq!((names(&alone), alone.len()), (names(&shared), runs));
    for (name, one) in &alone {
        let other = &shared[name];
        assert_eq!(outcome(one), outcome(other), "{name}");
        for file in ["last.safetensors", "model.safetensors", "config.toml"] {
            let read = |folder: &Path| fs::read(folder.join(file)).unwrap();
            assert!(read(one) == read(other), "{name}: {file} differs");
        }
        let steps = |folder: &Path| -> Vec<u64> {
            let text = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
            let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            lines
                .filter(|line| line.get("loss").is_some())
                .map(|line| line["step"].as_u64().unwrap())
                .collect()
        };
        assert_eq!(steps(one), steps(other), "{name}");
    }
}

/// Kills, by -9, a process that is in the middle of a run; its place in the list.
fn kill_one_at_work(comparison: &Path, children: &mut [Child]) -> usize {
    let deadline = Instant::now() + Duration::from_secs(600);
    while Instant::now() < deadline {
        for folder in begun(comparison).into_values() {
            let name = folder.file_name().unwrap().to_string_lossy().into_owned();
            let lock = fs::read_to_string(folder.with_file_name(format!(".{name}.lock")));
            let holder = lock.ok().and_then(|text| text.rsplit_once(':')?.1.parse::<u32>().ok());
            let at_work = children.iter().position(|child| Some(child.id()) == holder);
            let lines = fs::read_to_string(folder.join("metrics.jsonl")).unwrap_or_default();
            if let (Some(child), 12.., false) =
                (at_work, lines.lines().count(), folder.join("outcome.json").exists())
            {
                children[child].kill().unwrap();
                children[child].wait().unwrap();
                assert!(!folder.join("outcome.json").exists(), "it was killed too late");
                return child;
            }
        }
        thread::sleep(Duration::from_millis(2));
    }
    panic!("nobody was at work");
}

#[test]
fn processes_share_a_folder_and_one_that_is_killed_changes_no_bit() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let grid = ["--over", CELLS, "--seeds", "2", "--budget", "steps=120", "--json"];
    out(at, &compare("alone", &grid));
    let shared = [&grid[..], &["--share"]].concat();
    for (processes, name) in [(2, "two"), (3, "three")] {
        let args = compare(name, &shared);
        let mut children: Vec<Child> = (0..processes).map(|_| spawn(at, &args)).collect();
        let killed = kill_one_at_work(&at.join(name), &mut children);
        children.remove(killed).wait().unwrap();
        let outputs: Vec<Output> =
            children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        for output in &outputs {
            let words = text(&output.stderr);
            assert!(output.status.success(), "{words}");
            assert!(!words.contains("failed") && !words.contains("in use"), "{words}");
            assert_eq!(text(&output.stdout), text(&outputs[0].stdout), "all report the same");
        }
        assert_same(&at.join("alone"), &at.join(name), 6);
        let results: Value = serde_json::from_slice(&outputs[0].stdout).unwrap();
        for cell in results["results"][0]["cells"].as_array().unwrap() {
            assert_eq!(cell["state"], "trained", "{cell}");
            assert_eq!(cell["runs"].as_array().unwrap().len(), 2);
        }
        let written = fs::read(at.join(name).join("results.json")).unwrap();
        let written: Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(written, results["results"]);
        assert!(at.join(name).join("report.html").is_file());
    }
}

#[test]
fn a_search_is_shared_like_any_other_comparison() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let search = ["--search", "4", "--range", "lr=1e-3..2e-2", "--budget", "steps=63"];
    let grid = [&["--over", "position=rotary,alibi"], &search[..]].concat();
    out(at, &compare("alone", &grid));
    let args = compare("shared", &[&grid[..], &["--share", "--json"]].concat());
    let children: Vec<Child> = (0..2).map(|_| spawn(at, &args)).collect();
    let outputs: Vec<Output> =
        children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    for output in &outputs {
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), text(&outputs[0].stdout));
    }
    assert_same(&at.join("alone"), &at.join("shared"), 2);
    for round in ["rotary/round-1", "rotary/round-2", "alibi/round-1"] {
        let below = |name: &str| at.join(name).join("search").join(round);
        let runs = begun(&below("alone")).len();
        assert!(runs > 0);
        assert_same(&below("alone"), &below("shared"), runs);
    }
}

#[test]
fn a_run_that_another_holds_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let grid = ["--over", "position=rotary,alibi", "--budget", "steps=3"];
    fs::create_dir_all(at.join("c/runs/rotary")).unwrap();
    let lock = File::create(at.join("c/runs/rotary/.seed-0.lock")).unwrap();
    lock.lock().unwrap();
    // By itself a comparison cannot wait, and says how it could; also where others have all there is.
    fs::create_dir_all(at.join("c/runs/alibi")).unwrap();
    let other = File::create(at.join("c/runs/alibi/.seed-0.lock")).unwrap();
    other.lock().unwrap();
    for (locks, said) in
        [(2, "no cell could be trained: "), (1, "a cell is missing, which another")]
    {
        if locks == 1 {
            other.unlock().unwrap();
        }
        let output = run(at, &compare("c", &grid));
        assert_eq!(output.status.code(), Some(1));
        let words = text(&output.stderr);
        assert!(words.contains("is in use by") && words.contains("hint: with --share"), "{words}");
        assert!(words.contains(said) && !words.contains("failed"), "{words}");
    }
    fs::remove_file(at.join("c/report.html")).unwrap();

    let args = compare("c", &[&grid[..], &["--share"]].concat());
    let mut child = spawn(at, &args);
    let mut words = BufReader::new(child.stderr.take().unwrap()).lines();
    let waiting = words.any(|line| line.unwrap() == "waiting for 1 run that other processes have");
    assert!(waiting && child.try_wait().unwrap().is_none(), "it waits");
    assert!(!at.join("c/report.html").exists(), "no half report");
    drop(lock);
    assert!(child.wait().unwrap().success());
    let last = words.last().unwrap().unwrap();
    assert!(
        last.starts_with("2 of 2: rotary, seed 0: loss ") && !last.contains("from before"),
        "{last}"
    );
    assert!(at.join("c/report.html").is_file());
}

#[test]
fn runs_have_numbers_and_the_report_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let grid = ["--over", "position=rotary,alibi", "--seeds", "2", "--budget", "steps=3"];
    let with = |more: &[&'static str]| compare("c", &[&grid[..], more].concat());
    let list = out(at, &with(&["--list"]));
    let expected = "run\tcell\tseed\tstate\n0\trotary\t0\twaiting\n1\talibi\t0\twaiting\n\
                    2\trotary\t1\twaiting\n3\talibi\t1\twaiting\n";
    assert_eq!(list, expected);
    assert_eq!(fs::read_dir(at).unwrap().count(), 0, "a list makes nothing");
    let words = text(&run(at, &with(&["--report"])).stderr).to_owned();
    assert!(words.contains("c holds no comparison yet"), "{words}");

    let printed = out(at, &with(&["--only", "3"]));
    assert!(printed.lines().nth(1).unwrap().starts_with("3\talibi\t1\t"), "{printed}");
    assert_eq!(begun(&at.join("c")).into_keys().collect::<Vec<_>>(), ["alibi/seed-1"]);
    assert!(!at.join("c/report.html").exists());
    let output = run(at, &with(&["--report"]));
    let words = text(&output.stderr);
    assert!(output.status.success(), "{words}");
    let missing = "1 of 4 runs are there; missing: 0 (rotary, seed 0, waiting), 1 (alibi, seed 0, waiting), \
                   2 (rotary, seed 1, waiting)";
    assert!(words.contains(missing), "{words}");
    let report = fs::read_to_string(at.join("c/report.html")).unwrap();
    for expected in [
        "Not all runs of <code>rotary</code> are there: 0 of 2 runs finished.",
        "Not all runs of <code>alibi</code> are there: 1 of 2 runs finished.",
        "<code>rotary</code> has no finished run, so that the others are held against",
    ] {
        assert!(report.contains(expected), "{expected} in {report}");
    }

    let lines = out(at, &with(&["--only", "0..2", "--json"]));
    let runs: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(runs.iter().map(|run| run["run"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(runs.iter().all(|run| run["error"].is_null() && run["quality"]["loss"].is_number()));
    let list: Value = serde_json::from_str(&out(at, &with(&["--list", "--json"]))).unwrap();
    let states: Vec<&Value> = list.as_array().unwrap().iter().map(|run| &run["state"]).collect();
    assert_eq!(states, ["finished"; 4]);
    // A scheduler that repeats itself does no harm.
    let output = run(at, &with(&["--only", "2"]));
    assert!(text(&output.stderr).contains("from before"), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("4 of 4 runs are finished; --report writes the report"));
    let gathered = run(at, &with(&["--report"]));
    assert!(!text(&gathered.stderr).contains("missing"), "{}", text(&gathered.stderr));
    out(at, &compare("alone", &grid));
    assert_same(&at.join("alone"), &at.join("c"), 4);
    let runs = |name: &str| fs::read_to_string(at.join(name).join("report.html")).unwrap();
    assert!(!runs("c").contains("Not all runs"));
}

#[test]
fn what_cannot_be_numbered_or_shared_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let grid = ["--over", "position=rotary,alibi", "--budget", "steps=3"];
    let cases: [(&[&str], &str); 9] = [
        (&["--only", "2"], "no run has the number 2; there are 2, from 0 to 1"),
        (&["--only", "1..0"], "expected the number of a run"),
        (&["--only", "x"], "expected the number of a run"),
        (&["--only", "0", "--search", "3"], "--search chooses runs by what came of those before"),
        (&["--list", "--search", "3"], "--search chooses runs by what came of those before"),
        (&["--report", "--search", "3"], "--search chooses runs by what came of those before"),
        (&["--share", "--only", "0"], "cannot be used with"),
        (&["--share", "--report"], "cannot be used with"),
        (&["--list", "--only", "0"], "cannot be used with"),
    ];
    for (more, expected) in cases {
        let output = run(at, &compare("c", &[&grid[..], more].concat()));
        assert_eq!(output.status.code(), Some(2), "{more:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(expected), "{more:?}: {}", text(&output.stderr));
        assert!(
            !text(&output.stderr).contains("--choices"),
            "no setting: {}",
            text(&output.stderr)
        );
    }
    assert_eq!(fs::read_dir(at).unwrap().count(), 0, "a refusal makes nothing");

    out(at, &compare("c", &[&grid[..], &["--only", "0"]].concat()));
    for mode in [&["--share"][..], &["--only", "0"], &["--report"], &["--list"]] {
        for (other, expected) in [
            (["--over", "position=rotary,none", "--budget", "steps=3"], "another comparison, over"),
            (["--over", "position=rotary,alibi", "--budget", "steps=4"], "with 3 updates"),
        ] {
            let output = run(at, &compare("c", &[&other[..], mode].concat()));
            assert_eq!(output.status.code(), Some(2), "{mode:?}: {}", text(&output.stderr));
            assert!(text(&output.stderr).contains(expected), "{mode:?}: {}", text(&output.stderr));
        }
    }
}

#[test]
fn minutes_are_the_same_updates_for_all_who_share() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let grid = ["--over", CELLS, "--budget", "minutes=0.001", "--share"];
    let args = compare("c", &grid);
    let children: Vec<Child> = (0..2).map(|_| spawn(at, &args)).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let request: Value =
        serde_json::from_slice(&fs::read(at.join("c/comparison.json")).unwrap()).unwrap();
    for (name, folder) in begun(&at.join("c")) {
        let cell = name.split('/').next().unwrap();
        let fixed = request["updates"][cell].as_u64().unwrap();
        let config = fs::read_to_string(folder.join("config.toml")).unwrap();
        let config: toml::Table = config.parse().unwrap();
        assert_eq!(config["training"]["steps"].as_integer().unwrap() as u64, fixed, "{name}");
    }
}

#[test]
fn claims_are_checked_together() {
    let folder = tempfile::tempdir().unwrap();
    let mut args = vec!["reproduce", "heads", "--seeds", "1", "--json", "--share"];
    let settings = ["training.steps=4", "training.length=32", "training.batch=2"];
    args.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    let children: Vec<Child> = (0..2).map(|_| spawn(folder.path(), &args)).collect();
    let outputs: Vec<Output> =
        children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    for output in &outputs {
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), text(&outputs[0].stdout));
        assert!(!text(&output.stdout).contains("not_measured"), "{}", text(&output.stdout));
    }
}

/// A file system without locks, by a library that answers for the system.
#[cfg(target_os = "linux")]
#[test]
fn a_file_system_without_locks_is_said_and_left_to_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let source =
        "#include <errno.h>\nint flock(int file, int how) { errno = ENOSYS; return -1; }\n";
    fs::write(at.join("none.c"), source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o", "none.so", "none.c"]).current_dir(at);
    if !compiler.status().is_ok_and(|status| status.success()) {
        eprintln!(
            "SKIPPED: a file system without locks: there is no C compiler to stand in for it"
        );
        return;
    }
    let run = |args: &[&str]| {
        command(at, args).env("LD_PRELOAD", at.join("none.so")).output().expect("it starts")
    };
    let grid = ["--over", "position=rotary,alibi", "--budget", "steps=3"];
    let with = |more: &[&'static str]| compare("c", &[&grid[..], more].concat());
    let output = run(&with(&["--share"]));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let words = text(&output.stderr);
    assert!(words.contains("c is on a file system without locks"), "{words}");
    assert!(words.contains("--only N trains one of them without locks"), "{words}");
    for number in ["0", "1"] {
        let output = run(&with(&["--only", number]));
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(!text(&output.stderr).contains("warning"), "{}", text(&output.stderr));
    }
    assert!(run(&with(&["--report"])).status.success());
    let warning =
        "is on a file system without locks: nothing keeps another process from the same run";
    let output = run(&compare("d", &grid));
    assert!(output.status.success() && text(&output.stderr).contains(warning));
    assert_same(&at.join("c"), &at.join("d"), 2);
    let settings = SETTINGS.iter().flat_map(|setting| ["--set", setting]);
    let train = ["train", "--out", "t", "--set", "training.steps=2"].into_iter().chain(settings);
    let output = run(&train.collect::<Vec<_>>());
    assert!(output.status.success() && text(&output.stderr).contains(warning));
}
