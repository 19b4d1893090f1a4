//! Training over ranks with a real `mpirun`: the same bits for any number of them, and an end that all share. `.ci/mpi` runs it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_whatwhere");

/// Within this all ranks must be gone when one is.
const SOON: Duration = Duration::from_secs(10);

const TRAIN: [&str; 6] = ["train", "--preset", "tiny", "--data", "text.txt", "--json"];

const SMALL: [&str; 9] = [
    "model.width=32",
    "model.layers=1",
    "training.length=24",
    "training.batch=2",
    "training.accumulate=8",
    "training.evaluate_every=3",
    "training.evaluate_batches=5",
    "training.log_every=1",
    "training.checkpoint_every=1",
];

/// One test at a time: they count seconds, and a machine has few cores. Nothing if there is no Open MPI.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    let version = Command::new("mpirun").arg("--version").output();
    if !version.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("Open MPI")) {
        eprintln!("SKIPPED: training over ranks: there is no mpirun of Open MPI");
        return None;
    }
    Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A folder with a text.
fn place() -> TempDir {
    let folder = TempDir::new().unwrap();
    let text =
        "나는 학교에 간다. Attention is what a token looks at, position is where.\n".repeat(60);
    fs::write(folder.path().join("text.txt"), text).unwrap();
    folder
}

/// The command line of a run in `out`, with changes of the settings.
fn train(out: &str, changes: &[&str]) -> Vec<String> {
    let set = SMALL.iter().chain(changes).flat_map(|change| ["--set", change]);
    TRAIN.into_iter().chain(["--out", out]).chain(set).map(String::from).collect()
}

fn with(args: &[String], more: &[&str]) -> Vec<String> {
    args.iter().cloned().chain(more.iter().map(|&arg| arg.into())).collect()
}

