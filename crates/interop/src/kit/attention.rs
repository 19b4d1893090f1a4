//! Cases of attention, by the kernels' reference in f64.

use serde_json::{Value, json};
use whatwhere_attention::{
    AttentionSettings,
    pattern::PatternContext,
    slot::{Handed, Owner, Slot},
};
use whatwhere_kernels::attention::{
    Attention, Focus, Inputs, Shape,
    pattern::{Pair, Pattern},
    reference,
};

use super::{BATCH, Case, HEAD_DIM, LENGTH, case::narrow, linear, words};
use crate::{Error, error::Result};

/// Where documents begin, for patterns that ask.
const DOCUMENTS: [usize; 2] = [0, 5];

/// The arrays of a case, by the names that a call has for them, and those that stand in their place in a case.
struct Made {
    /// Name, sizes, values of the call's own array.
    values: Vec<Vec<f32>>,
    /// The name in the case for each, if it is handed in as it is.
    names: Vec<String>,
}

/// The case of these settings, or why there is none.
pub(super) fn case(
    name: &str,
    settings: &AttentionSettings,
) -> Result<std::result::Result<Case, String>> {
    let sizes = settings.sizes().map_err(refused)?;
    let shape = Shape {
        batch: BATCH,
        heads: sizes.heads,
        kv_heads: sizes.kv_heads,
        queries: LENGTH,
        keys: LENGTH,
        head_dim: HEAD_DIM,
        value_dim: HEAD_DIM,
    };
    if settings.mixing.is_causal() {
        let reason = "its gates are a layer's, made of the tokens themselves; no array of a call stands for them";
        return Ok(Err(format!("{}: {reason}", settings.mixing.name())));
    }
    let terms = settings.call(shape, 0, 0).map_err(refused)?;
    for (index, position) in settings.position.iter().enumerate() {
        let mut handed = Handed::default();
        for slot in terms.values().iter().filter(|s| s.owner == Some(Owner::Position(index))) {
            handed.arrays.insert(slot.array.into(), slot.sizes.clone());
        }
        if let Err(refused) = position.with_arrays(&handed) {
            return Ok(Err(refused.to_string()));
        }
    }
    let mut case = Case::new(name, "attention", Value::Null);
    let q = case.draw("q", &[shape.batch, shape.heads, shape.queries, shape.head_dim]);
    let k = case.draw("k", &[shape.batch, shape.kv_heads, shape.keys, shape.head_dim]);
    let v = case.draw("v", &[shape.batch, shape.kv_heads, shape.keys, shape.value_dim]);
    let d_out = case.draw("d_out", &[shape.batch, shape.heads, shape.queries, shape.value_dim]);
    let mut said = json!({
        "score": words(&settings.score)?,
        "pattern": words(&settings.pattern)?,
        "position": words(&settings.position)?,
        "mixing": settings.mixing.name(),
    });
    for (index, position) in settings.position.iter().enumerate() {
        if let Value::Object(words) = &mut said["position"][index] {
            words.retain(|key, _| !position.only_of_layers().contains(&key.as_str()));
        }
    }
    if let Some(cap) = settings.soft_cap {
        said["soft_cap"] = cap.into();
    }
    let documents = vec![DOCUMENTS.to_vec(); shape.batch];
    if settings.pattern.needs_documents() {
        said["documents"] = json!(documents);
    }
    if !settings.mixing.has_scores() {
        said["position"] = json!([]);
        let causal = settings.pattern.is_causal();
        linear::add(&mut case, shape, causal, [&q, &k, &v], &d_out);
        case.settings = said;
        return Ok(Ok(case));
    }
    let rows = [shape.batch, shape.heads, shape.queries];
    let centers = settings.pattern.deviation().map(|_| {
        let draws = case.draw("pattern.centers", &rows);
        let places: Vec<f32> =
            draws.iter().map(|draw| (draw + 1.0) / 2.0 * LENGTH as f32).collect();
        case.put("pattern.centers", &rows, places.clone());
        said["pattern"]["centers"] = "@pattern.centers".into();
        places
    });
    let context = PatternContext {
        heads: sizes.heads,
        documents: Some(&documents),
        tokens: None,
        first_query: 0,
        centers: centers.as_deref().map(|centers| (centers, rows)),
    };
    let pattern = settings.pattern.build(&context).map_err(refused)?;
    put_visible(&mut case, shape, &*pattern);

    // A bilinear form is a product before the comparison.
    let form = settings.score.changes_queries().then(|| {
        said["score"]["weight"] = "@score.weight".into();
        case.draw("score.weight", &[shape.heads, HEAD_DIM, HEAD_DIM])
    });
    let compared = form.as_ref().map_or_else(|| q.clone(), |form| through(&q, form, shape));
    let made = arrays(&mut case, &mut said, &terms.values(), shape);
    let mut values = made.values.iter();
    let mut call = terms.map(&*pattern, |_| values.next().expect("one for each").as_slice());
    if let (Some(centers), Some(deviation)) = (&centers, settings.pattern.deviation()) {
        call.focus = Some(Focus { centers: centers.as_slice(), deviation });
    }
    let inputs = Inputs { q: &compared, k: &k, v: &v };
    compute(&mut case, &call, &inputs, &d_out, &terms.values(), &made, form.as_deref(), &q)?;
    case.settings = said;
    Ok(Ok(case))
}

