//! Who sees whom, computed in the graph from places.

use whatwhere_attention::{Pattern, pattern::PatternContext};
use whatwhere_kernels::attention::pattern::Pair;
use whatwhere_settings::Numbers;

use super::{
    attention::Places,
    graph::{Graph, Value},
};
use crate::{Error, error::Result};

/// Blocks of a random pattern that are written into the file; more would be larger than most models.
const MOST_BLOCKS: usize = 1 << 24;

/// Whether each pair is visible, `[queries, keys]` or with heads before; nothing if all are.
pub(super) fn visible(
    graph: &mut Graph,
    pattern: &Pattern,
    places: &Places,
    context: &PatternContext,
) -> Result<Option<Value>> {
    let distance = places.distance(graph);
    Ok(Some(match pattern {
        // A text that says nothing of documents is one.
        Pattern::Full(_) | Pattern::Document(_) => return Ok(None),
        Pattern::Causal(causal) => at_most(graph, &distance, causal.offset as i64),
        Pattern::Window(window) => between(graph, &distance, window.left, window.right),
        Pattern::Dilated(dilated) => {
            let reach = |keys: usize| keys.saturating_mul(dilated.step);
            let near = between(graph, &distance, reach(dilated.left), reach(dilated.right));
            let on = multiple(graph, &distance, dilated.step);
            graph.op("And", &[&near, &on])
        }
        Pattern::Strided(strided) => {
            let causal = at_most(graph, &distance, 0);
            let near = between(graph, &distance, strided.stride, 0);
            let on = multiple(graph, &distance, strided.stride);
            let either = graph.op("Or", &[&near, &on]);
            graph.op("And", &[&causal, &either])
        }
        Pattern::Fixed(fixed) => {
            let stride = graph.int(fixed.stride as i64);
            let (query, key) = (places.query_column(graph), places.keys.clone());
            let [query, own] =
                [query, key.clone()].map(|place| graph.op("Div", &[&place, &stride]));
            let same = graph.op("Equal", &[&query, &own]);
            let rest = graph.op("Mod", &[&key, &stride]);
            let first = graph.int((fixed.stride - fixed.summary) as i64);
            let summary = graph.op("GreaterOrEqual", &[&rest, &first]);
            let either = graph.op("Or", &[&same, &summary]);
            let causal = at_most(graph, &distance, 0);
            graph.op("And", &[&causal, &either])
        }
        Pattern::Prefix(prefix) => {
            let Numbers::One(length) = prefix.length else {
                let reason = "a list with the length of each sequence belongs to one batch";
                return Err(Error::Refused(format!(
                    "attention.pattern = prefix: {reason}; use one length"
                )));
            };
            let length = graph.int(length as i64);
            let first = graph.op("Less", &[&places.keys, &length]);
            let causal = at_most(graph, &distance, 0);
            graph.op("Or", &[&first, &causal])
        }
        Pattern::Global(global) => {
            if pattern.needs_tokens() {
                let reason = "tokens that are global wherever they stand: a graph with past keys does not know their tokens";
                return Err(Error::Refused(format!("attention.pattern = global: {reason}")));
            }
            let (first, listed) = global.positions();
            let column = places.query_column(graph);
            let [query, key] = [column, places.keys.clone()].map(|place| {
                let first = graph.int(first as i64);
                let mut any = graph.op("Less", &[&place, &first]);
                for one in listed {
                    let one = graph.int(*one as i64);
                    let is = graph.op("Equal", &[&place, &one]);
                    any = graph.op("Or", &[&any, &is]);
                }
                any
            });
            graph.op("Or", &[&query, &key])
        }
        Pattern::Random(random) => {
            let blocks = random.length.div_ceil(random.block);
            let heads = context.heads;
            if blocks.saturating_mul(blocks).saturating_mul(heads) > MOST_BLOCKS {
                let reason = format!(
                    "{blocks} blocks of {blocks} for each of {heads} heads are more than a file should hold"
                );
                return Err(Error::Refused(format!(
                    "attention.pattern = random: {reason}; use larger blocks"
                )));
            }
            let drawn = pattern
                .build(context)
                .map_err(whatwhere_attention::Error::from)
                .map_err(whatwhere_transformer::Error::from)?;
            let mut flags = Vec::with_capacity(heads * blocks * blocks);
            for head in 0..heads {
                for query in 0..blocks {
                    flags.extend((0..blocks).map(|key| {
                        let (query, key) = (query * random.block, key * random.block);
                        drawn.sees(Pair { batch: 0, head, query, key })
                    }));
                }
            }
            by_block(graph, places, &flags, [heads, blocks], random.block)
        }
        Pattern::And(and) => return joined(graph, &and.of, "And", places, context),
        Pattern::Or(or) => return joined(graph, &or.of, "Or", places, context),
        Pattern::Predicted(_) => {
            let reason = "is not joined with others, and read by its own formula";
            return Err(Error::Refused(format!("attention.pattern = predicted: {reason}")));
        }
    }))
}

fn joined(
    graph: &mut Graph,
    parts: &[Pattern],
    how: &str,
    places: &Places,
    context: &PatternContext,
) -> Result<Option<Value>> {
    let mut all: Option<Value> = None;
    for part in parts {
        match visible(graph, part, places, context)? {
            // What shows everything leaves the others as they are, or makes them needless.
            None if how == "And" => {}
            None => return Ok(None),
            Some(own) => {
                all = Some(match all {
                    None => own,
                    Some(all) => graph.op(how, &[&all, &own]),
                });
            }
        }
    }
    Ok(all)
}

fn at_most(graph: &mut Graph, distance: &Value, bound: i64) -> Value {
    let bound = graph.int(bound);
    graph.op("LessOrEqual", &[distance, &bound])
}

fn between(graph: &mut Graph, distance: &Value, left: usize, right: usize) -> Value {
    let bound = |places: usize| i64::try_from(places).unwrap_or(i64::MAX);
    let least = graph.int(-bound(left));
    let right = at_most(graph, distance, bound(right));
    let left = graph.op("GreaterOrEqual", &[distance, &least]);
    graph.op("And", &[&left, &right])
}

fn multiple(graph: &mut Graph, distance: &Value, step: usize) -> Value {
    let (step, none) = (graph.int(step as i64), graph.int(0));
    let far = graph.op("Abs", &[distance]);
    let rest = graph.op("Mod", &[&far, &step]);
    graph.op("Equal", &[&rest, &none])
}

/// A table by head, block of queries and block of keys, `[heads, queries, keys]`; places beyond it see nothing.
fn by_block(
    graph: &mut Graph,
    places: &Places,
    flags: &[bool],
    [heads, blocks]: [usize; 2],
    block: usize,
) -> Value {
    let mut table = graph.flags(flags, &[heads, blocks, blocks]);
    let (size, last, count) =
        (graph.int(block as i64), graph.int(blocks as i64 - 1), graph.int(blocks as i64));
    let mut there = Vec::new();
    for (axis, place) in [(1, places.queries.clone()), (2, places.keys.clone())] {
        let own = graph.op("Div", &[&place, &size]);
        there.push(graph.op("Less", &[&own, &count]));
        let own = graph.op("Min", &[&own, &last]);
        table = graph.op_with(
            "Gather",
            &[&table, &own],
            &[("axis", super::graph::Attribute::Int(axis))],
        );
    }
    let query = graph.unsqueeze(&there[0], &[1]);
    let there = graph.op("And", &[&query, &there[1]]);
    graph.op("And", &[&table, &there])
}
