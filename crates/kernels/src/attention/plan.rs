//! What all heads of a call share: the tables formed once.

use std::ops::Range;
#[cfg(test)]
use std::sync::atomic::AtomicU64;

use crate::{
    attention::{
        Attention, Bias, Inputs, Relative, bias::entries, head::Head, pattern::Pattern,
        prepare::Preparation,
    },
    tile::PAD,
};

/// A call with what is formed once for all its heads.
pub(crate) struct Plan<'a> {
    pub(crate) attention: &'a Attention<'a>,
    /// Who sees whom among neighbors: the pattern, without what is gathered.
    pub(crate) pattern: &'a dyn Pattern,
    pub(crate) inputs: Inputs<'a>,
    /// The sum of all biases by distance, `[heads, distances]`.
    pub(crate) by_distance: Option<Vec<f32>>,
    /// Relative biases, in order.
    pub(crate) relative_keys: Vec<RelativeKeys<'a>>,
    /// Shaw's values and their transpose.
    pub(crate) relative_values: Option<Transposed<'a>>,
    /// Pairs that were compared, padding included.
    #[cfg(test)]
    pub(crate) compared: AtomicU64,
}

/// One relative bias.
pub(crate) struct RelativeKeys<'a> {
    pub(crate) table: Transposed<'a>,
    pub(crate) query_bias: Option<&'a [f32]>,
    pub(crate) scale: f32,
}

/// A relative table that can be read by distance and by channel.
pub(crate) struct Transposed<'a> {
    pub(crate) vectors: Relative<&'a [f32]>,
    width: usize,
    /// `[tables, width, count]`.
    by_channel: Vec<f32>,
}

impl<'a> Transposed<'a> {
    fn new(vectors: Relative<&'a [f32]>, width: usize) -> Self {
        let count = vectors.count();
        let mut by_channel = vec![0.0; vectors.table.len()];
        let tables = vectors
            .table
            .chunks_exact(count * width)
            .zip(by_channel.chunks_exact_mut(count * width));
        for (from, to) in tables {
            for (entry, vector) in from.chunks_exact(width).enumerate() {
                for (channel, value) in vector.iter().enumerate() {
                    to[channel * count + entry] = *value;
                }
            }
        }
        Self { vectors, width, by_channel }
    }

    /// `[width, count]` of `head`.
    pub(crate) fn by_channel(&self, head: usize) -> &[f32] {
        &self.by_channel[self.vectors.head_range(head, self.width)]
    }

    /// `[count, width]` of `head`.
    pub(crate) fn by_distance(&self, head: usize) -> &'a [f32] {
        self.vectors.head(head, self.width)
    }
}

impl<'a> Plan<'a> {
    pub(crate) fn new(attention: &'a Attention<'a>, inputs: Inputs<'a>) -> Self {
        Self::with(attention, inputs, attention.pattern)
    }

    /// With another pattern among neighbors.
    pub(crate) fn with(
        attention: &'a Attention<'a>,
        inputs: Inputs<'a>,
        pattern: &'a dyn Pattern,
    ) -> Self {
        let shape = &attention.shape;
        let distances = distances(attention);
        let mut by_distance = None;
        let mut relative_keys = Vec::new();
        for bias in &attention.biases {
            match *bias {
                Bias::ByDistance { table, left, right } => {
                    let sums: &mut Vec<f32> =
                        by_distance.get_or_insert_with(|| vec![0.0; shape.heads * distances.len()]);
                    let heads = sums.chunks_exact_mut(distances.len());
                    for (sums, table) in heads.zip(table.chunks_exact(left + 1 + right)) {
                        let entries = entries(distances.clone(), left, right);
                        sums.iter_mut().zip(entries).for_each(|(sum, entry)| *sum += table[entry]);
                    }
                }
                Bias::Relative { vectors, query_bias, scale } => {
                    let table = Transposed::new(vectors, shape.head_dim);
                    relative_keys.push(RelativeKeys { table, query_bias, scale });
                }
                Bias::Dense { .. } => {}
            }
        }
        let relative_values =
            attention.relative_values.map(|vectors| Transposed::new(vectors, shape.value_dim));
        Self {
            attention,
            pattern,
            inputs,
            by_distance,
            relative_keys,
            relative_values,
            #[cfg(test)]
            compared: AtomicU64::new(0),
        }
    }

    /// One head of one sequence.
    pub(crate) fn head(&self, batch: usize, head: usize) -> Head<'_> {
        let shape = &self.attention.shape;
        let (k, v) = self.attention.keys_and_values(&self.inputs, batch, shape.kv_head(head));
        Head {
            plan: self,
            batch,
            head,
            preparation: Preparation::new(self.attention, head),
            q: &self.inputs.q[shape.q_head(batch, head)],
            k,
            v,
        }
    }
}

/// Every distance `key position − query position` of a call, one more on the right for padded columns.
pub(crate) fn distances(attention: &Attention) -> Range<isize> {
    let (queries, keys) = (attention.query_positions(), attention.key_positions());
    let first = keys.start as isize + 1 - queries.end as isize;
    let padding = PAD as isize;
    first..(keys.end as isize - queries.start as isize).max(first) + padding
}
