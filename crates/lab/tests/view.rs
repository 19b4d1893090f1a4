//! What the page asks about a run: answers are the model's own numbers, for every family and encoding.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;
use whatwhere_attention::Position;
use whatwhere_data::Corpus;
use whatwhere_lab::{
    show::{self, Reading},
    view::{self, CELLS, Opened, Opening, Parameters, View, choices},
};
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
fn trained(changes: &[&str]) -> (TempDir, Arc<Run>) {
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
    let run = Arc::new(Run::open(folder.path()).unwrap());
    (folder, run)
}

/// f16 of numbers up to the largest.
const HALF: f32 = 1e-3;

fn open(run: &Arc<Run>, text: &str) -> View {
    View::open(run, &Opening { text: text.into(), ..Opening::default() }).unwrap()
}

fn json(view: &View, what: &str, pairs: &[(&str, &str)]) -> Value {
    let answer = view.answer(what, &Parameters::new(pairs.iter().copied())).unwrap();
    serde_json::from_slice(&answer.bytes).unwrap()
}

/// The header and the arrays of packed numbers.
fn numbers(view: &View, what: &str, pairs: &[(&str, &str)]) -> (Value, Vec<Vec<f32>>) {
    let bytes = view.answer(what, &Parameters::new(pairs.iter().copied())).unwrap().bytes;
    let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[4..4 + length]).unwrap();
    let mut rest = &bytes[4 + length..];
    let mut arrays = Vec::new();
    for array in header["arrays"].as_array().unwrap() {
        let count = array["length"].as_u64().unwrap() as usize;
        let (values, used) = match array["scale"].as_f64() {
            None => {
                let each = rest[..4 * count].chunks_exact(4);
                (each.map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect(), 4 * count)
            }
            Some(scale) => {
                let each = rest[..2 * count].chunks_exact(2);
                let half = |b: &[u8]| {
                    let bits = u16::from_le_bytes([b[0], b[1]]);
                    let (exponent, fraction) = (i32::from(bits >> 10), f64::from(bits & 1023));
                    let size = match exponent {
                        0 => fraction * 2f64.powi(-24),
                        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
                    };
                    (size * scale) as f32
                };
                (each.map(half).collect::<Vec<f32>>(), (2 * count).next_multiple_of(4))
            }
        };
        arrays.push(values);
        rest = &rest[used..];
    }
    assert!(rest.is_empty());
    (header, arrays)
}

fn close(found: &[f32], expected: &[f32], most: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= most, "{what} {i}: {found}, expected {expected}");
    }
}

#[test]
fn every_family_answers_every_question() {
    let encoder = ["model.family=encoder", "data.objective=masked"];
    let pairs = [
        "model.family=encoder_decoder",
        "data.source=reverse",
        "data.objective=translate",
        "training.length=32",
    ];
    let cases: [(&[&str], &[&str]); 3] =
        [(&[], &["decoder"]), (&encoder, &["encoder"]), (&pairs, &["encoder", "decoder", "cross"])];
    for (changes, sites) in cases {
        let (_folder, run) = trained(changes);
        let text = if sites.len() > 1 {
            run.tokenizer().unwrap().decode(&[5, 6, 7, 8])
        } else {
            "attendtothis".into()
        };
        let view = open(&run, &text);
        let about = json(&view, "about", &[]);
        let found: Vec<&str> = about["sites"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s["site"].as_str().unwrap())
            .collect();
        assert_eq!(found, sites);
        let tokens = json(&view, "text", &[])["tokens"].as_array().unwrap().len();
        let last = (tokens - 1).to_string();
        let (_, surprise) =
            numbers(&view, "surprise", &[("from", "0"), ("to", &tokens.to_string())]);
        assert!(surprise[0].iter().filter(|s| s.is_finite() && **s >= 0.0).count() + 1 >= tokens);
        let next = json(&view, "next", &[("at", &last)]);
        assert_eq!(next["actual"]["text"], json(&view, "text", &[])["tokens"][tokens - 1]);
        for site in sites {
            let place = [("site", *site), ("layer", "1")];
            let (header, maps) = numbers(&view, "layer", &place);
            assert_eq!((maps.len(), header["arrays"][1]["name"].as_str()), (2, Some("1")));
            let head = [place[0], place[1], ("head", "1")];
            let (_, row) = numbers(&view, "rows", &[head[0], head[1], head[2], ("at", "0")]);
            assert!((row[0].iter().sum::<f32>() - 1.0).abs() < 1e-5, "{site}");
            numbers(&view, "split", &[head[0], head[1], head[2], ("at", "0")]);
            assert_eq!(json(&view, "heads", &place)["heads"].as_array().unwrap().len(), 2);
        }
        let opening = Opening { text, ..Opening::default() };
        let page = view::save(&[Opened { name: "run", opening: &opening, view: &view }]).unwrap();
        assert!(page.contains("\"about\":") && !page.contains("src="), "all is inside");
        assert!(page.matches("</script>").count() == 2, "data cannot end its element");
    }
}

