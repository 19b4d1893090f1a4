//! Or: what either pattern shows, `A ∪ B`.
//! Longformer is `Or(window, global)`, BigBird `Or(window, Or(random, global))`.
//! More than two nest; boxed and borrowed patterns are patterns too.

use std::ops::Range;

use super::{
    Coverage, Pair, Part, Pattern, Tile,
    parts::{self, Except},
};
use crate::{Error, attention::Shape};

const CHUNK: usize = 64; // 256 B of stack, and no more work than needed on a row of a tile.

/// Keys that either pattern shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Or<A, B>(pub A, pub B);

impl<A: Pattern, B: Pattern> Pattern for Or<A, B> {
    fn sees(&self, pair: Pair) -> bool {
        self.0.sees(pair) || self.1.sees(pair)
    }

    fn coverage(&self, tile: &Tile) -> Coverage {
        match self.0.coverage(tile) {
            Coverage::Full => Coverage::Full,
            Coverage::Empty => self.1.coverage(tile),
            Coverage::Partial => match self.1.coverage(tile) {
                Coverage::Full => Coverage::Full,
                Coverage::Partial | Coverage::Empty => Coverage::Partial,
            },
        }
    }

    fn hide(&self, first: Pair, scores: &mut [f32]) {
        let (one, other) = (&self.0, &self.1);
        hide(first, scores, |first, row| one.hide(first, row), |first, row| other.hide(first, row));
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let (one, other) = (self.0.parts(), self.1.parts());
        if one.is_empty() && other.is_empty() {
            return Vec::new();
        }
        let mut parts = parts::of(&self.0);
        let first: &dyn Pattern = &self.0;
        let rest = parts::of(&self.1).into_iter();
        parts.extend(rest.map(|part| part.narrowed(|pattern| Except(pattern, first))));
        parts
    }

    fn shown(&self, tile: &Tile, found: &mut dyn FnMut(Range<usize>, Coverage)) {
        self.0.shown(tile, found);
        self.1.shown(tile, found);
    }

    fn check(&self, shape: &Shape) -> Result<(), Error> {
        self.0.check(shape)?;
        self.1.check(shape)
    }
}

/// Hides what neither way of hiding leaves.
pub(super) fn hide(
    first: Pair,
    scores: &mut [f32],
    one: impl Fn(Pair, &mut [f32]),
    other: impl Fn(Pair, &mut [f32]),
) {
    let mut scratch = [0.0; CHUNK];
    for (scores, key) in scores.chunks_mut(CHUNK).zip((first.key..).step_by(CHUNK)) {
        let first = Pair { key, ..first };
        let others = &mut scratch[..scores.len()];
        others.copy_from_slice(scores);
        one(first, scores);
        other(first, others);
        for (score, other) in scores.iter_mut().zip(others) {
            if *score == f32::NEG_INFINITY {
                *score = *other;
            }
        }
    }
}

/// As it is chosen.
#[cfg(feature = "settings")]
pub(super) mod settings {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use whatwhere_settings::{OneOrList, one_or_list};

    use crate::{
        Error,
        attention::pattern::{
            role::{PatternContext, PatternSettings, check_parts, join},
            settings::{Global, Pattern, Token, Window},
        },
    };

    /// Or: what any part shows.
    /// Longformer is `or` of window and global, BigBird of window, random and global.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    pub struct Or {
        /// The parts, names or tables, at least one; default `window` and `global`.
        #[serde(deserialize_with = "one_or_list")]
        #[schemars(with = "OneOrList<Pattern>")]
        pub of: Vec<Pattern>,
    }

    impl Default for Or {
        fn default() -> Self {
            Self { of: vec![Window::default().into(), Global::default().into()] }
        }
    }

    impl PatternSettings for Or {
        fn check(&self) -> Result<(), Error> {
            check_parts("or", &self.of)
        }

        fn build(&self, context: &PatternContext) -> Result<Box<dyn super::Pattern>, Error> {
            join(&self.of, context, |a, b| Box::new(super::Or(a, b)))
        }

        fn reach(&self) -> Option<usize> {
            self.of.iter().map(Pattern::reach).collect::<Option<Vec<_>>>()?.into_iter().max()
        }

        fn is_causal(&self) -> bool {
            self.of.iter().all(Pattern::is_causal)
        }

        fn needs_documents(&self) -> bool {
            self.of.iter().any(Pattern::needs_documents)
        }

        fn tokens(&self) -> Vec<Token> {
            self.of.iter().flat_map(Pattern::tokens).collect()
        }

        fn with_tokens(
            &self,
            id_of: &dyn Fn(&str) -> Result<u32, String>,
        ) -> Result<Option<Pattern>, Error> {
            let of =
                self.of.iter().map(|part| part.with_tokens(id_of)).collect::<Result<_, _>>()?;
            Ok(Some(Self { of }.into()))
        }

        fn differs_by_head(&self) -> bool {
            self.of.iter().any(Pattern::differs_by_head)
        }
    }
}
