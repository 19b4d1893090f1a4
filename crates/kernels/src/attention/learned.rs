//! Gradients of what is learned besides q, k and v: summed by each task on its own, then in a fixed order.

use std::ops::Range;

use crate::attention::{
    Attention, Bias, BiasGradient, DELTA_RANGE, FeatureKind, Gradients, Score,
    head::Head,
    plan::{Plan, distances},
};

/// What one task has summed, for each query head of its group in turn.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    heads: Vec<LearnedHead>,
}

/// The gradients of one query head's share of everything learned.
#[derive(Debug)]
pub(crate) struct LearnedHead {
    batch: usize,
    head: usize,
    /// Of the biases by distance, one value per distance.
    pub(crate) by_distance: Vec<f32>,
    /// Of each relative bias: its table and its query bias.
    pub(crate) relative: Vec<BiasGradient>,
    /// Of the head's relative values.
    pub(crate) relative_values: Vec<f32>,
    /// Of the head's query bias.
    pub(crate) query_bias: Vec<f32>,
    /// Of each feature's δ.
    pub(crate) deltas: Vec<Vec<f32>>,
    /// Of the head's additive weight.
    pub(crate) score: Vec<f32>,
    /// Of the head's focus centers.
    pub(crate) centers: Vec<f32>,
    pub(crate) dense: Vec<DenseBlock>,
}

/// The part of a dense bias's gradient that lies above a task's keys.
#[derive(Debug)]
pub(crate) struct DenseBlock {
    /// Index of the bias in the call.
    index: usize,
    /// Where the head's first line starts in the bias.
    start: usize,
    shape: [usize; 4],
    /// Keys of the task, or 0..1 where the bias has one value for all.
    keys: Range<usize>,
    /// `[queries or 1, keys or 1]`.
    values: Vec<f32>,
}

impl DenseBlock {
    /// Adds one row of score gradients, the first of which belongs to the task's key `first`.
    pub(crate) fn add(&mut self, query: usize, first: usize, d: &[f32]) {
        let width = self.keys.len();
        let line = if self.shape[2] == 1 { 0 } else { query * width };
        if self.shape[3] == 1 {
            self.values[line] += d.iter().sum::<f32>();
        } else {
            let values = &mut self.values[line + first..];
            values.iter_mut().zip(d).for_each(|(sum, d)| *sum += d);
        }
    }
}

impl Learned {
    /// Makes room for one more head.
    pub(crate) fn head(&mut self, head: &Head, keys: &Range<usize>) -> &mut LearnedHead {
        self.heads.push(LearnedHead::new(head, keys));
        let last = self.heads.len() - 1;
        &mut self.heads[last]
    }
}

impl LearnedHead {
    fn new(head: &Head, keys: &Range<usize>) -> Self {
        let attention = head.attention();
        let shape = attention.shape;
        let zeros = |wanted: bool, len: usize| vec![0.0; if wanted { len } else { 0 }];
        let by_distance = attention.biases.iter().any(Bias::is_by_distance);
        let dense = attention.biases.iter().enumerate().filter_map(|(index, bias)| match bias {
            Bias::Dense { shape: sizes, learned: true, .. } => {
                let keys = if sizes[3] == 1 { 0..1 } else { keys.clone() };
                let values = vec![0.0; sizes[2] * keys.len()];
                let start = head.dense_line(sizes, 0);
                Some(DenseBlock { index, start, shape: *sizes, keys, values })
            }
            _ => None,
        });
        Self {
            batch: head.batch,
            head: head.head,
            by_distance: zeros(by_distance, distances(attention).len()),
            relative: head
                .plan
                .relative_keys
                .iter()
                .map(|keys| BiasGradient {
                    table: vec![0.0; keys.table.vectors.count() * shape.head_dim],
                    query_bias: zeros(keys.query_bias.is_some(), shape.head_dim),
                })
                .collect(),
            relative_values: vec![
                0.0;
                attention
                    .relative_values
                    .map_or(0, |r| r.count() * shape.value_dim)
            ],
            query_bias: zeros(attention.query_bias.is_some(), shape.head_dim),
            deltas: attention
                .features
                .iter()
                .map(|feature| zeros(feature.gradient_len() > 0, feature.channels.len()))
                .collect(),
            score: zeros(matches!(attention.score, Score::Additive { .. }), shape.head_dim),
            centers: zeros(attention.focus.is_some(), shape.queries),
            dense: dense.collect(),
        }
    }
}

