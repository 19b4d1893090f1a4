//! What encodings do to queries, keys, scores and values, computed in the graph from places.

use whatwhere_attention::{
    Position,
    position::{PolarMagnitude, RotaryLayout},
};
use whatwhere_kernels::attention::{Angles, Buckets, DELTA_RANGE};

use super::{
    angles::{self, Frequencies},
    attention::{Attention, Places, over_root},
    graph::{Attribute, Graph, Kind, Value},
};
use crate::{Error, error::Result};

/// Distances of a table that is written into the file.
const LONGEST: usize = 1 << 20;

/// What is done to a head's channels.
enum Turn {
    Rotary(RotaryLayout),
    Polar { magnitude: PolarMagnitude, has_delta: bool },
}

/// Queries or keys, `[batch, heads, length, channels]`, with what an encoding makes of them.
pub(super) fn turned(
    graph: &mut Graph,
    attention: &Attention,
    position: usize,
    x: Value,
    places: &Value,
    end: &Value,
    is_key: bool,
) -> Result<Value> {
    let sizes = &attention.sizes;
    let own = attention.positions[position];
    let (turn, frequencies) = match own {
        Position::Rotary(rotary) => {
            let width = rotary.channels.of(sizes.head_dim).len();
            (Turn::Rotary(rotary.layout), Frequencies::scaled(&rotary.scaling, rotary.base, width))
        }
        Position::Polar(polar) => {
            let width = polar.channels.of(sizes.head_dim).len();
            let turn =
                Turn::Polar { magnitude: polar.magnitude, has_delta: own.phases().is_some() };
            (turn, Frequencies::plain(Angles::polar_frequencies(width, polar.base)))
        }
        Position::SingleAngle(single) => {
            let turn = Turn::Polar { magnitude: PolarMagnitude::Softplus, has_delta: false };
            let one = std::f64::consts::TAU / single.period as f64;
            (turn, Frequencies::plain(vec![one; sizes.head_dim]))
        }
        Position::NoPosition(_)
        | Position::Sinusoidal(_)
        | Position::Learned(_)
        | Position::Shaw(_)
        | Position::TransformerXl(_)
        | Position::Disentangled(_)
        | Position::Alibi(_)
        | Position::T5(_) => return Ok(x),
    };
    let whatwhere_attention::position::Channels { channels, heads } = own.channels(sizes);
    if channels.is_empty() || heads.is_empty() {
        return Ok(x);
    }
    // Other encodings may have made it wider, behind the head's own channels.
    let x_of = |graph: &mut Graph, from: usize, to: usize| match (from, to) {
        (0, to) if to == sizes.heads => x.clone(),
        _ => graph.slice(&x, 1, from, to),
    };
    let part = x_of(graph, heads.start, heads.end);
    let value = graph.slice(&part, 3, channels.start, channels.end);
    let (cos, sin) = frequencies.waves(graph, places, end);
    let (value, sines) = match turn {
        Turn::Rotary(layout) => (rotate(graph, &value, &cos, &sin, layout, channels.len()), None),
        Turn::Polar { magnitude, has_delta } => {
            let size = match magnitude {
                PolarMagnitude::Softplus => graph.op("Softplus", &[&value]),
                PolarMagnitude::Relu => graph.op("Relu", &[&value]),
                PolarMagnitude::Identity => value,
            };
            let (cos, sin) = match has_delta && is_key {
                false => (cos, sin),
                true => {
                    let delta = attention.per_head(graph, position, "delta")?;
                    let delta = match heads.len() == sizes.heads {
                        true => delta,
                        false => graph.slice(&delta, 1, heads.start, heads.end),
                    };
                    phased(graph, &cos, &sin, &delta)
                }
            };
            (graph.op("Mul", &[&size, &cos]), Some(graph.op("Mul", &[&size, &sin])))
        }
    };
    let mut parts = Vec::new();
    if channels.start > 0 {
        parts.push(graph.slice(&part, 3, 0, channels.start));
    }
    parts.push(value);
    // To the end, however wide it has become.
    let rest = graph.slice(&part, 3, channels.end, i64::MAX as usize);
    parts.push(rest);
    let added = sines.is_some();
    parts.extend(sines);
    let part = graph.concat(&parts, 3);
    let mut all = Vec::new();
    for (from, to) in [(0, heads.start), (heads.end, sizes.heads)] {
        let other = (from < to).then(|| {
            let other = x_of(graph, from, to);
            // As wide as the others: zeros, which add nothing to products.
            let like = graph.slice(&other, 3, channels.start, channels.end);
            let zero = graph.float(0.0);
            let zeros = graph.op("Mul", &[&like, &zero]);
            if added { graph.concat(&[other, zeros], 3) } else { other }
        });
        all.extend(other);
        if from == 0 {
            all.push(part.clone());
        }
    }
    Ok(graph.concat(&all, 1))
}

