//! Ranks as threads: the same files and figures for any number of them, for every optimizer and way to learn.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, fs, path::Path};

use tempfile::TempDir;
use whatwhere_data::Corpus;
use whatwhere_training::{
    Ending, Folder, Observer, Record, RunSettings, Trainer, interrupt::Interrupt, ranks::threads,
};

const DECODER: &str = "
seed = 5
[data]
tokenizer = 'characters'
[model]
width = 16
layers = 2
dropout = 0.1
[model.attention]
heads = 2
position = 'polar'
[training]
steps = 5
batch = 2
length = 12
accumulate = 8
evaluate_every = 2
evaluate_batches = 5
log_every = 1
schedule = { kind = 'cosine', warmup = 2 }
";

fn settings(changes: &[&str]) -> RunSettings {
    let changes: Vec<String> = changes.iter().map(|&change| change.into()).collect();
    // Tasks have symbols of their own.
    let is_task = changes.iter().any(|change| change.starts_with("data.source="));
    let text =
        if is_task { DECODER.replace("tokenizer = 'characters'", "") } else { DECODER.into() };
    RunSettings::read(&text, &changes).unwrap()
}

fn corpus(settings: &RunSettings) -> Corpus {
    if settings.data.source.task().is_some() {
        return Corpus::load(&settings.data).unwrap();
    }
    let text = (0..1500u32).map(|i| char::from(b'a' + (i * i / 7 % 26) as u8)).collect();
    Corpus::from_texts(vec![text], &settings.data).unwrap()
}

/// Asks one rank to stop after a step.
struct StopAfter(u64, Interrupt);

impl Observer for StopAfter {
    fn updated(&mut self, _: &Record, step: u64) {
        if step == self.0 {
            self.1.request();
        }
    }
}

/// Trains to the end, or until rank `stop.1` is asked to stop after update `stop.0`. Only rank 0 has the folder.
fn train(
    settings: &RunSettings,
    folder: &Path,
    size: usize,
    stop: Option<(u64, usize)>,
) -> Vec<Ending> {
    let resumes = Folder::new(folder).has_run();
    threads::each_shared(size, |ranks| {
        let rank = ranks.rank();
        let folder = if rank == 0 { folder.into() } else { folder.join("nowhere") };
        let (settings, corpus) = (settings.clone(), corpus(settings));
        let mut trainer = match resumes {
            true => Trainer::resume_among(ranks, settings, corpus, Folder::new(folder)).unwrap(),
            false => {
                let folder = Folder::new(folder);
                Trainer::start_among(ranks, settings, corpus, folder, None).unwrap().0
            }
        };
        let interrupt = Interrupt::default();
        let asked = stop.filter(|(_, of)| *of == rank).map_or(u64::MAX, |(step, _)| step);
        trainer.run(&interrupt, &mut StopAfter(asked, interrupt.clone())).unwrap()
    })
}

/// Whatever must not depend on ranks: files as they are, records without their speed.
fn left(folder: &Path) -> BTreeMap<String, String> {
    let names = ["last.safetensors", "model.safetensors", "adapter.safetensors", "config.toml"];
    let hash = |name: &&str| {
        let bytes = fs::read(folder.join(name)).ok()?;
        Some(((*name).to_owned(), format!("{:016x}", whatwhere_random::Fingerprint::of(&bytes))))
    };
    let mut left: BTreeMap<String, String> = names.iter().filter_map(hash).collect();
    let metrics = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    for (at, line) in metrics.lines().enumerate() {
        let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
        record.as_object_mut().unwrap().remove("tokens_per_second");
        left.insert(format!("record {at}"), record.to_string());
    }
    assert!(!folder.join("nowhere").exists(), "a rank but the first wrote files");
    left
}

#[test]
fn any_number_of_ranks_leaves_the_same_files() {
    // Matrices beyond a chunk are cut inside; small ones leave some ranks without a shard.
    let large = ["model.width=192", "training.steps=2", "model.layers=1"];
    // Of 11 batches of an evaluation some ranks have one more than others.
    let classes = [
        "model.family=encoder",
        "data.source={kind='listops',shortest=4,longest=20,depth=3}",
        "data.objective=classify",
        "training.length=24",
        "training.evaluate_batches=11",
        "training.best_by=macro_f1",
    ];
    let cases: [(&str, &[&str]); 10] = [
        ("classes", &classes),
        ("adamw", &[]),
        ("large", &large),
        ("sgd", &["training.optimizer=sgd", "training.clip=0.01"]),
        ("muon", &["training.optimizer=muon"]),
        ("large muon", &["model.width=192", "training.steps=2", "training.optimizer=muon"]),
        ("frozen", &["training.freeze=['embedding.*', '*.0.*']"]),
        ("lora", &["training.lora.rank=2"]),
        ("lora and embeddings", &["training.lora.also=['embedding.*']", "training.optimizer=muon"]),
        ("odd", &["training.accumulate=7", "training.patience=1", "training.lr=0.3"]),
    ];
    for (name, changes) in cases {
        let settings = settings(changes);
        let alone = TempDir::new().unwrap();
        let mut trainer =
            Trainer::start(settings.clone(), corpus(&settings), Folder::new(alone.path())).unwrap();
        let ending = trainer.run(&Interrupt::default(), &mut ()).unwrap();
        drop(trainer);
        let expected = left(alone.path());
        for size in [1, 2, 3, 4, 7] {
            let folder = TempDir::new().unwrap();
            assert_eq!(train(&settings, folder.path(), size, None), vec![ending; size]);
            assert_eq!(left(folder.path()), expected, "{name}, {size} ranks");
        }
    }
}

