//! The words of a call, as in TOML: one struct for each choice, with the names and defaults of `crates/attention`.
//!
//! That crate's own structs cannot be used here, because it is made of burn. What it initialises by a setting is handed
//! in as an array here: `{"kind": "t5", "table": table}`. A test in `tests/` compares the two lists of names.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::Error};

use crate::scaling::Scaling;

/// What a call computes, apart from its tensors and the places they stand at.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) score: Score,
    pub(crate) soft_cap: Option<f32>,
    pub(crate) pattern: Pattern,
    pub(crate) position: Vec<Position>,
    pub(crate) mixing: Mixing,
}

/// Stands for an array: its index among those that come with a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array {
    pub(crate) index: usize,
}

impl<'de> Deserialize<'de> for Array {
    /// From `{"$array": index}` only: a list of numbers is somebody's table and no index.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = BTreeMap::<String, usize>::deserialize(deserializer).ok();
        let index = found.and_then(|found| found.get("$array").copied());
        index.map(|index| Self { index }).ok_or_else(|| D::Error::custom("expected an array"))
    }
}

/// Declares an axis: an enum over its choices, read by `kind`, and their names.
macro_rules! axis {
    ($axis:ident { $($choice:ident => $name:literal,)* }) => {
        #[derive(Debug, Deserialize)]
        #[serde(tag = "kind")]
        pub(crate) enum $axis {
            $(#[serde(rename = $name)] $choice($choice),)*
        }

        impl $axis {
            pub(crate) const NAMES: &'static [&'static str] = &[$($name),*];

            pub(crate) fn name(&self) -> &'static str {
                match self { $(Self::$choice(_) => $name,)* }
            }
        }
    };
}

axis! {
    Score {
        ScaledDot => "scaled_dot",
        Dot => "dot",
        General => "general",
        Additive => "additive",
        Cosine => "cosine",
    }
}

axis! {
    Pattern {
        Full => "full",
        Causal => "causal",
        Window => "window",
        Dilated => "dilated",
        Strided => "strided",
        Fixed => "fixed",
        Random => "random",
        Global => "global",
        Prefix => "prefix",
        Document => "document",
        Predicted => "predicted",
        And => "and",
        Or => "or",
    }
}

axis! {
    Position {
        NoPosition => "none",
        Sinusoidal => "sinusoidal",
        Learned => "learned",
        Shaw => "shaw",
        TransformerXl => "transformer_xl",
        Rotary => "rotary",
        Polar => "polar",
        SingleAngle => "single_angle",
        Alibi => "alibi",
        T5 => "t5",
        Table => "table",
    }
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind")]
pub(crate) enum Mixing {
    #[serde(rename = "softmax")]
    Softmax(Softmax),
    #[serde(rename = "linear")]
    Linear(Linear),
}

/// Declares the settings of a choice, each with its default.
macro_rules! choice {
    ($choice:ident { $($field:ident: $type:ty = $default:expr,)* }) => {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct $choice {
            $(pub(crate) $field: $type,)*
        }

        impl Default for $choice {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}

choice! { ScaledDot { scale: Option<f32> = None, } }
choice! { Dot { scale: f32 = 1.0, } }
choice! { Cosine { scale: f32 = 10.0, } }
// The query is multiplied by its weight by the caller, where the product has a gradient.
choice! { General { weight: Option<Array> = None, } }
choice! { Additive { weight: Option<Array> = None, } }

choice! { Full {} }
choice! { Causal { offset: isize = 0, } }
choice! { Window { left: usize = 128, right: usize = 0, } }
choice! { Dilated { left: usize = 64, right: usize = 0, step: usize = 2, } }
choice! { Strided { stride: usize = 128, } }
choice! { Fixed { stride: usize = 128, summary: usize = 8, } }
choice! { Random { block: usize = 64, count: usize = 3, length: usize = 4096, seed: u64 = 0, } }
choice! { Global { places: OneOrMany = OneOrMany::One(1), } }
choice! { Prefix { length: OneOrMany = OneOrMany::One(64), } }
choice! { Document {} }
choice! { Predicted { radius: usize = 10, centers: Option<Array> = None, } }
choice! { And { of: Vec<Pattern> = Vec::new(), } }
choice! { Or { of: Vec<Pattern> = Vec::new(), } }

choice! { NoPosition {} }
choice! { Shaw { reach: Option<usize> = None, keys: Option<Array> = None, values: Option<Array> = None, per_head: Option<bool> = None, } }
choice! { Rotary { base: f64 = 10_000.0, layout: Layout = Layout::HalfSplit, channels: f64 = 1.0, heads: f64 = 1.0, scaling: Scaling = Scaling::None, } }
choice! { Polar { base: f64 = 10_000.0, delta: Delta = Delta::Word(DeltaWord::Zero), magnitude: Magnitude = Magnitude::Softplus, channels: f64 = 1.0, heads: f64 = 1.0, } }
choice! { SingleAngle { period: usize = 1024, } }
choice! { Alibi { slopes: Option<Array> = None, heads: f64 = 1.0, } }
choice! { T5 { table: Option<Array> = None, buckets: Option<usize> = None, max_distance: usize = 128, bidirectional: bool = false, } }
// Its projection is multiplied out by the caller, where it has a gradient; the table is the result.
choice! { TransformerXl { table: Option<Array> = None, left: usize = 0, content: Option<Array> = None, distance: Option<Array> = None, } }
choice! { Table { table: Option<Array> = None, left: usize = 0, } }

choice! { Softmax {} }
choice! { Linear {} }

/// An encoding of embeddings: named, and refused with the reason, whatever its settings.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Sinusoidal {}

/// An encoding of embeddings: named, and refused with the reason, whatever its settings.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Learned {}

/// A number for all sequences, or a list.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number or a list of numbers, none below 0")]
pub(crate) enum OneOrMany {
    One(usize),
    Many(Vec<usize>),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Layout {
    Interleaved,
    HalfSplit,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Magnitude {
    Softplus,
    Relu,
    Identity,
}

/// PoPE's phase: handed in, or none.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected an array, `zero` or `off` as delta; a `uniform` start is yours to draw"
)]
pub(crate) enum Delta {
    Array(Array),
    Word(#[expect(dead_code, reason = "both words mean no array")] DeltaWord),
}

/// Both give the same scores: a phase of 0 that is not handed in cannot learn.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DeltaWord {
    Zero,
    Off,
}