/// Draws an array for each slot that is handed in, and says so in the settings.
fn arrays(case: &mut Case, said: &mut Value, slots: &[&Slot], shape: Shape) -> Made {
    let mut made = Made { values: Vec::new(), names: Vec::new() };
    for slot in slots {
        let (place, name) = match slot.owner {
            Some(Owner::Position(i)) => {
                (&mut said["position"][i], format!("position.{i}.{}", slot.array))
            }
            _ => (&mut said["score"], format!("score.{}", slot.array)),
        };
        let is_waves = place["kind"] == "transformer_xl" && slot.array == "table";
        let own = if is_waves { "projection" } else { slot.array };
        let name = name.replace(slot.array, own);
        if let Value::Object(place) = place {
            place.insert(own.into(), format!("@{name}").into());
        }
        let array = match (&slot.default, is_waves) {
            (_, true) => {
                let width = shape.heads * shape.head_dim;
                let projection = case.draw(&name, &[width, width]);
                waves(slot, &projection, width)
            }
            // Numbers that have a meaning start from it: slopes, temperatures.
            (Some(default), _) => {
                let draws = case.draw(&name, &slot.sizes);
                let near: Vec<f32> = default
                    .iter()
                    .zip(draws)
                    .map(|(value, draw)| value * (1.0 + 0.2 * draw))
                    .collect();
                case.put(&name, &slot.sizes, near.clone());
                near
            }
            (None, _) => case.draw(&name, &slot.sizes),
        };
        made.values.push(match &slot.columns {
            None => array,
            Some(columns) => columns.table(shape.heads, &array),
        });
        made.names.push(name);
    }
    made
}

/// Transformer-XL's table: sines and cosines of `query − key` through the projection, `[heads, distances, head_dim]`.
fn waves(slot: &Slot, projection: &[f32], width: usize) -> Vec<f32> {
    let (heads, count, dim) = (slot.sizes[0], slot.sizes[1], slot.sizes[2]);
    let mut table = vec![0.0; heads * count * dim];
    for (distance, wave) in wave_rows(count, width).iter().enumerate() {
        for to in 0..width {
            let sum: f64 = wave
                .iter()
                .enumerate()
                .map(|(i, w)| w * f64::from(projection[i * width + to]))
                .sum();
            table[(to / dim * count + distance) * dim + to % dim] = sum as f32;
        }
    }
    table
}

/// Sines, then cosines, from the farthest key to the left to the farthest to the right.
fn wave_rows(count: usize, width: usize) -> Vec<Vec<f64>> {
    let left = count as isize / 2;
    let angle =
        |back: isize, i: usize| back as f64 * 10_000f64.powf(-2.0 * i as f64 / width as f64);
    (0..count as isize)
        .map(|at| {
            let back = left - at;
            let sines = (0..width / 2).map(|i| angle(back, i).sin());
            sines.chain((0..width / 2).map(|i| angle(back, i).cos())).collect()
        })
        .collect()
}

