//! Our side: the tensors of a problem and the call a user would write for it.

use std::{fmt, str::FromStr, sync::Arc};

use crate::{
    agree::{Against, TOLERANCE},
    linear,
    patterns::Defined,
    tensors::{Tensor, tensors},
};
use anyhow::{Context, bail};
use whatwhere_kernels::{
    Error, Precision,
    attention::{
        Angles, Attention, Bias, Buckets, Columns, Feature, FeatureKind, Gradients, Inputs, Layout,
        Magnitude, Relative, Score, Shape,
        pattern::{Pattern, Tile, visible_pairs},
    },
    linear_attention::LinearGradients,
};

pub(crate) const HEADS: usize = 8;
pub(crate) const HEAD_DIM: usize = 64;
/// Keys a query sees under a window, itself included.
pub(crate) const WINDOW: usize = 256;
/// Shaw's clipping distance, as in the paper.
pub(crate) const REACH: usize = 16;
/// T5's own.
pub(crate) const BUCKETS: Buckets = Buckets { count: 32, max_distance: 128, bidirectional: false };
/// Of the rotary and polar frequencies.
const BASE: f64 = 10_000.0;

/// What is computed, apart from the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Causal,
    /// With products in bf16; torch's tensors are bf16.
    CausalBf16,
    Full,
    T5,
    Alibi,
    Shaw,
    Window,
    Rotary,
    Polar,
    Additive,
    Linear,
    /// With rotary on the numerator.
    TurnedLinear,
    Retention,
    Strided,
    StridedRoot,
    Fixed,
    Dilated,
    BigBird,
}

impl What {
    const ALL: [(Self, &str); 18] = [
        (Self::Causal, "causal"),
        (Self::CausalBf16, "causal bf16"),
        (Self::Full, "full"),
        (Self::T5, "t5"),
        (Self::Alibi, "alibi"),
        (Self::Shaw, "shaw"),
        (Self::Window, "window"),
        (Self::Rotary, "rotary"),
        (Self::Polar, "polar"),
        (Self::Additive, "additive"),
        (Self::Linear, "linear"),
        (Self::TurnedLinear, "turned linear"),
        (Self::Retention, "retention"),
        (Self::Strided, "strided"),
        (Self::StridedRoot, "strided-root"),
        (Self::Fixed, "fixed"),
        (Self::Dilated, "dilated"),
        (Self::BigBird, "big-bird"),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(what, _)| *what == self).map_or("", |(_, name)| name)
    }
}

/// Whether gradients are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Forward,
    Both,
}

/// What one side does in a case. Written `what/length/pass`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) what: What,
    pub(crate) length: usize,
    pub(crate) pass: Pass,
}

impl Task {
    /// Multiplications and additions of the two products over the visible pairs, and 3.5 times that with gradients.
    /// What features and biases add is not counted. None where products are not what is computed.
    pub(crate) fn flops(&self) -> Option<f64> {
        let length = self.length as f64;
        let pairs = match self.what {
            What::Full => length * length,
            What::Window => WINDOW as f64 * (length - (WINDOW - 1) as f64 / 2.0),
            What::Additive | What::Linear | What::TurnedLinear | What::Retention => return None,
            _ if self.is_gathered() => {
                let whole = 0..self.length;
                let tile = Tile { batch: 0, head: 0, queries: whole.clone(), keys: whole };
                visible_pairs(&*self.pattern(), &tile) as f64
            }
            _ => length * length / 2.0,
        };
        let forward = 4.0 * pairs * (HEADS * HEAD_DIM) as f64;
        Some(if self.pass == Pass::Both { 3.5 * forward } else { forward })
    }

    /// The largest difference that is rounding: see [`TOLERANCE`]. bf16 keeps 8 bits, and torch rounds weights and results, too: of
    /// a million values its worst is up to 0.07 from the same in f64, and ours about as far to any side.
    pub(crate) fn tolerance(&self) -> f64 {
        if self.what == What::CausalBf16 { 0.25 } else { TOLERANCE }
    }

    /// What a difference is held against.
    pub(crate) fn against(&self) -> Against {
        if self.what == What::CausalBf16 { Against::Value } else { Against::Tensor }
    }

    /// The kind of the worker's that computes the same with the least memory, for agreement.
    pub(crate) fn kind(&self) -> &'static str {
        match self.what {
            What::Window => "window in blocks",
            what => what.name(),
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pass = if self.pass == Pass::Both { "both" } else { "forward" };
        write!(f, "{}/{}/{pass}", self.what.name(), self.length)
    }
}

