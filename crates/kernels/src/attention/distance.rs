//! Tables for [`Bias::ByDistance`](crate::attention::Bias::ByDistance): ALiBi's and T5's, and the gradients of what
//! they are made of. The kernels know neither; those who make a call do.

use crate::{Error, error::expect_range};

/// ALiBi's slopes for any number of heads: `2^(−8h/n)` for a power of two, otherwise those of the power
/// below followed by every other slope of the power above.
pub fn alibi_slopes(heads: usize) -> Vec<f32> {
    let power = |n: usize| (1..=n).map(move |h| 2f64.powf(-8.0 * h as f64 / n as f64) as f32);
    let below = 1 << heads.max(1).ilog2();
    power(below).chain(power(2 * below).step_by(2)).take(heads).collect()
}

/// How a table by distance is made of an array with fewer columns: `table[head, distance] = factor · array[head, column]`,
/// with a column and a factor for each distance. Heads before and after the array's rows have zeros.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    /// Head of the array's first row.
    pub first: usize,
    /// Columns of the array.
    pub width: usize,
    /// Column and factor for each distance, from the farthest to the left to the farthest to the right.
    pub of: Vec<(usize, f32)>,
}

impl Columns {
    /// ALiBi's `−slope[head] · |distance|` from `[heads, 1]`.
    pub fn alibi(left: usize, right: usize) -> Self {
        let far = |distance: isize| (0, -(distance.unsigned_abs() as f32));
        Self { first: 0, width: 1, of: distances(left, right).map(far).collect() }
    }

    /// The table, `[heads, distances]`.
    pub fn table(&self, heads: usize, array: &[f32]) -> Vec<f32> {
        let rows = array.chunks_exact(self.width);
        let mut table = vec![0.0; self.first * self.of.len()];
        for row in rows {
            table.extend(self.of.iter().map(|(column, factor)| factor * row[*column]));
        }
        table.resize(heads * self.of.len(), 0.0);
        table
    }

    /// The gradient of an array of `rows` from that of the table.
    pub fn backward(&self, rows: usize, d_table: &[f32]) -> Vec<f32> {
        let mut d_array = vec![0.0; rows * self.width];
        let heads = d_table.chunks_exact(self.of.len()).skip(self.first);
        for (d_row, d_head) in d_array.chunks_exact_mut(self.width).zip(heads) {
            for ((column, factor), d) in self.of.iter().zip(d_head) {
                d_row[*column] += factor * d;
            }
        }
        d_array
    }
}

/// ALiBi's table, `[heads, left + 1 + right]`.
pub fn alibi_table(slopes: &[f32], left: usize, right: usize) -> Vec<f32> {
    Columns::alibi(left, right).table(slopes.len(), slopes)
}

/// The distances of a table, key position − query position.
fn distances(left: usize, right: usize) -> impl Iterator<Item = isize> {
    -(left as isize)..=right as isize
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

    /// Refuses counts that leave no bucket for a part of the distances.
    pub fn check(&self) -> Result<(), Error> {
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

    /// The bucket of each distance.
    pub fn columns(&self, left: usize, right: usize) -> Columns {
        let of = distances(left, right).map(|distance| (self.index(distance), 1.0)).collect();
        Columns { first: 0, width: self.count, of }
    }

    /// T5's table, `[heads, left + 1 + right]`, from a value for each head and bucket.
    pub fn table(&self, values: &[f32], left: usize, right: usize) -> Vec<f32> {
        self.columns(left, right).table(values.len() / self.count, values)
    }
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

    #[test]
    fn gradients_of_tables_are_those_of_their_values() {
        let (heads, left, right) = (3, 30, 9);
        let numbers = |len: usize, seed: usize| -> Vec<f32> {
            (0..len).map(|i| ((i + seed) * 7919 % 101) as f32 / 50.0 - 1.0).collect()
        };
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        let d_table = numbers(heads * (left + 1 + right), 5);
        // A table is linear in its array: `table(x) · d = x · backward(d)`. Sums of 120 terms up to 30.
        let agree = |columns: Columns, rows: usize| {
            let array = numbers(rows * columns.width, 3);
            let found = dot(&columns.table(heads, &array), &d_table);
            assert!((found - dot(&array, &columns.backward(rows, &d_table))).abs() < 1e-3);
        };
        agree(Columns::alibi(left, right), heads);
        agree(Columns::alibi(left, right), heads - 1);
        agree(Columns { first: 1, ..Columns::alibi(left, right) }, heads - 1);
        for bidirectional in [false, true] {
            let buckets = Buckets { count: 8, max_distance: 20, bidirectional };
            agree(buckets.columns(left, right), heads);
        }
        let table = [-1.0, -0.5, 0.0, -0.5, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(Columns::alibi(2, 1).table(2, &[0.5]), table);
    }
}
