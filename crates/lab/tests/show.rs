//! Trained models looked into: every family, every encoding, any length.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use burn::tensor::{Device, Tensor};
use tempfile::TempDir;
use whatwhere_attention::{AttentionSettings, Input, Position};
use whatwhere_data::Corpus;
use whatwhere_kernels::attention::{Attention, reference};
use whatwhere_lab::show::{self, Heads, Kind, Reading, Terms};
use whatwhere_training::{Folder, Run, RunSettings, Trainer, interrupt::Interrupt};

const TINY: &str = "
seed = 5
[data]
tokenizer = 'characters'
[model]
width = 16
layers = 2
[model.attention]
heads = 2
[training]
steps = 3
batch = 2
length = 16
lr = 0.01
schedule = { kind = 'constant' }
evaluate_batches = 1
";

/// A run of a few steps in a folder of its own.
fn trained(changes: &[&str]) -> (TempDir, Run) {
    let task = changes.contains(&"data.source=reverse");
    let text = if task { TINY.replace("tokenizer = 'characters'", "") } else { TINY.into() };
    let changes: Vec<String> = changes.iter().map(|change| (*change).into()).collect();
    let settings = RunSettings::read(&text, &changes).unwrap();
    let corpus = match task {
        true => Corpus::load(&settings.data).unwrap(),
        false => {
            let text = (0..900u32).map(|i| char::from(b'a' + (i * i / 7 % 26) as u8)).collect();
            Corpus::from_texts(vec![text], &settings.data).unwrap()
        }
    };
    let folder = TempDir::new().unwrap();
    let mut trainer = Trainer::start(settings, corpus, Folder::new(folder.path())).unwrap();
    trainer.run(&Interrupt::default(), &mut ()).unwrap();
    drop(trainer);
    let run = Run::open(folder.path()).unwrap();
    (folder, run)
}

fn position(name: &str) -> String {
    format!("model.attention.position={name}")
}

/// The largest difference between a score and the sum of its terms, over all visible pairs.
fn worst(terms: &Terms) -> f64 {
    let sums =
        (0..terms.scores.len()).map(|i| terms.terms.iter().map(|t| t.values[i]).sum::<f64>());
    let visible = terms.scores.iter().zip(sums).filter(|(score, _)| score.is_finite());
    visible.map(|(score, sum)| (score - sum).abs()).fold(0.0, f64::max)
}

#[test]
fn the_heads_of_every_family_are_drawn() {
    let encoder = ["model.family=encoder", "data.objective=masked"];
    let pairs = [
        "model.family=encoder_decoder",
        "data.source=reverse",
        "data.objective=translate",
        "training.length=32",
    ];
    let cases: [(&[&str], &str, &[&str]); 3] = [
        (&[], "attend", &["decoder-layer0-head0", "decoder-layer1-head1", "decoder-layer1-spread"]),
        (&encoder, "ab[MASK]d", &["encoder-layer0-head1"]),
        (&pairs, "", &["encoder-layer0-head0", "decoder-layer1-head0", "cross-layer1-head1"]),
    ];
    for (changes, text, expected) in cases {
        let (_folder, run) = trained(changes);
        // A task's symbols are its own.
        let text = if text.is_empty() {
            run.tokenizer().unwrap().decode(&[5, 6, 7, 8])
        } else {
            text.into()
        };
        let reading = Reading::new(&run, &text, None).unwrap();
        let page = show::attention(&reading, &Heads::default()).unwrap();
        let pictures: Vec<&str> = (page.sections.iter())
            .flat_map(|section| section.pictures.iter().map(|picture| picture.name.as_str()))
            .collect();
        for name in expected {
            assert!(pictures.contains(name), "{name} in {pictures:?}");
        }
        assert!(!page.html().contains("NaN"));
        show::split(&reading, &Heads::default()).unwrap();
    }
}

#[test]
fn a_map_of_single_tokens_has_the_models_own_weights() {
    let (_folder, run) = trained(&[]);
    let reading = Reading::new(&run, "attend", None).unwrap();
    let heads = Heads { layers: vec![1], heads: vec![1] };
    let page = show::attention(&reading, &heads).unwrap();
    let (weights, [_, queries, keys]) = run.attention_weights("attend", 1).unwrap();
    for expected in ["<blockquote>attend</blockquote>", "A decoder of 2 layers, width 16"] {
        assert!(page.html().contains(expected), "{expected}");
    }
    let map = &page.sections[0].pictures[0].svg;
    // The second head's weight of the last token to the first.
    let weight = weights[queries * keys + (queries - 1) * keys];
    let hint = format!("query d, key a: {weight:.4}");
    let hint = hint.trim_end_matches('0');
    assert!(map.contains(hint), "{hint} in {map}");
    assert_eq!(page.sections[0].table.len(), queries + 1);
}

