//! Maps of heads: all of a layer at a glance, one head in tiles, and rows.

use rayon::prelude::*;
use whatwhere_kernels::attention::Pooling;

use super::{Answer, Packed, Parameters, View, opened::kernels};
use crate::Error;

/// Cells of a tile, down and across.
pub const CELLS: usize = 128;

/// Cells of a small picture at the most.
const SMALL: usize = 128;

/// Tokens that can be chosen together.
const CHOSEN: usize = 4096;

/// Every head of a layer, pooled to at most `cells` each way; a cell has the strongest weight of its pairs.
pub(super) fn layer(view: &View, parameters: &Parameters) -> Result<Answer, Error> {
    parameters.known(&["site", "layer", "cells"])?;
    let cells = parameters.index_or("cells", 1..SMALL + 1, 48)?;
    let (look, sums) = view.look(view.seen(parameters)?)?;
    let (call, inputs) = (look.call(), look.inputs());
    let inspection = call.inspect(&inputs, &sums).map_err(kernels)?;
    let (rows, columns) = (call.shape.queries.min(cells), call.shape.keys.min(cells));
    let heads = (0..call.shape.heads).into_par_iter();
    let maps = heads.map(|head| inspection.pooled(0, head, rows, columns, Pooling::Max));
    let maps: Vec<Vec<f32>> = maps.collect::<Result<_, _>>().map_err(kernels)?;
    let mut packed = Packed::default().with("rows", rows).with("columns", columns);
    for (head, map) in maps.iter().enumerate() {
        packed.add_f16(head.to_string(), map);
    }
    Ok(packed.answer())
}

/// A square of a head's map: of `CELLS × CELLS` cells that stand for `2^zoom` tokens each way, the one in this row and column
/// of such squares.
pub(super) fn tile(view: &View, parameters: &Parameters) -> Result<Answer, Error> {
    parameters.known(&["site", "layer", "head", "zoom", "row", "column"])?;
    let seen = view.seen(parameters)?;
    let (look, sums) = view.look(seen)?;
    let (call, inputs) = (look.call(), look.inputs());
    let (queries, keys) = (call.shape.queries, call.shape.keys);
    let longest = queries.max(keys);
    // At the last level one tile has all.
    let levels = (0..).take_while(|zoom| CELLS << zoom < longest).count() + 1;
    let zoom = parameters.index("zoom", 0..levels)?;
    let span = CELLS << zoom;
    let row = parameters.index("row", 0..queries.div_ceil(span))?;
    let column = parameters.index("column", 0..keys.div_ceil(span))?;
    let head = parameters.index("head", 0..call.shape.heads)?;
    let range = |index: usize, length: usize| index * span..((index + 1) * span).min(length);
    let (queries, keys) = (range(row, queries), range(column, keys));
    let inspection = call.inspect(&inputs, &sums).map_err(kernels)?;
    let cell = 1 << zoom;
    let map = inspection.cells(0, head, queries.clone(), keys.clone(), cell, Pooling::Max);
    let (rows, columns) = (queries.len().div_ceil(cell), keys.len().div_ceil(cell));
    let mut packed = Packed::default().with("rows", rows).with("columns", columns);
    packed.add_f16("weights", &map.map_err(kernels)?);
    Ok(packed.answer())
}

/// What chosen queries look at, the mean of their weights on every key; or, `of=key`, who looks at chosen keys, the sum of
/// every query's weights on them. Of one head, or the mean of all.
pub(super) fn rows(view: &View, parameters: &Parameters) -> Result<Answer, Error> {
    parameters.known(&["site", "layer", "head", "at", "of"])?;
    let (look, sums) = view.look(view.seen(parameters)?)?;
    let (call, inputs) = (look.call(), look.inputs());
    let shape = call.shape;
    let inspection = call.inspect(&inputs, &sums).map_err(kernels)?;
    let heads = match parameters.needed("head")? {
        "all" => 0..shape.heads,
        _ => {
            let head = parameters.index("head", 0..shape.heads)?;
            head..head + 1
        }
    };
    let of_key = match parameters.word("of").unwrap_or("query") {
        "query" => false,
        "key" => true,
        other => {
            return Err(Error::Request(format!("of = {other}: expected query or key")));
        }
    };
    let (chosen_of, length) =
        if of_key { (shape.keys, shape.queries) } else { (shape.queries, shape.keys) };
    let chosen = parameters.list("at", chosen_of, CHOSEN)?;
    let count = heads.len();
    let of_head = |head: usize| -> Result<Vec<f64>, whatwhere_kernels::Error> {
        let mut sum = vec![0.0f64; length];
        for &at in &chosen {
            let line = match of_key {
                false => inspection.rows(0, head, &[at])?,
                true => inspection.tile(0, head, 0..shape.queries, at..at + 1)?,
            };
            sum.iter_mut().zip(&line).for_each(|(sum, weight)| *sum += f64::from(*weight));
        }
        Ok(sum)
    };
    let lines: Vec<Vec<f64>> =
        heads.into_par_iter().map(of_head).collect::<Result<_, _>>().map_err(kernels)?;
    let share = if of_key { count } else { count * chosen.len() } as f64;
    let mean = (0..length).map(|i| (lines.iter().map(|line| line[i]).sum::<f64>() / share) as f32);
    let mut packed = Packed::default().with("rows", 1).with("columns", length);
    packed.add_f32("weights", mean);
    Ok(packed.answer())
}
