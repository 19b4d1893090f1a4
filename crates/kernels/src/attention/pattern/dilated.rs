//! Dilated window: every `step`-th key nearby, `key = query + step · m` with `−left ≤ m ≤ right`.
//! Longformer, Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150>. Reaches `step` times as far as
//! a window of the same cost; the paper dilates two heads of the upper layers only.

use std::ops::Range;

use super::{Coverage, Pair, Part, Pattern, Tile, parts, ranges};
use crate::Error;

/// Keys a whole number of steps from the query, which always sees itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dilated {
    left: usize,
    right: usize,
    step: usize,
}

impl Dilated {
    /// `left` keys before and `right` keys after the query, `step` positions apart; `usize::MAX` for all
    /// on a side. Refuses a step of 0.
    pub fn new(left: usize, right: usize, step: usize) -> Result<Self, Error> {
        if step == 0 {
            return Err(Error::Zero { what: "step" });
        }
        Ok(Self { left, right, step })
    }
}

impl Pattern for Dilated {
    fn sees(&self, pair: Pair) -> bool {
        let count = if pair.key <= pair.query { self.left } else { self.right };
        let distance = pair.key.abs_diff(pair.query);
        distance.is_multiple_of(self.step) && distance / self.step <= count
    }

    fn coverage(&self, tile: &Tile) -> Coverage {
        let (least, greatest) = tile.distances();
        let first = least.max(-signed(self.left.saturating_mul(self.step)));
        let last = greatest.min(signed(self.right.saturating_mul(self.step)));
        let step = signed(self.step);
        let multiples = last.div_euclid(step) - (first - 1).div_euclid(step);
        Coverage::of(multiples.max(0) as usize, (greatest - least) as usize + 1)
    }

    fn hide(&self, first: Pair, scores: &mut [f32]) {
        let visible = self.visible(first.query, first.key..first.key + scores.len());
        ranges::keep(first.key, scores, visible.map(|key| key..key + 1));
    }

    fn parts(&self) -> Vec<Part<'_>> {
        if self.step == 1 { Vec::new() } else { vec![Part::gathered(self.step, self)] }
    }

    fn shown(&self, tile: &Tile, found: &mut dyn FnMut(Range<usize>, Coverage)) {
        if tile.queries.len() > 1 {
            let (coverage, sees) = (|tile: &Tile| self.coverage(tile), |pair| self.sees(pair));
            return parts::search(tile, &coverage, &sees, found);
        }
        for key in self.visible(tile.queries.start, tile.keys.clone()) {
            found(key..key + 1, Coverage::Full);
        }
    }
}

impl Dilated {
    /// The keys that a query sees.
    fn visible(&self, query: usize, keys: Range<usize>) -> impl Iterator<Item = usize> + use<> {
        let key = keys.start;
        let least = key.max(query.saturating_sub(self.left.saturating_mul(self.step)));
        let gap = if least <= query {
            (query - least) % self.step
        } else {
            (self.step - (least - query) % self.step) % self.step
        };
        let greatest = query.saturating_add(self.right.saturating_mul(self.step));
        let end = greatest.saturating_add(1).min(keys.end);
        (least.saturating_add(gap)..end).step_by(self.step)
    }
}

/// Beyond `isize::MAX` every reach is the same: farther than any position.
fn signed(reach: usize) -> isize {
    isize::try_from(reach).unwrap_or(isize::MAX)
}

/// As it is chosen.
#[cfg(feature = "settings")]
pub(super) mod settings {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use whatwhere_settings::Refuses;

    use crate::{
        Error,
        attention::pattern::role::{PatternContext, PatternSettings},
    };

    /// Dilated: a window with gaps, positions `query ± step·m`.
    /// Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150>. Reaches `step` times as far as a window of as many keys.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    pub struct Dilated {
        /// Keys before the own position; default 64.
        pub left: usize,
        /// Keys after it; default 0.
        pub right: usize,
        /// Distance between them; default 2.
        pub step: usize,
    }

    impl Default for Dilated {
        fn default() -> Self {
            Self { left: 64, right: 0, step: 2 }
        }
    }

    impl PatternSettings for Dilated {
        fn check(&self) -> Result<(), Error> {
            super::Dilated::new(self.left, self.right, self.step)?;
            if self.left == 0 && self.right == 0 {
                let reason =
                    "a window of nothing but the own position mixes nothing; use 1 or more";
                return Err(Error::setting("pattern.left", 0, reason));
            }
            Ok(())
        }

        fn build(&self, _context: &PatternContext) -> Result<Box<dyn super::Pattern>, Error> {
            Ok(Box::new(super::Dilated::new(self.left, self.right, self.step)?))
        }

        fn reach(&self) -> Option<usize> {
            self.left.checked_mul(self.step)
        }

        fn is_causal(&self) -> bool {
            self.right == 0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::visible_keys, *};

    #[test]
    fn keys_are_whole_steps_away_on_both_sides() {
        let pattern = Dilated::new(2, 3, 4).unwrap();
        assert_eq!(visible_keys(&pattern, 10, 30), [2, 6, 10, 14, 18, 22]);
    }

    #[test]
    fn a_step_of_zero_is_refused() {
        assert_eq!(Dilated::new(1, 1, 0), Err(Error::Zero { what: "step" }));
    }
}
