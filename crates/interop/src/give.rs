//! Parameters of ours as tensors of theirs, by the table of a family: first a plan of names and shapes, then one tensor after
//! the other, so that no more than one of them is held beside the model.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use whatwhere_transformer::{ModelSettings, ParameterView};

use crate::{
    Error,
    error::Result,
    exchange::{heads, pairs},
    table::{Fill, Names, Row},
    tensors::Array,
    turn::{Heads, Split, Turn},
};

/// Our model's parameters by name.
pub(crate) struct Ours<'a>(BTreeMap<String, (Vec<usize>, Cow<'a, [f32]>)>);

impl<'a> Ours<'a> {
    /// Where they lie.
    pub(crate) fn new(views: &'a [ParameterView]) -> Self {
        let one = |v: &'a ParameterView| (v.name.clone(), (v.shape.clone(), v.values().into()));
        Self(views.iter().map(one).collect())
    }

    #[cfg(test)]
    pub(crate) fn of(parameters: &'a [whatwhere_transformer::Parameter]) -> Self {
        let one = |p: &'a whatwhere_transformer::Parameter| {
            (p.name.clone(), (p.shape.clone(), p.values[..].into()))
        };
        Self(parameters.iter().map(one).collect())
    }

    /// With zeros for the biases that a model of these settings has besides.
    pub(crate) fn widened(mut self, settings: &ModelSettings) -> Result<Self> {
        for (name, shape) in settings.shapes()? {
            let count = shape.iter().product();
            self.0.entry(name).or_insert_with(|| (shape, vec![0.0; count].into()));
        }
        Ok(self)
    }

    fn values(&self, name: &str) -> &[f32] {
        &self.0[name].1
    }
}

/// A tensor of theirs that is still to be made.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    row: Row,
    /// Names of ours that it is made of.
    group: Vec<String>,
    /// Sizes of the heads of its layer.
    pub(crate) heads: Heads,
    /// The part of one head, where theirs is a tensor for each.
    head: Option<usize>,
}

/// What their files hold, in the order of the table.
pub(crate) fn plan(names: &Names, ours: &Ours, settings: &ModelSettings) -> Result<Vec<Piece>> {
    let mut pieces: Vec<Piece> = Vec::new();
    // The names of ours that made each of theirs.
    let mut made: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut said: BTreeSet<String> = BTreeSet::new();
    for row in &names.0 {
        for (theirs, groups) in pairs(row, settings) {
            for group in groups {
                if !group.iter().all(|name| ours.0.contains_key(name)) {
                    continue;
                }
                if let Some(fill) = &row.fill {
                    filled(*fill, &group, ours, &said)?;
                    said.extend(group);
                    continue;
                }
                let heads = heads(&group[0], settings)?;
                said.extend(group.iter().cloned());
                if let Some(first) = made.get(&theirs) {
                    let pairs = first.iter().zip(&group);
                    if pairs.into_iter().any(|(a, b)| ours.values(a) != ours.values(b)) {
                        let reason = "the layers differ, and the family has one for all of them";
                        return Err(Error::Refused(format!("{theirs}: {reason}")));
                    }
                    continue;
                }
                let shape = shape(row, &group, ours, heads).ok_or_else(|| {
                    Error::Refused(format!("{theirs}: {group:?} do not go together"))
                })?;
                made.insert(theirs.clone(), group.clone());
                let piece = Piece {
                    name: theirs.clone(),
                    shape,
                    row: row.clone(),
                    group,
                    heads,
                    head: None,
                };
                pieces.extend(by_head(piece));
            }
        }
    }
    match ours.0.keys().find(|name| !said.contains(*name)) {
        None => Ok(pieces),
        Some(name) => Err(Error::Refused(format!("{name}: the family has no tensor for it"))),
    }
}

/// Holds parameters that the family does not have against the values it takes for granted.
fn filled(fill: Fill, group: &[String], ours: &Ours, said: &BTreeSet<String>) -> Result<()> {
    for name in group.iter().filter(|name| !said.contains(*name)) {
        let values = ours.values(name);
        let fixed = fill.values(values.len());
        if values != fixed {
            let first = fixed.first().copied().unwrap_or_default();
            let reason = format!("learned values, and the family has {first:?} there");
            return Err(Error::Refused(format!("{name}: {reason}")));
        }
    }
    Ok(())
}

/// A tensor for each head, if their name has the number of one.
fn by_head(piece: Piece) -> Vec<Piece> {
    if !piece.name.contains("{h}") {
        return vec![piece];
    }
    let (width, count) = (piece.heads.head_dim, piece.shape.iter().product::<usize>());
    let one = |head: usize| Piece {
        name: piece.name.replace("{h}", &head.to_string()),
        shape: vec![width],
        head: Some(head),
        ..piece.clone()
    };
    (0..count / width.max(1)).map(one).collect()
}

fn shape(row: &Row, group: &[String], ours: &Ours, heads: Heads) -> Option<Vec<usize>> {
    let undo = |turns: &[Turn], shape: Vec<usize>| {
        turns.iter().rev().try_fold(shape, |shape, turn| turn.give_shape(shape, heads))
    };
    let mut parts = group.iter().map(|name| undo(&row.after, ours.0[name].0.clone()));
    let mut whole = parts.next()??;
    for part in parts {
        *whole.first_mut()? += part?.first()?;
    }
    undo(&row.before, whole)
}

impl Piece {
    /// Its values.
    pub(crate) fn make(&self, ours: &Ours) -> Result<Array> {
        let made = self.whole(ours).map(|whole| match self.head {
            None => whole,
            Some(head) => {
                let width = self.heads.head_dim;
                let values = whole.values[head * width..][..width].to_vec();
                Array { shape: vec![width], values }
            }
        });
        made.filter(|array| array.shape == self.shape).ok_or_else(|| {
            Error::Refused(format!("{}: {:?} do not go together", self.name, self.group))
        })
    }

    fn whole(&self, ours: &Ours) -> Option<Array> {
        let Self { row, heads, .. } = self;
        let undo = |turns: &[Turn], array: Array| {
            turns.iter().rev().try_fold(array, |array, turn| turn.give(array, *heads))
        };
        let mut parts = Vec::with_capacity(self.group.len());
        for name in &self.group {
            let (shape, values) = &ours.0[name];
            parts.push(undo(&row.after, Array { shape: shape.clone(), values: values.to_vec() })?);
        }
        let whole = match row.split {
            None => parts.pop()?,
            Some(split) => Split::give(split, &parts, *heads)?,
        };
        undo(&row.before, whole)
    }
}
