//! The official ONNX operator test vectors, through the fast path.
//!
//! They are in `fixtures/onnx` of the repository. Each vector is a call with its inputs and outputs as ONNX's own reference
//! computes them; [`VECTORS`] says how each is expressed, or why it is not.

mod common;

use std::{collections::BTreeSet, fs, io::Write, path::PathBuf, sync::Arc};

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use whatwhere_kernels::{
    attention::{
        Angles, Attention, Bias, Feature, FeatureKind, Inputs, Layout, Score, Shape,
        pattern::{And, Causal, Full, KeyLengths, Pair, Pattern, Window, from_fn},
        reference,
    },
    linear_attention::Recurrence,
};

use common::{difference, widen};

/// Expected numbers are f32 near 1, computed in another order.
const SINGLE: f64 = 1e-5;
/// Expected numbers are rounded to f16 between operations; its unit roundoff is 4.9e-4.
const HALF: f64 = 2e-3;

/// The vectors that were computed in f16 and are stored as f32.
const HALVES: [&str; 4] = [
    "attention_24_qk_matmul_output_mode3_softmax_precision",
    "attention_4d_fp16",
    "attention_4d_gqa_causal_nonpad_decode_fp16",
    "linear_attention_fp16",
];

/// How a vector is expressed.
enum Way {
    /// By the operator's attributes.
    Attention,
    /// FlexAttention with a bias, standing for the graph that was not stored; verified by the numbers.
    Flex(fn(&Shape) -> Vec<f32>),
    /// A rotation, read off by unit keys.
    Rotary,
    /// By a recurrence, gated or with the delta rule.
    Linear,
    /// Not at all, and why.
    Inexpressible(&'static str),
}

const AFTER_SOFTMAX: &str = "scales weights after the softmax, for which there is no setting";

const VECTORS: &[(&str, Way)] = &[
    ("attention_23_boolmask_fullymasked_row_nan_robustness", Way::Attention),
    ("attention_23_fullymasked_qk_matmul_output_mode3_zero", Way::Attention),
    ("attention_24_qk_matmul_output_mode3_softmax_precision", Way::Attention),
    ("attention_3d_causal", Way::Attention),
    ("attention_3d_diff_heads_sizes", Way::Attention),
    ("attention_3d_diff_heads_sizes_causal", Way::Attention),
    ("attention_3d_diff_heads_sizes_scaled", Way::Attention),
    ("attention_3d_gqa", Way::Attention),
    ("attention_3d_gqa_attn_mask", Way::Attention),
    ("attention_3d_scaled", Way::Attention),
    ("attention_3d_transpose_verification", Way::Attention),
    ("attention_3d_with_past_and_present", Way::Attention),
    ("attention_3d_with_past_and_present_qk_matmul", Way::Attention),
    ("attention_3d_with_past_and_present_qk_matmul_bias", Way::Attention),
    ("attention_3d_with_past_and_present_qk_matmul_softmax", Way::Attention),
    ("attention_4d_attn_mask_4d", Way::Attention),
    ("attention_4d_attn_mask_4d_causal", Way::Attention),
    ("attention_4d_attn_mask_bool", Way::Attention),
    ("attention_4d_causal", Way::Attention),
    ("attention_4d_causal_nonpad_attn_mask_composition", Way::Attention),
    ("attention_4d_causal_nonpad_negative_offset_structural_empty", Way::Attention),
    ("attention_4d_diff_heads_sizes_attn_mask", Way::Attention),
    ("attention_4d_diff_heads_sizes_scaled", Way::Attention),
    ("attention_4d_diff_heads_with_past_and_present_mask3d", Way::Attention),
    ("attention_4d_fp16", Way::Attention),
    ("attention_4d_gqa_causal_nonpad_decode_fp16", Way::Attention),
    ("attention_4d_softcap_neginf_mask_poison", Way::Attention),
    ("attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal", Way::Attention),
    ("attention_4d_with_qk_matmul", Way::Attention),
    ("attention_4d_with_qk_matmul_softcap", Way::Attention),
    ("attention_4d_with_qk_matmul_softmax", Way::Attention),
    ("attention_bidirectional_window", Way::Attention),
    ("attention_local_window", Way::Attention),
    ("attention_local_window_default", Way::Attention),
    ("attention_local_window_ext_cache_rank3_head_mask", Way::Attention),
    ("flexattention_causal_mask", Way::Flex(|shape| by_pair(shape, hide_later))),
    ("flexattention_prob_mod", Way::Inexpressible(AFTER_SOFTMAX)),
    // The name leaves the sign open; the numbers say query − key.
    ("flexattention_relative_positional", Way::Flex(|shape| by_pair(shape, |q, k| q - k))),
    ("flexattention_scaled", Way::Attention),
    // Whatever constant the graph adds, the softmax takes it out again.
    ("flexattention_score_mod", Way::Flex(|shape| by_pair(shape, |_, _| 0.5))),
    ("linear_attention_decode_step", Way::Linear),
    ("linear_attention_delta", Way::Linear),
    ("linear_attention_explicit_scale", Way::Linear),
    ("linear_attention_fp16", Way::Linear),
    ("linear_attention_gated", Way::Linear),
    ("linear_attention_gated_delta", Way::Linear),
    ("linear_attention_gated_delta_beta_scalar", Way::Linear),
    ("linear_attention_gated_delta_gqa", Way::Linear),
    ("linear_attention_gated_delta_mqa", Way::Linear),
    ("linear_attention_gated_per_head_decay", Way::Linear),
    ("linear_attention_linear", Way::Linear),
    ("linear_attention_linear_t1_no_past", Way::Linear),
    ("linear_attention_no_past_explicit_zeros", Way::Linear),
    ("linear_attention_prefill_with_past", Way::Linear),
    ("rotary_embedding_no_position_ids_interleaved", Way::Rotary),
    ("rotary_embedding_with_interleaved_rotary_dim", Way::Rotary),
    ("rotary_embedding_with_rotary_dim", Way::Rotary),
];

#[test]
fn every_onnx_vector_that_can_be_expressed_is_met() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/onnx");
    let found: BTreeSet<String> = fs::read_dir(&folder)
        .expect("the folder can be read")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| Some(name.strip_prefix("test_")?.strip_suffix(".json")?.to_owned()))
        .collect();
    let listed = VECTORS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let missing: Vec<_> = BTreeSet::difference(&listed, &found).collect();
    let unknown: Vec<_> = BTreeSet::difference(&found, &listed).collect();
    assert!(missing.is_empty(), "not in {}: {missing:?}", folder.display());
    assert!(unknown.is_empty(), "vectors nobody has listed here: {unknown:?}");

    let mut complaints = Vec::new();
    for (name, way) in VECTORS {
        let vector = || Vector::load(&folder, name);
        let results = match way {
            Way::Attention => attention(&vector(), None),
            Way::Flex(bias) => attention(&vector(), Some(*bias)),
            Way::Rotary => rotary(&vector()),
            Way::Linear => linear(&vector()),
            Way::Inexpressible(reason) => {
                say(&format!("onnx: not expressible {name}: {reason}"));
                continue;
            }
        };
        let tolerance = if HALVES.contains(name) { HALF } else { SINGLE };
        let wrong: Vec<String> = results
            .iter()
            .filter_map(|Compared { what, found, expected }| {
                Some(format!("{name}: {what}: {}", difference(found, expected, tolerance)?))
            })
            .collect();
        if wrong.is_empty() {
            let what: Vec<&str> = results.iter().map(|result| result.what.as_str()).collect();
            say(&format!("onnx: passed {name} ({})", what.join(", ")));
        }
        complaints.extend(wrong);
    }
    common::assert_none(&complaints, VECTORS.len());
}