#[test]
fn a_run_that_came_as_bytes_answers_as_its_folder_and_fits_into_a_page() {
    let (folder, run) = trained(&["model.attention.position=polar"]);
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    let config = String::from_utf8(read("config.toml")).unwrap();
    let (tokenizer, model) = (read("tokenizer.json"), read("model.safetensors"));
    let carried = Arc::new(Run::of_files(&config, &tokenizer, model.clone()).unwrap());
    let place = [("site", "decoder"), ("layer", "1"), ("head", "1"), ("at", "3")];
    let of = |run| open(run, "attend").answer("split", &Parameters::new(place)).unwrap();
    assert!(of(&carried) == of(&run));
    let cut = Run::of_files(&config, &tokenizer, model[..100].to_vec()).unwrap_err();
    assert!(cut.to_string().contains("100 bytes that are cut short"), "{cut}");

    let alone = || view::alone(b"module", &[("run", folder.path())], "attend</script>");
    let page = alone().unwrap();
    assert!(page.contains(">bW9kdWxl</script>") && !page.contains("src="), "all is inside");
    assert!(page.matches("</script>").count() == 4, "a text cannot end its element");
    std::fs::write(folder.path().join("import.json"), "{}").unwrap();
    let refused = alone().unwrap_err().to_string();
    assert!(refused.contains("has an imported model's files"), "{refused}");
}

#[test]
fn tiles_and_rows_are_parts_of_the_models_own_weights() {
    let (_folder, run) = trained(&[]);
    let text = "attendtothisandthat".repeat(11);
    let (weights, [heads, queries, keys]) = run.attention_weights(&text, 1).unwrap();
    let map = &weights[queries * keys..2 * queries * keys];
    assert!((heads, queries > CELLS) == (2, true));
    let view = open(&run, &text);
    let place = [("site", "decoder"), ("layer", "1"), ("head", "1")];
    let tile = |zoom: &str, row: &str, column: &str| {
        let at = [("zoom", zoom), ("row", row), ("column", column)];
        numbers(&view, "tile", &[place.as_slice(), &at].concat())
    };
    let part = |q: std::ops::Range<usize>, k: std::ops::Range<usize>| {
        q.flat_map(|q| map[q * keys + k.start..q * keys + k.end].to_vec()).collect::<Vec<f32>>()
    };
    close(&tile("0", "0", "0").1[0], &part(0..CELLS, 0..CELLS), HALF, "first");
    let (header, edge) = tile("0", "1", "0");
    assert_eq!(header["rows"], queries - CELLS);
    close(&edge[0], &part(CELLS..queries, 0..CELLS), HALF, "edge");
    // A cell of the next level has the largest of its four.
    let (header, coarse) = tile("1", "0", "0");
    let columns = header["columns"].as_u64().unwrap() as usize;
    assert_eq!(columns, keys.div_ceil(2));
    let four = |q: usize, k: usize| {
        part(2 * q..(2 * q + 2).min(queries), 2 * k..(2 * k + 2).min(keys))
            .into_iter()
            .fold(0.0, f32::max)
    };
    let expected: Vec<f32> = (0..queries.div_ceil(2))
        .flat_map(|q| (0..columns).map(move |k| four(q, k)).collect::<Vec<_>>())
        .collect();
    close(&coarse[0], &expected, HALF, "coarse");
    let rows = |more: &[(&str, &str)]| {
        numbers(&view, "rows", &[&place[..2], more].concat()).1.swap_remove(0)
    };
    let mean = |key: usize| (map[5 * keys + key] + map[6 * keys + key] + map[9 * keys + key]) / 3.0;
    let expected: Vec<f32> = (0..keys).map(mean).collect();
    close(&rows(&[("head", "1"), ("at", "5-6,9")]), &expected, 1e-6, "queries");
    let sum: Vec<f32> = (0..queries).map(|q| map[q * keys + 3] + map[q * keys + 4]).collect();
    close(&rows(&[("head", "1"), ("at", "3-4"), ("of", "key")]), &sum, 1e-6, "keys");
    let all: Vec<f32> =
        (0..keys).map(|k| (weights[7 * keys + k] + map[7 * keys + k]) / 2.0).collect();
    close(&rows(&[("head", "all"), ("at", "7")]), &all, 1e-6, "all heads");
}

