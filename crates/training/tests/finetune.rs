//! Runs that start from others: what is taken, what stays as it was, and adapters.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, fs, path::Path};

use tempfile::TempDir;
use whatwhere_data::Corpus;
use whatwhere_training::{
    Base, Ending, Error, Folder, Run, RunSettings, Trainer, Transfer, interrupt::Interrupt, merge,
};

const BASE: &str = "
seed = 5
[data]
tokenizer = 'characters'
[model]
width = 16
layers = 2
[model.attention]
heads = 2
[training]
steps = 6
batch = 3
length = 12
evaluate_every = 3
schedule = { kind = 'cosine', warmup = 2 }
";

fn settings(changes: &[&str]) -> RunSettings {
    RunSettings::read(BASE, &changes.iter().map(|&change| change.into()).collect::<Vec<_>>())
        .unwrap()
}

/// The same letters in another order for each shift.
fn corpus(settings: &RunSettings, shift: u32) -> Corpus {
    let letter = |i: u32| char::from(b'a' + ((i * i / 7 + i * shift) % 26) as u8);
    let text = ('a'..='z').chain((0..1500).map(letter)).collect();
    Corpus::from_texts(vec![text], &settings.data).unwrap()
}

fn base(folder: &Path) {
    let settings = settings(&[]);
    let corpus = corpus(&settings, 0);
    let mut trainer = Trainer::start(settings, corpus, Folder::new(folder)).unwrap();
    assert_eq!(trainer.run(&Interrupt::default(), &mut ()).unwrap(), Ending::Done);
}

fn from(
    path: &Path,
    settings: &RunSettings,
    out: &Path,
) -> Result<(Trainer, Option<Transfer>), Error> {
    let base = Base { path: path.into(), new_embeddings: false };
    Trainer::start_from(settings.clone(), corpus(settings, 3), Folder::new(out), Some(&base))
}

fn tune(path: &Path, changes: &[&str], out: &Path) -> Transfer {
    let (mut trainer, transfer) = from(path, &settings(changes), out).unwrap();
    assert_eq!(trainer.run(&Interrupt::default(), &mut ()).unwrap(), Ending::Done);
    transfer.unwrap()
}

fn parameters(folder: &Path) -> BTreeMap<String, Vec<f32>> {
    let run = Run::open(folder).unwrap();
    run.model().parameters().into_iter().map(|p| (p.name, p.values)).collect()
}

fn logits(folder: &Path) -> Vec<f32> {
    let run = Run::open(folder).unwrap();
    let ids = [[1u32, 2, 3, 4, 5, 6, 7].to_vec()];
    run.logits(None, &ids).unwrap().0
}

#[test]
fn what_agrees_in_name_and_shape_is_taken_and_the_rest_is_drawn_and_told() {
    let folder = TempDir::new().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    base(&first);
    // A third layer is new, and so is a wider feed-forward.
    let changes = ["model.layers=3", "model.feed_forward=48"];
    let (trainer, transfer) = from(&first, &settings(&changes), &second).unwrap();
    let transfer = transfer.unwrap();
    let theirs = parameters(&first);
    for parameter in trainer.model().parameters() {
        let is_taken = transfer.taken.contains(&parameter.name);
        let is_drawn = transfer.drawn.iter().any(|drawn| drawn.name == parameter.name);
        assert!(is_taken != is_drawn, "{}", parameter.name);
        let is_same = theirs.get(&parameter.name) == Some(&parameter.values);
        // Gains are 1 wherever they were drawn.
        assert!(is_same == is_taken || parameter.name.contains("norm"), "{}", parameter.name);
        let is_new = parameter.name.contains(".2.") || parameter.name.contains("feed_forward");
        assert!(is_drawn == is_new || parameter.name.contains("norm"), "{}", parameter.name);
    }
    assert!(transfer.left_out.iter().all(|left| left.reason.contains("shape")), "{transfer:?}");
    let words = fs::read_to_string(second.join("transfer.json")).unwrap();
    assert_eq!(serde_json::from_str::<Transfer>(&words).unwrap(), transfer);
    assert!(transfer.summary().contains("drawn"), "{}", transfer.summary());
}