#[test]
fn what_does_not_exist_is_refused() {
    let (_folder, run) = trained(&[]);
    let reading = Reading::new(&run, "abc", None).unwrap();
    let refused = |layers: &[usize], heads: &[usize]| {
        let heads = Heads { layers: layers.to_vec(), heads: heads.to_vec() };
        show::attention(&reading, &heads).unwrap_err().to_string()
    };
    assert_eq!(refused(&[2], &[]), "found layer 2, expected 0 to 1");
    assert_eq!(refused(&[], &[9]), "found head 9, expected 0 to 1");
    let refused = |text: &str, target| Reading::new(&run, text, target).err().unwrap().to_string();
    assert!(refused("", None).contains("no tokens"));
    assert!(refused("a", Some("b")).contains("only an encoder-decoder"));
    let long = Reading::new(&run, &"ab".repeat(300), None).unwrap();
    let error = show::split(&long, &Heads::default()).unwrap_err().to_string();
    assert!(error.contains("found 600 tokens, expected at most 512"), "{error}");
    let (_folder, linear) = trained(&["model.attention.mixing=linear", &position("none")]);
    let reading = Reading::new(&linear, "abc", None).unwrap();
    let error = show::attention(&reading, &Heads::default()).unwrap_err().to_string();
    assert!(error.contains("without scores there are none to look at"), "{error}");
}

#[test]
fn every_token_is_named_up_to_128_and_cells_speak_for_several_only_beyond() {
    let (_folder, run) = trained(&[]);
    let page = |length: usize| {
        let text: String = "abcdefgh".chars().cycle().take(length).collect();
        let reading = Reading::new(&run, &text, None).unwrap();
        show::attention(&reading, &Heads { layers: vec![0], heads: vec![0] }).unwrap()
    };
    for (length, named) in [(60, true), (128, true), (129, false)] {
        let page = page(length);
        let map = &page.sections[0].pictures[0].svg;
        let letters = map.matches(">a</text>").count();
        assert_eq!(letters, if named { 2 * length.div_ceil(8) } else { 0 }, "{length}");
        let is_pooled = page.html().contains("the strongest weight among the tokens");
        assert_eq!(is_pooled, !named, "{length}");
    }
}

#[test]
fn a_text_too_long_for_a_split_is_refused_before_it_is_read() {
    let (_folder, run) = trained(&[]);
    let reading = Reading::of_at_most(&run, &"ab".repeat(300), None, show::LONGEST_SPLIT);
    let error = reading.err().unwrap().to_string();
    assert!(error.contains("found 600 tokens, expected at most 512"), "{error}");
}

#[test]
fn a_long_text_is_drawn_in_as_many_cells_as_a_shorter_one() {
    let (_folder, run) = trained(&[]);
    let page = |length: usize| {
        let reading = Reading::new(&run, &"abcdefgh".repeat(length / 8), None).unwrap();
        show::attention(&reading, &Heads::default()).unwrap().html().len()
    };
    // Sixteen times the pairs: the page is a picture of them, not a copy.
    let (short, long) = (page(512), page(2048));
    assert!(long < 2 * short, "{short} and {long} bytes");
}

/// f32 inputs, f64 sums of a few dozen products: the parts of q and k are rounded once.
const TOLERANCE: f64 = 1e-4;