/// To the real standard error, which the test harness does not hold back.
fn say(line: &str) {
    // Nobody to tell if it is closed.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// What was computed and what ONNX computes.
struct Compared {
    what: String,
    found: Vec<f64>,
    expected: Vec<f64>,
}

struct Tensor {
    shape: Vec<usize>,
    /// Truth as 1 and 0.
    values: Vec<f32>,
    is_bool: bool,
}

struct Vector {
    attributes: Value,
    inputs: Vec<(String, Tensor)>,
    outputs: Vec<(String, Tensor)>,
}

impl Vector {
    fn load(folder: &std::path::Path, name: &str) -> Self {
        let path = |end: &str| folder.join(format!("test_{name}.{end}"));
        let read = |end: &str| fs::read(path(end)).expect("the fixture can be read");
        let described: Value =
            serde_json::from_slice(&read("json")).expect("the description is JSON");
        let bytes = read("safetensors");
        let stored = SafeTensors::deserialize(&bytes).expect("the tensors are well formed");
        let tensors = |list: &str, prefix: &str| {
            let names = described[list].as_array().expect("the description lists names");
            let present = names.iter().filter_map(Value::as_str).filter(|name| !name.is_empty());
            let tensor = |(i, name): (usize, &str)| {
                (name.to_owned(), Tensor::read(&stored, &format!("{prefix}{i}")))
            };
            present.enumerate().map(tensor).collect()
        };
        let (inputs, outputs) = (tensors("inputs", "in"), tensors("outputs", "out"));
        Self { attributes: described["attrs"].clone(), inputs, outputs }
    }

    fn get(&self, name: &str) -> Option<&Tensor> {
        let mut all = self.inputs.iter().chain(&self.outputs);
        all.find(|(other, _)| other == name).map(|(_, tensor)| tensor)
    }

    fn tensor(&self, name: &str) -> &Tensor {
        self.get(name).expect("the operator has this tensor")
    }

    fn number(&self, attribute: &str) -> Option<f64> {
        self.attributes[attribute].as_f64()
    }
}

impl Tensor {
    fn read(stored: &SafeTensors, name: &str) -> Self {
        let view = stored.tensor(name).expect("every name in the description is stored");
        let data = view.data();
        let values = match view.dtype() {
            Dtype::F32 => data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
            Dtype::I64 => {
                data.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b) as f32).collect()
            }
            Dtype::BOOL => data.iter().map(|&b| f32::from(b)).collect(),
            other => panic!("{name} is {other:?}, expected F32, I64 or BOOL"),
        };
        Self { shape: view.shape().to_vec(), values, is_bool: view.dtype() == Dtype::BOOL }
    }

    /// As `[batch, heads, length, dim]`: three sizes are `[batch, length, heads · dim]`.
    fn by_head(&self, heads: usize) -> (Vec<f32>, [usize; 4]) {
        match self.shape[..] {
            [batch, heads, length, dim] => (self.values.clone(), [batch, heads, length, dim]),
            [batch, length, width] => {
                let dim = width / heads;
                let values = swap(&self.values, length, heads, dim);
                (values, [batch, heads, length, dim])
            }
            _ => panic!("the sizes are {:?}, expected 3 or 4 of them", self.shape),
        }
    }

    /// As a dense bias: missing sizes in front are 1, and what is not true is hidden.
    fn bias(&self) -> (Vec<f32>, [usize; 4]) {
        let mut shape = [1; 4];
        shape[4 - self.shape.len()..].copy_from_slice(&self.shape);
        let hide = |&x: &f32| if x == 0.0 { f32::NEG_INFINITY } else { 0.0 };
        let values = &self.values;
        (if self.is_bool { values.iter().map(hide).collect() } else { values.clone() }, shape)
    }
}