#[test]
fn nothing_that_agrees_and_other_tokens_are_refused_with_the_way_out() {
    let folder = TempDir::new().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    base(&first);
    let refused =
        |settings: &RunSettings| from(&first, settings, &second).err().unwrap().to_string();
    let message = refused(&settings(&["model.width=24", "model.attention.heads=3"]));
    assert!(
        message.contains("none of its parameters")
            && message.contains("[26, 16] there, [26, 24] here"),
        "{message}"
    );
    let other = settings(&["data.tokenizer=bytes"]);
    let message = refused(&other);
    assert!(
        message.contains("another tokenizer") && message.contains("--new-embeddings"),
        "{message}"
    );
    let way = format!(
        "--set 'data.tokenizer={{kind=\"file\",path=\"{}\"}}'",
        first.join("tokenizer.json").display()
    );
    assert!(message.contains(&way), "{message}");
    // Before the model's vocabulary is found too small for them.
    let message = refused(&settings(&["data.tokenizer=bytes", "model.vocabulary=26"]));
    assert!(message.contains("another tokenizer"), "{message}");
    assert!(!second.exists(), "what is refused leaves no folder");
    let base = Base { path: first.clone(), new_embeddings: true };
    let third = Folder::new(folder.path().join("third"));
    let (_, transfer) =
        Trainer::start_from(other.clone(), corpus(&other, 3), third, Some(&base)).unwrap();
    let drawn = transfer.unwrap().drawn;
    assert!(drawn.len() == 1 && drawn[0].name.starts_with("embedding"), "{drawn:?}");
}

/// A run of one text reads several: its tokens are what they were, and the end of a text is a new one.
#[test]
fn a_special_token_that_data_add_is_drawn_and_all_others_are_taken() {
    for changes in [&[][..], &["model.tied=false", "model.output_bias=true"]] {
        let folder = TempDir::new().unwrap();
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        let own = settings(changes);
        let mut trainer =
            Trainer::start(own.clone(), corpus(&own, 0), Folder::new(&first)).unwrap();
        assert_eq!(trainer.run(&Interrupt::default(), &mut ()).unwrap(), Ending::Done);
        let base = Base { path: first.clone(), new_embeddings: false };
        let settings = base.settings().unwrap();
        let text = |shift: usize| ('a'..='z').cycle().skip(shift).take(400).collect::<String>();
        let several = Corpus::from_texts(vec![text(0), text(3), text(5)], &settings.data).unwrap();
        assert_eq!(several.vocabulary(), 27);
        let (mut trainer, transfer) =
            Trainer::start_from(settings, several, Folder::new(&second), Some(&base)).unwrap();
        let transfer = transfer.unwrap();
        assert!(transfer.drawn.is_empty() && transfer.left_out.is_empty(), "{transfer:?}");
        let grown: Vec<&str> = transfer.grown.iter().map(|grown| grown.name.as_str()).collect();
        assert_eq!(grown.len(), if changes.is_empty() { 1 } else { 3 }, "{grown:?}");
        assert!(transfer.grown[0].reason.starts_with("drawn for <"), "{transfer:?}");
        assert!(transfer.summary().contains("with more rows (embedding.weight: "), "{transfer:?}");
        let theirs = parameters(&first);
        let mut met = 0;
        for parameter in trainer.model().parameters() {
            let before = &theirs[&parameter.name];
            match (grown.contains(&parameter.name.as_str()), &parameter.shape[..]) {
                (false, _) => assert_eq!(parameter.values, *before, "{}", parameter.name),
                // Columns are tokens.
                (true, [_, 27]) => {
                    for (row, known) in parameter.values.chunks(27).zip(before.chunks(26)) {
                        assert_eq!(&row[..26], known, "{}", parameter.name);
                    }
                    met += 1;
                }
                (true, _) => {
                    assert_eq!(parameter.values[..before.len()], before[..], "{}", parameter.name);
                    met += 1;
                }
            }
        }
        assert_eq!(met, grown.len());
        // It learns and goes on as any other.
        assert_eq!(trainer.run(&Interrupt::default(), &mut ()).unwrap(), Ending::Done);
        drop(trainer);
        let again = Folder::new(&second);
        let settings = again.load_settings().unwrap();
        let several = Corpus::from_texts(vec![text(0), text(3), text(5)], &settings.data).unwrap();
        assert!(Trainer::resume(settings, several, again).is_ok());
    }
}

