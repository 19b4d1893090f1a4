//! What heads do, held against models whose heads are known, and losses without them against other ways to remove one.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::ControlFlow;

use tempfile::TempDir;
use whatwhere_data::{Corpus, Error as DataError, Work};
use whatwhere_lab::{
    Error,
    heads::{self, HeadsReport, Role, ablation},
    show::{self, Reading},
};
use whatwhere_training::{Folder, Run, RunSettings, Trainer, interrupt::Interrupt};
use whatwhere_transformer::{Model, Parameter};

const TINY: &str = "
seed = 5
[data]
tokenizer = 'characters'
[model]
layers = 2
[model.attention]
heads = 2
[training]
steps = 2
batch = 2
length = 16
lr = 0.01
schedule = { kind = 'constant' }
evaluate_batches = 1
";

/// A run of two steps on the letters a to h and brackets.
fn trained(changes: &[&str]) -> (TempDir, Run) {
    let changes: Vec<String> = changes.iter().map(|change| (*change).into()).collect();
    let settings = RunSettings::read(TINY, &changes).unwrap();
    let text = (0..900usize).map(|i| char::from(b"abcdefgh()"[i * i / 7 % 10])).collect();
    let corpus = Corpus::from_texts(vec![text], &settings.data).unwrap();
    let folder = TempDir::new().unwrap();
    let mut trainer = Trainer::start(settings, corpus, Folder::new(folder.path())).unwrap();
    trainer.run(&Interrupt::default(), &mut ()).unwrap();
    drop(trainer);
    let run = Run::open(folder.path()).unwrap();
    (folder, run)
}

fn on(_: Work) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn measured(run: &Run, text: &str) -> HeadsReport {
    let reading = Reading::new(run, text, None).unwrap();
    let batches = ablation::batches_of(&reading).unwrap();
    heads::measure(&reading, Some(&batches), &mut on).unwrap()
}

/// A run whose parameters are changed by `change`.
fn changed(run: &Run, mut change: impl FnMut(&mut Parameter)) -> Run {
    let mut parameters = run.model().parameters();
    parameters.iter_mut().for_each(&mut change);
    let model: Model = run.model().clone().with_parameters(parameters).unwrap();
    run.with_model(&model)
}

const WIDTH: usize = 64;
const TOKEN: usize = 0; // one-hot token
const PLACE: usize = 16; // one-hot place
const BEFORE: usize = 32; // one-hot token before
const SHARP: f32 = 8.0; // so large that the softmax is nearly one-hot

/// Channels that go from a stretch of the stream to channel 0 and on of a head, `to(i)` for each `i`.
fn wire(
    p: &mut Parameter,
    from: usize,
    head: usize,
    count: usize,
    to: impl Fn(usize) -> Option<usize>,
) {
    for i in 0..count {
        if let Some(to) = to(i) {
            p.values[(from + i) * WIDTH + head * WIDTH / 2 + to] = SHARP;
        }
    }
}

/// Layer 0: previous token, uniform. Layer 1: induction, by what layer 0 wrote; first token.
fn hand_made() -> (TempDir, Run) {
    let position = "model.attention.position={kind='learned',length=16}";
    let (folder, run) = trained(&["model.width=64", position, "model.init=normal"]);
    let run = changed(&run, |p| {
        let is_gain = p.name.contains("norm");
        p.values.fill(if is_gain { 1.0 } else { 0.0 });
        let name = p.name.as_str();
        if name == "embedding.weight" {
            p.values.chunks_mut(WIDTH).enumerate().for_each(|(id, row)| row[TOKEN + id] = 1.0);
        } else if name.contains("position") {
            p.values
                .chunks_mut(WIDTH)
                .enumerate()
                .for_each(|(place, row)| row[PLACE + place] = 1.0);
        } else if name.ends_with("blocks.0.attention.query.weight") {
            wire(p, PLACE, 0, 16, |place| place.checked_sub(1));
        } else if name.ends_with("blocks.0.attention.key.weight") {
            wire(p, PLACE, 0, 16, Some);
        } else if name.ends_with("blocks.0.attention.value.weight") {
            wire(p, TOKEN, 0, 16, Some);
        } else if name.ends_with("blocks.0.attention.output.weight") {
            (0..16).for_each(|token| p.values[token * WIDTH + BEFORE + token] = 0.05);
        } else if name.ends_with("blocks.1.attention.query.weight") {
            wire(p, TOKEN, 0, 16, Some);
            wire(p, PLACE, 1, 16, |_| Some(0));
        } else if name.ends_with("blocks.1.attention.key.weight") {
            wire(p, BEFORE, 0, 16, Some);
            wire(p, PLACE, 1, 16, |place| (place == 0).then_some(0));
        }
    });
    (folder, run)
}