#[test]
fn a_run_goes_on_with_another_number_of_ranks() {
    for changes in [&[][..], &["training.optimizer=muon"], &["training.lora.rank=2"]] {
        let settings = settings(changes);
        let (whole, parts) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        assert_eq!(train(&settings, whole.path(), 1, None), [Ending::Done]);
        // Whichever rank is asked, all stop; at once, after the first update, and in the middle.
        for (size, stop) in [(3, (1, 2)), (2, (2, 0)), (4, (4, 1))] {
            let endings = train(&settings, parts.path(), size, Some(stop));
            assert_eq!(endings, vec![Ending::Interrupted; size]);
        }
        assert_eq!(train(&settings, parts.path(), 8, None), vec![Ending::Done; 8]);
        assert_eq!(left(parts.path()), left(whole.path()), "{changes:?}");
    }
}

#[test]
fn what_one_rank_cannot_do_ends_all_before_anything_is_made() {
    let settings = settings(&["training.accumulate=2"]);
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    let other = Corpus::from_texts(vec!["abc".repeat(500)], &settings.data).unwrap();
    let start = |size: usize, corpora: &(dyn Fn(usize) -> Corpus + Sync)| {
        threads::each_shared(size, |ranks| {
            let corpus = corpora(ranks.rank());
            let folder = Folder::new(&path);
            let started = Trainer::start_among(ranks, settings.clone(), corpus, folder, None);
            started.err().expect("refused").to_string()
        })
    };
    let said = start(2, &|rank| if rank == 1 { other.clone() } else { corpus(&settings) });
    assert!(said[0].contains("rank 1 on") && said[0].contains("data of fingerprint"), "{said:?}");
    assert_eq!(said[0], said[1]);
    let said = start(3, &|_| corpus(&settings));
    assert!(said.iter().all(|said| said.contains("fewer micro-batches than the 3 ranks")));
    assert!(!path.exists(), "a refused start leaves a folder");
}

/// What each of three ranks says that start or go on in a folder where it cannot be.
fn refused(settings: &RunSettings, folder: &Path, resumes: bool) -> Vec<String> {
    threads::each_shared(3, |ranks| {
        let folder =
            Folder::new(if ranks.rank() == 0 { folder.into() } else { folder.join("nowhere") });
        let (settings, corpus) = (settings.clone(), corpus(settings));
        let result = match resumes {
            true => Trainer::resume_among(ranks, settings, corpus, folder),
            false => {
                Trainer::start_among(ranks, settings, corpus, folder, None).map(|found| found.0)
            }
        };
        result.err().map_or_else(|| "it went on".into(), |e| e.to_string())
    })
}

#[test]
fn what_the_first_rank_cannot_write_ends_all() {
    let settings = settings(&[]);
    // In the order they are written: a folder in a file's place is what a full disk is.
    for file in ["tokenizer.json", "last.safetensors", "run.json"] {
        let folder = TempDir::new().unwrap();
        fs::create_dir_all(folder.path().join(file).join("taken")).unwrap();
        let said = refused(&settings, folder.path(), false);
        assert!(said[0].contains(file), "{file}: {said:?}");
        let heard = format!("rank 0: {}", said[0]);
        assert_eq!(said[1..], [heard.clone(), heard], "{file}");
        assert!(!folder.path().join("config.toml").exists(), "{file}: it looks like a run");
    }
}

#[test]
fn what_the_first_rank_cannot_go_on_with_ends_all() {
    for (changes, name) in [(&[][..], "slot0."), (&["training.lora.rank=2"], "adapter.")] {
        let settings = settings(changes);
        let folder = TempDir::new().unwrap();
        train(&settings, folder.path(), 2, Some((2, 0)));
        // A checkpoint without one of its arrays, and without its hash as files of before have none: under other names
        // nobody asks for them.
        let path = folder.path().join("last.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        for name in [name, "sha256"] {
            let is_name = |window: &[u8]| window == name.as_bytes();
            let at = bytes.windows(name.len()).position(is_name).unwrap();
            bytes[at] = b'x';
        }
        fs::write(&path, bytes).unwrap();
        let said = refused(&settings, folder.path(), true);
        assert!(said[0].contains("last.safetensors"), "{name}: {said:?}");
        assert!(said[1].starts_with("rank 0: ") && said[1] == said[2], "{name}: {said:?}");
    }
}
