//! Window: the keys nearby, `query − left ≤ key ≤ query + right`, cost `queries · (left + 1 + right)`.
//! Longformer, Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150> (window w: `w/2` each side);
//! Luong's local attention with D = 10 is `left: 10, right: 10`. `right: 0` makes it causal.

use std::{iter::once, ops::Range};

use super::{Coverage, Pair, Pattern, Tile, ranges};

/// Keys at most `left` positions before and `right` positions after the query, which always sees itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Positions before the query; [`Window::UNLIMITED`] for all.
    pub left: usize,
    /// Positions after the query; 0 is causal, [`Window::UNLIMITED`] for all.
    pub right: usize,
}

impl Window {
    /// A side without an end, flash-attn's −1: farther than any position.
    pub const UNLIMITED: usize = usize::MAX;

    fn visible(&self, query: usize) -> Range<usize> {
        query.saturating_sub(self.left)..query.saturating_add(self.right).saturating_add(1)
    }
}

impl Pattern for Window {
    fn sees(&self, pair: Pair) -> bool {
        self.visible(pair.query).contains(&pair.key)
    }
    fn coverage(&self, tile: &Tile) -> Coverage {
        ranges::coverage(tile, self.visible(tile.queries.start), self.visible(tile.last_query()))
    }
    fn hide(&self, first: Pair, scores: &mut [f32]) {
        ranges::keep(first.key, scores, once(self.visible(first.query)));
    }
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

    /// Window: a query sees `left` keys before its position and `right` after it.
    /// Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150>; Luong's local-m has left = right = 10
    /// (`predicted` is his local-p). Cost length × window.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    pub struct Window {
        /// Keys before the own position; default 128.
        pub left: usize,
        /// Keys after it; default 0, which is causal.
        pub right: usize,
    }

    impl Default for Window {
        fn default() -> Self {
            Self { left: 128, right: 0 }
        }
    }

    impl PatternSettings for Window {
        fn check(&self) -> Result<(), Error> {
            if self.left == 0 && self.right == 0 {
                let reason =
                    "a window of nothing but the own position mixes nothing; use 1 or more";
                return Err(Error::setting("pattern.left", 0, reason));
            }
            Ok(())
        }

        fn build(&self, _context: &PatternContext) -> Result<Box<dyn super::Pattern>, Error> {
            Ok(Box::new(super::Window { left: self.left, right: self.right }))
        }

        fn reach(&self) -> Option<usize> {
            Some(self.left)
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
    fn both_ends_of_the_window_are_visible() {
        assert_eq!(visible_keys(&Window { left: 3, right: 2 }, 10, 20), [7, 8, 9, 10, 11, 12]);
    }

    #[test]
    fn an_unlimited_side_reaches_every_place() {
        let behind = Window { left: Window::UNLIMITED, right: 1 };
        assert_eq!(visible_keys(&behind, 3, 9), [0, 1, 2, 3, 4]);
        let ahead = Window { left: 1, right: Window::UNLIMITED };
        assert_eq!(visible_keys(&ahead, 5, 9), [4, 5, 6, 7, 8]);
    }
}
