//! Global: a few positions that see all and are seen by all, `query ∈ G or key ∈ G`.
//! Longformer, Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150>, and BigBird, Zaheer et al. 2020,
//! <https://arxiv.org/abs/2007.14062>. Joined to a window or random blocks by `Or`.

use std::{iter::once, ops::Range};

use super::{Coverage, Pair, Part, Pattern, Tile, per_batch::PerBatch, ranges};
use crate::{Error, attention::Shape};

/// Positions that see all and are seen by all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Positions below this are global.
    first: usize,
    /// Further global positions, ascending, none below `first`.
    others: PerBatch<Vec<usize>>,
}

impl Global {
    /// The first `count` positions.
    pub fn first(count: usize) -> Self {
        Self { first: count, others: PerBatch::one(Vec::new()) }
    }

    /// The positions given, in any order.
    pub fn at(positions: Vec<usize>) -> Self {
        Self { first: 0, others: PerBatch::one(sorted(positions, 0)) }
    }

    /// The first `count` positions and those listed, in any order, one list for all sequences or one for each; a sequence
    /// beyond several lists has the first ones only.
    pub fn each(count: usize, positions: Vec<Vec<usize>>) -> Result<Self, Error> {
        let lists = positions.into_iter().map(|list| sorted(list, count)).collect();
        Ok(Self { first: count, others: PerBatch::new("list of global positions", lists)? })
    }

    fn others(&self, batch: usize) -> &[usize] {
        self.others.get(batch).map_or(&[], Vec::as_slice)
    }

    fn contains(&self, batch: usize, position: usize) -> bool {
        position < self.first || self.others(batch).binary_search(&position).is_ok()
    }

    /// How many of the positions are global.
    fn count(&self, batch: usize, positions: &Range<usize>) -> usize {
        let others = self.others(batch);
        let below = |end: usize| end.min(self.first) + others.partition_point(|&p| p < end);
        below(positions.end) - below(positions.start)
    }
}

/// Ascending, each once, none below `first`.
fn sorted(mut positions: Vec<usize>, first: usize) -> Vec<usize> {
    positions.retain(|position| *position >= first);
    positions.sort_unstable();
    positions.dedup();
    positions
}

impl Pattern for Global {
    fn sees(&self, pair: Pair) -> bool {
        self.contains(pair.batch, pair.query) || self.contains(pair.batch, pair.key)
    }

    fn coverage(&self, tile: &Tile) -> Coverage {
        let count = |positions| self.count(tile.batch, positions);
        let (queries, keys) = (count(&tile.queries), count(&tile.keys));
        if queries == tile.queries.len() || keys == tile.keys.len() {
            Coverage::Full
        } else if queries + keys == 0 {
            Coverage::Empty
        } else {
            Coverage::Partial
        }
    }

    fn hide(&self, first: Pair, scores: &mut [f32]) {
        if self.contains(first.batch, first.query) {
            return;
        }
        let others = self.others(first.batch);
        let passed = others.partition_point(|&position| position < first.key);
        let others = others[passed..].iter().map(|&position| position..position + 1);
        ranges::keep(first.key, scores, once(0..self.first).chain(others));
    }

    fn parts(&self) -> Vec<Part<'_>> {
        vec![Part::gathered(1, self)]
    }

    fn shown(&self, tile: &Tile, found: &mut dyn FnMut(Range<usize>, Coverage)) {
        let Tile { batch, queries, keys, .. } = tile;
        let globals = self.count(*batch, queries);
        if globals > 0 {
            let all = globals == queries.len();
            return found(keys.clone(), if all { Coverage::Full } else { Coverage::Partial });
        }
        let first = keys.start..self.first.min(keys.end);
        if !first.is_empty() {
            found(first, Coverage::Full);
        }
        let others = self.others(*batch);
        let passed = others.partition_point(|&position| position < keys.start);
        for &key in others[passed..].iter().take_while(|key| **key < keys.end) {
            found(key..key + 1, Coverage::Full);
        }
    }

    fn check(&self, shape: &Shape) -> Result<(), Error> {
        self.others.check(shape)
    }
}