/// `mpirun` with one thread for each rank, as many ranks as asked for.
fn mpirun(at: &Path) -> Command {
    let mut command = Command::new("mpirun");
    command
        .args(["--oversubscribe", "--bind-to", "none"])
        .current_dir(at)
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        // Containers forbid what it would copy with, and it says so.
        .env("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
        .env("RAYON_NUM_THREADS", "1")
        .stdin(Stdio::null());
    command
}

fn ranks(at: &Path, size: usize, args: &[String]) -> Command {
    let mut command = mpirun(at);
    command.args(["-n", &size.to_string(), PROGRAM]).args(args);
    command
}

/// What a command says when it must succeed: standard output.
fn done(mut command: Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let said = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {said}");
    String::from_utf8(stdout).unwrap()
}

/// What a command says when it must fail, soon: standard error.
fn refusal(mut command: Command) -> String {
    let begun = Instant::now();
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(!status.success(), "{command:?} must fail");
    assert!(begun.elapsed() < 3 * SOON, "{command:?} took {:?}", begun.elapsed());
    assert!(stdout.is_empty(), "stdout is data");
    String::from_utf8_lossy(&stderr).into_owned()
}

/// What must not depend on the number of ranks: files as they are, records without their speed.
fn left(run: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = ["last.safetensors", "model.safetensors", "config.toml", "tokenizer.json"];
    let mut left: BTreeMap<String, Vec<u8>> =
        files.iter().map(|file| ((*file).into(), fs::read(run.join(file)).unwrap())).collect();
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let records = metrics.lines().map(|line| {
        let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
        record.as_object_mut().unwrap().remove("tokens_per_second");
        record.to_string()
    });
    left.insert("metrics.jsonl".into(), records.collect::<Vec<_>>().join("\n").into());
    left
}

/// Asserts that two runs left the same, and says where not.
fn assert_same(at: &Path, run: &str, expected: &str) {
    let (found, expected) = (left(&at.join(run)), left(&at.join(expected)));
    for (file, expected) in expected {
        assert!(found[&file] == expected, "{run}: {file} differs");
    }
}

#[test]
fn any_number_of_ranks_has_the_bits_of_one_process() {
    let Some(_turn) = turn() else { return };
    let place = place();
    let at = place.path();
    let cases: [(&str, &[&str]); 3] = [
        ("adamw", &["training.steps=6"]),
        ("muon", &["training.steps=3", "training.optimizer=muon", "model.width=192"]),
        ("patience", &["training.steps=30", "training.patience=1", "training.lr=0.3"]),
    ];
    // `.ci/mpi` hands in the program as it is without the feature.
    let plain = std::env::var("WHATWHERE_WITHOUT_MPI").unwrap_or(PROGRAM.into());
    for (name, changes) in cases {
        let alone = format!("{name}-alone");
        let mut command = Command::new(&plain);
        let said = done({
            command.args(train(&alone, changes)).current_dir(at);
            command
        });
        for size in [1, 2, 3, 4, 8] {
            let run = format!("{name}-{size}");
            let own = done(ranks(at, size, &train(&run, changes)));
            // Rank 0 alone speaks, and of the same outcome.
            assert_eq!(own.replace(&run, &alone), said);
            assert_same(at, &run, &alone);
        }
    }
}

/// Launchers stand between ranks and the terminal, so that rank 0 says how far all are in lines.
#[test]
fn the_first_rank_says_how_fast_all_are_together() {
    let Some(_turn) = turn() else { return };
    let place = place();
    let changes = ["training.steps=4", "training.evaluate_every=2"];
    let output = ranks(place.path(), 2, &train("told", &changes)).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for step in [2, 4] {
        let begins = format!("step {step} of 4 on 2 ranks: loss ");
        let line = said.lines().find(|line| line.starts_with(&begins)).expect(&said);
        assert!(line.contains(" tokens/s, ") && line.ends_with(" left"), "{line}");
        assert_eq!(said.matches(&format!("step {step}: valid loss ")).count(), 1, "{said}");
    }
}

/// The process of a rank, by what its launcher tells it.
fn process(launcher: &Child, rank: usize) -> Option<String> {
    let own = format!("OMPI_COMM_WORLD_RANK={rank}");
    fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let process: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let parent: u32 = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let is_rank = environment.split(|byte| *byte == 0).any(|entry| entry == own.as_bytes());
        (parent == launcher.id() && is_rank).then(|| process.to_string())
    })
}

fn kill(signal: &str, process: &str) {
    assert!(Command::new("kill").args([signal, process]).status().unwrap().success());
}

/// A run that is going on, with so many updates done.
struct Going {
    child: Child,
    said: PathBuf,
}

impl Going {
    fn after(updates: usize, at: &Path, run: &str, mut command: Command) -> Self {
        let said = at.join(format!("{run}.said"));
        let child =
            command.stdout(Stdio::null()).stderr(fs::File::create(&said).unwrap()).spawn().unwrap();
        let mut going = Self { child, said };
        let begun = Instant::now();
        let done = || fs::read_to_string(at.join(run).join("metrics.jsonl")).unwrap_or_default();
        while done().lines().filter(|line| line.contains("grad_norm")).count() < updates {
            assert!(begun.elapsed() < Duration::from_secs(120), "{}", going.said());
            assert!(going.child.try_wait().unwrap().is_none(), "ended: {}", going.said());
            thread::sleep(Duration::from_millis(20));
        }
        going
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// What it says when all ranks have ended without success, as soon as they must.
    fn end(mut self, within: Duration) -> String {
        let begun = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => thread::sleep(Duration::from_millis(20)),
            }
            if begun.elapsed() > within {
                self.child.kill().unwrap();
                panic!("still there after {within:?}: {}", self.said());
            }
        };
        assert!(!status.success(), "{}", self.said());
        self.said()
    }
}

