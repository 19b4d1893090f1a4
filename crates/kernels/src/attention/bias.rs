//! Biases: what is added to a score for the positions of its query and key.
//!
//! Distance is `key position − query position`. [`Bias::ByDistance`] depends on the head and the distance alone: all of them
//! become one value per head and distance, `queries + keys − 1` of them, added along diagonals of a tile, and their
//! gradients are collected the same way. [`Bias::Relative`] is a band product inside the tile. Only [`Bias::Dense`] is as
//! large as the scores.

use std::ops::Range;

use crate::{
    Error,
    attention::Shape,
    error::{expect_len, expect_range},
};

/// One term added to the scores after the soft cap, over values `T`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bias<T> {
    /// `table[head, clamp(distance, −left, right) + left]`: ALiBi, T5, and any other function of head and distance.
    ByDistance {
        /// `[heads, left + 1 + right]`.
        table: T,
        /// Distances to the left that are told apart.
        left: usize,
        /// Distances to the right that are told apart.
        right: usize,
    },
    /// `scale · (q + query_bias[head]) · table[head, clamp(distance, −left, right) + left]`:
    /// Shaw's keys (no query bias, `left = right = k`) and Transformer-XL's terms (b) and (d)
    /// (query bias `v`; the table holds the projected distances).
    Relative {
        /// The vectors and their reach; as wide as a key.
        vectors: Relative<T>,
        /// `[heads, head_dim]`.
        query_bias: Option<T>,
        /// Factor on the term, usually the score's own.
        scale: f32,
    },
    /// `values[batch, head, query, key]`; sizes of 1 are broadcast. −∞ hides a pair.
    Dense {
        /// The bias in row-major order.
        values: T,
        /// Its four sizes, each 1 or the call's own.
        shape: [usize; 4],
        /// Whether to compute its gradient, which is as large as `values`.
        learned: bool,
    },
}

impl<T> Bias<T> {
    /// The same bias over other values; `f` gets each with its name.
    pub fn map<'t, U>(&'t self, f: &mut impl FnMut(&'static str, &'t T) -> U) -> Bias<U> {
        match self {
            Self::ByDistance { table, left, right } => {
                Bias::ByDistance { table: f("table", table), left: *left, right: *right }
            }
            Self::Relative { vectors, query_bias, scale } => Bias::Relative {
                vectors: vectors.map(f),
                query_bias: query_bias.as_ref().map(|v| f("query_bias", v)),
                scale: *scale,
            },
            Self::Dense { values, shape, learned } => {
                Bias::Dense { values: f("values", values), shape: *shape, learned: *learned }
            }
        }
    }

    /// Whether it has a gradient.
    pub fn learns(&self) -> bool {
        !matches!(self, Self::Dense { learned: false, .. })
    }
}

/// Vectors by clipped distance, `table[head, clamp(distance, −left, right) + left]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Relative<T> {
    /// `[heads or 1, left + 1 + right, width]`.
    pub table: T,
    /// One table for every head, or one for all.
    pub per_head: bool,
    /// Distances to the left that are told apart.
    pub left: usize,
    /// Distances to the right that are told apart.
    pub right: usize,
}

impl<T> Relative<T> {
    /// The same vectors over other values.
    pub fn map<'t, U>(&'t self, f: &mut impl FnMut(&'static str, &'t T) -> U) -> Relative<U> {
        let Self { table, per_head, left, right } = self;
        Relative { table: f("table", table), per_head: *per_head, left: *left, right: *right }
    }

    /// Number of clipped distances.
    pub fn count(&self) -> usize {
        self.left + 1 + self.right
    }

    /// Where the vectors of `head`, each `width` wide, lie in the table.
    pub fn head_range(&self, head: usize, width: usize) -> Range<usize> {
        let len = self.count() * width;
        let start = if self.per_head { head * len } else { 0 };
        start..start + len
    }
}

impl<'a> Relative<&'a [f32]> {
    /// The vectors of `head`, each `width` wide.
    pub(crate) fn head(&self, head: usize, width: usize) -> &'a [f32] {
        &self.table[self.head_range(head, width)]
    }

    pub(crate) fn check(
        &self,
        what: &'static str,
        heads: usize,
        width: usize,
    ) -> Result<(), Error> {
        let tables = if self.per_head { heads } else { 1 };
        let expected = table_len(&[tables, self.left, self.right, width])?;
        expect_len(what, self.table.len(), expected)
    }
}

/// `tables · (left + 1 + right) · width`, refusing sizes no machine holds.
fn table_len(sizes: &[usize; 4]) -> Result<usize, Error> {
    let [tables, left, right, width] = *sizes;
    left.checked_add(right)
        .and_then(|reach| reach.checked_add(1))
        .and_then(|count| count.checked_mul(tables))
        .and_then(|rows| rows.checked_mul(width))
        .ok_or(Error::TooLarge)
}

impl Bias<&[f32]> {
    pub(crate) fn check(&self, shape: &Shape) -> Result<(), Error> {
        match self {
            Bias::ByDistance { table, left, right } => {
                let expected = table_len(&[shape.heads, *left, *right, 1])?;
                expect_len("distance table", table.len(), expected)
            }
            Bias::Relative { vectors, query_bias, scale } => {
                vectors.check("relative keys", shape.heads, shape.head_dim)?;
                expect_range("relative scale", scale, scale.is_finite(), "the finite numbers")?;
                match query_bias {
                    Some(v) => {
                        expect_len("relative query bias", v.len(), shape.heads * shape.head_dim)
                    }
                    None => Ok(()),
                }
            }
            Bias::Dense { values, shape: sizes, .. } => {
                let full = [shape.batch, shape.heads, shape.queries, shape.keys];
                for (found, whole) in sizes.iter().zip(full) {
                    expect_range(
                        "dense bias size",
                        found,
                        *found == 1 || *found == whole,
                        "1 or the call's own size",
                    )?;
                }
                let expected = sizes.iter().try_fold(1usize, |a, &b| a.checked_mul(b));
                expect_len("dense bias", values.len(), expected.ok_or(Error::TooLarge)?)
            }
        }
    }
}

/// Where every distance of a call lies in a table of `left + 1 + right`.
pub(crate) fn entries(
    distances: Range<isize>,
    left: usize,
    right: usize,
) -> impl Iterator<Item = usize> {
    let (left, right) = (left as isize, right as isize);
    distances.map(move |distance| (distance.max(-left).min(right) + left) as usize)
}