/// The sums over all tasks.
pub(crate) struct Totals<'a> {
    plan: &'a Plan<'a>,
    /// `[heads, distances]`.
    by_distance: Vec<f32>,
    sums: Sums,
}

/// Gradients without those of q, k and v.
struct Sums {
    score: Vec<f32>,
    query_bias: Vec<f32>,
    features: Vec<Vec<f32>>,
    biases: Vec<BiasGradient>,
    relative_values: Vec<f32>,
    centers: Vec<f32>,
}

impl<'a> Totals<'a> {
    pub(crate) fn new(plan: &'a Plan<'a>) -> Self {
        let attention = plan.attention;
        let by_distance = attention.biases.iter().any(Bias::is_by_distance);
        let span = if by_distance { distances(attention).len() } else { 0 };
        let Gradients { score, query_bias, features, biases, relative_values, centers, .. } =
            Gradients::zeros_of_learned(attention);
        let sums = Sums { score, query_bias, features, biases, relative_values, centers };
        Self { plan, by_distance: vec![0.0; attention.shape.heads * span], sums }
    }

    /// Adds what a task has summed; tasks must come in their own order.
    pub(crate) fn add(&mut self, learned: &Learned) {
        for head in &learned.heads {
            self.add_head(head);
        }
    }

    fn add_head(&mut self, part: &LearnedHead) {
        let Self { plan, by_distance, sums } = self;
        let attention = plan.attention;
        let shape = attention.shape;
        let head = part.head;
        add(by_distance, head * part.by_distance.len(), &part.by_distance);
        add(&mut sums.query_bias, head * part.query_bias.len(), &part.query_bias);
        add(&mut sums.score, head * part.score.len(), &part.score);
        let rows = shape.row_head(part.batch, head).start;
        add(&mut sums.centers, if part.centers.is_empty() { 0 } else { rows }, &part.centers);
        for (sum, delta) in sums.features.iter_mut().zip(&part.deltas) {
            add(sum, head * delta.len(), delta);
        }
        for (keys, gradient) in plan.relative_keys.iter().zip(&part.relative) {
            let sum = &mut sums.biases[keys.index];
            let start = keys.table.vectors.head_range(head, shape.head_dim).start;
            add(&mut sum.table, start, &gradient.table);
            add(&mut sum.query_bias, head * gradient.query_bias.len(), &gradient.query_bias);
        }
        if let Some(vectors) = &attention.relative_values {
            let start = vectors.head_range(head, shape.value_dim).start;
            add(&mut sums.relative_values, start, &part.relative_values);
        }
        for block in &part.dense {
            let width = block.keys.len();
            for (line, values) in block.values.chunks_exact(width.max(1)).enumerate() {
                let start = block.start + line * block.shape[3] + block.keys.start;
                add(&mut sums.biases[block.index].table, start, values);
            }
        }
    }

    /// Moves the sums where they belong.
    pub(crate) fn finish(mut self, gradients: &mut Gradients) {
        let attention = self.plan.attention;
        for (bias, gradient) in attention.biases.iter().zip(&mut self.sums.biases) {
            bias.contract(distances(attention), &self.by_distance, &mut gradient.table);
        }
        stop_at_clamp(attention, &mut self.sums.features);
        let Sums { score, query_bias, features, biases, relative_values, centers } = self.sums;
        gradients.score = score;
        gradients.query_bias = query_bias;
        gradients.features = features;
        gradients.biases = biases;
        gradients.relative_values = relative_values;
        gradients.centers = centers;
    }
}

/// δ outside its range was clamped, so nothing flows back to it.
fn stop_at_clamp(attention: &Attention, d_features: &mut [Vec<f32>]) {
    for (feature, d_delta) in attention.features.iter().zip(d_features) {
        if let FeatureKind::Polar { delta: Some(delta), .. } = feature.kind {
            for (d, delta) in d_delta.iter_mut().zip(delta) {
                if !(DELTA_RANGE.0..=DELTA_RANGE.1).contains(delta) {
                    *d = 0.0;
                }
            }
        }
    }
}

fn add(sum: &mut [f32], start: usize, part: &[f32]) {
    sum[start..start + part.len()].iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
}
