//! What encodings add to scores and values, computed in the graph from places: biases and vectors by distance.

use whatwhere_attention::{
    Position,
    position::{Disentangled, Sinusoidal, SinusoidalLayout},
};
use whatwhere_kernels::attention::Buckets;

use super::{
    angles,
    attention::{Attention, Places, over_root},
    graph::{Attribute, Graph, Kind, Value},
};
use crate::{Error, error::Result};

/// Distances of a table that is written into the file.
const LONGEST: usize = 1 << 20;

/// Scores with what an encoding adds to them.
pub(super) fn add_bias(
    graph: &mut Graph,
    attention: &Attention,
    position: usize,
    scores: Value,
    [q, k]: [&Value; 2],
    places: &Places,
) -> Result<Value> {
    let sizes = &attention.sizes;
    let name = format!("{}.{position}.", attention.position_name);
    let bias = match attention.positions[position] {
        Position::Alibi(alibi) => {
            let heads = alibi.heads.of(sizes.heads);
            let (slopes, _) = graph.values(&graph.name_within(&name, ".slopes")?)?;
            let mut all = vec![0.0; sizes.heads];
            all[heads.clone()].iter_mut().zip(slopes).for_each(|(own, slope)| *own = -slope);
            let slopes = graph.floats(&all, &[sizes.heads, 1, 1]);
            let distance = places.distance(graph);
            let far = graph.op("Abs", &[&distance]);
            let far = graph.cast(&far, Kind::Float);
            graph.op("Mul", &[&slopes, &far])
        }
        Position::T5(t5) => {
            let longest = bounded(t5.max_distance, "max_distance")?;
            let buckets = Buckets {
                count: t5.buckets,
                max_distance: t5.max_distance,
                bidirectional: t5.bidirectional,
            };
            let (values, _) = graph.values(&graph.name_within(&name, ".table")?)?;
            let table = buckets.table(values, longest, longest);
            let table = graph.floats(&table, &[sizes.heads, 2 * longest + 1]);
            let entries = entries(graph, places, longest, longest);
            graph.op_with("Gather", &[&table, &entries], &[("axis", Attribute::Int(1))])
        }
        Position::Shaw(shaw) => {
            let entries = match shaw.keys || shaw.queries {
                true => entries(graph, places, shaw.reach, shaw.reach),
                false => return Ok(scores),
            };
            let mut scores = scores;
            if shaw.keys {
                let table = graph.within(&name, ".keys")?;
                let terms = by_distance(graph, q, &table, &scores, &entries);
                let terms = graph.scaled(&terms, attention.scale());
                scores = graph.op("Add", &[&scores, &terms]);
            }
            if shaw.queries {
                let table = graph.within(&name, ".queries")?;
                let terms = asked_of_keys(graph, k, &table, &scores, &entries);
                let terms = graph.scaled(&terms, attention.scale());
                scores = graph.op("Add", &[&scores, &terms]);
            }
            return Ok(scores);
        }
        Position::TransformerXl(xl) => {
            let bias = attention.per_head(graph, position, "distance")?;
            let q = graph.op("Add", &[q, &bias]);
            let (table, entries) = distances(graph, attention, &name, places, xl.clamp)?;
            let terms = by_distance(graph, &q, &table, &scores, &entries);
            graph.scaled(&terms, attention.scale())
        }
        Position::Disentangled(own) => {
            let longest = bounded(own.length, "length")?;
            let entries = entries(graph, places, longest, longest);
            let mut scores = scores;
            let mut last = 0;
            if own.content_to_position {
                let table = vectors(graph, attention, own, &name, "key", last)?;
                let terms = by_distance(graph, q, &table, &scores, &entries);
                let terms = graph.scaled(&terms, attention.scale());
                scores = graph.op("Add", &[&scores, &terms]);
                last += 1;
            }
            if own.position_to_content {
                let table = vectors(graph, attention, own, &name, "query", last)?;
                let terms = asked_of_keys(graph, k, &table, &scores, &entries);
                let terms = graph.scaled(&terms, attention.scale());
                scores = graph.op("Add", &[&scores, &terms]);
            }
            return Ok(scores);
        }
        Position::NoPosition(_)
        | Position::Sinusoidal(_)
        | Position::Learned(_)
        | Position::Rotary(_)
        | Position::Polar(_)
        | Position::SingleAngle(_) => return Ok(scores),
    };
    Ok(graph.op("Add", &[&scores, &bias]))
}

fn bounded(length: usize, setting: &str) -> Result<usize> {
    if length > LONGEST {
        let reason = format!("a table of {length} distances is more than a file should hold");
        return Err(Error::Refused(format!("attention.position.{setting} = {length}: {reason}")));
    }
    Ok(length)
}

/// The entry of every pair's distance in a table, `[queries, keys]`.
fn entries(graph: &mut Graph, places: &Places, left: usize, right: usize) -> Value {
    let distance = places.distance(graph);
    let (low, high, left) =
        (graph.int(-(left as i64)), graph.int(right as i64), graph.int(left as i64));
    let clipped = graph.op("Clip", &[&distance, &low, &high]);
    graph.op("Add", &[&clipped, &left])
}

/// `x · table[entry]` for every pair: `[batch, heads, rows, columns]` as `like`, from `table [heads or 1, distances, width]`.
fn by_distance(
    graph: &mut Graph,
    x: &Value,
    table: &Value,
    like: &Value,
    entries: &Value,
) -> Value {
    let table = graph.transpose(table, &[0, 2, 1]);
    let terms = graph.op("MatMul", &[x, &table]);
    let shape = graph.op("Shape", &[like]);
    let entries = graph.op("Expand", &[entries, &shape]);
    graph.op_with("GatherElements", &[&terms, &entries], &[("axis", Attribute::Int(3))])
}