/// `[blocks, a, b, dim]` as `[blocks, b, a, dim]`.
fn swap(values: &[f32], a: usize, b: usize, dim: usize) -> Vec<f32> {
    let block = |block: &[f32]| {
        let rows = (0..a * b).map(|i| (i % a * b + i / a) * dim);
        rows.flat_map(|start| block[start..start + dim].to_vec()).collect::<Vec<f32>>()
    };
    values.chunks_exact(a * b * dim).flat_map(block).collect()
}

/// The keys or values of the past before the new ones, for every head.
fn join(past: Option<&Tensor>, new: Vec<f32>, heads: usize) -> Vec<f32> {
    let Some(past) = past else { return new };
    let halves = past.values.chunks_exact(past.values.len() / heads);
    let pairs = halves.zip(new.chunks_exact(new.len() / heads));
    pairs.flat_map(|(past, new)| [past, new].concat()).collect()
}

/// The LinearAttention operator: outputs, and the state after the last token.
fn linear(vector: &Vector) -> Vec<Compared> {
    let count = |name: &str| vector.number(name).map_or(0, |count| count as usize);
    let (q, [batch, heads, queries, head_dim]) =
        vector.tensor("query").by_head(count("q_num_heads"));
    let (k, [_, kv_heads, keys, _]) = vector.tensor("key").by_head(count("kv_num_heads"));
    let (v, [.., value_dim]) = vector.tensor("value").by_head(count("kv_num_heads"));
    let shape = Shape { batch, heads, kv_heads, queries, keys, head_dim, value_dim };
    let rule = vector.attributes["update_rule"].as_str().unwrap_or("gated_delta");
    let gate = |name: &str, wanted: bool| {
        wanted.then(|| {
            let gate = vector.tensor(name);
            // A single one is that of all heads.
            let is_shared = gate.shape[2] == 1 && kv_heads > 1;
            let each = if is_shared { kv_heads } else { 1 };
            let values = gate.values.iter().flat_map(|&x| std::iter::repeat_n(x, each)).collect();
            let shape = vec![batch, keys, gate.shape[2] * each];
            Tensor { shape, values, is_bool: false }.by_head(kv_heads).0
        })
    };
    let decay = gate("decay", rule.starts_with("gated"));
    let beta = gate("beta", rule.ends_with("delta"));
    let plain = Recurrence::new(shape);
    let call = Recurrence {
        decay: decay.as_deref(),
        beta: beta.as_deref(),
        scale: vector.number("scale").map_or(plain.scale, |scale| scale as f32),
        ..plain
    };
    let mut state = match vector.get("past_state") {
        Some(past) => past.values.clone(),
        None => vec![0.0; call.state_len()],
    };
    let inputs = Inputs { q: &q, k: &k, v: &v };
    let out = call.forward(&mut state, &inputs).expect("the call is allowed");
    let out = swap(&out, heads, queries, value_dim);
    let compared = |what: &str, found: &[f32], expected: &Tensor| Compared {
        what: what.to_owned(),
        found: widen(found),
        expected: widen(&expected.values),
    };
    let expected = vector.tensor("output");
    vec![
        compared("output", &out, expected),
        compared("present_state", &state, vector.tensor("present_state")),
        compared("output in chunks", &in_chunks(&call, vector, &inputs), expected),
    ]
}

