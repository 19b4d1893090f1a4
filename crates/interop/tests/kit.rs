//! The conformance kit: it has every choice of the lists, and the fast path meets it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, fs};

use safetensors::SafeTensors;
use serde_json::Value;
use whatwhere_attention::{
    AttentionSettings, Mixing, Pattern, Position, Score,
    pattern::PatternContext,
    slot::{Owner, Slot},
};
use whatwhere_interop::kit::{self, Kit};
use whatwhere_kernels::{
    attention::{Focus, Inputs, Shape},
    linear_attention::LinearAttention,
};

/// Sums of a dozen products of numbers below 1, in f32.
const TOLERANCE: f32 = 2e-5;

type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

fn close(case: &str, name: &str, found: &[f32], tensors: &Tensors) {
    let want = &tensors[name].1;
    assert_eq!(found.len(), want.len(), "{case}: {name}");
    let largest = want.iter().fold(1f32, |largest, value| largest.max(value.abs()));
    for (found, want) in found.iter().zip(want) {
        let off = (found - want).abs();
        assert!(off <= TOLERANCE * largest, "{case}: {name} {found}, expected {want}");
    }
}

/// The words of a choice without its arrays.
fn plain(words: &Value) -> Value {
    match words {
        Value::Object(all) => {
            let is_array = |value: &Value| value.as_str().is_some_and(|word| word.starts_with('@'));
            let kept = all.iter().filter(|(_, value)| !is_array(value));
            Value::Object(kept.map(|(key, value)| (key.clone(), plain(value))).collect())
        }
        Value::Array(all) => Value::Array(all.iter().map(plain).collect()),
        other => other.clone(),
    }
}

#[test]
fn every_choice_is_in_the_kit_or_left_out_with_a_reason() {
    let kit = Kit::new().unwrap();
    let names: Vec<&str> = kit.cases.iter().map(|case| case.name.as_str()).collect();
    for pattern in Pattern::NAMES {
        assert!(names.contains(&format!("pattern-{pattern}").as_str()), "{pattern}: {names:?}");
    }
    for mixing in Mixing::all() {
        let name = format!("mixing-{}", mixing.name());
        // A state that is carried from token to token has gates that only a layer makes.
        match mixing.is_causal() {
            false => assert!(names.contains(&name.as_str()), "{name}"),
            true => assert!(kit.left_out.iter().any(|left| left.choice == name), "{name}"),
        }
    }
    for score in Score::NAMES {
        assert!(names.iter().any(|name| name.starts_with(&format!("{score}-"))), "{score}");
    }
    let without: Vec<&str> = Position::NAMES
        .iter()
        .copied()
        .filter(|position| !names.iter().any(|name| name.ends_with(&format!("-{position}"))))
        .collect();
    assert_eq!(without, ["disentangled"]);
    for left_out in &kit.left_out {
        assert!(left_out.reason.len() > 20, "{left_out:?}");
        // What is left out of score and position together is what settings refuse, or what arrays cannot say.
        eprintln!("{}: {}", left_out.choice, left_out.reason);
    }
    assert!(kit.left_out.len() < kit.cases.len() / 2);
}

