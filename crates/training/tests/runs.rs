//! What a run promises: the same bits however often it stops, and nothing lost when it fails.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, ops::ControlFlow, path::Path};

use tempfile::TempDir;
use whatwhere_data::{Corpus, Source};
use whatwhere_training::{
    Ending, Error, Folder, Generation, Observer, Record, Run, RunSettings, Storage, Trainer,
    Translation, Weights, interrupt::Interrupt, quantize,
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
dropout = 0.1
[training]
steps = 9
batch = 3
length = 12
accumulate = 2
evaluate_every = 4
evaluate_batches = 2
schedule = { kind = 'cosine', warmup = 2 }
";

/// What each run changes of the one above.
const RUNS: [(&str, &[&str]); 16] = [
    ("adamw", &[]),
    ("adam", &["training.optimizer=adam", "training.checkpoint_every=1"]),
    ("sgd", &["training.optimizer=sgd"]),
    ("muon", &["training.optimizer=muon"]),
    ("masked", &["model.family=encoder", "data.objective=masked"]),
    (
        "pairs",
        &[
            "model.family=encoder_decoder",
            "data.source=reverse",
            "data.objective=translate",
            "data.tokenizer.kind=none",
            "training.length=32",
        ],
    ),
    ("gru", &["model.recurrent=gru", "model.attention={}", "training.optimizer=muon"]),
    (
        "lstm pairs before",
        &[
            "model.recurrent=lstm",
            "model.bidirectional=true",
            "model.attends=before",
            "model.attention={dropout=0.1}",
            "model.cross.score=additive",
            "model.family=encoder_decoder",
            "data.source=reverse",
            "data.objective=translate",
            "data.tokenizer.kind=none",
            "training.length=32",
        ],
    ),
    (
        "gru pairs after",
        &[
            "model.recurrent=gru",
            "model.attends=after",
            "model.input_feeding=true",
            "model.attention={}",
            "model.cross.score=general",
            "model.cross.pattern.kind=predicted",
            "model.family=encoder_decoder",
            "data.source=reverse",
            "data.objective=translate",
            "data.tokenizer.kind=none",
            "training.length=32",
        ],
    ),
    ("segments", &["model.segment_memory=12", "model.attention.position=transformer_xl"]),
    ("frozen", &["training.freeze=['embedding.*', '*.0.*']"]),
    ("lora", &["training.lora.rank=2"]),
    ("lora and embeddings", &["training.lora.also=['embedding.*']", "training.optimizer=muon"]),
    (
        "classes",
        &[
            "model.family=encoder",
            "data.source={kind=\"listops\",shortest=4,longest=30,depth=3}",
            "data.objective=classify",
            "training.length=32",
            "data.tokenizer.kind=none",
        ],
    ),
    ("task", &["data.source=indirect_indexing", "training.length=48", "data.tokenizer.kind=none"]),
    ("bf16", &["training.precision=bf16"]),
];

fn settings(changes: &[&str]) -> RunSettings {
    // Tasks have symbols of their own.
    let own = changes.contains(&"data.tokenizer.kind=none");
    let text = if own { DECODER.replace("tokenizer = 'characters'", "") } else { DECODER.into() };
    let changes = changes.iter().filter(|change| !change.ends_with("kind=none"));
    RunSettings::read(&text, &changes.map(|change| (*change).into()).collect::<Vec<_>>()).unwrap()
}

fn text() -> String {
    (0..1500u32).map(|i| char::from(b'a' + (i * i / 7 % 26) as u8)).collect()
}

fn corpus(settings: &RunSettings) -> Corpus {
    match &settings.data.source {
        Source::Text(text) if text.path.as_os_str().is_empty() => {
            Corpus::from_texts(vec![self::text()], &settings.data).unwrap()
        }
        _ => Corpus::load(&settings.data).unwrap(),
    }
}

/// Asks a run to stop after a step.
struct StopAfter(u64, Interrupt);

impl Observer for StopAfter {
    fn updated(&mut self, _: &Record, step: u64) {
        if step == self.0 {
            self.1.request();
        }
    }
}

fn start(settings: &RunSettings, folder: &Path) -> Result<Trainer, Error> {
    Trainer::start(settings.clone(), corpus(settings), Folder::new(folder))
}

fn train(settings: &RunSettings, folder: &Path) {
    let ending = start(settings, folder).unwrap().run(&Interrupt::default(), &mut ()).unwrap();
    assert_eq!(ending, Ending::Done);
}

#[test]
fn a_run_that_stops_and_goes_on_has_the_bits_of_one_that_never_stopped() {
    for (name, changes) in RUNS {
        let settings = settings(changes);
        let (whole, parts) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        train(&settings, whole.path());
        for stop in [3, 4, 7] {
            let interrupt = Interrupt::default();
            let mut observer = StopAfter(stop, interrupt.clone());
            let mut trainer = if stop == 3 {
                start(&settings, parts.path()).unwrap()
            } else {
                resume(&settings, parts.path()).unwrap()
            };
            assert_eq!(trainer.run(&interrupt, &mut observer).unwrap(), Ending::Interrupted);
            assert_eq!(trainer.step(), stop);
        }
        let mut trainer = resume(&settings, parts.path()).unwrap();
        assert_eq!(trainer.run(&Interrupt::default(), &mut ()).unwrap(), Ending::Done, "{name}");
        drop(trainer);
        let adapter = settings.training.lora.is_some().then_some("adapter.safetensors");
        let files = ["last.safetensors", "model.safetensors", "config.toml", "tokenizer.json"];
        for file in files.into_iter().chain(adapter) {
            let read = |folder: &TempDir| fs::read(folder.path().join(file)).unwrap();
            assert!(read(&whole) == read(&parts), "{name}: {file} differs");
        }
    }
}

fn resume(settings: &RunSettings, folder: &Path) -> Result<Trainer, Error> {
    Trainer::resume(settings.clone(), corpus(settings), Folder::new(folder))
}

#[test]
fn records_of_a_resumed_run_have_every_step_once() {
    let settings = settings(&["training.log_every=1"]);
    let folder = TempDir::new().unwrap();
    let interrupt = Interrupt::default();
    let mut observer = StopAfter(6, interrupt.clone());
    start(&settings, folder.path()).unwrap().run(&interrupt, &mut observer).unwrap();
    // What a killed process may leave behind: records beyond the checkpoint, the last one torn.
    let path = folder.path().join("metrics.jsonl");
    let mut lines = fs::read_to_string(&path).unwrap();
    lines.push_str("{\"step\":7,\"loss\":1.0}\n{\"step\":8,\"lo");
    fs::write(&path, lines).unwrap();
    resume(&settings, folder.path()).unwrap().run(&Interrupt::default(), &mut ()).unwrap();
    let lines = fs::read_to_string(&path).unwrap();
    let steps: Vec<u64> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|record| record.get("valid").is_none())
        .map(|record| record["step"].as_u64().unwrap())
        .collect();
    assert_eq!(steps, (1..=9).collect::<Vec<u64>>());
}