/// `q W` for each head.
fn through(q: &[f32], form: &[f32], shape: Shape) -> Vec<f32> {
    let dim = shape.head_dim;
    let rows = q.chunks(dim).enumerate();
    rows.flat_map(|(row, q)| {
        let weight = &form[row / shape.queries % shape.heads * dim * dim..][..dim * dim];
        (0..dim).map(move |to| {
            let products =
                q.iter().enumerate().map(|(i, q)| f64::from(*q) * f64::from(weight[i * dim + to]));
            products.sum::<f64>() as f32
        })
    })
    .collect()
}

#[expect(clippy::too_many_arguments, reason = "a call, its tensors and what they are made of")]
fn compute(
    case: &mut Case,
    call: &Attention,
    inputs: &Inputs,
    d_out: &[f32],
    slots: &[&Slot],
    made: &Made,
    form: Option<&[f32]>,
    q: &[f32],
) -> Result<()> {
    let shape = call.shape;
    let forward = reference::forward(call, inputs).map_err(refused)?;
    let gradients = reference::backward(call, inputs, d_out).map_err(refused)?;
    let of_q = [shape.batch, shape.heads, shape.queries, shape.head_dim];
    let of_k = [shape.batch, shape.kv_heads, shape.keys, shape.head_dim];
    case.put("out", &of_q, narrow(&forward.out));
    case.put("d_k", &of_k, narrow(&gradients.k));
    case.put("d_v", &of_k, narrow(&gradients.v));
    let dim = shape.head_dim;
    match form {
        None => case.put("d_q", &of_q, narrow(&gradients.q)),
        Some(form) => {
            let mut d_q = vec![0.0; q.len()];
            let mut d_form = vec![0.0; form.len()];
            for (row, d) in gradients.q.chunks(dim).enumerate() {
                let head = row / shape.queries % shape.heads * dim * dim;
                for (i, to) in (0..dim).flat_map(|i| (0..dim).map(move |to| (i, to))) {
                    d_q[row * dim + i] += d[to] * f64::from(form[head + i * dim + to]);
                    d_form[head + i * dim + to] += d[to] * f64::from(q[row * dim + i]);
                }
            }
            case.put("d_q", &of_q, narrow(&d_q));
            case.put("d_score.weight", &[shape.heads, dim, dim], narrow(&d_form));
        }
    }
    let learned = gradients.learned.values();
    for ((slot, name), d) in slots.iter().zip(&made.names).zip(&learned) {
        let d = narrow(d);
        let (values, sizes) = if name.ends_with("projection") {
            let width = shape.heads * dim;
            (back_through_waves(slot, &d, width), vec![width, width])
        } else {
            let rows = slot.sizes.first().copied().unwrap_or(1);
            let own = slot.columns.as_ref().map_or(d.clone(), |columns| columns.backward(rows, &d));
            (own, slot.sizes.clone())
        };
        case.put(&format!("d_{name}"), &sizes, values);
    }
    if call.focus.is_some()
        && let Some(d) = gradients.learned.focus.as_ref()
    {
        case.put("d_pattern.centers", &of_q[..3], narrow(&d.centers));
    }
    Ok(())
}

fn back_through_waves(slot: &Slot, d_table: &[f32], width: usize) -> Vec<f32> {
    let (count, dim) = (slot.sizes[1], slot.sizes[2]);
    let mut d = vec![0f64; width * width];
    for (distance, wave) in wave_rows(count, width).iter().enumerate() {
        for to in 0..width {
            let d_to = f64::from(d_table[(to / dim * count + distance) * dim + to % dim]);
            for (i, wave) in wave.iter().enumerate() {
                d[i * width + to] += wave * d_to;
            }
        }
    }
    narrow(&d)
}

/// Which pairs are seen, `[batch, heads, queries, keys]`.
fn put_visible(case: &mut Case, shape: Shape, pattern: &dyn Pattern) {
    let mut seen = Vec::with_capacity(shape.rows() * shape.keys);
    for batch in 0..shape.batch {
        for head in 0..shape.heads {
            for query in 0..shape.queries {
                let pair = |key| Pair { batch, head, query, key };
                seen.extend(
                    (0..shape.keys).map(|key| f32::from(u8::from(pattern.sees(pair(key))))),
                );
            }
        }
    }
    case.put("visible", &[shape.batch, shape.heads, shape.queries, shape.keys], seen);
}

fn refused(error: impl std::fmt::Display) -> Error {
    Error::Refused(error.to_string())
}