#[test]
fn the_terms_of_every_encoding_add_up_to_the_models_scores() {
    let more: [&[&str]; 4] = [
        &["model.attention.position=['sinusoidal', 'rotary', 'alibi']"],
        &["model.attention.position=['learned', 't5']", "model.norm=layer", "model.bias=true"],
        &[
            "model.attention.position=sinusoidal",
            "model.attention.score=cosine",
            "model.norm_place=post",
        ],
        &[
            "model.attention.position=polar",
            "model.attention.soft_cap=0.5",
            "model.attention.kv_heads=1",
        ],
    ];
    let singles = Position::NAMES.iter().map(|name| vec![position(name)]);
    let more = more.iter().map(|changes| changes.iter().map(|c| (*c).to_owned()).collect());
    for changes in singles.chain(more) {
        let (_folder, run) = trained(&changes.iter().map(String::as_str).collect::<Vec<_>>());
        let reading = Reading::new(&run, "attendtothis", None).unwrap();
        for seen in reading.seen() {
            let (terms, _) = show::terms(&reading, seen).unwrap();
            let off = worst(&terms);
            assert!(off < TOLERANCE, "{changes:?}, layer {}: off by {off}", seen.layer);
            // The scores are those the model computes with: their softmax is its weights.
            let look = reading.attention(seen).look(seen.input.clone()).unwrap();
            let weights = reading.attention(seen).weights(seen.input.clone()).unwrap();
            let weights: Vec<f32> = weights.into_data().try_into_vec().unwrap();
            let call: Attention = look.call();
            let expected = reference::weights(&call, &look.inputs()).unwrap();
            for (found, expected) in weights.iter().zip(expected) {
                assert!((f64::from(*found) - expected).abs() < TOLERANCE, "{changes:?}");
            }
        }
    }
}

#[test]
fn terms_are_those_of_the_papers() {
    let names = |changes: &[&str]| {
        let (_folder, run) = trained(changes);
        let reading = Reading::new(&run, "attend", None).unwrap();
        let (terms, _) = show::terms(&reading, &reading.seen()[0]).unwrap();
        let names = terms.terms.iter().map(|term| (term.name, term.kind));
        names.collect::<Vec<_>>()
    };
    use Kind::{Content, Interaction, Position};
    assert_eq!(names(&[&position("none")]), [("content", Content)]);
    assert_eq!(
        names(&[&position("alibi")]),
        [("content", Content), ("slope · distance", Position)]
    );
    assert_eq!(names(&[&position("shaw")]), [("content", Content), ("q·a", Interaction)]);
    assert_eq!(
        names(&[&position("transformer_xl")]),
        [("content", Content), ("u·k", Content), ("q·a", Interaction), ("v·a", Position)]
    );
    assert_eq!(
        names(&[&position("polar")]),
        [("content", Content), ("distance", Position), ("content × distance", Interaction)]
    );
    assert_eq!(
        names(&[&position("sinusoidal")]),
        [
            ("content · content", Content),
            ("content · position", Interaction),
            ("position · content", Interaction),
            ("position · position", Position)
        ]
    );
}

/// One head, two channels, so that every term can be written out.
fn terms_of(position: &str, x: [[f32; 2]; 3]) -> (Terms, Vec<f32>, Vec<f32>) {
    let text = format!("width = 2\nheads = 1\npattern = 'full'\nposition = {position}");
    let layer = AttentionSettings::from_toml(&text).unwrap().build(&Device::flex()).unwrap();
    let x = Tensor::<3>::from_data([x], &Device::flex());
    let look = layer.look(Input::new(x)).unwrap();
    let (q, k) = (look.inputs().q.to_vec(), look.inputs().k.to_vec());
    (Terms::of(&look, &layer.settings().position, None).unwrap(), q, k)
}

#[test]
fn rotary_and_polar_terms_are_those_of_their_formulas() {
    let x = [[0.3, -1.2], [0.8, 0.5], [-0.4, 0.9]];
    let scale = 0.5f64.sqrt();
    let (terms, q, k) = terms_of("'rotary'", x);
    let dot = |q: &[f32], k: &[f32]| f64::from(q[0] * k[0] + q[1] * k[1]);
    let (q2, k0) = (&q[4..6], &k[0..2]);
    let content = terms.terms[0].values[2 * 3];
    assert!((content - scale * dot(q2, k0)).abs() < 1e-6);
    // At distance 0 nothing turns.
    for term in &terms.terms[1..] {
        assert!(term.values[0].abs() < 1e-6 && term.values[4].abs() < 1e-6, "{}", term.name);
    }
    let soft = |v: f32| f64::from(v).exp().ln_1p();
    let (terms, q, k) = terms_of("'polar'", x);
    let what: f64 = (0..2).map(|c| soft(q[4 + c]) * soft(k[c])).sum();
    assert!((terms.terms[0].values[2 * 3] - scale * what).abs() < 1e-6);
    let frequencies = [1.0, 0.01]; // 10000^(−c/2)
    let score: f64 =
        (0..2).map(|c| soft(q[4 + c]) * soft(k[c]) * (2.0f64 * frequencies[c]).cos()).sum();
    assert!((terms.scores[2 * 3] - scale * score).abs() < 1e-6);
}