#[test]
fn a_loss_that_explodes_stops_with_the_last_good_checkpoint() {
    let settings = settings(&[
        "training.lr=1000000.0",
        "training.schedule.kind=constant",
        "training.schedule.warmup=0",
        "training.clip=0.0",
        "training.optimizer=sgd",
        "training.checkpoint_every=1",
        "training.steps=50",
    ]);
    let folder = TempDir::new().unwrap();
    let mut trainer = start(&settings, folder.path()).unwrap();
    let error = trainer.run(&Interrupt::default(), &mut ()).unwrap_err();
    assert!(matches!(error, Error::Diverged { .. }), "{error}");
    assert!(error.to_string().contains("lower training.lr"), "{error}");
    drop(trainer);
    let run = Run::open(folder.path()).unwrap();
    assert!(run.model().parameters().iter().flat_map(|p| &p.values).all(|v| v.is_finite()));
    assert!(resume(&settings, folder.path()).is_ok());
}

#[test]
fn patience_ends_a_run_that_no_longer_gets_better() {
    let changes = ["training.lr=0.0", "training.patience=2", "training.steps=40"];
    let settings = settings(&changes);
    let folder = TempDir::new().unwrap();
    let mut trainer = start(&settings, folder.path()).unwrap();
    assert_eq!(trainer.run(&Interrupt::default(), &mut ()).unwrap(), Ending::EarlyStopped);
    // The first evaluation is the best, two more are not better.
    assert_eq!(trainer.step(), 12);
    drop(trainer);
    let mut again = resume(&settings, folder.path()).unwrap();
    assert_eq!(again.run(&Interrupt::default(), &mut ()).unwrap(), Ending::EarlyStopped);
    assert_eq!(again.step(), 12);
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_lost() {
    let given = settings(&[]);
    let folder = TempDir::new().unwrap();
    train(&given, folder.path());
    let before = fs::read(folder.path().join("last.safetensors")).unwrap();
    let message = |result: Result<Trainer, Error>| result.err().expect("a refusal").to_string();
    assert!(message(start(&given, folder.path())).contains("holds a run already"));
    let wider = settings(&["model.width=32"]);
    let refusal = message(resume(&wider, folder.path()));
    assert!(
        refusal.contains("began with `model.width = 16`, found `model.width = 32`"),
        "{refusal}"
    );
    let table = settings(&["model.attention.position={kind='rotary',base=500.0}"]);
    let refusal = message(resume(&table, folder.path()));
    assert!(
        refusal.contains("position = \"polar\"`, found `model.attention.position = {"),
        "{refusal}"
    );
    assert!(refusal.contains("rotary") && refusal.contains("500"), "{refusal}");
    let other = Corpus::from_texts(vec![text().replace('b', "c")], &given.data).unwrap();
    let refusal = message(Trainer::resume(given.clone(), other, Folder::new(folder.path())));
    assert!(refusal.contains("have changed") || refusal.contains("vocabulary"), "{refusal}");
    let empty = TempDir::new().unwrap();
    assert!(message(resume(&given, empty.path())).contains("holds no run"));
    assert_eq!(fs::read(folder.path().join("last.safetensors")).unwrap(), before);
    fs::write(folder.path().join("last.safetensors"), &before[..before.len() / 2]).unwrap();
    let refusal = message(resume(&given, folder.path()));
    assert!(refusal.contains("last.safetensors") && refusal.contains("cut short"), "{refusal}");
    // Going on for longer is no other run.
    fs::write(folder.path().join("last.safetensors"), &before).unwrap();
    let longer = settings(&["training.steps=11"]);
    assert_eq!(resume(&longer, folder.path()).unwrap().step(), 9);
}

#[test]
fn files_that_were_changed_are_noticed_and_named() {
    let given = settings(&[]);
    let folder = TempDir::new().unwrap();
    train(&given, folder.path());
    let file = |name: &str| folder.path().join(name);
    let opened = || Run::open(folder.path()).map(|_| ()).map_err(|e| e.to_string());
    let resumed = || resume(&given, folder.path()).map(|_| ()).map_err(|e| e.to_string());
    assert_eq!((opened(), resumed()), (Ok(()), Ok(())));
    // One bit of one weight.
    for (name, tried) in [
        ("model.safetensors", &opened as &dyn Fn() -> Result<(), String>),
        ("last.safetensors", &resumed),
    ] {
        let whole = fs::read(file(name)).unwrap();
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        fs::write(file(name), &flipped).unwrap();
        let message = tried().unwrap_err();
        assert!(message.contains(name) && message.contains("was changed"), "{message}");
        fs::write(file(name), &whole).unwrap();
    }
    // A tokenizer of another run, which would read and write other letters without an error.
    let whole = fs::read_to_string(file("tokenizer.json")).unwrap();
    fs::write(file("tokenizer.json"), whole.replace("\"a\"", "\"A\"")).unwrap();
    for message in [opened().unwrap_err(), resumed().unwrap_err()] {
        assert!(message.contains("tokenizer.json was changed"), "{message}");
    }
    fs::write(file("tokenizer.json"), &whole).unwrap();
    // A folder of a later program, and one of before there were formats.
    fs::write(file("run.json"), "{\"format\":99,\"version\":\"9.0.0\",\"more\":true}").unwrap();
    let message = opened().unwrap_err();
    assert!(message.contains("has format 99, written by whatwhere 9.0.0"), "{message}");
    assert_eq!(resumed().unwrap_err(), message);
    fs::write(file("run.json"), "{").unwrap();
    assert!(opened().unwrap_err().contains("run.json"));
    fs::remove_file(file("run.json")).unwrap();
    assert_eq!((opened(), resumed()), (Ok(()), Ok(())));
}

#[test]
fn two_processes_cannot_train_into_one_folder() {
    let settings = settings(&[]);
    let folder = TempDir::new().unwrap();
    let _first = start(&settings, folder.path()).unwrap();
    let refusal = resume(&settings, folder.path()).err().unwrap().to_string();
    assert!(refusal.contains("in use"), "{refusal}");
}

#[test]
fn a_blank_takes_the_space_that_belongs_to_its_word() {
    let folder = TempDir::new().unwrap();
    let text = "the cat sat on the mat and the dog sat on the log ".repeat(40);
    let settings = RunSettings::read(
        "[data]\ntokenizer = { kind = 'bpe', vocabulary = 280 }\nobjective = 'masked'\n[model]\nfamily = 'encoder'\nwidth = 16\nlayers = 1\nattention = { heads = 2 }\n[training]\nsteps = 1\nbatch = 2\nlength = 16",
        &[],
    )
    .unwrap();
    let corpus = Corpus::from_texts(vec![text], &settings.data).unwrap();
    let path = folder.path().join("run");
    Trainer::start(settings, corpus, Folder::new(&path))
        .unwrap()
        .run(&Interrupt::default(), &mut ())
        .unwrap();
    let run = Run::open(&path).unwrap();
    assert!(run.tokenizer().unwrap().has_blanks_before_words());
    let apart = run.fill("the cat sat on the [MASK] and", 3).unwrap();
    assert_eq!(apart, run.fill("the cat sat on the[MASK] and", 3).unwrap());
}

#[test]
fn a_run_answers_as_its_model_was_trained() {
    let folder = TempDir::new().unwrap();
    train(&settings(&[]), folder.path());
    let run = Run::open(folder.path()).unwrap();
    let generation = Generation { limit: 20, ..Default::default() };
    let mut heard = String::new();
    let said = run
        .generate("abc", &generation, |text| {
            heard.push_str(text);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((heard.chars().count(), &heard), (20, &said));
    // Who has heard enough gets no more.
    let mut pieces = 0;
    let stopped = run.generate("abc", &generation, |_| {
        pieces += 1;
        if pieces == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let stopped = stopped.unwrap();
    assert!(pieces == 3 && said.starts_with(&stopped) && stopped.len() < said.len());
    assert_eq!(run.score("abcd").unwrap().len(), 3);
    let message = |error: Error| error.to_string();
    assert!(
        message(run.fill("a[MASK]", 1).unwrap_err())
            .contains("fill needs an encoder, this run trained a decoder")
    );
    let refusal = message(run.translate(&["x"], &Translation::default()).unwrap_err());
    assert!(refusal.contains("translate needs an encoder-decoder"), "{refusal}");
    assert!(
        message(run.generate("ABC", &generation, |_| ControlFlow::Continue(())).unwrap_err())
            .contains('A')
    );

    let folder = TempDir::new().unwrap();
    train(&settings(&["model.family=encoder", "data.objective=masked"]), folder.path());
    let run = Run::open(folder.path()).unwrap();
    let filled = run.fill("ab[MASK]de[MASK]", 3).unwrap();
    assert_eq!(filled.len(), 2);
    assert!(filled[0].windows(2).all(|pair| pair[0].probability >= pair[1].probability));
    assert!(message(run.fill("abc", 1).unwrap_err()).contains("found no [MASK]"));

    let folder = TempDir::new().unwrap();
    train(&settings(RUNS[5].1), folder.path());
    let run = Run::open(folder.path()).unwrap();
    let lines = ["ABC", "DE", "ABCDEF"];
    let out = run.translate(&lines, &Translation::default()).unwrap();
    assert_eq!(out.len(), 3);
    let alone = run.translate(&lines[2..], &Translation::default()).unwrap();
    assert_eq!(out[2], alone[0], "a line does not depend on its neighbours");
    // A letter that the run has never seen spoils its own line only.
    let each = run.translate_each(&["ABC", "Ω", "", "ABCDEF"], &Translation::default()).unwrap();
    assert_eq!((each[0].as_ref().unwrap(), each[3].as_ref().unwrap()), (&out[0], &out[2]));
    assert!(each[1].is_err() && each[2].as_ref().unwrap().is_empty());
}

#[test]
fn weights_are_stored_in_fewer_bits_and_opened_again() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    train(&settings(&["training.steps=3"]), &path);
    let (f32, int8) =
        (Run::open(&path).unwrap(), Run::open_with(&path, Some(Weights::Int8)).unwrap());
    assert!(int8.model().is_int8() && !int8.is_stored_int8);
    let ids = vec![vec![1, 2, 3, 4, 5]];
    let logits = |run: &Run| run.logits(None, &ids).unwrap().0;
    let size = |path: &Path| fs::metadata(path.join("model.safetensors")).unwrap().len();
    for (name, storage, share) in
        [("int8", Storage::Int8, 0.7), ("f16", Storage::F16, 0.8), ("bf16", Storage::Bf16, 0.8)]
    {
        let out = folder.path().join(name);
        quantize(&path, &out, storage).unwrap();
        assert!(matches!(quantize(&path, &out, storage), Err(Error::RunExists { .. })));
        let (small, large) = (size(&out) as f64, size(&path) as f64);
        assert!(small < share * large, "{name}: {small} of {large}");
        let stored = Run::open_with(&out, None).unwrap();
        assert_eq!(stored.is_stored_int8, name == "int8");
        if name == "int8" {
            assert_eq!(logits(&stored), logits(&int8));
            // In f32 they are the numbers of the levels.
            let read = Run::open(&out).unwrap();
            assert!(!read.model().is_int8());
            assert_eq!(read.model().parameters(), stored.model().parameters());
        } else {
            assert!(!stored.model().is_int8());
            for (stored, exact) in stored.model().parameters().iter().zip(f32.model().parameters())
            {
                // Half of the last digit of 8, and what f16 has below its normal numbers.
                for (a, b) in stored.values.iter().zip(&exact.values) {
                    assert!((a - b).abs() <= b.abs() / 256.0 + 6e-8, "{}: {a} {b}", stored.name);
                }
            }
        }
        // One bit of one weight.
        let file = out.join("model.safetensors");
        let mut flipped = fs::read(&file).unwrap();
        *flipped.last_mut().unwrap() ^= 1;
        fs::write(&file, &flipped).unwrap();
        let message = Run::open_with(&out, None).unwrap_err().to_string();
        assert!(message.contains("was changed"), "{message}");
    }
}

#[test]
fn rows_beyond_the_models_positions_are_refused_before_there_is_a_folder() {
    let parent = TempDir::new().unwrap();
    let learned =
        |length: usize| format!("model.attention.position={{kind='learned',length={length}}}");
    let pairs = ["model.family=encoder_decoder", "data.source=reverse", "data.objective=translate"];
    let pairs = [&pairs[..], &["data.tokenizer.kind=none", "training.length=32"]].concat();
    let short = "data.source={kind='reverse',shortest=2,longest=5}";
    let task = [short, "data.tokenizer.kind=none", "training.length=64"];
    let masked = ["model.family=encoder", "data.objective=masked"];
    for (changes, positions, found) in [
        (
            &[][..],
            11,
            Some("training.length = 12: rows have up to 12 tokens, and the model has 11"),
        ),
        (&[], 12, None),
        (&masked, 8, Some("training.length = 12: rows have up to 12 tokens, and the model has 8")),
        (
            &pairs,
            8,
            Some(
                "tokens, and the model has 8 positions; use training.length = 8, or a larger position.length",
            ),
        ),
        // What counts is how long rows are, not how long they might be.
        (&task, 32, None),
        (&task, 5, Some("training.length = 64: rows have up to")),
    ] {
        let learned = learned(positions);
        let settings = settings(&[changes, &[learned.as_str()]].concat());
        let folder = parent.path().join("run");
        match (start(&settings, &folder), found) {
            (Ok(mut trainer), None) => {
                trainer.run(&Interrupt::default(), &mut ()).unwrap();
                drop(trainer);
                fs::remove_dir_all(&folder).unwrap();
            }
            (Err(e), Some(found)) => assert!(e.to_string().contains(found), "{e}"),
            (result, _) => panic!("{changes:?}, {positions} positions: {:?}", result.err()),
        }
        assert!(!folder.exists(), "what is refused leaves no folder");
    }
}
