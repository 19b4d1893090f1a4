//! Relative tables in tiles of gathered keys, where distances are any: the entries that a strip of queries reads, each once.

use std::ops::Range;

use crate::{
    attention::{Attention, Relative, indices::Indices},
    simd::{
        matmul::{Accumulate, Matmul},
        rows::Region,
    },
    tile::{STRIP, TILE},
};

/// The distinct entries of a relative table that a strip reads, and which of them each pair reads.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    /// By entry of the table: its place among the distinct ones, or [`NONE`].
    place: Vec<u32>,
    distinct: Vec<u32>,
    /// `[rows of the strip, columns]`.
    of_pair: Vec<u32>,
    cols: Range<usize>,
    /// Their vectors, `[distinct, width]`, transposed, and products with rows, `[rows of the strip, distinct]`.
    vectors: Vec<f32>,
    by_channel: Vec<f32>,
    terms: Vec<f32>,
}

const NONE: u32 = u32::MAX;

/// The strips of a region.
pub(crate) fn strips(region: &Region) -> impl Iterator<Item = Range<usize>> + use<> {
    let end = region.rows.end;
    region.rows.clone().step_by(STRIP).map(move |start| start..(start + STRIP).min(end))
}

impl Entries {
    /// Finds the entries of a strip, `rows` of a tile, and copies their vectors together.
    #[expect(clippy::too_many_arguments, reason = "the pairs of a strip and their table")]
    pub(crate) fn read(
        &mut self,
        attention: &Attention,
        queries: &Indices,
        keys: &[u32],
        rows: &Range<usize>,
        cols: Range<usize>,
        vectors: &Relative<&[f32]>,
        table: &[f32],
    ) {
        for entry in self.distinct.drain(..) {
            if let Some(place) = self.place.get_mut(entry as usize) {
                *place = NONE;
            }
        }
        self.place.resize(vectors.count(), NONE);
        self.of_pair.clear();
        self.cols = cols.start..cols.end.min(keys.len()).max(cols.start);
        let (left, right) = (vectors.left as isize, vectors.right as isize);
        for row in rows.clone() {
            let query = (attention.first_query + queries.at(row)) as isize;
            for key in &keys[self.cols.clone()] {
                let distance = (attention.first_key + *key as usize) as isize - query;
                let entry = (distance.clamp(-left, right) + left) as usize;
                let place = &mut self.place[entry];
                if *place == NONE {
                    *place = self.distinct.len() as u32;
                    self.distinct.push(entry as u32);
                }
                self.of_pair.push(*place);
            }
        }
        let width = table.len() / vectors.count();
        self.vectors.clear();
        for entry in &self.distinct {
            self.vectors.extend_from_slice(&table[*entry as usize * width..][..width]);
        }
    }

    /// `sums[row, column] += rows · vector of the pair`, both from the strip's first row of the tile on.
    pub(crate) fn add_products(
        &mut self,
        attention: &Attention,
        strip: &Range<usize>,
        rows: &[f32],
        width: usize,
        sums: &mut [f32],
    ) {
        let count = self.distinct.len();
        self.by_channel.resize(count * width, 0.0);
        for (entry, vector) in self.vectors.chunks_exact(width).enumerate() {
            for (channel, value) in vector.iter().enumerate() {
                self.by_channel[channel * count + entry] = *value;
            }
        }
        self.terms.resize(strip.len() * count, 0.0);
        attention.simd.run(Matmul {
            rows: strip.len(),
            cols: count,
            inner: width,
            a: &rows[strip.start * width..],
            a_row: width,
            a_step: 1,
            b: &self.by_channel,
            b_row: count,
            c: &mut self.terms,
            c_row: count,
            old: Accumulate::Overwrite,
        });
        for (i, places) in self.of_pair.chunks_exact(self.cols.len().max(1)).enumerate() {
            let sums = &mut sums[(strip.start + i) * TILE..][self.cols.clone()];
            let terms = &self.terms[i * count..][..count];
            sums.iter_mut().zip(places).for_each(|(sum, place)| *sum += terms[*place as usize]);
        }
    }

    /// Sums values of pairs by entry: the terms that the two products below are made of.
    pub(crate) fn fold(&mut self, strip: &Range<usize>, values: &[f32]) {
        let count = self.distinct.len();
        self.terms.clear();
        self.terms.resize(strip.len() * count, 0.0);
        for (i, places) in self.of_pair.chunks_exact(self.cols.len().max(1)).enumerate() {
            let values = &values[(strip.start + i) * TILE..][self.cols.clone()];
            let terms = &mut self.terms[i * count..][..count];
            values.iter().zip(places).for_each(|(value, place)| terms[*place as usize] += value);
        }
    }

    /// `rows += terms · vectors` for the rows of the strip.
    pub(crate) fn add_vectors(
        &self,
        attention: &Attention,
        strip: &Range<usize>,
        width: usize,
        rows: &mut [f32],
    ) {
        let count = self.distinct.len();
        attention.simd.run(Matmul {
            rows: strip.len(),
            cols: width,
            inner: count,
            a: &self.terms,
            a_row: count,
            a_step: 1,
            b: &self.vectors,
            b_row: width,
            c: &mut rows[strip.start * width..],
            c_row: width,
            old: Accumulate::Add,
        });
    }

    /// `d_table[entry] += termsᵀ · rows`: the gradient of the table.
    pub(crate) fn add_to_table(
        &mut self,
        attention: &Attention,
        strip: &Range<usize>,
        rows: &[f32],
        width: usize,
        d_table: &mut [f32],
    ) {
        let count = self.distinct.len();
        // The vectors are not needed any more.
        attention.simd.run(Matmul {
            rows: count,
            cols: width,
            inner: strip.len(),
            a: &self.terms,
            a_row: 1,
            a_step: count,
            b: &rows[strip.start * width..],
            b_row: width,
            c: &mut self.vectors,
            c_row: width,
            old: Accumulate::Overwrite,
        });
        let indices: Indices = Indices::List(&self.distinct);
        indices.add_rows(&self.vectors, width, d_table);
    }
}