#[test]
fn a_killed_rank_ends_all_and_any_number_goes_on_to_the_same_bits() {
    let Some(_turn) = turn() else { return };
    let place = place();
    let at = place.path();
    let changes = ["training.steps=60"];
    done(ranks(at, 2, &train("whole", &changes)));
    let args = train("killed", &changes);
    // Each time another rank, of another number of them.
    let kills = [(3, 1, 5), (2, 0, 20), (4, 3, 35)];
    for (turn, (size, rank, updates)) in kills.into_iter().enumerate() {
        let args = if turn == 0 { args.clone() } else { with(&args, &["--resume"]) };
        let going = Going::after(updates, at, "killed", ranks(at, size, &args));
        kill("-9", &process(&going.child, rank).expect("the rank is there"));
        let said = going.end(SOON);
        assert!(said.contains(&format!("rank {rank}")) && said.contains("signal 9"), "{said}");
    }
    done(ranks(at, 8, &with(&args, &["--resume"])));
    assert_same(at, "killed", "whole");
}

#[test]
fn a_signal_to_any_rank_stops_all_with_everything_saved() {
    let Some(_turn) = turn() else { return };
    let place = place();
    let at = place.path();
    // Long enough for a signal to come before the end on a fast machine.
    let changes =
        ["training.steps=500", "training.checkpoint_every=0", "training.evaluate_every=250"];
    done(ranks(at, 2, &train("whole", &changes)));
    let args = train("stopped", &changes);
    let going = Going::after(5, at, "stopped", ranks(at, 3, &args));
    // `mpirun` hands it on to all ranks.
    kill("-USR1", &going.child.id().to_string());
    let said = going.end(SOON);
    assert!(said.contains("hint: whatwhere train --resume --out stopped"), "{said}");
    assert_eq!(said.matches("hint:").count(), 1, "rank 0 alone speaks: {said}");
    let going = Going::after(15, at, "stopped", ranks(at, 2, &with(&args, &["--resume"])));
    kill("-TERM", &process(&going.child, 1).expect("the rank is there"));
    assert!(going.end(SOON).contains("hint:"));
    let mut alone = Command::new(PROGRAM);
    alone.args(with(&args, &["--resume"])).current_dir(at);
    done(alone);
    assert_same(at, "stopped", "whole");
}

#[test]
fn a_rank_that_does_not_answer_ends_all() {
    let Some(_turn) = turn() else { return };
    let place = place();
    let at = place.path();
    let args = with(&train("hung", &["training.steps=100000"]), &["--exchange-timeout", "2"]);
    let going = Going::after(3, at, "hung", ranks(at, 3, &args));
    kill("-STOP", &process(&going.child, 2).expect("the rank is there"));
    let said = going.end(Duration::from_secs(2) + SOON);
    assert!(said.contains("has taken more than 2 s"), "{said}");
    assert!(said.contains("error: rank 0 on") || said.contains("error: rank 1 on"), "{said}");
}

#[test]
fn an_error_in_one_rank_is_said_with_its_number_and_ends_all() {
    let Some(_turn) = turn() else { return };
    let place = place();
    let at = place.path();
    let args = train("gone", &["training.steps=100000", "training.checkpoint_every=50"]);
    let going = Going::after(3, at, "gone", ranks(at, 3, &args));
    // What a full disk is to rank 0: it cannot write, and the others know nothing of it.
    fs::rename(at.join("gone"), at.join("elsewhere")).unwrap();
    let said = going.end(SOON);
    assert!(said.contains("error: rank 0: "), "{said}");
    assert_eq!(said.matches("error: rank").count(), 1, "{said}");
}