/// The first outputs of a call with the tokens again and again behind them: long enough to go in chunks.
fn in_chunks(call: &Recurrence, vector: &Vector, inputs: &Inputs) -> Vec<f32> {
    let Shape { batch, heads, kv_heads, keys, value_dim, .. } = call.shape;
    let times = 100usize.div_ceil(keys);
    let long = |values: &[f32], heads: usize| -> Vec<f32> {
        values.chunks_exact(values.len() / (batch * heads)).flat_map(|x| x.repeat(times)).collect()
    };
    let [decay, beta] = [call.decay, call.beta].map(|gate| Some(long(gate?, kv_heads)));
    let length = keys * times;
    let shape = Shape { queries: length, keys: length, ..call.shape };
    let call = Recurrence { shape, decay: decay.as_deref(), beta: beta.as_deref(), ..*call };
    let past = vector.get("past_state").map(|past| past.values.clone());
    let mut state = past.unwrap_or_else(|| vec![0.0; call.state_len()]);
    let (q, k, v) = (long(inputs.q, heads), long(inputs.k, kv_heads), long(inputs.v, kv_heads));
    let out = call.forward(&mut state, &Inputs { q: &q, k: &k, v: &v });
    let out = out.expect("the call is allowed");
    let first = out.chunks_exact(length * value_dim).flat_map(|head| &head[..keys * value_dim]);
    swap(&first.copied().collect::<Vec<f32>>(), heads, keys, value_dim)
}