#[test]
fn surprise_and_alternatives_are_the_models_own() {
    let (_folder, run) = trained(&[]);
    let view = open(&run, "attendtothis");
    let scores = run.score("attendtothis").unwrap();
    let (_, surprise) = numbers(&view, "surprise", &[("from", "0"), ("to", "12")]);
    assert!(surprise[0][0].is_nan(), "nothing comes before the first");
    let expected: Vec<f32> = scores.iter().map(|(_, log)| -*log as f32).collect();
    close(&surprise[0][1..], &expected, 1e-5, "surprise");
    let told = json(&view, "next", &[("at", "4"), ("count", "3")]);
    assert!((told["actual"]["log"].as_f64().unwrap() - scores[3].1).abs() < 1e-5);
    // At any temperature what is named and what is counted is the whole.
    let (logits, [_, _, vocabulary]) =
        run.logits(None, &[run.encode("attendtothis").unwrap()]).unwrap();
    let row = &logits[3 * vocabulary..4 * vocabulary];
    for temperature in [0.5, 1.0, 2.0] {
        let whole: f64 = row.iter().map(|l| (f64::from(*l) / temperature).exp()).sum();
        let log_sum = row.iter().map(|l| f64::from(*l).exp()).sum::<f64>().ln();
        let expected = whole * (-log_sum / temperature).exp();
        let named: f64 = told["top"]
            .as_array()
            .unwrap()
            .iter()
            .map(|t| (t["log"].as_f64().unwrap() / temperature).exp())
            .sum();
        let others: f64 = told["others"]
            .as_array()
            .unwrap()
            .iter()
            .map(|o| o[1].as_f64().unwrap() * (o[0].as_f64().unwrap() / temperature).exp())
            .sum();
        assert!(((named + others) / expected - 1.0).abs() < 0.02, "{temperature}");
    }
    // A blank is told by what is around it.
    let (_folder, encoder) = trained(&["model.family=encoder", "data.objective=masked"]);
    let told = json(&open(&encoder, "attend"), "next", &[("at", "2")]);
    let filled = &encoder.fill("at[MASK]end", 1).unwrap()[0][0];
    let found = told["top"].as_array().unwrap().iter().find(|told| told["text"] == filled.text);
    let found = found.unwrap()["log"].as_f64().unwrap().exp();
    assert!((found - filled.probability).abs() < 1e-5, "{found}");
}

#[test]
fn some_rows_of_a_split_are_those_of_the_whole() {
    let all = Position::NAMES.iter().map(|name| vec![format!("model.attention.position={name}")]);
    let capped =
        vec!["model.attention.position=polar".into(), "model.attention.soft_cap=0.5".into()];
    for changes in all.chain([capped]) {
        let (_folder, run) = trained(&changes.iter().map(String::as_str).collect::<Vec<_>>());
        let reading = Reading::new(&run, "attendtothis", None).unwrap();
        for seen in reading.seen() {
            let look = reading.attention(seen).look(seen.input.clone()).unwrap();
            let (whole, _) = show::terms(&reading, seen).unwrap();
            let (some, _) = show::terms_of(&reading, seen, &look, 5..8).unwrap();
            let rows = |values: &[f64]| -> Vec<f64> {
                values.chunks(12 * 12).flat_map(|head| head[5 * 12..8 * 12].to_vec()).collect()
            };
            let same = |found: &[f64], expected: &[f64], what: &str| {
                for (found, expected) in found.iter().zip(rows(expected)) {
                    let both_hidden = !found.is_finite() && !expected.is_finite();
                    assert!(both_hidden || (found - expected).abs() < 1e-6, "{changes:?} {what}");
                }
            };
            same(&some.scores, &whole.scores, "scores");
            assert_eq!(some.terms.len(), whole.terms.len());
            for (some, whole) in some.terms.iter().zip(&whole.terms) {
                assert_eq!(some.name, whole.name);
                same(&some.values, &whole.values, some.name);
            }
        }
        let view = open(&run, "attendtothis");
        let place = [("site", "decoder"), ("layer", "0"), ("head", "1"), ("at", "7")];
        let (header, arrays) = numbers(&view, "split", &place);
        let count = header["terms"].as_array().unwrap().len();
        for key in 0..8 {
            let sum: f32 = arrays[..count].iter().map(|term| term[key]).sum();
            assert!((sum - arrays[count][key]).abs() < 1e-4, "{changes:?}: terms add up");
        }
        assert!(arrays[count][8].is_nan() && arrays[count + 1][8] == 0.0, "hidden");
    }
}

#[test]
fn a_moved_text_changes_what_depends_on_where_it_stands() {
    for (name, is_relative) in
        [("rotary", true), ("polar", true), ("alibi", true), ("sinusoidal", false)]
    {
        let (_folder, run) = trained(&[&format!("model.attention.position={name}")]);
        let surprise = |first: usize| {
            let opening = Opening { text: "attendtothis".into(), first, ..Opening::default() };
            let view = View::open(&run, &opening).unwrap();
            numbers(&view, "surprise", &[("from", "1"), ("to", "12")]).1.swap_remove(0)
        };
        let (here, there) = (surprise(0), surprise(1000));
        let most = here.iter().zip(&there).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert_eq!(most < 1e-3, is_relative, "{name}: {most}");
    }
    // A table of 16 positions has none at 1000.
    let (_folder, run) = trained(&["model.attention.position=learned"]);
    let opening = Opening { text: "attend".into(), first: 5000, ..Opening::default() };
    assert!(View::open(&run, &opening).is_err());
}

