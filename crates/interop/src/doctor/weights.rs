//! Hypotheses about weights: the same numbers in another order, or with a constant that was forgotten.

use std::ops::Range;

use whatwhere_transformer::{ModelSettings, Parameter};

use super::{Cure, Hypothesis, tables::found};
use crate::{
    places::{Place, attentions},
    tensors::Array,
    turn::{Heads, Split},
};

type Change = Box<dyn Fn(&mut Vec<Parameter>)>;

pub(super) fn all(from: &ModelSettings) -> Vec<Hypothesis> {
    let places = attentions(from);
    let own: Vec<Place> = places.iter().filter(|place| place.own).cloned().collect();
    let mut out = Vec::new();
    let mut push = |convention: &'static str, change: &str, to: &ModelSettings, cure: Change| {
        let cure = Cure::Weights(Box::new(to.clone()), cure);
        out.push(Hypothesis { convention, change: change.into(), cure });
    };
    let rotates = !found(from, "position", "rotary", "kind").is_empty();
    if rotates {
        for (change, order) in [
            ("queries and keys were put half a head apart once too often", Order::Pairs),
            ("queries and keys were put side by side once too often", Order::Halves),
        ] {
            push("rotary layout", change, from, by_channel(&own, order));
        }
        let change = "angles turn the other way";
        push("rotary direction", change, from, by_channel(&own, Order::Swapped));
    }
    if places.iter().any(|place| is_grouped(place.heads)) {
        for (change, tiled) in [
            ("query head i takes key head i modulo their number", true),
            ("query head i takes key head i divided by the heads of a group", false),
        ] {
            push("head tiling", change, from, tiles(&places, tiled));
        }
    }
    if own.iter().all(|place| place.heads.heads == place.heads.kv_heads) {
        push("queries and keys", "exchanged", from, exchange(&own, ["query", "key"]));
        let splits = [
            ("cut by thirds what is interleaved by head", Split::ByThird, Split::ByHead),
            ("cut by head what stands in thirds", Split::ByHead, Split::ByThird),
        ];
        for (change, had, right) in splits {
            push("fused queries, keys and values", change, from, resplit(&own, had, right));
        }
    }
    push("stored transposed", "square projections transposed", from, transposed(&own));
    if from.is_gated() {
        push("gate and up", "exchanged", from, Box::new(|all| exchange_gates(all)));
    }
    for (change, by) in [("1 + gain", 1.0), ("gain − 1", -1.0)] {
        push("norm gain", change, from, Box::new(move |all| gains(all, by)));
    }
    slopes(from, &mut push);
    learned(from, &mut push);
    let width = from.embedding_channels() as f32;
    for (change, factor) in [
        ("embeddings divided by √width once more", width.powf(-0.5)),
        ("embeddings times √width once more", width.powf(0.5)),
    ] {
        if !from.tied {
            push("embedding scale", change, from, scaled("embedding.weight", factor));
        }
    }
    if !from.tied {
        let mut tied = from.clone();
        tied.tied = true;
        let drop: Change = Box::new(|all| all.retain(|one| one.name != "output.weight"));
        push("tied output", "logits by the embeddings", &tied, drop);
    }
    out
}

fn is_grouped(heads: Heads) -> bool {
    heads.kv_heads > 1 && heads.kv_heads < heads.heads
}

/// The decoder's weights as an encoder's.
pub(super) fn as_encoder(all: &mut [Parameter]) {
    for one in all {
        if let Some(rest) = one.name.strip_prefix("decoder.") {
            one.name = format!("encoder.{rest}");
        }
    }
}

/// Rewrites a parameter of this name.
fn rewrite(all: &mut [Parameter], name: &str, write: impl FnOnce(&mut Parameter)) {
    if let Some(one) = all.iter_mut().find(|one| one.name == name) {
        write(one);
    }
}

/// The columns of a matrix, or the values of a bias, in another order: `order[to]` is where it was.
fn reorder(one: &mut Parameter, order: &[usize]) {
    if one.shape.last() != Some(&order.len()) {
        return;
    }
    let rows = one.values.chunks(order.len());
    one.values = rows.flat_map(|row| order.iter().map(|from| row[*from])).collect();
}

/// How the channels of a head are reordered.
#[derive(Clone, Copy)]
enum Order {
    Pairs,
    Halves,
    Swapped,
}

