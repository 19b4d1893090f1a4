//! And: what both patterns show, `A ∩ B`.
//! `And(Causal::upper_left(), pattern)` makes a pattern causal, `And(pattern, key_lengths)` adds padding.
//! More than two nest; boxed and borrowed patterns are patterns too.

use std::ops::Range;

use super::{Coverage, Pair, Part, Pattern, Tile, parts};
use crate::{Error, attention::Shape};

/// Keys that both patterns show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct And<A, B>(pub A, pub B);

impl<A: Pattern, B: Pattern> Pattern for And<A, B> {
    fn sees(&self, pair: Pair) -> bool {
        self.0.sees(pair) && self.1.sees(pair)
    }

    fn coverage(&self, tile: &Tile) -> Coverage {
        match self.0.coverage(tile) {
            Coverage::Empty => Coverage::Empty,
            Coverage::Full => self.1.coverage(tile),
            Coverage::Partial => match self.1.coverage(tile) {
                Coverage::Empty => Coverage::Empty,
                Coverage::Partial | Coverage::Full => Coverage::Partial,
            },
        }
    }

    fn hide(&self, first: Pair, scores: &mut [f32]) {
        self.0.hide(first, scores);
        self.1.hide(first, scores);
    }

    fn parts<'p>(&'p self) -> Vec<Part<'p>> {
        let (one, other) = (self.0.parts(), self.1.parts());
        // Those of one alone: the other then narrows each.
        let (parts, to): (_, &'p dyn Pattern) =
            if one.is_empty() { (other, &self.0) } else { (one, &self.1) };
        parts.into_iter().map(|part| part.narrowed(|pattern| And(pattern, to))).collect()
    }

    fn shown(&self, tile: &Tile, found: &mut dyn FnMut(Range<usize>, Coverage)) {
        let (coverage, sees) = (|tile: &Tile| self.1.coverage(tile), |pair| self.1.sees(pair));
        self.0.shown(tile, &mut |keys, whole| {
            parts::narrow(&Tile { keys, ..tile.clone() }, whole, &coverage, &sees, found);
        });
    }

    fn check(&self, shape: &Shape) -> Result<(), Error> {
        self.0.check(shape)?;
        self.1.check(shape)
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
            settings::{Causal, Pattern, Prefix, Token},
        },
    };

    /// And: what every part shows.
    /// `and` of causal and another pattern makes it causal.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    pub struct And {
        /// The parts, names or tables, at least one; default `causal` and `prefix`.
        #[serde(deserialize_with = "one_or_list")]
        #[schemars(with = "OneOrList<Pattern>")]
        pub of: Vec<Pattern>,
    }

    impl Default for And {
        fn default() -> Self {
            Self { of: vec![Causal::default().into(), Prefix::default().into()] }
        }
    }

    impl PatternSettings for And {
        fn check(&self) -> Result<(), Error> {
            check_parts("and", &self.of)
        }

        fn build(&self, context: &PatternContext) -> Result<Box<dyn super::Pattern>, Error> {
            join(&self.of, context, |a, b| Box::new(super::And(a, b)))
        }

        fn reach(&self) -> Option<usize> {
            self.of.iter().filter_map(Pattern::reach).min()
        }

        fn is_causal(&self) -> bool {
            self.of.iter().any(Pattern::is_causal)
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