/// Rank 0 alone has files: the others have agreed to begin, and know nothing of a disk without room.
#[test]
fn a_first_rank_that_cannot_write_at_the_start_ends_all() {
    let Some(_turn) = turn() else { return };
    let place = place();
    let at = place.path();
    let soon = |run: &str, more: &[&str]| {
        let begun = Instant::now();
        let said = refusal(ranks(at, 3, &with(&train(run, &["training.steps=3"]), more)));
        assert!(begun.elapsed() < SOON, "{run} took {:?}: {said}", begun.elapsed());
        said
    };
    for file in ["last.safetensors", "run.json"] {
        let run = format!("no-{file}");
        fs::create_dir_all(at.join(&run).join(file).join("taken")).unwrap();
        let said = soon(&run, &[]);
        assert_eq!(said.matches("error: ").count(), 1, "{said}");
        assert!(said.contains(&format!("{run}/{file} could not be replaced")), "{said}");
    }
    // A disk that is full, where a small one can be had.
    let disk = at.join("disk");
    fs::create_dir(&disk).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(&disk).stderr(Stdio::null());
    if !mount.status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: a full disk under mpirun: nobody may mount one here");
        return;
    }
    let said = soon("disk/run", &[]);
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    assert_eq!(said.matches("error: ").count(), 1, "{said}");
    assert!(said.contains("No space left on device"), "{said}");
}

#[test]
fn a_divergence_is_said_once_and_ends_all() {
    let Some(_turn) = turn() else { return };
    let place = place();
    let changes = [
        "training.steps=50",
        "training.lr=1e30",
        "training.clip=0.0",
        "training.schedule={kind='constant',warmup=0}",
        "training.optimizer=sgd",
    ];
    let said = refusal(ranks(place.path(), 3, &train("lost", &changes)));
    assert_eq!(said.matches("stopped, lost keeps the last good").count(), 1, "{said}");
}

#[test]
fn what_ranks_cannot_share_is_refused_once_with_what_would_be_right() {
    let Some(_turn) = turn() else { return };
    let place = place();
    let at = place.path();
    let refused = |size, changes: &[&str]| refusal(ranks(at, size, &train("refused", changes)));
    let said = refused(2, &["training.accumulate=1"]);
    let right = "training.batch = 1 and training.accumulate = 2 read the same tokens";
    assert_eq!(said.matches(right).count(), 1, "{said}");
    let said = refused(2, &["model.segment_memory=8", "position=transformer_xl"]);
    assert!(said.contains("error: model.segment_memory = 8"), "{said}");
    assert!(!at.join("refused").exists(), "a refused start leaves a folder");

    // Other data on one rank: the same name in another folder.
    let other = at.join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("text.txt"), "Something else entirely.\n".repeat(100)).unwrap();
    let args = train("refused", &[]);
    let mut command = mpirun(at);
    command.args(["-n", "1", PROGRAM]).args(&args);
    command.arg(":").args(["-n", "1", "-wdir"]).arg(&other).arg(PROGRAM).args(&args);
    let said = refusal(command);
    assert!(said.contains("rank 1 on") && said.contains("data of fingerprint"), "{said}");
    // None at all: said for the rank that misses them.
    fs::remove_file(other.join("text.txt")).unwrap();
    let mut command = mpirun(at);
    command.args(["-n", "1", PROGRAM]).args(&args);
    command.arg(":").args(["-n", "1", "-wdir"]).arg(&other).arg(PROGRAM).args(&args);
    let said = refusal(command);
    assert!(said.contains("error: rank 1: ") && said.contains("text.txt"), "{said}");
    assert!(!at.join("refused").exists() && !other.join("refused").exists());

    // Another build of the same version: here one with a byte more, which nothing reads.
    let built = at.join("built");
    fs::copy(PROGRAM, &built).unwrap();
    let mut more = fs::OpenOptions::new().append(true).open(&built).unwrap();
    std::io::Write::write_all(&mut more, b"\n").unwrap();
    drop(more);
    let mut command = mpirun(at);
    command.args(["-n", "1", PROGRAM]).args(&args);
    command.arg(":").args(["-n", "1"]).arg(&built).args(&args);
    let said = refusal(command);
    assert!(said.contains("rank 1 on") && said.contains("the program of SHA-256"), "{said}");

    // A folder that has a run is refused as for one process.
    done(ranks(at, 2, &train("taken", &["training.steps=1"])));
    let said = refusal(ranks(at, 2, &train("taken", &["training.steps=1"])));
    assert_eq!(said.matches("hint: go on with --resume").count(), 1, "{said}");
}