impl FromStr for Task {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let expected = || format!("found '{text}', expected WHAT/LENGTH/PASS");
        let mut parts = text.split('/');
        let [Some(what), Some(length), Some(pass), None] = [(); 4].map(|()| parts.next()) else {
            bail!(expected());
        };
        let what = What::ALL.iter().find(|(_, name)| *name == what).with_context(expected)?.0;
        let pass = match pass {
            "forward" => Pass::Forward,
            "both" => Pass::Both,
            _ => bail!(expected()),
        };
        Ok(Self { what, length: length.parse().with_context(expected)?, pass })
    }
}

/// A task with its inputs.
pub(crate) struct Problem {
    pub(crate) task: Task,
    pub(crate) tensors: Vec<Tensor>,
    /// Cosines and sines, made once as a model would.
    angles: Option<Arc<Angles>>,
    pattern: Box<dyn Pattern>,
}

/// Where a call writes.
pub(crate) struct Buffers {
    out: Vec<f32>,
    /// Logarithmic sums, or the normalisers of linear mixing.
    sums: Vec<f32>,
    learned: Option<Learned>,
    /// Gradients of what a table by distance is made of.
    bias: Vec<f32>,
}

enum Learned {
    Softmax(Box<Gradients>),
    Linear(LinearGradients),
}

