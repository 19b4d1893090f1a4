//! What depends on the distance between query and key, on a tile: along its diagonals the distance is constant.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::rows::Region;
use crate::tile::TILE;

/// `scores[row, col] += table[start + col − row]`, where `start` belongs to the tile's first row and column.
pub(crate) struct AddDiagonals<'a> {
    pub(crate) region: Region,
    pub(crate) scores: &'a mut [f32],
    pub(crate) table: &'a [f32],
    pub(crate) start: usize,
}

impl WithSimd for AddDiagonals<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for row in self.region.rows.clone() {
            let table = &self.table[self.start + self.region.cols.start - row..];
            for (score, value) in self.scores[self.region.of(row)].iter_mut().zip(table) {
                *score += value;
            }
        }
    }
}

/// The gradient of [`AddDiagonals`]: `table[start + col − row] += d_scores[row, col]`.
pub(crate) struct FoldDiagonals<'a> {
    pub(crate) region: Region,
    pub(crate) d_scores: &'a [f32],
    pub(crate) table: &'a mut [f32],
    pub(crate) start: usize,
}

impl WithSimd for FoldDiagonals<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for row in self.region.rows.clone() {
            let table = &mut self.table[self.start + self.region.cols.start - row..];
            for (value, d) in table.iter_mut().zip(&self.d_scores[self.region.of(row)]) {
                *value += d;
            }
        }
    }
}

/// The clipped distances of one tile: which rows of a relative table it needs, and where each pair finds its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Band {
    /// Distance of the tile's first row and column.
    first: isize,
    left: isize,
    right: isize,
    /// First row of the table that the tile needs.
    lowest: usize,
    /// How many rows it needs.
    count: usize,
}

/// The columns of a row that saturate on the left, move with the distance, and saturate on the right.
struct Parts {
    left: Range<usize>,
    moving: Range<usize>,
    right: Range<usize>,
    /// Entry for the first moving column.
    entry: usize,
}

impl Band {
    pub(crate) fn new(first: isize, region: &Region, left: usize, right: usize) -> Self {
        let (left, right) = (left as isize, right as isize);
        let index = |distance: isize| (distance.clamp(-left, right) + left) as usize;
        let lowest = index(first + region.cols.start as isize - (region.rows.end as isize - 1));
        let highest = index(first + region.cols.end as isize - 1 - region.rows.start as isize);
        Self { first, left, right, lowest, count: highest + 1 - lowest }
    }

    /// The rows of the table that the tile needs.
    pub(crate) fn entries(&self) -> Range<usize> {
        self.lowest..self.lowest + self.count
    }

    #[inline(always)]
    fn parts(&self, row: usize, cols: &Range<usize>) -> Parts {
        let distance = self.first - row as isize; // of column 0
        let column =
            |d: isize| (d - distance).clamp(cols.start as isize, cols.end as isize) as usize;
        let (start, end) = (column(-self.left), column(self.right));
        let entry = distance + start as isize + self.left - self.lowest as isize;
        Parts {
            left: cols.start..start,
            moving: start..end,
            right: end..cols.end,
            entry: entry.max(0) as usize,
        }
    }
}

/// `scores[row, col] += terms[row, entry of the pair]`.
pub(crate) struct AddBand<'a> {
    pub(crate) band: Band,
    pub(crate) region: Region,
    pub(crate) scores: &'a mut [f32],
    /// `[rows of the tile, band entries]`.
    pub(crate) terms: &'a [f32],
}

impl WithSimd for AddBand<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let count = self.band.count;
        for row in self.region.rows.clone() {
            let parts = self.band.parts(row, &self.region.cols);
            let terms = &self.terms[row * count..][..count];
            let scores = &mut self.scores[row * TILE..][..TILE];
            for score in &mut scores[parts.left] {
                *score += terms[0];
            }
            let moving = &terms[parts.entry.min(count)..];
            for (score, term) in scores[parts.moving].iter_mut().zip(moving) {
                *score += term;
            }
            for score in &mut scores[parts.right] {
                *score += terms[count - 1];
            }
        }
    }
}

/// The gradient of [`AddBand`]: `terms[row, entry] = Σ d_scores[row, col]` over the columns of the entry.
pub(crate) struct FoldBand<'a> {
    pub(crate) band: Band,
    pub(crate) region: Region,
    pub(crate) d_scores: &'a [f32],
    /// `[rows of the tile, band entries]`, overwritten in the region's rows.
    pub(crate) terms: &'a mut [f32],
}

impl WithSimd for FoldBand<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let count = self.band.count;
        for row in self.region.rows.clone() {
            let parts = self.band.parts(row, &self.region.cols);
            let terms = &mut self.terms[row * count..][..count];
            let d_scores = &self.d_scores[row * TILE..][..TILE];
            terms.fill(0.0);
            let moving = &mut terms[parts.entry.min(count)..];
            for (term, d) in moving.iter_mut().zip(&d_scores[parts.moving]) {
                *term = *d;
            }
            terms[0] += d_scores[parts.left].iter().sum::<f32>();
            terms[count - 1] += d_scores[parts.right].iter().sum::<f32>();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd;

    #[test]
    fn every_pair_finds_the_entry_of_its_clipped_distance_and_folds_back_to_it() {
        for (left, right) in [(0, 0), (3, 0), (0, 5), (16, 16), (200, 200), (7, 40)] {
            for first in [-300isize, -50, -17, -1, 0, 4, 90, 400] {
                for (rows, cols) in [(0..1, 0..16), (12..24, 32..96), (0..96, 0..96)] {
                    let region = Region { rows, cols };
                    let band = Band::new(first, &region, left, right);
                    let count = band.entries().len();
                    let terms: Vec<f32> = (0..96 * count).map(|i| (i % count) as f32).collect();
                    let mut scores = vec![0.0; 96 * TILE];
                    let set = simd::Simd::detect();
                    set.run(AddBand {
                        band,
                        region: region.clone(),
                        scores: &mut scores,
                        terms: &terms,
                    });
                    let ones = vec![1.0; 96 * TILE];
                    let mut folded = vec![f32::NAN; 96 * count];
                    set.run(FoldBand {
                        band,
                        region: region.clone(),
                        d_scores: &ones,
                        terms: &mut folded,
                    });
                    for row in region.rows.clone() {
                        let mut counted = vec![0.0; count];
                        for col in region.cols.clone() {
                            let distance = first + col as isize - row as isize;
                            let index = (distance.clamp(-(left as isize), right as isize)
                                + left as isize) as usize;
                            assert!(band.entries().contains(&index));
                            assert_eq!(scores[row * TILE + col], (index - band.lowest) as f32);
                            counted[index - band.lowest] += 1.0;
                        }
                        assert_eq!(folded[row * count..][..count], counted);
                    }
                }
            }
        }
    }
}
