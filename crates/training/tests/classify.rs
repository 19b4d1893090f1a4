//! Runs that tell classes: the same bits, what they start from, what they keep and what they answer.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use tempfile::TempDir;
use whatwhere_data::{Corpus, Split};
use whatwhere_training::{
    Base, Ending, Evaluation, Folder, Input, Observer, Record, Run, RunSettings, Trainer,
    classification_of, evaluate, interrupt::Interrupt, trainer,
};
use whatwhere_transformer::Model;

const SETTINGS: &str = "
seed = 5
[data]
tokenizer = 'characters'
valid_share = 0.25
source = { kind = 'labeled', path = '@/texts.tsv', field = '1', label_field = '2' }
[model]
family = 'encoder'
width = 16
layers = 2
dropout = 0.1
attention.heads = 2
[training]
steps = 9
batch = 4
length = 16
accumulate = 2
evaluate_every = 4
evaluate_batches = 0
lr = 0.005
schedule = { kind = 'cosine', warmup = 2 }
";

/// Texts of a's and b's, by which there are more of; some are longer than rows.
fn write_texts(folder: &Path) {
    let text = |i: usize| -> String {
        let letter = |j: usize| if (i * 7 + j * j * 3 + i * j) % 5 < 1 + i % 4 { 'a' } else { 'b' };
        (0..3 + i % 17).map(letter).collect()
    };
    let label = |text: &str| {
        let a = text.matches('a').count();
        ["few", "many"][usize::from(2 * a >= text.len())]
    };
    let lines = (0..120).map(text).map(|text| format!("{text}\t{}\n", label(&text)));
    fs::write(folder.join("texts.tsv"), lines.collect::<String>()).unwrap();
}

fn settings(folder: &Path, changes: &[&str]) -> RunSettings {
    let text = SETTINGS.replace('@', &folder.display().to_string());
    RunSettings::read(&text, &changes.iter().map(|&change| change.into()).collect::<Vec<_>>())
        .unwrap()
}

fn train(settings: &RunSettings, out: &Path) -> Trainer {
    let corpus = Corpus::load(&settings.data).unwrap();
    let mut trainer = Trainer::start(settings.clone(), corpus, Folder::new(out)).unwrap();
    assert_eq!(trainer.run(&Interrupt::default(), &mut ()).unwrap(), Ending::Done);
    trainer
}

/// Asks for an end after some updates.
struct Stop(u64, Interrupt);

impl Observer for Stop {
    fn updated(&mut self, _: &Record, step: u64) {
        if step == self.0 {
            self.1.request();
        }
    }
}

#[test]
fn a_run_that_stops_and_goes_on_has_the_same_bits() {
    let folder = TempDir::new().unwrap();
    write_texts(folder.path());
    for (name, changes) in [
        ("encoder", &[][..]),
        ("decoder", &["model.family=decoder", "training.best_by=accuracy"]),
        (
            "first",
            &[
                "model.pooling=first",
                "data.objective.kind=classify",
                "data.objective.class_weights=balanced",
            ],
        ),
    ] {
        let settings = settings(folder.path(), changes);
        let whole = folder.path().join(format!("{name}-whole"));
        train(&settings, &whole);
        let parts = folder.path().join(format!("{name}-parts"));
        let corpus = Corpus::load(&settings.data).unwrap();
        let mut trainer =
            Trainer::start(settings.clone(), corpus.clone(), Folder::new(&parts)).unwrap();
        for step in [3, 6] {
            let interrupt = Interrupt::default();
            let ended = trainer.run(&interrupt, &mut Stop(step, interrupt.clone())).unwrap();
            assert_eq!(ended, Ending::Interrupted);
            drop(trainer);
            // With the settings of the folder, which name the classes, and with those it began with.
            let begun = match step {
                3 => Folder::new(&parts).load_settings().unwrap(),
                _ => settings.clone(),
            };
            let corpus = Corpus::load(&begun.data).unwrap();
            trainer = Trainer::resume(begun, corpus, Folder::new(&parts)).unwrap();
        }
        assert_eq!(trainer.run(&Interrupt::default(), &mut ()).unwrap(), Ending::Done);
        for file in ["model.safetensors", "last.safetensors", "config.toml"] {
            let read = |at: &Path| fs::read(at.join(file)).unwrap();
            assert!(read(&whole) == read(&parts), "{name}: {file} differs");
        }
    }
}