/// As it is chosen.
#[cfg(feature = "settings")]
pub(super) mod settings {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use whatwhere_settings::{Numbers, Refuses};

    use crate::{
        Error,
        attention::pattern::{
            role::{PatternContext, PatternSettings},
            settings::Pattern,
        },
    };

    /// Global: the first `positions`, or those listed, and `tokens` of a kind see everything and are seen by all.
    /// Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150>. Joined by `or` to a window; for a decoder, by `and` to `causal`.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    pub struct Global {
        /// How many, or a list of the positions themselves; default 1, or none where there are `tokens`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub positions: Option<Numbers>,
        /// Tokens that are global wherever they stand, such as separators or ends of sentences, by their text or their id;
        /// default none.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub tokens: Vec<Token>,
    }

    /// A token by its id or its text.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(untagged, expecting = "expected the text of a token or its id")]
    pub enum Token {
        /// Its number in the vocabulary.
        Id(u32),
        /// Its text, or its name if it is a special one.
        Text(String),
    }

    impl Token {
        /// Its id, unless it is named by its text.
        pub fn id(&self) -> Option<u32> {
            match self {
                Self::Id(id) => Some(*id),
                Self::Text(_) => None,
            }
        }
    }

    impl Global {
        /// How many of the first positions are global, and which others, whatever token stands there.
        pub fn positions(&self) -> (usize, &[usize]) {
            match &self.positions {
                None if self.tokens.is_empty() => (1, &[]),
                None => (0, &[]),
                Some(Numbers::One(count)) => (*count, &[]),
                Some(Numbers::Many(positions)) => (0, positions),
            }
        }

        /// Where tokens of the kind stand in a sequence that starts at `first`.
        fn of_kind(&self, ids: &[u32], first: usize) -> Result<Vec<usize>, Error> {
            let kind = self.tokens.iter().map(|token| match token {
                Token::Id(id) => Ok(*id),
                Token::Text(text) => {
                    let reason = "a call knows tokens by their ids, and nobody has looked this up in a tokenizer";
                    Err(Error::setting("pattern.tokens", format!("{text:?}"), reason))
                }
            });
            let kind = kind.collect::<Result<Vec<u32>, _>>()?;
            let all = (first..).zip(ids);
            Ok(all.filter(|(_, id)| kind.contains(id)).map(|(position, _)| position).collect())
        }
    }

    impl PatternSettings for Global {
        fn check(&self) -> Result<(), Error> {
            let none = match &self.positions {
                Some(Numbers::One(0)) => "0",
                Some(Numbers::Many(list)) if list.is_empty() => "[]",
                _ => return Ok(()),
            };
            if self.tokens.is_empty() {
                let reason = "at least one position is global";
                return Err(Error::setting("pattern.positions", none, reason));
            }
            Ok(())
        }

        fn build(&self, context: &PatternContext) -> Result<Box<dyn super::Pattern>, Error> {
            let (first, listed) = self.positions();
            if self.tokens.is_empty() {
                return Ok(Box::new(super::Global::each(first, vec![listed.to_vec()])?));
            }
            let (tokens, start) = context.tokens.ok_or_else(|| {
                let reason = "the call must say which tokens it has (`Input::tokens`); without a model, list their positions";
                Error::setting("pattern.tokens", self.tokens.len(), reason)
            })?;
            let of_each = |ids: &Vec<u32>| Ok([&self.of_kind(ids, start)?, listed].concat());
            let lists = tokens.iter().map(of_each).collect::<Result<_, Error>>()?;
            Ok(Box::new(super::Global::each(first, lists)?))
        }

        fn is_causal(&self) -> bool {
            false
        }

        fn tokens(&self) -> Vec<Token> {
            self.tokens.clone()
        }

        fn with_tokens(
            &self,
            id_of: &dyn Fn(&str) -> Result<u32, String>,
        ) -> Result<Option<Pattern>, Error> {
            let id = |token: &Token| match token {
                Token::Id(id) => Ok(Token::Id(*id)),
                Token::Text(text) => match id_of(text) {
                    Ok(id) => Ok(Token::Id(id)),
                    Err(reason) => {
                        Err(Error::setting("pattern.tokens", format!("{text:?}"), reason))
                    }
                },
            };
            let tokens = self.tokens.iter().map(id).collect::<Result<_, _>>()?;
            Ok(Some(Self { tokens, ..self.clone() }.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::visible_keys, *};

    #[test]
    fn a_global_query_sees_all_and_every_query_sees_the_global_keys() {
        for pattern in [Global::first(2), Global::at(vec![1, 0, 1])] {
            assert_eq!(visible_keys(&pattern, 1, 5), [0, 1, 2, 3, 4]);
            assert_eq!(visible_keys(&pattern, 4, 5), [0, 1]);
        }
    }

    #[test]
    fn each_sequence_may_have_its_own() {
        let pattern = Global::each(1, vec![vec![6, 0, 3], vec![]]).unwrap();
        let pair = |batch, query, key| Pair { batch, head: 0, query, key };
        let sees = |batch, key| pattern.sees(pair(batch, 5, key));
        let seen = |batch| (0..8).filter(|key| sees(batch, *key)).collect::<Vec<_>>();
        assert_eq!(seen(0), [0, 3, 6]);
        assert_eq!(seen(1), [0]);
        assert_eq!(seen(2), [0]);
    }

    #[cfg(feature = "settings")]
    #[test]
    fn tokens_of_a_kind_are_global_where_they_stand() {
        use crate::attention::pattern::settings::{Pattern, PatternContext};
        let pattern = |text: &str| toml_like(text);
        let tokens = [vec![7, 2, 9, 2], vec![2, 7, 7, 9]];
        let context = PatternContext {
            heads: 1,
            documents: None,
            tokens: Some((&tokens, 10)),
            first_query: 10,
            centers: None,
        };
        let chosen = pattern(r#"{ "kind": "global", "tokens": [2, "."] }"#);
        assert!(chosen.needs_tokens());
        let error = chosen.build(&context).err().unwrap().to_string();
        assert!(error.starts_with("pattern.tokens = \".\": a call knows tokens"), "{error}");
        let known = |text: &str| (text == ".").then_some(9).ok_or("is no token".to_string());
        let chosen = chosen.with_tokens(&known).unwrap();
        let built = chosen.build(&context).unwrap();
        for (batch, globals) in [(0, vec![11, 12, 13]), (1, vec![10, 13])] {
            for (query, key) in (10..14).flat_map(|query| (10..14).map(move |key| (query, key))) {
                let expected = globals.contains(&query) || globals.contains(&key);
                assert_eq!(built.sees(Pair { batch, head: 0, query, key }), expected);
            }
        }
        let inside =
            pattern(r#"{ "kind": "or", "of": ["window", { "kind": "global", "tokens": ["x"] }] }"#);
        let error = inside.with_tokens(&known).unwrap_err().to_string();
        assert_eq!(error, "pattern.tokens = \"x\": is no token");
        let joined = pattern(
            r#"{ "kind": "and", "of": ["causal", { "kind": "global", "tokens": ["."] }] }"#,
        );
        assert!(joined.with_tokens(&known).unwrap().needs_tokens());

        fn toml_like(text: &str) -> Pattern {
            serde_json::from_str(text).unwrap()
        }
    }

    #[test]
    fn listed_places_need_not_be_the_first() {
        assert_eq!(visible_keys(&Global::at(vec![7, 3]), 5, 9), [3, 7]);
    }
}
