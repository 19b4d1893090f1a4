//! The matrix products of linear attention: of whole matrices stored row by row, and on causal tiles.

use crate::{
    simd::{
        Simd,
        matmul::{Accumulate, Matmul},
        rows::{Region, Transpose},
    },
    tile::{Outline, TILE, tiles},
};

/// `c = a·b`, or `c += a·b`, as `old` says, with `a [rows, inner]`, `b [inner, cols]`.
pub(super) fn product(
    simd: Simd,
    [rows, inner, cols]: [usize; 3],
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
    old: Accumulate,
) {
    let (a_row, a_step) = (inner, 1);
    simd.run(Matmul { rows, cols, inner, a, a_row, a_step, b, b_row: cols, c, c_row: cols, old });
}

/// `c += aᵀ·b` with `a [inner, rows]`, `b [inner, cols]`: a sum over tokens.
pub(super) fn add_outer(
    simd: Simd,
    [rows, inner, cols]: [usize; 3],
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
) {
    let (a_row, a_step) = (1, rows);
    let old = Accumulate::Add;
    simd.run(Matmul { rows, cols, inner, a, a_row, a_step, b, b_row: cols, c, c_row: cols, old });
}

/// `c += Σ weight · row` over the rows of `b`; a single weight counts for all of them.
pub(super) fn add_weighted(simd: Simd, weights: &[f32], b: &[f32], c: &mut [f32]) {
    let (cols, inner) = (c.len(), b.len() / c.len());
    let (a, a_step) = (weights, usize::from(weights.len() > 1));
    let (rows, a_row, old) = (1, 0, Accumulate::Add);
    simd.run(Matmul { rows, cols, inner, a, a_row, a_step, b, b_row: cols, c, c_row: cols, old });
}

/// `c += a·bᵀ` with `a [rows, inner]`, `b [cols, inner]`; `transposed` is scratch for a block of `bᵀ`.
pub(super) fn add_product_transposed(
    simd: Simd,
    [rows, inner, cols]: [usize; 3],
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
    transposed: &mut [f32],
) {
    for block in tiles(0..cols) {
        let b = &b[block.start * inner..block.end * inner];
        simd.run(Transpose { from: b, width: inner, to: transposed });
        simd.run(Matmul {
            rows,
            cols: block.len(),
            inner,
            a,
            a_row: inner,
            a_step: 1,
            b: transposed,
            b_row: TILE,
            c: &mut c[block.start..],
            c_row: cols,
            old: Accumulate::Add,
        });
    }
}

/// A region of `tile = rows · cols`, with `rows [_, width]` and the transposed `cols [width, TILE]`.
pub(super) fn tile_of(
    simd: Simd,
    region: &Region,
    width: usize,
    rows: &[f32],
    cols: &[f32],
    tile: &mut [f32],
) {
    simd.run(Matmul {
        rows: region.rows.len(),
        cols: region.cols.len(),
        inner: width,
        a: &rows[region.rows.start * width..],
        a_row: width,
        a_step: 1,
        b: &cols[region.cols.start..],
        b_row: TILE,
        c: &mut tile[region.of(region.rows.start).start..],
        c_row: TILE,
        old: Accumulate::Overwrite,
    });
}

/// `out[rows] += tile[rows, keys] · values[keys]` for a region; both have `width` columns.
pub(super) fn add_tile_product(
    simd: Simd,
    region: &Region,
    width: usize,
    tile: &[f32],
    values: &[f32],
    out: &mut [f32],
) {
    let Region { rows, cols } = region;
    simd.run(Matmul {
        rows: rows.len(),
        cols: width,
        inner: cols.end.min(values.len() / width) - cols.start,
        a: &tile[region.of(rows.start).start..],
        a_row: TILE,
        a_step: 1,
        b: &values[cols.start * width..],
        b_row: width,
        c: &mut out[rows.start * width..],
        c_row: width,
        old: Accumulate::Add,
    });
}

/// `out[keys] += tile[rows, keys]ᵀ · values[rows]`; both have `width` columns.
pub(super) fn add_tile_outer(
    simd: Simd,
    outline: &Outline,
    width: usize,
    tile: &[f32],
    values: &[f32],
    out: &mut [f32],
) {
    for Region { rows, cols } in outline.halves() {
        simd.run(Matmul {
            rows: cols.len(),
            cols: width,
            inner: rows.len(),
            a: &tile[rows.start * TILE + cols.start..],
            a_row: 1,
            a_step: TILE,
            b: &values[rows.start * width..],
            b_row: width,
            c: &mut out[cols.start * width..],
            c_row: width,
            old: Accumulate::Add,
        });
    }
}