/// The output and the gradients by name: `out`, and `d_NAME` for everything learned.
pub(crate) type Results = Vec<(&'static str, Vec<f32>)>;

impl Problem {
    pub(crate) fn new(task: Task) -> Self {
        let frequencies = match task.what {
            What::Rotary | What::TurnedLinear => Some(Angles::rotary_frequencies(HEAD_DIM, BASE)),
            What::Polar => Some(Angles::polar_frequencies(HEAD_DIM, BASE)),
            _ => None,
        };
        let angles = frequencies.map(|f| Arc::new(Angles::new(&f, 0..task.length, 1.0)));
        Self { task, tensors: tensors(task), angles, pattern: task.pattern() }
    }

    /// The same with a pattern that only says who sees whom.
    pub(crate) fn by_definition(task: Task) -> Self {
        Self { pattern: Box::new(Defined(task.pattern())), ..Self::new(task) }
    }

    /// The whole call, from the inputs to freshly allocated results.
    pub(crate) fn run(&self) -> Result<Results, Error> {
        let mut buffers = self.buffers();
        self.run_into(&mut buffers)?;
        Ok(self.results(buffers))
    }

    /// Room for the results, to be used again by every call, as a training loop would.
    pub(crate) fn buffers(&self) -> Buffers {
        let shape = self.shape();
        let zeros = |len: usize| vec![0.0; len];
        let gradients = || match self.task.what {
            What::Linear | What::TurnedLinear | What::Retention => {
                let (q, k, v) = (zeros(shape.q_len()), zeros(shape.k_len()), zeros(shape.v_len()));
                Learned::Linear(LinearGradients { q, k, v })
            }
            _ => Learned::Softmax(Box::new(Gradients::zeros(&self.attention(&self.table())))),
        };
        Buffers {
            out: zeros(shape.out_len()),
            sums: zeros(shape.rows()),
            learned: (self.task.pass == Pass::Both).then(gradients),
            bias: Vec::new(),
        }
    }

    /// The whole call into buffers of [`Self::buffers`].
    pub(crate) fn run_into(&self, buffers: &mut Buffers) -> Result<(), Error> {
        let inputs = Inputs { q: self.get("q"), k: self.get("k"), v: self.get("v") };
        let Buffers { out, sums, learned, bias } = buffers;
        if matches!(self.task.what, What::Linear | What::TurnedLinear | What::Retention) {
            let gradients = match learned {
                Some(Learned::Linear(d)) => Some(d),
                _ => None,
            };
            return linear::run(self, &inputs, out, sums, gradients);
        }
        let table = self.table();
        let attention = self.attention(&table);
        attention.forward_into(&inputs, out, sums)?;
        if let Some(Learned::Softmax(d)) = learned {
            attention.backward_into(&inputs, out, sums, self.get("d_out"), d)?;
            if let [d_table] = d.learned.values()[..]
                && let Some(d_array) = self.table_backward(d_table)
            {
                *bias = d_array;
            }
        }
        Ok(())
    }

    /// The table by distance of ALiBi and T5, made for each call from what they learn.
    fn table(&self) -> Vec<f32> {
        self.columns().map_or_else(Vec::new, |(columns, array)| columns.table(HEADS, array))
    }

    fn table_backward(&self, d_table: &[f32]) -> Option<Vec<f32>> {
        self.columns().map(|(columns, _)| columns.backward(HEADS, d_table))
    }

    fn columns(&self) -> Option<(Columns, &[f32])> {
        let (left, right) = self.reach();
        match self.task.what {
            What::T5 => Some((BUCKETS.columns(left, right), self.get("table"))),
            What::Alibi => Some((Columns::alibi(left, right), self.get("slopes"))),
            _ => None,
        }
    }

    /// Distances to either side that a call can meet.
    fn reach(&self) -> (usize, usize) {
        (self.task.length - 1, self.task.length - 1)
    }

    fn results(&self, buffers: Buffers) -> Results {
        let mut results = vec![("out", buffers.out)];
        match buffers.learned {
            None => {}
            Some(Learned::Linear(d)) => results.extend([("d_q", d.q), ("d_k", d.k), ("d_v", d.v)]),
            Some(Learned::Softmax(d)) => {
                results.extend([("d_q", d.q), ("d_k", d.k), ("d_v", d.v)]);
                let mut learned = d.learned.values().into_iter().cloned();
                let names: &[&str] = match self.task.what {
                    What::T5 => return with(results, "d_table", buffers.bias),
                    What::Alibi => return with(results, "d_slopes", buffers.bias),
                    What::Shaw => &["d_keys", "d_values"],
                    What::Polar => &["d_delta"],
                    What::Additive => &["d_weight"],
                    _ => &[],
                };
                results.extend(names.iter().copied().zip(&mut learned));
            }
        }
        results
    }

    pub(crate) fn attention<'a>(&'a self, table: &'a [f32]) -> Attention<'a> {
        let mut attention = Attention::new(self.shape(), &*self.pattern);
        match self.task.what {
            What::T5 | What::Alibi => {
                let (left, right) = self.reach();
                attention.biases.push(Bias::ByDistance { table, left, right });
            }
            What::Shaw => {
                let relative =
                    |table| Relative { table, per_head: false, left: REACH, right: REACH };
                let scale = 1.0 / (HEAD_DIM as f32).sqrt();
                let vectors = relative(self.get("keys"));
                attention.biases.push(Bias::Relative { vectors, query_bias: None, scale });
                attention.relative_values = Some(relative(self.get("values")));
            }
            What::Additive => attention.score = Score::Additive { weight: self.get("weight") },
            What::Rotary | What::TurnedLinear => {
                attention.features =
                    self.feature(FeatureKind::Rotary { layout: Layout::HalfSplit });
            }
            What::Polar => {
                let delta = Some(self.get("delta"));
                let magnitude = Magnitude::Softplus;
                attention.features = self.feature(FeatureKind::Polar { magnitude, delta });
            }
            What::CausalBf16 => attention.precision = Precision::Bf16,
            _ => {}
        }
        attention
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape::square(1, HEADS, self.task.length, HEAD_DIM)
    }

    fn feature<'a>(&self, kind: FeatureKind<&'a [f32]>) -> Vec<Feature<&'a [f32]>> {
        let feature = |angles| Feature { kind, channels: 0..HEAD_DIM, heads: 0..HEADS, angles };
        self.angles.iter().cloned().map(feature).collect()
    }

    pub(crate) fn get(&self, name: &str) -> &[f32] {
        &self.tensor(name).values
    }

    pub(crate) fn tensor(&self, name: &str) -> &Tensor {
        let tensor = self.tensors.iter().find(|tensor| tensor.name == name);
        tensor.expect("every task has the tensors its call reads")
    }
}

fn with(mut results: Results, name: &'static str, values: Vec<f32>) -> Results {
    results.push((name, values));
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_reads_back_from_its_name_and_gives_a_gradient_for_all_it_learns() {
        for (what, _) in What::ALL {
            let task = Task { what, length: 70, pass: Pass::Both };
            assert_eq!(task.to_string().parse::<Task>().unwrap(), task);
            let problem = Problem::new(task);
            let results = problem.run().unwrap();
            let learned = problem.tensors.iter().filter(|tensor| tensor.learned);
            let names: Vec<String> = results.iter().map(|(name, _)| (*name).to_owned()).collect();
            let expected = learned.clone().map(|tensor| format!("d_{}", tensor.name));
            assert_eq!(names[0], "out");
            assert_eq!(names[1..], expected.collect::<Vec<_>>());
            for ((_, gradient), tensor) in results[1..].iter().zip(learned) {
                assert_eq!(gradient.len(), tensor.values.len(), "{task}: {}", tensor.name);
            }
        }
    }
}
