//! Biases: what is added to a score for the places of its query and key.
//!
//! Distance is `key place − query place`. Biases that depend on the head and the distance alone
//! ([`Bias::Slopes`], [`Bias::Buckets`], [`Bias::Table`]) are expanded to one value per head and distance,
//! `queries + keys − 1` of them, added along diagonals of a tile, and their gradients collected the same way.
//! [`Bias::Relative`] is a band product inside the tile. Only [`Bias::Dense`] is as large as the scores.

use std::ops::Range;

use crate::{
    Error,
    attention::Shape,
    error::{expect_len, expect_range},
};

/// One term added to the scores after the soft cap.
#[derive(Clone, Copy, Debug)]
pub enum Bias<'a> {
    /// ALiBi: `−slope[head] · |distance|`.
    Slopes {
        /// `[heads]`, learned or fixed.
        slopes: &'a [f32],
    },
    /// T5: `table[head, bucket(distance)]`.
    Buckets {
        /// `[heads, buckets.count]`, learned.
        table: &'a [f32],
        /// How distances fall into buckets.
        buckets: Buckets,
    },
    /// `table[head, clamp(distance, −left, right) + left]`.
    Table {
        /// `[heads, left + 1 + right]`, learned.
        table: &'a [f32],
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
        vectors: Relative<'a>,
        /// `[heads, head_dim]`, learned.
        query_bias: Option<&'a [f32]>,
        /// Factor on the term, usually the score's own.
        scale: f32,
    },
    /// `values[batch, head, query, key]`; sizes of 1 are broadcast. −∞ hides a pair.
    Dense {
        /// The bias in row-major order.
        values: &'a [f32],
        /// Its four sizes, each 1 or the call's own.
        shape: [usize; 4],
        /// Whether to compute its gradient, which is as large as `values`.
        learned: bool,
    },
}

/// Learned vectors by clipped distance, `table[head, clamp(distance, −left, right) + left]`.
#[derive(Clone, Copy, Debug)]
pub struct Relative<'a> {
    /// `[heads or 1, left + 1 + right, width]`.
    pub table: &'a [f32],
    /// One table for every head, or one for all.
    pub per_head: bool,
    /// Distances to the left that are told apart.
    pub left: usize,
    /// Distances to the right that are told apart.
    pub right: usize,
}

impl<'a> Relative<'a> {
    /// Number of clipped distances.
    pub fn count(&self) -> usize {
        self.left + 1 + self.right
    }

    /// The row of the table for a distance.
    pub fn index(&self, distance: isize) -> usize {
        clip(distance, self.left, self.right)
    }

    /// Where the vectors of `head`, each `width` wide, lie in the table.
    pub fn head_range(&self, head: usize, width: usize) -> Range<usize> {
        let len = self.count() * width;
        let start = if self.per_head { head * len } else { 0 };
        start..start + len
    }

    /// The vectors of `head`, each `width` wide.
    pub fn head(&self, head: usize, width: usize) -> &'a [f32] {
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

/// How T5 sorts distances into buckets: half of them exact, the rest logarithmic up to `max_distance`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Number of buckets per head.
    pub count: usize,
    /// Distances from here on share the last bucket.
    pub max_distance: usize,
    /// Keys after the query get the upper half of the buckets; otherwise they share bucket 0.
    pub bidirectional: bool,
}

impl Buckets {
    /// The bucket of a distance.
    pub fn index(&self, distance: isize) -> usize {
        let (count, offset, far) = if self.bidirectional {
            let half = self.count / 2;
            (half, if distance > 0 { half } else { 0 }, distance.unsigned_abs())
        } else {
            (self.count, 0, (-distance).max(0) as usize)
        };
        let exact = count / 2;
        if far < exact {
            return offset + far;
        }
        // Computed in f32 with the operations of the published code, so that no distance near a
        // bucket's edge falls to the other side.
        let log = (far as f32 / exact as f32).ln() / (self.max_distance as f32 / exact as f32).ln()
            * (count - exact) as f32;
        offset + (exact + log as usize).min(count - 1)
    }

    fn check(&self) -> Result<(), Error> {
        let least = if self.bidirectional { 4 } else { 2 };
        let even = !self.bidirectional || self.count.is_multiple_of(2);
        expect_range(
            "buckets.count",
            self.count,
            self.count >= least && even,
            "2 and more (bidirectional: even, 4 and more)",
        )?;
        let exact = if self.bidirectional { self.count / 4 } else { self.count / 2 };
        expect_range(
            "buckets.max_distance",
            self.max_distance,
            self.max_distance > exact,
            "more than the exact buckets",
        )
    }
}