#[test]
fn heads_made_by_hand_have_the_roles_they_were_made_for() {
    let (_folder, run) = hand_made();
    // The first token is the only one of its kind: layer 0 writes it there as its own predecessor.
    let report = measured(&run, "habcdacbadbcadb");
    let roles: Vec<Option<Role>> = report.heads.iter().map(|head| head.role).collect();
    let expected = [Role::Previous, Role::Uniform, Role::Induction, Role::First].map(Some);
    assert_eq!(roles, expected, "{:#?}", report.heads);
    let [previous, uniform, induction, first] = &report.heads[..] else { panic!("four heads") };
    assert!(previous.previous.unwrap().weight > 0.99);
    assert_eq!(previous.offset.unwrap().0, -1);
    assert!(induction.induction.unwrap().weight > 0.99);
    assert!(first.first.unwrap().weight > 0.99);
    let even = uniform.previous.unwrap();
    assert!((even.weight - even.uniform).abs() < 1e-6, "{even:?}");
    assert!((uniform.entropy[0] - uniform.entropy[1]).abs() < 1e-5);
    // Sum over queries 1 to 14 of 1/(query + 1), by the 14 of them.
    let harmonic: f64 = (2..=15).map(|n| 1.0 / f64::from(n)).sum::<f64>() / 14.0;
    assert!((even.uniform - harmonic).abs() < 1e-12);
    assert_eq!(uniform.bracket, None, "the text has none");
    // Layer 0 compares places only: all of its spread is position's. Content is mixed into later layers.
    let shares = previous.shares.unwrap();
    assert!((shares.position - 1.0).abs() < 1e-6, "{shares:?}");
    assert_eq!(uniform.shares, None, "nothing spreads");
    assert_eq!(induction.shares, None);
}

#[test]
fn a_long_text_has_the_figures_of_its_rows() {
    let (_folder, run) = trained(&["model.width=16"]);
    let text = "abc(de)fgh".repeat(20);
    let report = measured(&run, &text);
    for (index, head) in report.heads.iter().enumerate() {
        let (weights, [_, queries, keys]) = run.attention_weights(&text, head.layer).unwrap();
        let of = |query: usize, key: usize| {
            f64::from(weights[(head.head * queries + query) * keys + key])
        };
        let mean = |pairs: Vec<(usize, usize)>| {
            let count = pairs.len() as f64;
            pairs.into_iter().map(|(query, key)| of(query, key)).sum::<f64>() / count
        };
        let previous = mean((1..queries).map(|query| (query, query - 1)).collect());
        assert!((head.previous.unwrap().weight - previous).abs() < 1e-5, "head {index}");
        let brackets: Vec<_> = (0..20).map(|i| (10 * i + 6, 10 * i + 3)).collect();
        assert!((head.bracket.unwrap().weight - mean(brackets)).abs() < 1e-5, "head {index}");
        let same = |query: usize| (0..query).filter(move |key| query % 10 == key % 10);
        let all: f64 =
            (10..queries).flat_map(|q| same(q).map(move |k| (q, k))).map(|(q, k)| of(q, k)).sum();
        let expected = all / (queries - 10) as f64;
        assert!((head.same_token.unwrap().weight - expected).abs() < 1e-5, "head {index}");
        let shares = head.shares.unwrap();
        let sum = shares.content + shares.position + shares.interaction;
        assert!((sum - 1.0).abs() < 1e-6, "{shares:?}");
    }
}

