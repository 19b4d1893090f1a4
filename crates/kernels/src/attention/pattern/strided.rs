//! Strided: the last `stride` keys and every `stride`-th before, causal:
//! `key ≤ query` and (`query − key ≤ stride` or `(query − key) mod stride = 0`).
//! Sparse Transformer, Child et al. 2019, <https://arxiv.org/abs/1904.10509>, both parts in one head.
//! For images and audio, whose period is the stride; near √length it costs `length · √length`.

use std::{iter::once, ops::Range};

use super::{Coverage, Pair, Part, Pattern, Tile, Window, parts, ranges};
use crate::Error;

/// The nearest keys behind the query and a regular sample of all earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strided {
    stride: usize,
}

impl Strided {
    /// Refuses a stride of 0.
    pub fn new(stride: usize) -> Result<Self, Error> {
        if stride == 0 { Err(Error::Zero { what: "stride" }) } else { Ok(Self { stride }) }
    }

    /// How many of the distances `0..end` behind a query are visible.
    fn visible_below(&self, end: usize) -> usize {
        let near = end.min(self.stride.saturating_add(1));
        let far = (end.saturating_sub(1) / self.stride).saturating_sub(1);
        near + far
    }
}

impl Pattern for Strided {
    fn sees(&self, pair: Pair) -> bool {
        pair.query
            .checked_sub(pair.key)
            .is_some_and(|distance| distance <= self.stride || distance.is_multiple_of(self.stride))
    }

    fn coverage(&self, tile: &Tile) -> Coverage {
        let (least, greatest) = tile.distances();
        let behind = |distance: isize| (-distance).max(0) as usize;
        let visible = self.visible_below(behind(least - 1)) - self.visible_below(behind(greatest));
        Coverage::of(visible, (greatest - least) as usize + 1)
    }

    fn hide(&self, first: Pair, scores: &mut [f32]) {
        let Pair { query, key, .. } = first;
        let near = query.saturating_sub(self.stride)..query + 1;
        let sample = key + query.saturating_sub(key) % self.stride;
        let far = (sample..near.start).step_by(self.stride).map(|key| key..key + 1);
        ranges::keep(key, scores, far.chain(once(near)));
    }

    fn parts(&self) -> Vec<Part<'_>> {
        if self.stride == 1 {
            return Vec::new(); // Causal.
        }
        let far = Far { stride: self.stride };
        let near = Window { left: self.stride, right: 0 };
        vec![Part::neighbors(near), Part::gathered(self.stride, far)]
    }
}

/// The regular sample alone, without the nearest keys.
struct Far {
    stride: usize,
}

impl Far {
    /// How many of the distances `0..end` behind a query are visible.
    fn visible_below(&self, end: usize) -> usize {
        (end.saturating_sub(1) / self.stride).saturating_sub(1)
    }
}

impl Pattern for Far {
    fn sees(&self, pair: Pair) -> bool {
        pair.query
            .checked_sub(pair.key)
            .is_some_and(|distance| distance > self.stride && distance.is_multiple_of(self.stride))
    }

    fn coverage(&self, tile: &Tile) -> Coverage {
        let (least, greatest) = tile.distances();
        let behind = |distance: isize| (-distance).max(0) as usize;
        let visible = self.visible_below(behind(least - 1)) - self.visible_below(behind(greatest));
        Coverage::of(visible, (greatest - least) as usize + 1)
    }

    fn shown(&self, tile: &Tile, found: &mut dyn FnMut(Range<usize>, Coverage)) {
        let Tile { queries, keys, .. } = tile;
        let query = queries.start;
        if queries.len() > 1 {
            let (coverage, sees) = (|tile: &Tile| self.coverage(tile), |pair| self.sees(pair));
            return parts::search(tile, &coverage, &sees, found);
        }
        let sample = keys.start + query.saturating_sub(keys.start) % self.stride;
        let end = query.saturating_sub(self.stride).min(keys.end);
        for key in (sample..end).step_by(self.stride) {
            found(key..key + 1, Coverage::Full);
        }
    }
}

/// As it is chosen.
#[cfg(feature = "settings")]
pub(super) mod settings {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use crate::{
        Error,
        attention::pattern::role::{PatternContext, PatternSettings},
    };

    /// Strided: the last `stride` keys and every `stride`-th before them, causal.
    /// Child et al. 2019, <https://arxiv.org/abs/1904.10509>. For data with a period, such as images; O(length · √length) pairs.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    pub struct Strided {
        /// Length of the window and of the step; default 128.
        pub stride: usize,
    }

    impl Default for Strided {
        fn default() -> Self {
            Self { stride: 128 }
        }
    }

    impl PatternSettings for Strided {
        fn check(&self) -> Result<(), Error> {
            super::Strided::new(self.stride)?;
            Ok(())
        }

        fn build(&self, _context: &PatternContext) -> Result<Box<dyn super::Pattern>, Error> {
            Ok(Box::new(super::Strided::new(self.stride)?))
        }

        fn is_causal(&self) -> bool {
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::visible_keys, *};

    #[test]
    fn the_example_of_stride_4_is_met() {
        let pattern = Strided::new(4).unwrap();
        assert_eq!(visible_keys(&pattern, 11, 16), [3, 7, 8, 9, 10, 11]);
        assert_eq!(visible_keys(&pattern, 2, 16), [0, 1, 2]);
    }

    #[test]
    fn a_stride_of_zero_is_refused() {
        assert_eq!(Strided::new(0), Err(Error::Zero { what: "stride" }));
    }
}