/// The Attention operator, and FlexAttention with a bias for its graph.
fn attention(vector: &Vector, graph: Option<fn(&Shape) -> Vec<f32>>) -> Vec<Compared> {
    let count = |name: &str| vector.number(name).map_or(0, |count| count as usize);
    let (q, [batch, heads, queries, head_dim]) = vector.tensor("Q").by_head(count("q_num_heads"));
    let (k, [_, kv_heads, new, _]) = vector.tensor("K").by_head(count("kv_num_heads"));
    let (v, [.., value_dim]) = vector.tensor("V").by_head(count("kv_num_heads"));
    let past = vector.get("past_key").map_or(0, |past| past.shape[2]);
    let k = join(vector.get("past_key"), k, batch * kv_heads);
    let v = join(vector.get("past_value"), v, batch * kv_heads);
    let keys = past + new;
    let shape = Shape { batch, heads, kv_heads, queries, keys, head_dim, value_dim };
    let inputs = Inputs { q: &q, k: &k, v: &v };

    let mask = vector.get("attn_mask").map(Tensor::bias);
    let mask = mask.or_else(|| Some((graph?(&shape), [1, 1, queries, keys])));
    let bias = mask.as_ref().map(|(values, shape)| Bias::Dense {
        values: &values[..],
        shape: *shape,
        learned: false,
    });
    let pattern = pattern(vector, past, &shape);
    let plain = Attention {
        first_query: past,
        score: vector
            .number("scale")
            .map_or(Score::scaled_dot(head_dim), |scale| Score::Dot { scale: scale as f32 }),
        ..Attention::new(shape, &Full)
    };
    let soft_cap = vector.number("softcap").map(|cap| cap as f32);
    let capped = Attention { soft_cap, ..plain.clone() };
    let whole =
        Attention { biases: bias.into_iter().collect(), pattern: &*pattern, ..capped.clone() };

    let made = whole.forward(&inputs).expect("the call is allowed");
    let y = vector.tensor("Y");
    let out = if y.shape.len() == 3 {
        swap(&made.out, heads, queries, value_dim)
    } else {
        made.out.clone()
    };
    let compared = |what: &str, found: Vec<f64>, expected: &Tensor| Compared {
        what: what.to_owned(),
        found,
        expected: widen(&expected.values),
    };
    let mut results = vec![compared("Y", widen(&out), y)];
    for (name, found) in [("present_key", &k), ("present_value", &v)] {
        results.extend(vector.get(name).map(|expected| compared(name, widen(found), expected)));
    }
    if let Some(expected) = vector.get("qk_matmul_output") {
        let scores =
            |attention| reference::scores(attention, &inputs).expect("the call is allowed");
        let found = match count("qk_matmul_output_mode") {
            0 => scores(&plain),
            1 => scores(&capped),
            2 => scores(&whole),
            _ => {
                let inside = whole.inspect(&inputs, &made).expect("the call is allowed");
                let heads = (0..batch * heads).map(|index| (index / heads, index % heads));
                let maps = heads.flat_map(|(batch, head)| {
                    inside.tile(batch, head, 0..queries, 0..keys).expect("the tile is inside")
                });
                widen(&maps.collect::<Vec<f32>>())
            }
        };
        results.push(compared("qk_matmul_output", found, expected));
    }
    results
}

