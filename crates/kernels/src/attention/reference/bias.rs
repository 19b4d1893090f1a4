//! Biases by definition, and their gradients.

use crate::attention::{
    Bias,
    reference::{
        Reference, Row,
        backward::{add, scaled},
        dot,
        layout::clip,
    },
};

impl Reference<'_, '_> {
    /// What a bias adds to a score.
    pub(super) fn bias(&self, bias: &Bias<Vec<f64>>, row: Row, key: usize) -> f64 {
        match bias {
            Bias::ByDistance { table, left, right } => {
                table[self.distance_cell(row, key, *left, *right)]
            }
            Bias::Relative { vectors, query_bias, scale } => {
                let vector = self.vector_range(vectors, row, key, self.attention.shape.head_dim);
                let q = self.query_with(row, query_bias.as_deref());
                f64::from(*scale) * dot(&q, &vectors.table[vector])
            }
            Bias::Dense { values, shape, .. } => values[dense_cell(shape, row, key)],
        }
    }

    /// Adds the gradients of a bias to `d`, and that of the query it reads to `d_q`.
    pub(super) fn bias_backward(
        &self,
        bias: &Bias<Vec<f64>>,
        (row, key): (Row, usize),
        d_score: f64,
        d: &mut Bias<Vec<f64>>,
        d_q: &mut [f64],
    ) {
        match (bias, d) {
            (_, Bias::ByDistance { table: d, left, right }) => {
                d[self.distance_cell(row, key, *left, *right)] += d_score;
            }
            (
                Bias::Relative { vectors, query_bias, scale },
                Bias::Relative { vectors: d_vectors, query_bias: d_query_bias, .. },
            ) => {
                let d_dot = f64::from(*scale) * d_score;
                let vector = self.vector_range(vectors, row, key, self.attention.shape.head_dim);
                let q = self.query_with(row, query_bias.as_deref());
                let d_row = scaled(&vectors.table[vector.clone()], d_dot);
                add(&mut d_vectors.table[vector], scaled(&q, d_dot));
                if let Some(d) = d_query_bias {
                    add(&mut d[self.head_range(row.head)], d_row.iter().copied());
                }
                add(&mut d_q[self.q_range(row)], d_row);
            }
            (_, Bias::Dense { values: d, shape, learned: true }) => {
                d[dense_cell(shape, row, key)] += d_score;
            }
            (_, Bias::Dense { learned: false, .. }) => {}
            (_, Bias::Relative { .. }) => unreachable!("a gradient is of its bias's kind"),
        }
    }

    /// The entry of a table by head and distance that a pair reads.
    fn distance_cell(&self, row: Row, key: usize, left: usize, right: usize) -> usize {
        row.head * (left + 1 + right) + clip(self.distance(row, key), left, right)
    }
}

/// The entry of a dense bias that a pair reads.
fn dense_cell(shape: &[usize; 4], row: Row, key: usize) -> usize {
    let at = [row.batch, row.head, row.query, key];
    let broadcast = shape.iter().zip(at).map(|(&size, i)| (size, i.min(size - 1)));
    broadcast.fold(0, |cell, (size, i)| cell * size + i)
}