/// `k · table[entry]` for every pair, `[batch, heads, queries, keys]` as the scores.
fn asked_of_keys(
    graph: &mut Graph,
    k: &Value,
    table: &Value,
    scores: &Value,
    entries: &Value,
) -> Value {
    let turned = graph.transpose(entries, &[1, 0]);
    let like = graph.transpose(scores, &[0, 1, 3, 2]);
    let terms = by_distance(graph, k, table, &like, &turned);
    graph.transpose(&terms, &[0, 1, 3, 2])
}

/// Transformer-XL's projected waves for all distances of the call, and the entry of each pair.
fn distances(
    graph: &mut Graph,
    attention: &Attention,
    name: &str,
    places: &Places,
    clamp: usize,
) -> Result<(Value, Value)> {
    let (one, minus) = (graph.int(1), graph.int(-1));
    let mut reach = graph.op("Sub", &[&places.end, &one]);
    if clamp > 0 {
        let clamp = graph.int(clamp as i64);
        reach = graph.op("Min", &[&reach, &clamp]);
    }
    let least = graph.op("Neg", &[&reach]);
    let end = graph.op("Add", &[&reach, &one]);
    // The paper's waves are indexed by query − key.
    let rows = graph.op("Range", &[&least, &end, &one]);
    let rows = graph.op("Mul", &[&rows, &minus]);
    let waves = Sinusoidal { layout: SinusoidalLayout::Concatenated, ..Default::default() };
    let projection = graph.within(name, ".projection")?;
    let table = angles::sinusoids(graph, &waves, &rows, attention.sizes.width);
    let table = graph.op("MatMul", &[&table, &projection]);
    let sizes = &attention.sizes;
    let table = graph.reshape(&table, &[-1, sizes.heads as i64, sizes.head_dim as i64]);
    let table = graph.transpose(&table, &[1, 0, 2]);
    let distance = places.distance(graph);
    let clipped = graph.op("Max", &[&distance, &least]);
    let clipped = graph.op("Min", &[&clipped, &reach]);
    Ok((table, graph.op("Add", &[&clipped, &reach])))
}

/// DeBERTa's vectors by distance through a projection, `[heads, distances, head_dim]`.
fn vectors(
    graph: &mut Graph,
    attention: &Attention,
    own: &Disentangled,
    name: &str,
    shared: &str,
    projection: usize,
) -> Result<Value> {
    let mut table = graph.within(name, ".table")?;
    if own.norm {
        let mean = graph.reduce("ReduceMean", &table);
        let centered = graph.op("Sub", &[&table, &mean]);
        table = over_root(graph, &centered, own.epsilon);
        let gain = graph.within(name, ".gain")?;
        table = graph.op("Mul", &[&table, &gain]);
        let bias = graph.within(name, "Disentangled.bias")?;
        table = graph.op("Add", &[&table, &bias]);
    }
    let linear = match own.shared_projections {
        true => format!("{}.{shared}", attention.name),
        false => {
            let weight = graph.name_within(name, &format!(".projections.{projection}.weight"))?;
            weight.trim_end_matches(".weight").to_owned()
        }
    };
    let table = graph.linear(&table, &linear)?;
    let longest = own.length as isize;
    let rows: Vec<i64> = (-longest..=longest).map(|distance| own.entry(-distance) as i64).collect();
    let rows = graph.ints(&rows);
    let table = graph.op_with("Gather", &[&table, &rows], &[("axis", Attribute::Int(0))]);
    let sizes = &attention.sizes;
    let count = 2 * own.length as i64 + 1;
    let table = graph.reshape(&table, &[count, -1, sizes.head_dim as i64]);
    let table = graph.transpose(&table, &[1, 0, 2]);
    // A key head once for every query head that reads it.
    let is_key = shared == "key" && own.shared_projections;
    if !is_key || sizes.heads == sizes.kv_heads {
        return Ok(table);
    }
    let table = graph.unsqueeze(&table, &[1]);
    let times = graph.ints(&[1, (sizes.heads / sizes.kv_heads) as i64, 1, 1]);
    let table = graph.op("Expand", &[&table, &times]);
    Ok(graph.reshape(&table, &[sizes.heads as i64, count, sizes.head_dim as i64]))
}

/// What is mixed, with what an encoding adds to values.
pub(super) fn add_values(
    graph: &mut Graph,
    attention: &Attention,
    position: usize,
    out: Value,
    weights: &Value,
    places: &Places,
) -> Result<Value> {
    let Position::Shaw(shaw) = attention.positions[position] else { return Ok(out) };
    if !shaw.values {
        return Ok(out);
    }
    let table = graph.within(&format!("{}.{position}.", attention.position_name), ".values")?;
    let entries = entries(graph, places, shaw.reach, shaw.reach);
    let shape = graph.op("Shape", &[weights]);
    let entries = graph.op("Expand", &[&entries, &shape]);
    let first = graph.slice(&shape, 0, 0, 3);
    let count = graph.ints(&[2 * shaw.reach as i64 + 1]);
    let sizes = graph.concat(&[first, count], 0);
    let zeros = graph.op("ConstantOfShape", &[&sizes]);
    let sums = graph.op_with(
        "ScatterElements",
        &[&zeros, &entries, weights],
        &[("axis", Attribute::Int(3)), ("reduction", Attribute::Text("add"))],
    );
    let added = graph.op("MatMul", &[&sums, &table]);
    Ok(graph.op("Add", &[&out, &added]))
}
