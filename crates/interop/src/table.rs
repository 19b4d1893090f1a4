//! The table of a family: names of theirs, names of ours, and the turns between them.
//!
//! `{}` stands for the number of a layer. A name of theirs without it beside names of ours with it is copied to every layer.
//! `{h}` stands for the number of a head: all of them are put one after the other.
//! What our model by its settings does not have is not asked for; what a file has and no row takes is refused.

use crate::turn::{Split, Turn};

/// One row: a tensor of theirs and what it is to us.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    /// Empty where they have none.
    pub(crate) theirs: String,
    /// One name, several where theirs is split, none where it is ignored.
    pub(crate) ours: Vec<String>,
    /// Turns of the whole tensor.
    pub(crate) before: Vec<Turn>,
    pub(crate) split: Option<Split>,
    /// Turns of each part.
    pub(crate) after: Vec<Turn>,
    /// What takes the place of a tensor they do not have.
    pub(crate) fill: Option<Fill>,
    /// Whether a file may have it although the model does not ask for it.
    pub(crate) spare: bool,
    /// The tensor of theirs whose values it has once more.
    pub(crate) copy_of: Option<String>,
}

/// Values of ours that they do not store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fill {
    /// One value everywhere.
    Value(f32),
    /// ALiBi's slopes, one for each head.
    Slopes,
}

impl Fill {
    /// So many values.
    pub(crate) fn values(self, count: usize) -> Vec<f32> {
        match self {
            Self::Value(value) => vec![value; count],
            Self::Slopes => alibi_slopes(count),
        }
    }
}

/// ALiBi's slopes by Press, as BLOOM and MPT compute them: powers of 2^(−8/n) for n heads, and for the heads beyond a power
/// of two every other slope of twice as many.
fn alibi_slopes(heads: usize) -> Vec<f32> {
    let powers =
        |count: usize| (1..=count).map(move |i| 2f64.powf(-8.0 * i as f64 / count as f64) as f32);
    let whole = if heads.is_power_of_two() { heads } else { heads.next_power_of_two() / 2 };
    powers(whole).chain(powers(2 * whole).step_by(2).take(heads - whole)).collect()
}

/// All rows of a family.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(pub(crate) Vec<Row>);

impl Names {
    /// The same numbers under another name.
    pub(crate) fn keep(self, theirs: &str, ours: &str) -> Self {
        self.turned(theirs, ours, [])
    }

    /// One tensor with turns.
    pub(crate) fn turned(
        mut self,
        theirs: &str,
        ours: &str,
        turns: impl IntoIterator<Item = Turn>,
    ) -> Self {
        self.0.push(Row {
            theirs: theirs.into(),
            ours: vec![ours.into()],
            after: turns.into_iter().collect(),
            ..Row::default()
        });
        self
    }

    /// A matrix that a file may hold although the model shares it with the embeddings.
    pub(crate) fn untied(mut self, theirs: &str, ours: &str) -> Self {
        self = self.turned(theirs, ours, [Turn::Transpose]);
        self.spare()
    }

    /// The last row may be in a file although nothing asks for it.
    pub(crate) fn spare(mut self) -> Self {
        if let Some(row) = self.0.last_mut() {
            row.spare = true;
        }
        self
    }

    /// Weight and bias of a linear layer that is stored `[to, from]`.
    pub(crate) fn linear(self, theirs: &str, ours: &str) -> Self {
        self.turned(&format!("{theirs}.weight"), &format!("{ours}.weight"), [Turn::Transpose])
            .keep(&format!("{theirs}.bias"), &format!("{ours}.bias"))
    }

    /// Weight and bias of a linear layer that is stored `[from, to]`, as GPT-2's.
    pub(crate) fn conv1d(self, theirs: &str, ours: &str) -> Self {
        self.keep(&format!("{theirs}.weight"), &format!("{ours}.weight"))
            .keep(&format!("{theirs}.bias"), &format!("{ours}.bias"))
    }

    /// Weight and bias of a norm.
    pub(crate) fn norm(self, theirs: &str, ours: &str) -> Self {
        self.keep(&format!("{theirs}.weight"), &format!("{ours}.gain"))
            .keep(&format!("{theirs}.bias"), &format!("{ours}.bias"))
    }

    /// A linear layer `[to, from]` that is several of ours; `ours` has their names in place of `*`.
    pub(crate) fn parts(mut self, theirs: &str, ours: &str, parts: &[&str], split: Split) -> Self {
        for (end, after) in [("weight", vec![Turn::Transpose]), ("bias", vec![])] {
            let names = parts.iter().map(|part| format!("{}.{end}", ours.replace('*', part)));
            self.0.push(Row {
                theirs: format!("{theirs}.{end}"),
                ours: names.collect(),
                split: Some(split),
                after,
                ..Row::default()
            });
        }
        self
    }

    /// Queries, keys and values in one linear layer.
    pub(crate) fn qkv(self, theirs: &str, attention: &str, split: Split) -> Self {
        self.parts(theirs, &format!("{attention}.*"), &["query", "key", "value"], split)
    }

    /// Four linear layers of an attention: queries, keys, values and output.
    pub(crate) fn attention(self, theirs: &str, parts: [&str; 4], ours: &str) -> Self {
        let names = parts.into_iter().zip(["query", "key", "value", "output"]);
        names.fold(self, |names, (part, own)| {
            names.linear(&format!("{theirs}.{part}"), &format!("{ours}.{own}"))
        })
    }

    /// A parameter of ours that they do not have.
    pub(crate) fn fill(self, ours: &str, value: f32) -> Self {
        self.fill_with(ours, Fill::Value(value))
    }

    /// Values of ours that they compute.
    pub(crate) fn fill_with(mut self, ours: &str, fill: Fill) -> Self {
        self.0.push(Row { ours: vec![ours.into()], fill: Some(fill), ..Row::default() });
        self
    }

    /// A tensor that another one is once more, and that a file may hold in its place.
    pub(crate) fn copy(mut self, theirs: &str, of: &str) -> Self {
        self = self.ignore(theirs);
        if let Some(row) = self.0.last_mut() {
            row.copy_of = Some(of.into());
        }
        self
    }

    /// A tensor that says nothing a model needs.
    pub(crate) fn ignore(mut self, theirs: &str) -> Self {
        self.0.push(Row { theirs: theirs.into(), spare: true, ..Row::default() });
        self
    }
}

/// A name with the number of its layer.
pub(crate) fn at(name: &str, layer: usize) -> String {
    name.replace("{}", &layer.to_string())
}

/// Whether a name is of a pattern, whatever the layer.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once("{}") {
        None => pattern == name,
        Some((before, after)) => {
            let rest = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            rest.is_some_and(|layer| {
                !layer.is_empty() && layer.bytes().all(|byte| byte.is_ascii_digit())
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_of_six_heads_are_those_of_four_and_two_between() {
        let want = [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125];
        assert_eq!(Fill::Slopes.values(6), want);
        assert_eq!(Fill::Slopes.values(2), [0.0625, 0.00390625]);
    }
}
