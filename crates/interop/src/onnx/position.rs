//! What encodings make of queries and keys, computed in the graph from places: rotations and phases.

use whatwhere_attention::{
    Position,
    position::{Channels, PolarMagnitude, RotaryLayout},
};
use whatwhere_kernels::attention::DELTA_RANGE;

use super::{
    angles::Frequencies,
    attention::Attention,
    graph::{Graph, Value},
};
use crate::error::Result;

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
            let frequencies = match rotary.grid {
                None => Frequencies::scaled(&rotary.scaling, rotary.base, width),
                grid => Frequencies::plain(rotary.frequencies(width, 1).0).on_grid(grid),
            };
            (Turn::Rotary(rotary.layout), frequencies)
        }
        Position::Polar(polar) => {
            let width = polar.channels.of(sizes.head_dim).len();
            let turn =
                Turn::Polar { magnitude: polar.magnitude, has_delta: own.phases().is_some() };
            (turn, Frequencies::plain(polar.frequencies(width)).on_grid(polar.grid))
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
    let Channels { channels, heads } = own.channels(sizes);
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
                _ if attention.settings.mixing.makes_magnitudes() => value,
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
