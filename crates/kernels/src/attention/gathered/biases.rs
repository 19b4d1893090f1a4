//! What biases and relative values do to a tile of gathered keys, and their gradients: `biases.rs` pair by pair.

use super::entries::{Entries, strips};
use crate::{
    attention::{
        Bias,
        head::{Head, Rows},
        indices::Indices,
        learned::LearnedHead,
    },
    memory::scratch::Scratch,
    simd::rows::Region,
};

impl Head<'_> {
    /// Adds every bias to the scores of a region.
    pub(crate) fn add_gathered_biases(
        &self,
        queries: Rows,
        list: &[u32],
        region: &Region,
        scores: &mut [f32],
        entries: &mut Entries,
    ) {
        let attention = self.attention();
        let (dim, indices) = (attention.shape.head_dim, queries.indices());
        let columns = list.get(region.cols.start..).unwrap_or_default();
        if let Some(table) = self.distance_table() {
            for row in region.rows.clone() {
                let table = &table[attention.shape.queries - 1 - indices.at(row)..];
                let scores = scores[region.of(row)].iter_mut().zip(columns);
                scores.for_each(|(score, key)| *score += table[*key as usize]);
            }
        }
        for (i, relative) in self.plan.relative_keys.iter().enumerate() {
            let (rows, table) = (queries.relative(i, dim), relative.table.by_distance(self.head));
            for strip in strips(region) {
                let (cols, vectors) = (region.cols.clone(), &relative.table.vectors);
                entries.read(attention, &indices, list, &strip, cols, vectors, table);
                entries.add_products(attention, &strip, rows, dim, scores);
            }
        }
        for bias in &attention.biases {
            if let Bias::Dense { values, shape, .. } = bias {
                for row in region.rows.clone() {
                    let line = &values[self.dense_line(shape, indices.at(row))..];
                    let scores = scores[region.of(row)].iter_mut().zip(columns);
                    if shape[3] == 1 {
                        scores.for_each(|(score, _)| *score += line[0]);
                    } else {
                        scores.for_each(|(score, key)| *score += line[*key as usize]);
                    }
                }
            }
        }
    }

    /// Gradients of every bias from a region's `d_scores`.
    pub(crate) fn gathered_biases_backward(
        &self,
        queries: Rows,
        list: &[u32],
        learned: &mut LearnedHead,
        region: &Region,
        scratch: &mut Scratch,
    ) {
        let attention = self.attention();
        let (dim, indices) = (attention.shape.head_dim, queries.indices());
        let columns = list.get(region.cols.start..).unwrap_or_default();
        let Scratch { d_scores, d_relative, entries, .. } = scratch;
        if !learned.by_distance.is_empty() {
            for row in region.rows.clone() {
                let first = attention.shape.queries - 1 - indices.at(row);
                let table = &mut learned.by_distance[first..];
                let d_scores = d_scores[region.of(row)].iter().zip(columns);
                d_scores.for_each(|(d, key)| table[*key as usize] += d);
            }
        }
        for (i, relative) in self.plan.relative_keys.iter().enumerate() {
            let (rows, table) = (queries.relative(i, dim), relative.table.by_distance(self.head));
            let d_rows = &mut d_relative[queries.relative_start(i, dim)..];
            for strip in strips(region) {
                let (cols, vectors) = (region.cols.clone(), &relative.table.vectors);
                entries.read(attention, &indices, list, &strip, cols, vectors, table);
                entries.fold(&strip, d_scores);
                entries.add_vectors(attention, &strip, dim, d_rows);
                let d_table = &mut learned.relative[i].table;
                entries.add_to_table(attention, &strip, rows, dim, d_table);
            }
        }
        for dense in &mut learned.dense {
            for row in region.rows.clone() {
                dense.add_at(queries.line() + row, columns, &d_scores[region.of(row)]);
            }
        }
    }

    /// Adds the relative values of weights to the output's rows.
    pub(crate) fn mix_gathered_relative(
        &self,
        queries: &Indices,
        list: &[u32],
        weights: &[f32],
        region: &Region,
        out: &mut [f32],
        entries: &mut Entries,
    ) {
        let Some(table) = &self.plan.relative_values else { return };
        let (attention, width) = (self.attention(), self.attention().shape.value_dim);
        for strip in strips(region) {
            let (cols, vectors) = (region.cols.clone(), &table.vectors);
            let table = table.by_distance(self.head);
            entries.read(attention, queries, list, &strip, cols, vectors, table);
            entries.fold(&strip, weights);
            entries.add_vectors(attention, &strip, width, out);
        }
    }

    /// Adds what relative values do to the gradients of weights.
    pub(crate) fn add_gathered_relative_values(
        &self,
        queries: &Indices,
        list: &[u32],
        d_out: &[f32],
        region: &Region,
        d_weights: &mut [f32],
        entries: &mut Entries,
    ) {
        let Some(table) = &self.plan.relative_values else { return };
        let (attention, width) = (self.attention(), self.attention().shape.value_dim);
        for strip in strips(region) {
            let (cols, vectors) = (region.cols.clone(), &table.vectors);
            let table = table.by_distance(self.head);
            entries.read(attention, queries, list, &strip, cols, vectors, table);
            entries.add_products(attention, &strip, d_out, width, d_weights);
        }
    }

    /// The gradient of relative values.
    #[expect(clippy::too_many_arguments, reason = "the pairs of a region and what they learn")]
    pub(crate) fn gathered_relative_values_backward(
        &self,
        queries: &Indices,
        list: &[u32],
        weights: &[f32],
        d_out: &[f32],
        region: &Region,
        d_table: &mut [f32],
        entries: &mut Entries,
    ) {
        let Some(table) = &self.plan.relative_values else { return };
        let (attention, width) = (self.attention(), self.attention().shape.value_dim);
        for strip in strips(region) {
            let (cols, vectors) = (region.cols.clone(), &table.vectors);
            let table = table.by_distance(self.head);
            entries.read(attention, queries, list, &strip, cols, vectors, table);
            entries.fold(&strip, weights);
            entries.add_to_table(attention, &strip, d_out, width, d_table);
        }
    }
}
