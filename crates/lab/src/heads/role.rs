//! Names for what heads do, by a threshold.

use serde::{Serialize, Serializer};

use super::HeadFigures;

/// A role needs at least this much of the way from a uniform head (0) to one that does nothing else (1).
pub const THRESHOLD: f64 = 0.4;
/// Queries that a figure needs before a role is named by it.
pub const LEAST: usize = 4;
/// A head without a role is called uniform if its entropy is at least this share of a uniform head's.
const EVEN: f64 = 0.95;

/// A mean weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    /// The head's.
    pub weight: f64,
    /// What a uniform head would have.
    pub uniform: f64,
    /// Queries it is a mean over: those that have such a key.
    pub queries: usize,
}

impl Figure {
    /// How far it is from a uniform head (0) to one that does nothing else (1).
    pub fn excess(&self) -> f64 {
        match self.uniform < 1.0 {
            true => (self.weight - self.uniform) / (1.0 - self.uniform),
            false => 0.0,
        }
    }
}

/// What a head does most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Looks at the token before.
    Previous,
    /// Looks at the first token, which often means: at nothing.
    First,
    /// Looks at its own position.
    Itself,
    /// Looks at what followed an earlier occurrence of its token. Olsson et al. 2022, <https://arxiv.org/abs/2209.11895>.
    Induction,
    /// Looks at earlier occurrences of its token.
    SameToken,
    /// Looks from a closing bracket at the opening one.
    Bracket,
    /// Looks at one offset, key minus query.
    Offset(i64),
    /// Looks at all keys alike.
    Uniform,
}

impl Role {
    /// The role in words.
    pub fn name(self) -> String {
        match self {
            Self::Previous => "previous token".into(),
            Self::First => "first token".into(),
            Self::Itself => "itself".into(),
            Self::Induction => "induction".into(),
            Self::SameToken => "same token".into(),
            Self::Bracket => "brackets".into(),
            Self::Offset(offset) => format!("offset {offset:+}"),
            Self::Uniform => "uniform".into(),
        }
    }

    /// The role with the largest excess, if that passes the threshold.
    pub(super) fn of(head: &HeadFigures) -> Option<Self> {
        let named = [
            (Self::Previous, head.previous),
            (Self::First, head.first),
            (Self::Itself, head.itself),
            (Self::Induction, head.induction),
            (Self::SameToken, head.same_token),
            (Self::Bracket, head.bracket),
        ];
        // Offsets 0 and −1 have names of their own.
        let offset = head.offset.filter(|(offset, _)| ![0, -1].contains(offset));
        let offset = offset.map(|(offset, figure)| (Self::Offset(offset), figure));
        let mut best: Option<(Self, f64)> = None;
        for (role, figure) in named.into_iter().filter_map(|(r, f)| Some((r, f?))).chain(offset) {
            let excess = figure.excess();
            if figure.queries >= LEAST
                && excess >= THRESHOLD
                && best.is_none_or(|(_, most)| excess > most)
            {
                best = Some((role, excess));
            }
        }
        let is_even = head.entropy[1] > 0.0 && head.entropy[0] >= EVEN * head.entropy[1];
        best.map(|(role, _)| role).or(is_even.then_some(Self::Uniform))
    }
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}