#[test]
fn a_run_keeps_its_classes_and_answers_as_it_is_evaluated() {
    let folder = TempDir::new().unwrap();
    write_texts(folder.path());
    let out = folder.path().join("run");
    let settings = settings(folder.path(), &["training.steps=60", "training.best_by=macro_f1"]);
    train(&settings, &out);
    let run = Run::open(&out).unwrap();
    assert_eq!(run.classes().unwrap(), ["few", "many"]);
    assert_eq!(run.settings.model.classes, 2);
    let corpus = Corpus::load(&run.settings.data).unwrap();
    let batches = trainer::batches(&run.settings, &corpus, Split::Train).unwrap();
    let names = run.classes().unwrap();
    let figures = classification_of(run.model(), &batches, None, &names).unwrap();
    assert!(figures.accuracy > 0.75, "{figures:?}");
    let text = fs::read_to_string(folder.path().join("texts.tsv")).unwrap();
    let lines: Vec<(&str, &str)> =
        text.lines().map(|line| line.split_once('\t').unwrap()).collect();
    let inputs: Vec<Input> = lines.iter().map(|(text, _)| (*text).into()).collect();
    let answers = run.classify(&inputs).unwrap();
    assert_eq!(answers.len(), lines.len());
    // Alone or with others, a text is told the same; cut are those that do not fit with begin and end.
    for (answer, (text, _)) in answers.iter().zip(&lines) {
        let alone = run.classify(&[(*text).into()]).unwrap().remove(0);
        assert_eq!(alone.label, answer.label);
        assert!((alone.probability - answer.probability).abs() < 1e-5);
        assert_eq!(answer.is_cut, text.len() + 2 > 16, "{text}");
        assert!((answer.probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }
    let all = batches.evaluation(None).map(|batch| batch.unwrap().rows).sum::<usize>();
    assert_eq!(figures.texts, all as u64);
    let right = answers.iter().zip(&lines).filter(|(answer, line)| answer.label == line.1).count();
    let valid = trainer::batches(&run.settings, &corpus, Split::Valid).unwrap();
    let held = classification_of(run.model(), &valid, None, &names).unwrap();
    let told: u64 = [&figures, &held]
        .iter()
        .map(|found| (0..2).map(|class| found.confusion[class][class]).sum::<u64>())
        .sum();
    assert_eq!(told as usize, right);
    assert_eq!(evaluate(run.model(), &valid, None, None).unwrap(), held.evaluation());
    // Every character of an unknown word has a token.
    assert_eq!(run.classify(&["xyz".into()]).unwrap().len(), 1);
}

#[test]
fn the_best_checkpoint_is_that_of_the_figure_asked_for() {
    struct Kept(Vec<(Evaluation, bool)>);
    impl Observer for Kept {
        fn evaluated(&mut self, evaluation: &Evaluation, _: u64, best: bool, _: &Model) {
            self.0.push((*evaluation, best));
        }
    }
    let folder = TempDir::new().unwrap();
    write_texts(folder.path());
    for by in ["loss", "accuracy", "macro_f1"] {
        let best = format!("training.best_by={by}");
        let changes = ["training.steps=40", "training.evaluate_every=2", "training.lr=0.02", &best];
        let settings = settings(folder.path(), &changes);
        let corpus = Corpus::load(&settings.data).unwrap();
        let out = folder.path().join(by);
        let mut trainer = Trainer::start(settings, corpus.clone(), Folder::new(&out)).unwrap();
        let mut kept = Kept(Vec::new());
        trainer.run(&Interrupt::default(), &mut kept).unwrap();
        let figure = |evaluation: &Evaluation| match by {
            "loss" => -evaluation.loss,
            "accuracy" => evaluation.accuracy,
            _ => evaluation.macro_f1.unwrap(),
        };
        let mut most = f64::NEG_INFINITY;
        for (evaluation, best) in &kept.0 {
            assert_eq!(*best, figure(evaluation) > most, "{by}");
            most = most.max(figure(evaluation));
        }
        let run = Run::open(&out).unwrap();
        let batches = trainer::batches(&run.settings, &corpus, Split::Valid).unwrap();
        let again = evaluate(run.model(), &batches, None, None).unwrap();
        assert!((figure(&again) - most).abs() < 1e-9, "{by}: {} {most}", figure(&again));
    }
}

/// A masked encoder, or a decoder, trained on the texts of the table.
fn pretrain(folder: &Path, family: &str, out: &Path) {
    let objective = if family == "encoder" { "masked" } else { "next_token" };
    let text = format!(
        "[data]\ntokenizer = 'characters'\nobjective = '{objective}'\n\
         source = {{ kind = 'text', path = '{}/texts.tsv', field = '1' }}\n\
         [model]\nfamily = '{family}'\nwidth = 16\nlayers = 2\nattention.heads = 2\ntied = false\n\
         [training]\nsteps = 4\nbatch = 4\nlength = 16",
        folder.display()
    );
    train(&RunSettings::read(&text, &[]).unwrap(), out);
}

#[test]
fn a_trained_encoder_or_decoder_becomes_a_classifier() {
    let folder = TempDir::new().unwrap();
    write_texts(folder.path());
    for family in ["encoder", "decoder"] {
        let [first, second, third] =
            ["first", "second", "third"].map(|name| folder.path().join(format!("{family}-{name}")));
        pretrain(folder.path(), family, &first);
        let base = Base { path: first.clone(), new_embeddings: false };
        let source = format!(
            "data.source={{kind=\"labeled\",path=\"{}/texts.tsv\",field=\"1\",label_field=\"2\"}}",
            folder.path().display()
        );
        let changes = ["data.objective=classify".into(), source, "training.lr=0.01".into()];
        let begun = base.settings().unwrap();
        let settings = RunSettings::read(&begun.to_toml().unwrap(), &changes).unwrap();
        let corpus = Corpus::load(&settings.data).unwrap();
        let (mut trainer, transfer) =
            Trainer::start_from(settings, corpus.clone(), Folder::new(&second), Some(&base))
                .unwrap();
        let transfer = transfer.unwrap();
        let drawn: Vec<&str> = transfer.drawn.iter().map(|drawn| drawn.name.as_str()).collect();
        assert_eq!(drawn, ["classifier.weight", "classifier.bias"]);
        let left: Vec<&str> = transfer.left_out.iter().map(|left| left.name.as_str()).collect();
        assert_eq!(left, ["output.weight"], "{family}");
        assert!(transfer.taken.iter().any(|name| name == "embedding.weight"));
        trainer.run(&Interrupt::default(), &mut ()).unwrap();
        drop(trainer);
        assert_eq!(Run::open(&second).unwrap().classes().unwrap(), ["few", "many"]);
        // Onto the same classes the head is taken, onto others it is drawn.
        let text = fs::read_to_string(folder.path().join("texts.tsv")).unwrap();
        fs::write(folder.path().join("other.tsv"), text.replace("few", "some")).unwrap();
        for (file, takes) in [("texts.tsv", true), ("other.tsv", false)] {
            let base = Base { path: second.clone(), new_embeddings: false };
            let mut settings = base.settings().unwrap();
            settings.read_from(&folder.path().join(file)).unwrap();
            let corpus = Corpus::load(&settings.data).unwrap();
            let out = third.join(file);
            let (_, transfer) =
                Trainer::start_from(settings, corpus, Folder::new(&out), Some(&base)).unwrap();
            let transfer = transfer.unwrap();
            let taken = transfer.taken.iter().any(|name| name == "classifier.weight");
            assert_eq!(taken, takes, "{file}: {:?}", transfer.drawn);
        }
    }
}

#[test]
fn classes_without_meaning_are_refused() {
    let labeled = "[data]\nsource = 'labeled'\n[model]\n";
    for (text, expected) in [
        (format!("{labeled}family = 'encoder_decoder'"), "a text is read by one stack"),
        (
            format!("{labeled}family = 'encoder'\nclasses = 3"),
            "model.classes = 3: follows from the data",
        ),
        (
            format!("{labeled}segment_memory = 4\nattention.position = 'transformer_xl'"),
            "no segments before it",
        ),
        (format!("{labeled}pooling = 'first'"), "sees nothing but itself"),
        ("[model]\nclasses = 3".into(), "only data.objective = \"classify\" has classes"),
        ("[model]\npooling = 'mean'".into(), "model.pooling = mean: only data.objective"),
        (
            "[training]\nbest_by = 'macro_f1'".into(),
            "training.best_by = macro_f1: only data.objective",
        ),
    ] {
        let message = RunSettings::read(&text, &[]).unwrap_err().to_string();
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn texts_longer_than_the_models_positions_are_cut_and_counted() {
    let folder = TempDir::new().unwrap();
    write_texts(folder.path());
    let table = "model.attention.position={kind='learned',length=12}";
    for family in ["encoder", "decoder"] {
        let family = format!("model.family={family}");
        let settings =
            settings(folder.path(), &[table, &family, "training.length=100", "training.steps=60"]);
        let out = folder.path().join(&family);
        train(&settings, &out);
        let run = Run::open(&out).unwrap();
        assert_eq!((run.settings.training.length, run.settings.row_length()), (100, 12));
        let corpus = Corpus::load(&run.settings.data).unwrap();
        let cut = |split| trainer::batches(&run.settings, &corpus, split).unwrap().cut();
        let text = fs::read_to_string(folder.path().join("texts.tsv")).unwrap();
        let texts = || text.lines().filter_map(|line| line.split('\t').next());
        // With begin and end.
        let long = texts().filter(|text| text.len() + 2 > 12).count();
        assert!(long > 20);
        assert_eq!(cut(Split::Train) + cut(Split::Valid), long);
        let answers = run.classify(&texts().map(Input::from).collect::<Vec<_>>()).unwrap();
        assert_eq!(answers.iter().filter(|answer| answer.is_cut).count(), long);
    }
}