#[test]
fn a_head_that_adds_nothing_is_not_missed_and_another_is_as_if_it_had_no_values() {
    let (_folder, run) = trained(&["model.width=16"]);
    // Head 1 of layer 0 adds nothing.
    let run = changed(&run, |p| {
        if p.name == "decoder.blocks.0.attention.output.weight" {
            p.values[8 * 16..].fill(0.0);
        }
    });
    let text = "abcdefgh(abc)fgh"; // within the trained length, so that it is one window
    let loss = |run: &Run| {
        let scores = run.score(text).unwrap();
        -scores.iter().map(|(_, log)| log).sum::<f64>() / scores.len() as f64
    };
    let report = measured(&run, text);
    let ablation = report.ablation.as_ref().unwrap();
    assert_eq!(ablation.tokens, 15);
    assert!((ablation.loss - loss(&run)).abs() < 1e-5);
    assert_eq!(report.heads[1].loss_without, Some(0.0));
    for (index, head) in report.heads.iter().enumerate() {
        let name = format!("decoder.blocks.{}.attention.value.weight", head.layer);
        let without = changed(&run, |p| {
            if p.name == name {
                p.values.chunks_mut(16).for_each(|row| row[8 * head.head..][..8].fill(0.0));
            }
        });
        let (found, expected) = (ablation.without[index], loss(&without));
        assert!((found - expected).abs() < 1e-5, "head {index}: {found}, expected {expected}");
        assert_eq!(found == ablation.loss, index == 1, "head {index}");
    }
    // Pruning begins with the least harm, and ends without heads.
    let order: Vec<f64> = (ablation.pruning.iter().filter_map(|step| step.removed))
        .map(|head| ablation.without[head.layer * 2 + head.head])
        .collect();
    assert!(order.is_sorted() && order.len() == 4, "{order:?}");
    let none = changed(&run, |p| {
        if p.name.ends_with("attention.output.weight") {
            p.values.fill(0.0);
        }
    });
    let last = ablation.pruning.last().unwrap();
    assert_eq!(last.heads, 0);
    assert!((last.loss - loss(&none)).abs() < 1e-5);
}

#[test]
fn every_family_is_measured_and_drawn() {
    let encoder = ["model.family=encoder", "data.objective=masked", "model.width=16"];
    let document =
        ["model.width=16", "model.attention.pattern={kind='and',of=['causal','document']}"];
    for changes in [&encoder[..], &document[..1], &document[..]] {
        let (_folder, run) = trained(changes);
        let text = "abc(def)gh".repeat(3); // longer than the trained length
        let report = measured(&run, &text);
        assert_eq!(report.heads.len(), 4);
        assert_eq!(report.ablation.as_ref().unwrap().pruning.len(), 5);
        let reading = Reading::new(&run, &text, None).unwrap();
        let html = show::heads(&reading, &report, "the text").html();
        for expected in ["What each head does", "Loss without each head", "Pruning"] {
            assert!(html.contains(expected), "{expected}");
        }
        assert!(!html.contains("NaN"));
    }
}

#[test]
fn measuring_ends_when_it_is_asked_to() {
    let (_folder, run) = trained(&["model.width=16"]);
    let reading = Reading::new(&run, "abcdefgh", None).unwrap();
    let batches = ablation::batches_of(&reading).unwrap();
    let mut heard = Vec::new();
    let error = heads::measure(&reading, Some(&batches), &mut |work: Work| {
        heard.push((work.what, work.done, work.of));
        if heard.len() == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(error, Err(Error::Data(DataError::Interrupted))), "{error:?}");
    assert_eq!(heard[1], ("layers", 1, 2));
    assert_eq!(heard[4], ("losses without heads", 2, 9));
}