/// Reads the files as another program would, and computes every case on the fast path.
#[test]
fn the_fast_path_meets_the_kit() {
    let folder = tempfile::tempdir().unwrap();
    let written = kit::write(folder.path()).unwrap();
    let index: Value =
        serde_json::from_slice(&fs::read(folder.path().join("kit.json")).unwrap()).unwrap();
    let bytes = fs::read(folder.path().join("kit.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let cases = index["cases"].as_array().unwrap();
    assert_eq!((cases.len(), file.len()), (written.cases, written.tensors));
    let mut computed = 0;
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let prefix = format!("{name}/");
        let tensors: Tensors = file
            .tensors()
            .into_iter()
            .filter_map(|(full, view)| {
                let values = view.data().chunks_exact(4);
                let values = values.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
                Some((full.strip_prefix(&prefix)?.to_owned(), (view.shape().to_vec(), values)))
            })
            .collect();
        if case["kind"] == "attention" {
            meets(name, &case["settings"], &tensors);
            computed += 1;
        } else {
            adds_places(name, &case["settings"]["position"], &tensors);
        }
    }
    assert!(computed > 50, "{computed}");
}

fn adds_places(name: &str, position: &Value, tensors: &Tensors) {
    let (sizes, x) = &tensors["x"];
    let (length, width) = (sizes[1], sizes[2]);
    let added = |at: usize| -> f32 {
        let (place, channel) = (at / width % length, at % width);
        match position["kind"].as_str().unwrap() {
            // The paper's own words: sin(pos / 10000^(2i/d)), cos beside it.
            "sinusoidal" => {
                let wave = 10_000f64.powf((channel - channel % 2) as f64 / width as f64);
                let angle = place as f64 / wave;
                (if channel % 2 == 0 { angle.sin() } else { angle.cos() }) as f32
            }
            _ => tensors["position.table"].1[place * width + channel],
        }
    };
    let out: Vec<f32> = x.iter().enumerate().map(|(at, x)| x + added(at)).collect();
    close(name, "out", &out, tensors);
}

fn meets(name: &str, words: &Value, tensors: &Tensors) {
    let (of_q, of_k) = (&tensors["q"].0, &tensors["k"].0);
    let shape = Shape {
        batch: of_q[0],
        heads: of_q[1],
        kv_heads: of_k[1],
        queries: of_q[2],
        keys: of_k[2],
        head_dim: of_q[3],
        value_dim: of_q[3],
    };
    let (q, k, v) = (&tensors["q"].1, &tensors["k"].1, &tensors["v"].1);
    let d_out = &tensors["d_out"].1;
    if words["mixing"] != "softmax" {
        let linear = LinearAttention::new(shape, true);
        let inputs = Inputs { q, k, v };
        let made = linear.forward(&inputs).unwrap();
        close(name, "out", &made.out, tensors);
        let gradients = linear.backward(&inputs, &made, d_out).unwrap();
        close(name, "d_q", &gradients.q, tensors);
        close(name, "d_k", &gradients.k, tensors);
        close(name, "d_v", &gradients.v, tensors);
        return;
    }
    let settings = AttentionSettings {
        width: shape.heads * shape.head_dim,
        heads: shape.heads,
        kv_heads: Some(shape.kv_heads),
        score: serde_json::from_value(plain(&words["score"])).unwrap(),
        pattern: serde_json::from_value(plain(&words["pattern"])).unwrap(),
        position: serde_json::from_value(plain(&words["position"])).unwrap(),
        soft_cap: words["soft_cap"].as_f64().map(|cap| cap as f32),
        ..AttentionSettings::default()
    };
    let documents: Option<Vec<Vec<usize>>> =
        serde_json::from_value(words["documents"].clone()).unwrap();
    let centers = tensors.get("pattern.centers").map(|(_, values)| values);
    let context = PatternContext {
        heads: settings.sizes().unwrap().heads,
        documents: documents.as_deref(),
        tokens: None,
        first_query: 0,
        centers: centers.map(|c| (c.as_slice(), [shape.batch, shape.heads, shape.queries])),
    };
    let pattern = settings.pattern.build(&context).unwrap();
    let terms = settings.call(shape, 0, 0).unwrap();
    let array = |slot: &Slot| match slot.owner {
        Some(Owner::Position(i)) => format!("position.{i}.{}", slot.array),
        _ => format!("score.{}", slot.array),
    };
    let dim = shape.head_dim;
    let values: Vec<Vec<f32>> = terms
        .values()
        .into_iter()
        .map(|slot| match (tensors.get(&array(slot)), &slot.columns) {
            (Some((_, values)), Some(columns)) => columns.table(shape.heads, values),
            (Some((_, values)), None) => values.clone(),
            // Transformer-XL's distances through its projection.
            (None, _) => {
                let (sizes, projection) = &tensors["position.0.projection"];
                let (width, count) = (sizes[0], slot.sizes[1]);
                let mut table = vec![0.0; projection.len() / width * count];
                for at in 0..count {
                    let back = (count / 2) as f64 - at as f64;
                    for to in 0..width {
                        let sum: f64 = (0..width)
                            .map(|i| {
                                let angle = back
                                    * 10_000f64
                                        .powf(-2.0 * (i % (width / 2)) as f64 / width as f64);
                                let wave = if i < width / 2 { angle.sin() } else { angle.cos() };
                                wave * f64::from(projection[i * width + to])
                            })
                            .sum();
                        table[(to / dim * count + at) * dim + to % dim] = sum as f32;
                    }
                }
                table
            }
        })
        .collect();
    let mut next = values.iter();
    let mut call = terms.map(&*pattern, |_| next.next().unwrap().as_slice());
    if let (Some(centers), Some(deviation)) = (centers, settings.pattern.deviation()) {
        call.focus = Some(Focus { centers: centers.as_slice(), deviation });
    }
    let form = settings.score.changes_queries().then(|| &tensors["score.weight"].1);
    let compared: Vec<f32> = match form {
        None => q.clone(),
        Some(form) => (0..q.len())
            .map(|at| {
                let (row, to) = (at / dim, at % dim);
                let head = row / shape.queries % shape.heads;
                (0..dim).map(|i| q[row * dim + i] * form[(head * dim + i) * dim + to]).sum()
            })
            .collect(),
    };
    let inputs = Inputs { q: &compared, k, v };
    let made = call.forward(&inputs).unwrap();
    close(name, "out", &made.out, tensors);
    let gradients = call.backward(&inputs, &made, d_out).unwrap();
    if form.is_none() {
        close(name, "d_q", &gradients.q, tensors);
    }
    close(name, "d_k", &gradients.k, tensors);
    close(name, "d_v", &gradients.v, tensors);
    let learned = gradients.learned.values();
    for (slot, d) in terms.values().into_iter().zip(learned) {
        let name_of = format!("d_{}", array(slot));
        if !tensors.contains_key(&name_of) {
            assert_eq!(slot.array, "table", "{name}: {name_of}");
            continue;
        }
        let own = match &slot.columns {
            None => d.clone(),
            Some(columns) => columns.backward(slot.sizes[0], d),
        };
        close(name, &name_of, &own, tensors);
    }
}