#[test]
fn what_is_frozen_keeps_its_bits_and_all_else_learns() {
    let folder = TempDir::new().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    base(&first);
    tune(&first, &["training.freeze=['embedding.*', 'decoder.blocks.0.*']"], &second);
    let (before, after) = (parameters(&first), parameters(&second));
    for (name, values) in &before {
        let frozen = name.starts_with("embedding.") || name.starts_with("decoder.blocks.0.");
        assert_eq!(after[name] == *values, frozen, "{name}");
    }
    let refused = |change: &str| {
        let third = folder.path().join("third");
        from(&first, &settings(&[change]), &third).err().unwrap().to_string()
    };
    let message = refused("training.freeze=['encoder.*']");
    assert!(message.contains("training.freeze = \"encoder.*\": fits no parameter"), "{message}");
    let message = refused("training.freeze=['*']");
    assert!(message.contains("freezes every parameter"), "{message}");
    let message = refused("training.lora.projections=['quarry']");
    assert!(message.contains("quarry") && message.contains("query"), "{message}");
}

#[test]
fn adapters_are_saved_apart_and_merged_give_the_same_logits() {
    let folder = TempDir::new().unwrap();
    let [first, second, third] = ["first", "second", "third"].map(|name| folder.path().join(name));
    base(&first);
    for (changes, adapted) in [
        (&["training.lora.rank=3", "training.lr=0.01"][..], &["query", "value"][..]),
        (
            &["training.lora={rank=1, alpha=4.0, projections=['*.feed_forward.*', 'output']}"],
            &["feed_forward", "output"],
        ),
        (&["training.lora.also=['embedding.*']"], &["query", "value", "embedding"]),
    ] {
        for folder in [&second, &third] {
            let _ = fs::remove_dir_all(folder);
        }
        tune(&first, changes, &second);
        let (before, after) = (parameters(&first), parameters(&second));
        for (name, values) in &before {
            let is_adapted =
                name.split('.').any(|part| adapted.contains(&part)) && (name.ends_with("weight"));
            assert_eq!(after[name] != *values, is_adapted, "{changes:?}: {name}");
        }
        // The weights themselves are those of the base; what was learned lies beside them.
        let size = |path: &Path| fs::metadata(path).unwrap().len();
        assert_eq!(size(&first.join("model.safetensors")), size(&second.join("model.safetensors")));
        assert!(second.join("adapter.safetensors").is_file());
        merge(&second, &third).unwrap();
        assert!(!third.join("adapter.safetensors").exists());
        let (apart, merged) = (logits(&second), logits(&third));
        let far = apart.iter().zip(&merged).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far <= 1e-5, "{changes:?}: {far}");
        assert_ne!(apart, logits(&first));
    }
    let message = merge(&first, &folder.path().join("fourth")).unwrap_err().to_string();
    assert!(message.contains("no adapters to merge"), "{message}");
}

#[test]
fn drawn_parameters_that_would_never_learn_are_refused() {
    let folder = TempDir::new().unwrap();
    let first = folder.path().join("first");
    base(&first);
    let refused = |changes: &[&str]| {
        from(&first, &settings(changes), &folder.path().join("second")).err().unwrap().to_string()
    };
    let message = refused(&["model.layers=3", "training.lora.rank=2"]);
    assert!(
        message.contains("decoder.blocks.2") && message.contains("training.lora.also"),
        "{message}"
    );
    let message = refused(&["model.layers=3", "training.freeze=['*.2.*']"]);
    assert!(message.contains("training.freeze"), "{message}");
}

#[test]
fn a_base_without_a_tokenizer_says_what_can_be_done() {
    let folder = TempDir::new().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    base(&first);
    fs::remove_file(first.join("tokenizer.json")).unwrap();
    // Its model has fewer tokens than bytes are.
    let settings = settings(&["data.tokenizer=bytes", "model.vocabulary=26"]);
    let message = from(&first, &settings, &second).err().unwrap().to_string();
    assert!(message.contains("came without a tokenizer"), "{message}");
    assert!(message.contains("--new-embeddings draws the vectors"), "{message}");
    let message = from(&folder.path().join("none"), &settings, &second).err().unwrap().to_string();
    assert!(message.contains("none holds no run"), "{message}");
    assert!(!second.exists());
}
