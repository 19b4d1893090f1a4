//! Documents: queries see the keys of their own document, `document(key) = document(query)`.
//! Krell et al. 2021, <https://arxiv.org/abs/2107.02027>. For several short texts packed into one
//! sequence; `And` with `Causal` for language models.

use std::{iter::once, ops::Range};

use super::{Coverage, Pair, Pattern, Tile, per_batch::PerBatch, ranges};
use crate::{Error, attention::Shape};

/// A sequence cut into documents that do not see each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Documents {
    starts: PerBatch<Vec<usize>>,
}

impl Documents {
    /// The positions where documents start, ascending, one list for all sequences or one for each; a
    /// sequence beyond several lists sees nothing.
    ///
    /// The last document has no end, and a start at 0 may be left out. flash-attn's `cu_seqlens` can be
    /// given as it is: its last entry starts a document of padding. Refuses an empty list of lists and
    /// starts out of order.
    pub fn new(starts: Vec<Vec<usize>>) -> Result<Self, Error> {
        let disorder = starts.iter().flat_map(|list| list.windows(2)).find(|two| two[0] > two[1]);
        match disorder {
            Some(two) => Err(Error::Range {
                what: "document start",
                found: two[1].to_string(),
                allowed: "ascending order",
            }),
            None => Ok(Self { starts: PerBatch::new("list of document starts", starts)? }),
        }
    }

    /// The positions of the query's document.
    fn visible(&self, batch: usize, query: usize) -> Range<usize> {
        let Some(starts) = self.starts.get(batch) else { return 0..0 };
        let next = starts.partition_point(|&start| start <= query);
        let start = if next == 0 { 0 } else { starts[next - 1] };
        start..starts.get(next).copied().unwrap_or(usize::MAX)
    }
}

impl Pattern for Documents {
    fn sees(&self, pair: Pair) -> bool {
        self.visible(pair.batch, pair.query).contains(&pair.key)
    }
    fn coverage(&self, tile: &Tile) -> Coverage {
        let visible = |query: usize| self.visible(tile.batch, query);
        ranges::coverage(tile, visible(tile.queries.start), visible(tile.last_query()))
    }
    fn hide(&self, first: Pair, scores: &mut [f32]) {
        ranges::keep(first.key, scores, once(self.visible(first.batch, first.query)));
    }
    fn check(&self, shape: &Shape) -> Result<(), Error> {
        self.starts.check(shape)
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

    /// Document: a query sees the keys of its own document.
    /// Krell et al. 2021, <https://arxiv.org/abs/2107.02027>. For texts packed into one sequence; the call says where they start.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    pub struct Document {}

    impl PatternSettings for Document {
        fn build(&self, context: &PatternContext) -> Result<Box<dyn super::Pattern>, Error> {
            let starts = context.documents.ok_or_else(|| {
                let reason = "the call must say where documents start (`Input::documents`)";
                Error::setting("pattern", "document", reason)
            })?;
            Ok(Box::new(super::Documents::new(starts.to_vec())?))
        }

        fn is_causal(&self) -> bool {
            false
        }

        fn needs_documents(&self) -> bool {
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::visible_keys, *};

    #[test]
    fn a_query_sees_its_document_and_no_other() {
        let pattern = Documents::new(vec![vec![0, 3, 3, 5]]).unwrap();
        assert_eq!(visible_keys(&pattern, 2, 8), [0, 1, 2]);
        assert_eq!(visible_keys(&pattern, 3, 8), [3, 4]);
        assert_eq!(visible_keys(&pattern, 7, 8), [5, 6, 7]);
    }

    #[test]
    fn a_start_at_zero_may_be_left_out() {
        let pattern = Documents::new(vec![vec![3]]).unwrap();
        assert_eq!(visible_keys(&pattern, 1, 6), [0, 1, 2]);
        assert_eq!(visible_keys(&pattern, 4, 6), [3, 4, 5]);
    }

    #[test]
    fn unordered_starts_and_empty_lists_are_refused() {
        let unordered = Documents::new(vec![vec![0, 2], vec![0, 5, 4]]);
        assert_eq!(
            unordered.unwrap_err().to_string(),
            "document start = 4 is outside ascending order"
        );
        assert!(matches!(Documents::new(vec![]), Err(Error::Zero { .. })));
    }
}