/// Cosines and sines of angles plus δ, which is kept in its range.
fn phased(graph: &mut Graph, cos: &Value, sin: &Value, delta: &Value) -> (Value, Value) {
    let (low, high) = (graph.float(DELTA_RANGE.0), graph.float(DELTA_RANGE.1));
    let delta = graph.op("Clip", &[delta, &low, &high]);
    let (c, s) = (graph.op("Cos", &[&delta]), graph.op("Sin", &[&delta]));
    let products = [(cos, &c), (sin, &s), (sin, &c), (cos, &s)];
    let [cc, ss, sc, cs] = products.map(|(a, b)| graph.op("Mul", &[a, b]));
    (graph.op("Sub", &[&cc, &ss]), graph.op("Add", &[&sc, &cs]))
}

/// Pairs of channels, rotated.
fn rotate(
    graph: &mut Graph,
    x: &Value,
    cos: &Value,
    sin: &Value,
    layout: RotaryLayout,
    width: usize,
) -> Value {
    let half = width / 2;
    let (a, b) = match layout {
        RotaryLayout::HalfSplit => (graph.slice(x, 3, 0, half), graph.slice(x, 3, half, width)),
        RotaryLayout::Interleaved => {
            let mut every = |from: i64| {
                let [from, to, axis, step] =
                    [from, i64::MAX, 3, 2].map(|value| graph.ints(&[value]));
                graph.op("Slice", &[x, &from, &to, &axis, &step])
            };
            (every(0), every(1))
        }
    };
    let products = [(&a, cos), (&b, sin), (&a, sin), (&b, cos)];
    let [ac, bs, as_, bc] = products.map(|(x, wave)| graph.op("Mul", &[x, wave]));
    let first = graph.op("Sub", &[&ac, &bs]);
    let second = graph.op("Add", &[&as_, &bc]);
    match layout {
        RotaryLayout::HalfSplit => graph.concat(&[first, second], 3),
        RotaryLayout::Interleaved => {
            let parts = [first, second].map(|part| graph.unsqueeze(&part, &[4]));
            let pairs = graph.concat(&parts, 4);
            graph.reshape(&pairs, &[0, 0, 0, width as i64])
        }
    }
}

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
        Position::Shaw(shaw) if shaw.keys => {
            let table = graph.within(&name, ".keys")?;
            let entries = entries(graph, places, shaw.reach, shaw.reach);
            let terms = by_distance(graph, q, &table, &scores, &entries);
            graph.scaled(&terms, attention.scale())
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
                let turned = graph.transpose(&entries, &[1, 0]);
                let like = graph.transpose(&scores, &[0, 1, 3, 2]);
                let terms = by_distance(graph, k, &table, &like, &turned);
                let terms = graph.transpose(&terms, &[0, 1, 3, 2]);
                let terms = graph.scaled(&terms, attention.scale());
                scores = graph.op("Add", &[&scores, &terms]);
            }
            return Ok(scores);
        }
        Position::NoPosition(_)
        | Position::Sinusoidal(_)
        | Position::Learned(_)
        | Position::Shaw(_)
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
    let waves = whatwhere_attention::position::Sinusoidal {
        layout: whatwhere_attention::position::SinusoidalLayout::Concatenated,
        ..Default::default()
    };
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
    own: &whatwhere_attention::position::Disentangled,
    name: &str,
    shared: &str,
    projection: usize,
) -> Result<Value> {
    let mut table = graph.within(name, ".table")?;
    if own.norm {
        let mean = graph.reduce("ReduceMean", &table);
        let centred = graph.op("Sub", &[&table, &mean]);
        table = over_root(graph, &centred, own.epsilon);
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