/// Causal, window and padding as the operator's attributes have them. With a cache of fixed size, the last query
/// stands at the last key that is no padding, which differs between sequences.
fn pattern(vector: &Vector, past: usize, shape: &Shape) -> Box<dyn Pattern> {
    let reach = |side: &str| vector.number(side).filter(|&reach| reach >= 0.0);
    let [left, right] = ["left_window_size", "right_window_size"]
        .map(|side| reach(side).map_or(Window::UNLIMITED, |reach| reach as usize));
    let is_causal = vector.number("is_causal") == Some(1.0);
    let window = Window { left, right };
    let positions: Box<dyn Pattern> =
        if is_causal { Box::new(And(Causal::upper_left(), window)) } else { Box::new(window) };
    let Some(lengths) = vector.get("nonpad_kv_seqlen") else { return positions };
    let lengths: Vec<usize> = lengths.values.iter().map(|&length| length as usize).collect();
    let padding = KeyLengths::new(lengths.clone()).expect("there is a sequence");
    let queries = shape.queries;
    // Shifted so that no position is negative.
    let shifted = from_fn(move |pair: Pair| {
        let query = pair.query - past + lengths[pair.batch];
        positions.sees(Pair { query, key: pair.key + queries, ..pair })
    });
    Box::new(And(padding, shifted))
}

/// A bias from the indices of query and key.
fn by_pair(shape: &Shape, value: fn(f32, f32) -> f32) -> Vec<f32> {
    let pairs = 0..shape.queries * shape.keys;
    pairs.map(|i| value((i / shape.keys) as f32, (i % shape.keys) as f32)).collect()
}

fn hide_later(query: f32, key: f32) -> f32 {
    if key > query { f32::NEG_INFINITY } else { 0.0 }
}

/// The RotaryEmbedding operator: every channel of a turned query is its score with a unit key that is not turned.
///
/// The caches hold any cosines and sines, not those of one angle: the query carries the length of the pair instead,
/// which is the same because a turn is linear.
fn rotary(vector: &Vector) -> Vec<Compared> {
    let (x, cos, sin) =
        (vector.tensor("input"), vector.tensor("cos_cache"), vector.tensor("sin_cache"));
    let [batch, heads, length, dim] = x.shape[..] else { panic!("the input has four sizes") };
    let is_interleaved = vector.number("interleaved") == Some(1.0);
    let layout = if is_interleaved { Layout::Interleaved } else { Layout::HalfSplit };
    let width = vector.number("rotary_embedding_dim").map_or(dim, |width| width as usize);
    let unit_keys: Vec<f32> = (0..dim * dim).map(|i| f32::from(i % (dim + 1) == 0)).collect();
    let mut found = Vec::new();
    for (row, x) in x.values.chunks_exact(dim).enumerate() {
        let (sequence, index) = (row / (heads * length), row % length);
        let line = match vector.get("position_ids") {
            Some(ids) => ids.values[sequence * length + index] as usize,
            None => sequence * length + index,
        };
        let pairs = cos.values.chunks_exact(width / 2).zip(sin.values.chunks_exact(width / 2));
        let (cos, sin) = pairs.clone().nth(line).expect("the caches have the position");
        let mut q = x.to_vec();
        for (i, (cos, sin)) in cos.iter().zip(sin).enumerate() {
            let (a, b) = layout.pair(i, width);
            q[a] *= cos.hypot(*sin);
            q[b] *= cos.hypot(*sin);
        }
        // At position 1 the angle is the frequency itself.
        let frequencies: Vec<f64> =
            cos.iter().zip(sin).map(|(&cos, &sin)| f64::from(sin).atan2(f64::from(cos))).collect();
        let angles = Arc::new(Angles::new(&frequencies, 0..2, 1.0));
        let kind = FeatureKind::Rotary { layout };
        let attention = Attention {
            first_query: 1,
            score: Score::Dot { scale: 1.0 },
            features: vec![Feature { kind, channels: 0..width, heads: 0..1, angles }],
            ..Attention::new(Shape::square(dim, 1, 1, dim), &Full)
        };
        let inputs = Inputs { q: &q.repeat(dim), k: &unit_keys, v: &unit_keys };
        // The log-sum-exp over a single key is its score.
        found.extend(attention.forward(&inputs).expect("the call is allowed").lse);
    }
    assert_eq!(found.len(), batch * heads * length * dim);
    let expected = widen(&vector.tensor("output").values);
    vec![Compared { what: "output".to_owned(), found: widen(&found), expected }]
}