impl Order {
    fn of(self, channel: usize, width: usize) -> usize {
        let half = width / 2;
        match self {
            Self::Pairs => channel % 2 * half + channel / 2,
            Self::Halves => channel % half * 2 + channel / half,
            Self::Swapped => (channel + half) % width,
        }
    }
}

fn by_channel(places: &[Place], order: Order) -> Change {
    let places = places.to_vec();
    Box::new(move |all| {
        for Place { prefix, heads, .. } in &places {
            for (part, count) in [("query", heads.heads), ("key", heads.kv_heads)] {
                let width = heads.head_dim;
                if width < 2 || !width.is_multiple_of(2) {
                    continue;
                }
                let from = |to: usize| to / width * width + order.of(to % width, width);
                let columns: Vec<usize> = (0..count * width).map(from).collect();
                for end in ["weight", "bias"] {
                    rewrite(all, &format!("{prefix}.{part}.{end}"), |one| reorder(one, &columns));
                }
            }
        }
    })
}

/// Query heads in another order, with the rows of the output that they write to.
fn tiles(places: &[Place], tiled: bool) -> Change {
    let places = places.to_vec();
    Box::new(move |all| {
        for Place { prefix, heads, .. } in places.iter().filter(|place| is_grouped(place.heads)) {
            let Heads { heads, kv_heads, head_dim } = *heads;
            let group = heads / kv_heads;
            let from = |to: usize| match tiled {
                true => to % group * kv_heads + to / group,
                false => to % kv_heads * group + to / kv_heads,
            };
            let channel = |to: usize| from(to / head_dim) * head_dim + to % head_dim;
            let columns: Vec<usize> = (0..heads * head_dim).map(channel).collect();
            for end in ["weight", "bias"] {
                rewrite(all, &format!("{prefix}.query.{end}"), |one| reorder(one, &columns));
            }
            rewrite(all, &format!("{prefix}.output.weight"), |one| {
                let width = one.values.len() / columns.len().max(1);
                let row = |from: &usize| one.values[from * width..(from + 1) * width].to_vec();
                one.values = columns.iter().flat_map(row).collect();
            });
        }
    })
}