#[test]
fn settings_that_leave_the_weights_can_be_changed() {
    let (_folder, run) = trained(&["model.attention.position=rotary"]);
    let read = |changes: &[&str]| {
        let changes = changes.iter().map(|change| (*change).into()).collect();
        View::open(&run, &Opening { text: "attendtothis".into(), changes, ..Opening::default() })
    };
    let score = |view: &View| {
        let place = [("site", "decoder"), ("layer", "0"), ("head", "0"), ("at", "11")];
        numbers(view, "split", &place).1
    };
    let [plain, changed] =
        [&[][..], &["model.attention.position.base=20"]].map(|c| score(&read(c).unwrap()));
    assert_eq!(plain[0], changed[0], "content stays");
    assert_ne!(plain[1], changed[1], "position does not");
    assert!(read(&["model.width=8"]).is_err());
}

#[test]
fn what_is_asked_wrongly_is_refused_with_what_would_be_right() {
    let (_folder, run) = trained(&[]);
    let view = open(&run, "attend");
    let refused = |what: &str, pairs: &[(&str, &str)]| {
        view.answer(what, &Parameters::new(pairs.iter().copied())).unwrap_err().to_string()
    };
    let place = [("site", "decoder"), ("layer", "0"), ("head", "0")];
    let with = |pair: (&'static str, &'static str)| [place.as_slice(), &[pair]].concat();
    let cases = [
        (refused("texts", &[]), "nothing is called texts; there are about, text"),
        (refused("about", &[("x", "1")]), "found x, expected no parameters"),
        (refused("layer", &[("site", "cross"), ("layer", "0")]), "the model has no such attention"),
        (refused("layer", &[("site", "decoder"), ("layer", "2")]), "layer = 2: expected 0 to 1"),
        (
            refused("layer", &[("site", "decoder"), ("layer", "0"), ("cells", "4000")]),
            "expected 1 to 128",
        ),
        (refused("tile", &with(("zoom", "1"))), "zoom = 1: expected 0 to 0"),
        (refused("rows", &with(("at", "0-99999999999"))), "expected 0 to 5"),
        (refused("rows", &with(("of", "both"))), "expected query or key"),
        (refused("split", &with(("at", "6"))), "at = 6: expected 0 to 5"),
        (refused("next", &[("at", "0")]), "at = 0: expected 1 to 6"),
        (refused("surprise", &[("from", "3"), ("to", "3")]), "to = 3: expected 4 to 6"),
    ];
    for (found, expected) in cases {
        assert!(found.contains(expected), "{found}: expected {expected}");
    }
    let opened = |opening: Opening| View::open(&run, &opening).err().unwrap().to_string();
    assert!(opened(Opening::default()).contains("no tokens"));
    let long = Opening { text: "a".repeat(70_000), ..Opening::default() };
    assert!(opened(long).contains("expected at most 65536"));
    let far = Opening { text: "a".into(), first: 1 << 30, ..Opening::default() };
    assert!(opened(far).contains("first = 1073741824"));
}

#[test]
fn encodings_and_patterns_answer_without_a_model() {
    let ask = |what: &str, pairs: &[(&str, &str)]| {
        let answer = choices::answer(what, &Parameters::new(pairs.iter().copied()));
        answer.map(|answer| serde_json::from_slice::<Value>(&answer.bytes).unwrap())
    };
    let all = ask("choices", &[]).unwrap();
    for axis in ["position", "pattern"] {
        for choice in all[axis].as_array().unwrap() {
            let name = choice["name"].as_str().unwrap();
            let found = ask(axis, &[("name", name), ("length", "32")]).unwrap();
            assert!(found["similarity"].is_array() || found["shares"].is_array(), "{name}");
        }
    }
    let base = |value: &str| ask("position", &[("name", "rotary"), ("set", value)]).unwrap();
    assert_ne!(base("base=500"), base("base=10000"));
    let causal = ask("pattern", &[("name", "causal"), ("length", "4")]).unwrap();
    assert_eq!(causal["costs"][0]["visible"], 10);
    let refused = |pairs: &[(&str, &str)]| ask("pattern", pairs).unwrap_err().to_string();
    assert!(refused(&[("name", "causal"), ("length", "4000000")]).contains("expected 1 to 2048"));
    assert!(refused(&[("name", "causal"), ("set", "x=1")]).contains("x"));
    assert!(refused(&[]).contains("name is missing"));
}
