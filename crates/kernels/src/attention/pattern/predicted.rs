//! Spans: each query of each head sees a range of keys of its own, given as data.
//! The window of Luong's local-p, Luong et al. 2015, <https://arxiv.org/abs/1508.04025>, around the position that a query
//! predicts. For patterns that depend on content; cost is the sum of the ranges, where those of neighbours lie together.

use std::{iter::once, ops::Range};

use super::{Coverage, Pair, Pattern, Tile, ranges};
use crate::{Error, attention::Shape, error::expect_len};

/// A range of key positions for each row of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spans {
    sizes: [usize; 3],
    first_query: usize,
    spans: Vec<Range<usize>>,
}

impl Spans {
    /// One range for each of `[batch, heads, queries]`, the first query standing at `first_query`; rows beyond those see
    /// nothing. Refuses another number of ranges.
    pub fn new(
        sizes: [usize; 3],
        first_query: usize,
        spans: Vec<Range<usize>>,
    ) -> Result<Self, Error> {
        expect_len("list of spans", spans.len(), sizes.iter().product())?;
        Ok(Self { sizes, first_query, spans })
    }

    fn visible(&self, batch: usize, head: usize, query: usize) -> Range<usize> {
        let [sequences, heads, queries] = self.sizes;
        match query.checked_sub(self.first_query) {
            Some(row) if batch < sequences && head < heads && row < queries => {
                self.spans[(batch * heads + head) * queries + row].clone()
            }
            _ => 0..0,
        }
    }
}

impl Pattern for Spans {
    fn sees(&self, pair: Pair) -> bool {
        self.visible(pair.batch, pair.head, pair.query).contains(&pair.key)
    }
    fn coverage(&self, tile: &Tile) -> Coverage {
        let Tile { batch, head, queries, keys } = tile;
        let visible = queries.clone().map(|query| {
            let span = self.visible(*batch, *head, query);
            span.end.min(keys.end).saturating_sub(span.start.max(keys.start))
        });
        Coverage::of(visible.sum(), queries.len() * keys.len())
    }
    fn hide(&self, first: Pair, scores: &mut [f32]) {
        let span = self.visible(first.batch, first.head, first.query);
        ranges::keep(first.key, scores, once(span));
    }
    fn check(&self, shape: &Shape) -> Result<(), Error> {
        // A call may hold some of the queries only, as in decoding.
        let expected = shape.batch * shape.heads * self.sizes[2];
        expect_len("list of spans", self.spans.len(), expected)
    }
}

/// As it is chosen.
#[cfg(feature = "settings")]
pub(super) mod settings {
    use std::ops::Range;

    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use whatwhere_settings::Refuses;

    use crate::{
        Error,
        attention::pattern::role::{PatternContext, PatternSettings},
    };

    /// Predicted: each query of each head predicts the position `p = keys · σ(vᵀ tanh(W x))` and sees `radius` keys to either side,
    /// its weights times `exp(−(key − p)² / 2σ²)` with σ = radius / 2, not renormalised.
    /// Local-p of Luong et al. 2015, <https://arxiv.org/abs/1508.04025>. `width² + width · heads` parameters, one v for each head
    /// (the paper has one head); for a memory that is read in an order of its own, not for causal layers.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    pub struct Predicted {
        /// Keys to either side of the predicted position, the paper's D; default 10.
        pub radius: usize,
    }

    impl Default for Predicted {
        fn default() -> Self {
            Self { radius: 10 }
        }
    }

    impl PatternSettings for Predicted {
        fn check(&self) -> Result<(), Error> {
            if self.radius == 0 {
                let reason = "the Gaussian has a deviation of radius / 2; use 1 or more";
                return Err(Error::setting("pattern.radius", 0, reason));
            }
            Ok(())
        }

        fn build(&self, context: &PatternContext) -> Result<Box<dyn super::Pattern>, Error> {
            let Some((centers, sizes)) = context.centers else {
                let reason = "needs the positions that the layer's queries predict";
                return Err(Error::setting("pattern", "predicted", reason));
            };
            let spans = centers.iter().map(|center| self.span(*center)).collect();
            Ok(Box::new(super::Spans::new(sizes, context.first_query, spans)?))
        }

        fn is_causal(&self) -> bool {
            false
        }

        fn deviation(&self) -> Option<f32> {
            Some(self.radius as f32 / 2.0)
        }
    }

    impl Predicted {
        /// Keys at most `radius` from a position, none where it is no number; the hard ends pass no gradient.
        pub(super) fn span(&self, position: f32) -> Range<usize> {
            let radius = self.radius as f32;
            (position - radius).ceil().max(0.0) as usize
                ..((position + radius).floor() + 1.0) as usize
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::visible_keys, *};

    #[test]
    fn each_row_sees_its_own_range() {
        let pattern = Spans::new([1, 1, 2], 5, vec![1..3, 4..9]).unwrap();
        assert_eq!(visible_keys(&pattern, 5, 7), [1, 2]);
        assert_eq!(visible_keys(&pattern, 6, 7), [4, 5, 6]);
        assert_eq!(visible_keys(&pattern, 4, 7), [0_usize; 0]);
        assert_eq!(visible_keys(&pattern, 7, 7), [0_usize; 0]);
    }

    #[test]
    fn another_number_of_ranges_or_heads_is_refused() {
        let wrong = Spans::new([1, 2, 2], 0, vec![0..1; 3]).unwrap_err();
        assert_eq!(wrong.to_string(), "list of spans has 3 values, expected 4");
        let pattern = Spans::new([1, 2, 2], 0, vec![0..1; 4]).unwrap();
        assert!(pattern.check(&Shape::square(1, 3, 2, 4)).is_err());
        assert_eq!(pattern.check(&Shape::square(1, 2, 2, 4)), Ok(()));
    }

    #[cfg(feature = "settings")]
    #[test]
    fn keys_at_most_radius_away_are_seen() {
        let pattern = settings::Predicted { radius: 3 };
        assert_eq!(super::super::role::PatternSettings::deviation(&pattern), Some(1.5));
        assert_eq!(pattern.span(7.0), 4..11);
        assert_eq!(pattern.span(7.5), 5..11);
        assert_eq!(pattern.span(0.25), 0..4);
        assert!(pattern.span(f32::NAN).is_empty());
    }
}