fn exchange(places: &[Place], parts: [&'static str; 2]) -> Change {
    let places = places.to_vec();
    Box::new(move |all| {
        for Place { prefix, .. } in &places {
            let [a, b] = parts.map(|part| format!("{prefix}.{part}."));
            swap_names(all, &a, &b);
        }
    })
}

fn swap_names(all: &mut [Parameter], a: &str, b: &str) {
    for one in all {
        if let Some(rest) = one.name.strip_prefix(a) {
            one.name = format!("{b}{rest}");
        } else if let Some(rest) = one.name.strip_prefix(b) {
            one.name = format!("{a}{rest}");
        }
    }
}

fn exchange_gates(all: &mut [Parameter]) {
    for one in all {
        one.name = match one.name.rsplit_once(".feed_forward.") {
            Some((block, rest)) if rest.starts_with("gate.") => {
                format!("{block}.feed_forward.up.{}", &rest["gate.".len()..])
            }
            Some((block, rest)) if rest.starts_with("up.") => {
                format!("{block}.feed_forward.gate.{}", &rest["up.".len()..])
            }
            _ => continue,
        };
    }
}

/// Queries, keys and values put together as they were cut, and cut the other way.
fn resplit(places: &[Place], had: Split, right: Split) -> Change {
    let places = places.to_vec();
    Box::new(move |all| {
        for Place { prefix, heads, .. } in &places {
            for end in ["weight", "bias"] {
                let names = ["query", "key", "value"].map(|part| format!("{prefix}.{part}.{end}"));
                let rows = |name: &String| all.iter().find(|one| one.name == *name).map(as_rows);
                let Some(parts) = names.iter().map(rows).collect::<Option<Vec<_>>>() else {
                    continue;
                };
                let whole = had.give(&parts, *heads);
                let Some(parts) = whole.and_then(|whole| right.take(&whole, 3, *heads)) else {
                    continue;
                };
                for (name, part) in names.iter().zip(parts) {
                    rewrite(all, name, |one| one.values = columns_of(&part));
                }
            }
        }
    })
}

/// `[from, to]` as rows of what is written, `[to, from]`; a bias as it is.
fn as_rows(one: &Parameter) -> Array {
    let to = one.shape.last().copied().unwrap_or(1);
    let from = one.values.len() / to.max(1);
    let values = (0..to).flat_map(|t| (0..from).map(move |f| one.values[f * to + t])).collect();
    Array { shape: vec![to, from], values }
}

fn columns_of(array: &Array) -> Vec<f32> {
    let (to, from) = (array.shape[0], array.shape[1]);
    (0..from).flat_map(|f| (0..to).map(move |t| array.values[t * from + f])).collect()
}

fn transposed(places: &[Place]) -> Change {
    let places = places.to_vec();
    Box::new(move |all| {
        for Place { prefix, .. } in &places {
            for part in ["query", "key", "value", "output"] {
                rewrite(all, &format!("{prefix}.{part}.weight"), |one| {
                    if one.shape.len() == 2 && one.shape[0] == one.shape[1] {
                        one.values = as_rows(one).values;
                    }
                });
            }
        }
    })
}

fn gains(all: &mut [Parameter], by: f32) {
    for one in all.iter_mut() {
        if one.name.ends_with(".gain") || one.name.ends_with(".gamma") {
            one.values.iter_mut().for_each(|value| *value += by);
        }
    }
}

fn scaled(name: &'static str, factor: f32) -> Change {
    Box::new(move |all| {
        rewrite(all, name, |one| one.values.iter_mut().for_each(|value| *value *= factor));
    })
}

/// ALiBi's slopes for a number of heads that is no power of two, as they are computed in the field.
fn slopes(from: &ModelSettings, push: &mut impl FnMut(&'static str, &str, &ModelSettings, Change)) {
    const END: &str = "Alibi.slopes";
    let geometric = |count: usize, ratio: f64, range: Range<usize>| -> Vec<f32> {
        range.map(|i| 2f64.powf(-ratio * (i + 1) as f64 / count as f64) as f32).collect()
    };
    type Kind = (&'static str, fn(usize) -> Slopes);
    let kinds: [Kind; 4] = [
        (
            "the paper's: those of the next lower power of two, then every other of twice as many",
            |n| Slopes {
                count: if n.is_power_of_two() { n } else { n.next_power_of_two() / 2 },
                every: true,
            },
        ),
        ("one sequence for any number of heads, 2^(−8 i/n)", |n| Slopes {
            count: n,
            every: false,
        }),
        ("the first of the next higher power of two", |n| Slopes {
            count: n.next_power_of_two(),
            every: false,
        }),
        ("those of the next lower power of two, going on", |n| Slopes {
            count: if n.is_power_of_two() { n } else { n.next_power_of_two() / 2 },
            every: false,
        }),
    ];
    if found(from, "position", "alibi", "kind").is_empty() {
        return;
    }
    for (change, kind) in kinds {
        let cure: Change = Box::new(move |all| {
            for one in all.iter_mut().filter(|one| one.name.ends_with(END)) {
                let heads = one.values.len();
                let Slopes { count, every } = kind(heads);
                let mut values = geometric(count, 8.0, 0..if every { count } else { heads });
                if every {
                    values.extend(geometric(2 * count, 8.0, 0..2 * count).into_iter().step_by(2));
                }
                values.truncate(heads);
                one.values = values;
            }
        });
        push("ALiBi slopes", change, from, cure);
    }
    let reversed: Change = Box::new(|all| {
        let own = all.iter_mut().filter(|one| one.name.ends_with(END));
        own.for_each(|one| one.values.reverse());
    });
    push("ALiBi slopes", "in the other order", from, reversed);
}

/// A geometric sequence of slopes.
struct Slopes {
    count: usize,
    /// Whether every other slope of twice as many follows.
    every: bool,
}

/// Rows of learned places that begin earlier or later.
fn learned(
    from: &ModelSettings,
    push: &mut impl FnMut(&'static str, &str, &ModelSettings, Change),
) {
    for by in [-2isize, -1, 1, 2] {
        if found(from, "position", "learned", "kind").is_empty() {
            return;
        }
        let cure: Change = Box::new(move |all| {
            for one in all.iter_mut().filter(|one| one.name.ends_with("Learned.table")) {
                let width = one.shape.last().copied().unwrap_or(1).max(1);
                let shift = (by.unsigned_abs() * width).min(one.values.len());
                match by > 0 {
                    true => one.values.rotate_left(shift),
                    false => one.values.rotate_right(shift),
                }
            }
        });
        let change =
            format!("a token's is {} rows {}", by.abs(), if by > 0 { "later" } else { "earlier" });
        push("first place", &change, from, cure);
    }
}
