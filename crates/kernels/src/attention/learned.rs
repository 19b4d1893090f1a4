//! Gradients of what is learned besides q, k and v: summed by each task on its own, then in a fixed order.

use std::ops::Range;

use crate::attention::{
    Attention, Bias, Call, DELTA_RANGE, FeatureKind, Focus, Gradients,
    bias::entries,
    gradients::zeros_of_learned,
    head::Head,
    indices::Indices,
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
    /// Of each relative bias.
    pub(crate) relative: Vec<RelativeGradient>,
    /// Of the head's relative values.
    pub(crate) relative_values: Vec<f32>,
    /// Of the head's query bias.
    pub(crate) query_bias: Vec<f32>,
    /// Of each feature's δ.
    pub(crate) deltas: Vec<Vec<f32>>,
    /// Of the head's additive weight.
    pub(crate) score: Vec<f32>,
    /// Of the focus centers of the task's queries.
    pub(crate) centers: Vec<f32>,
    /// The task's queries where they are gathered; else it has all of the head.
    queries: Vec<u32>,
    pub(crate) dense: Vec<DenseBlock>,
}

/// The gradients of one head's share of a relative bias.
#[derive(Debug)]
pub(crate) struct RelativeGradient {
    pub(crate) table: Vec<f32>,
    pub(crate) query_bias: Vec<f32>,
}

/// The part of a dense bias's gradient that lies above a task's keys.
#[derive(Debug)]
pub(crate) struct DenseBlock {
    /// Where the line of each of the task's queries starts in the bias; one start if all share a line.
    starts: Vec<usize>,
    shape: [usize; 4],
    /// Keys of the task, or 0..1 where the bias has one value for all.
    keys: Range<usize>,
    /// `[queries or 1, keys or 1]`.
    values: Vec<f32>,
}