/// ALiBi's slopes for any number of heads: `2^(−8h/n)` for a power of two, otherwise those of the power
/// below followed by every other slope of the power above.
pub fn alibi_slopes(heads: usize) -> Vec<f32> {
    let power = |n: usize| (1..=n).map(move |h| 2f64.powf(-8.0 * h as f64 / n as f64) as f32);
    let below = 1 << heads.max(1).ilog2();
    power(below).chain(power(2 * below).step_by(2)).take(heads).collect()
}

impl Bias<'_> {
    pub(crate) fn check(&self, shape: &Shape) -> Result<(), Error> {
        match self {
            Bias::Slopes { slopes } => expect_len("slopes", slopes.len(), shape.heads),
            Bias::Buckets { table, buckets } => {
                buckets.check()?;
                let expected = shape.heads.checked_mul(buckets.count).ok_or(Error::TooLarge)?;
                expect_len("bucket table", table.len(), expected)
            }
            Bias::Table { table, left, right } => {
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

    /// Whether the bias depends on the head and the distance alone.
    pub(crate) fn is_by_distance(&self) -> bool {
        matches!(self, Bias::Slopes { .. } | Bias::Buckets { .. } | Bias::Table { .. })
    }

    /// Adds the values for every head and distance to `out`, `[heads, distances]`.
    pub(crate) fn expand(&self, distances: Range<isize>, out: &mut [f32]) {
        self.visit(distances, |at, index, factor| match self {
            Bias::Slopes { slopes: values }
            | Bias::Buckets { table: values, .. }
            | Bias::Table { table: values, .. } => out[at] += factor * values[index],
            Bias::Relative { .. } | Bias::Dense { .. } => {}
        });
    }

    /// The gradient of [`Self::expand`]: adds `d`, `[heads, distances]`, to the learned values' gradient.
    pub(crate) fn contract(&self, distances: Range<isize>, d: &[f32], out: &mut [f32]) {
        self.visit(distances, |at, index, factor| out[index] += factor * d[at]);
    }

    /// Calls `visit(place in [heads, distances], index of the learned value, factor)` for every head and distance.
    fn visit(&self, distances: Range<isize>, mut visit: impl FnMut(usize, usize, f32)) {
        let span = distances.len();
        let (heads, count) = match self {
            Bias::Slopes { slopes } => (slopes.len(), 1),
            Bias::Buckets { table, buckets } => (table.len() / buckets.count, buckets.count),
            Bias::Table { table, left, right } => {
                (table.len() / (left + 1 + right), left + 1 + right)
            }
            Bias::Relative { .. } | Bias::Dense { .. } => return,
        };
        for (i, distance) in distances.enumerate() {
            let (index, factor) = match self {
                Bias::Slopes { .. } => (0, -(distance.unsigned_abs() as f32)),
                Bias::Buckets { buckets, .. } => (buckets.index(distance), 1.0),
                Bias::Table { left, right, .. } => (clip(distance, *left, *right), 1.0),
                Bias::Relative { .. } | Bias::Dense { .. } => return,
            };
            for head in 0..heads {
                visit(head * span + i, head * count + index, factor);
            }
        }
    }

    /// Length of the learned values' gradient: the slice's own length, 0 for a fixed dense bias.
    pub fn gradient_len(&self) -> usize {
        match self {
            Bias::Slopes { slopes } => slopes.len(),
            Bias::Buckets { table, .. } | Bias::Table { table, .. } => table.len(),
            Bias::Relative { vectors, .. } => vectors.table.len(),
            Bias::Dense { values, learned, .. } => {
                if *learned {
                    values.len()
                } else {
                    0
                }
            }
        }
    }
}

fn clip(distance: isize, left: usize, right: usize) -> usize {
    (distance.max(-(left as isize)).min(right as isize) + left as isize) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causal_buckets_are_those_of_t5() {
        let buckets = Buckets { count: 32, max_distance: 128, bidirectional: false };
        let cases = [
            (0, 0),
            (15, 15),
            (16, 16),
            (20, 17),
            (24, 19),
            (32, 21),
            (64, 26),
            (96, 29),
            (112, 30),
            (113, 31),
            (5000, 31),
            (-3, 0),
        ];
        for (back, bucket) in cases {
            assert_eq!(buckets.index(-back), bucket, "{back} back");
        }
    }

    #[test]
    fn slopes_follow_the_published_sequence_for_any_head_count() {
        assert_eq!(alibi_slopes(4), [0.25, 0.0625, 0.015625, 0.00390625]);
        let eight = alibi_slopes(8);
        assert_eq!((eight[0], eight[7]), (0.5, 1.0 / 256.0));
        let twelve = alibi_slopes(12);
        assert_eq!(twelve.len(), 12);
        assert_eq!(twelve[..8], eight);
        assert_eq!(twelve[8], 2f32.powf(-0.5));
    }
}
