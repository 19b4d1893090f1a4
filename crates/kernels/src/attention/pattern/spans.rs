//! Spans: each query of each head sees a range of keys of its own, given as data.
//! The window of Luong's local-p, Luong et al. 2015, <https://arxiv.org/abs/1508.04025>, around the place that a query
//! predicts. For patterns that depend on content; cost is the sum of the ranges, where those of neighbours lie together.

use std::{iter::once, ops::Range};

use super::{Coverage, Pair, Pattern, Tile, ranges};
use crate::{Error, attention::Shape, error::expect_len};

/// A range of key places for each row of a call.
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

#[cfg(test)]
mod tests {
    use super::{super::tests::visible_keys, *};

    #[test]
    fn each_row_sees_its_own_range() {
        let pattern = Spans::new([1, 1, 2], 5, vec![1..3, 4..9]).unwrap();
        assert_eq!(visible_keys(&pattern, 5, 7), [1, 2]);
        assert_eq!(visible_keys(&pattern, 6, 7), [4, 5, 6]);
        assert_eq!(visible_keys(&pattern, 4, 7), []);
        assert_eq!(visible_keys(&pattern, 7, 7), []);
    }

    #[test]
    fn another_number_of_ranges_or_heads_is_refused() {
        let wrong = Spans::new([1, 2, 2], 0, vec![0..1; 3]).unwrap_err();
        assert_eq!(wrong.to_string(), "list of spans has 3 values, expected 4");
        let pattern = Spans::new([1, 2, 2], 0, vec![0..1; 4]).unwrap();
        assert!(pattern.check(&Shape::square(1, 3, 2, 4)).is_err());
        assert_eq!(pattern.check(&Shape::square(1, 2, 2, 4)), Ok(()));
    }
}