impl DenseBlock {
    /// Adds one row of score gradients of gathered keys.
    pub(crate) fn add_at(&mut self, line: usize, keys: &[u32], d: &[f32]) {
        let line = if self.shape[2] == 1 { 0 } else { line * self.keys.len() };
        if self.shape[3] == 1 {
            self.values[line] += d[..keys.len().min(d.len())].iter().sum::<f32>();
        } else {
            let values = &mut self.values[line..];
            keys.iter().zip(d).for_each(|(key, d)| values[*key as usize] += d);
        }
    }

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

impl DenseBlock {
    /// Adds the block to the bias's gradient.
    fn add_to(&self, sums: &mut [f32]) {
        let width = self.keys.len();
        for (start, values) in self.starts.iter().zip(self.values.chunks_exact(width.max(1))) {
            add(sums, start + self.keys.start, values);
        }
    }
}

impl Learned {
    /// Makes room for one more head.
    pub(crate) fn head(
        &mut self,
        head: &Head,
        queries: &Indices,
        keys: &Range<usize>,
    ) -> &mut LearnedHead {
        self.heads.push(LearnedHead::new(head, queries, keys));
        let last = self.heads.len() - 1;
        &mut self.heads[last]
    }
}

impl LearnedHead {
    fn new(head: &Head, queries: &Indices, keys: &Range<usize>) -> Self {
        let attention = head.attention();
        let shape = attention.shape;
        let zeros = |wanted: bool, len: usize| vec![0.0; if wanted { len } else { 0 }];
        let by_distance =
            attention.biases.iter().any(|bias| matches!(bias, Bias::ByDistance { .. }));
        let dense = attention.biases.iter().filter_map(|bias| match bias {
            Bias::Dense { shape: sizes, learned: true, .. } => {
                let keys = if sizes[3] == 1 { 0..1 } else { keys.clone() };
                let lines = if sizes[2] == 1 { 1 } else { queries.len() };
                let starts = queries.iter().take(lines);
                let starts = starts.map(|query| head.dense_line(sizes, query)).collect();
                let values = vec![0.0; lines * keys.len()];
                Some(DenseBlock { starts, shape: *sizes, keys, values })
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
                .map(|keys| RelativeGradient {
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
                .map(|feature| zeros(feature.delta().is_some(), feature.channels.len()))
                .collect(),
            score: zeros({ attention.score }.learned().is_some(), shape.head_dim),
            centers: zeros(attention.focus.is_some(), queries.len()),
            queries: match queries {
                Indices::List(list) => list.to_vec(),
                Indices::Run(_) => Vec::new(),
            },
            dense: dense.collect(),
        }
    }
}

/// The sums over all tasks.
pub(crate) struct Totals<'a> {
    plan: &'a Plan<'a>,
    /// `[heads, distances]`.
    by_distance: Vec<f32>,
    sums: Call<Vec<f32>, ()>,
}

impl<'a> Totals<'a> {
    pub(crate) fn new(plan: &'a Plan<'a>) -> Self {
        let attention = plan.attention;
        let by_distance =
            attention.biases.iter().any(|bias| matches!(bias, Bias::ByDistance { .. }));
        let span = if by_distance { distances(attention).len() } else { 0 };
        let sums = zeros_of_learned(attention);
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
        if let Some(sum) = &mut sums.query_bias {
            add(sum, head * part.query_bias.len(), &part.query_bias);
        }
        if let Some(sum) = sums.score.learned() {
            add(sum, head * part.score.len(), &part.score);
        }
        if let Some(Focus { centers: sum, .. }) = &mut sums.focus {
            let rows = &mut sum[shape.row_head(part.batch, head)];
            match part.queries.as_slice() {
                [] => add(rows, 0, &part.centers),
                queries => Indices::List(queries).add_rows(&part.centers, 1, rows),
            }
        }
        for (feature, delta) in sums.features.iter_mut().zip(&part.deltas) {
            if let FeatureKind::Polar { delta: Some(sum), .. } = &mut feature.kind {
                add(sum, head * delta.len(), delta);
            }
        }
        if let Some(vectors) = &mut sums.relative_values {
            let start = vectors.head_range(head, shape.value_dim).start;
            add(&mut vectors.table, start, &part.relative_values);
        }
        let (mut relative, mut dense) = (part.relative.iter(), part.dense.iter());
        for bias in &mut sums.biases {
            match bias {
                Bias::ByDistance { .. } | Bias::Dense { learned: false, .. } => {}
                Bias::Relative { vectors, query_bias, .. } => {
                    let gradient = relative.next().expect("a part for each relative bias");
                    let start = vectors.head_range(head, shape.head_dim).start;
                    add(&mut vectors.table, start, &gradient.table);
                    if let Some(sum) = query_bias {
                        add(sum, head * gradient.query_bias.len(), &gradient.query_bias);
                    }
                }
                Bias::Dense { values, .. } => {
                    dense.next().expect("a block for each dense bias").add_to(values);
                }
            }
        }
    }

    /// Moves the sums where they belong.
    pub(crate) fn finish(self, gradients: &mut Gradients) {
        let Self { plan, by_distance, mut sums } = self;
        let distances = distances(plan.attention);
        for bias in &mut sums.biases {
            if let Bias::ByDistance { table, left, right } = bias {
                let heads = by_distance.chunks_exact(distances.len());
                for (table, d) in table.chunks_exact_mut(*left + 1 + *right).zip(heads) {
                    let entries = entries(distances.clone(), *left, *right);
                    entries.zip(d).for_each(|(entry, d)| table[entry] += d);
                }
            }
        }
        stop_at_clamp(plan.attention, &mut sums);
        gradients.learned = sums;
    }
}

/// δ outside its range was clamped, so nothing flows back to it.
fn stop_at_clamp(attention: &Attention, sums: &mut Call<Vec<f32>, ()>) {
    for (feature, sum) in attention.features.iter().zip(&mut sums.features) {
        if let (
            FeatureKind::Polar { delta: Some(delta), .. },
            FeatureKind::Polar { delta: Some(sum), .. },
        ) = (&feature.kind, &mut sum.kind)
        {
            for (d, delta) in sum.iter_mut().zip(*delta) {
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
