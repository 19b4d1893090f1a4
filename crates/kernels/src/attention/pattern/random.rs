//! Random: every block of queries sees `count` blocks of keys, drawn once, uniformly and without repeats.
//! BigBird, Zaheer et al. 2020, <https://arxiv.org/abs/2007.14062>. Joined by `Or` to a window and global
//! positions. The paper's draws avoid those; these may fall on them.

use std::ops::Range;

use super::{Coverage, Pair, Part, Pattern, Tile, ranges};
use crate::{Error, attention::Shape, error::expect_range};

/// What [`Random`] draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Query heads; each has its own draws.
    pub heads: usize,
    /// Positions with queries, rounded up to whole blocks.
    pub queries: usize,
    /// Positions with keys, rounded up to whole blocks.
    pub keys: usize,
    /// Positions in a block, of queries as of keys; BigBird takes 64.
    pub block: usize,
    /// Blocks of keys drawn for each block of queries; BigBird takes 3.
    pub count: usize,
    /// The draws of a block depend on the seed, the head and its index, on `count` and the number of key blocks.
    pub seed: u64,
}

/// Random blocks of keys for each head and block of queries, in both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    heads: usize,
    query_blocks: usize,
    block: usize,
    count: usize,
    /// `[heads, query_blocks, count]`, each row ascending.
    drawn: Vec<u32>,
}

impl Random {
    /// Draws the blocks. Heads and positions beyond those of `draw` see nothing. Refuses blocks of 0
    /// positions and counts above the number of key blocks.
    pub fn new(draw: Draw) -> Result<Self, Error> {
        let Draw { heads, queries, keys, block, count, seed } = draw;
        if block == 0 {
            return Err(Error::Zero { what: "block" });
        }
        let (query_blocks, key_blocks) = (queries.div_ceil(block), keys.div_ceil(block));
        expect_range("keys", keys, keys <= u32::MAX as usize, "positions below 2³²")?;
        expect_range("count", count, count <= key_blocks, "the number of key blocks")?;
        let len = heads.checked_mul(query_blocks).and_then(|rows| rows.checked_mul(count));
        let mut drawn = Vec::new();
        drawn.try_reserve_exact(len.ok_or(Error::TooLarge)?).map_err(|_| Error::TooLarge)?;
        if count > 0 {
            for head in 0..heads as u64 {
                for query_block in 0..query_blocks as u64 {
                    let draws = whatwhere_random::Random::new(&[seed, head, query_block]);
                    drawn.extend(distinct(count as u32, key_blocks as u32, draws));
                }
            }
        }
        Ok(Self { heads, query_blocks, block, count, drawn })
    }

    /// The blocks of keys that a block of queries sees, ascending.
    fn row(&self, head: usize, query_block: usize) -> &[u32] {
        if head >= self.heads || query_block >= self.query_blocks {
            return &[];
        }
        let row = head * self.query_blocks + query_block;
        &self.drawn[row * self.count..(row + 1) * self.count]
    }

    /// The indices of the blocks that the positions touch.
    fn blocks(&self, positions: &Range<usize>) -> Range<usize> {
        positions.start / self.block..(positions.end - 1) / self.block + 1
    }
}

impl Pattern for Random {
    fn sees(&self, pair: Pair) -> bool {
        let key_block = pair.key / self.block;
        let row = self.row(pair.head, pair.query / self.block);
        row.binary_search_by(|&drawn| (drawn as usize).cmp(&key_block)).is_ok()
    }

    fn coverage(&self, tile: &Tile) -> Coverage {
        let keys = self.blocks(&tile.keys);
        let queries = self.blocks(&tile.queries);
        let all = queries.len() * keys.len();
        let visible = queries.map(|query_block| {
            let row = self.row(tile.head, query_block);
            let below = |end: usize| row.partition_point(|&drawn| (drawn as usize) < end);
            below(keys.end) - below(keys.start)
        });
        Coverage::of(visible.sum(), all)
    }

    fn hide(&self, first: Pair, scores: &mut [f32]) {
        let row = self.row(first.head, first.query / self.block);
        let passed = row.partition_point(|&drawn| (drawn as usize) < first.key / self.block);
        let visible = row[passed..].iter().map(|&drawn| {
            let start = drawn as usize * self.block;
            start..start + self.block
        });
        ranges::keep(first.key, scores, visible);
    }

    fn parts(&self) -> Vec<Part<'_>> {
        vec![Part::in_blocks(self.block, self)]
    }

    fn shown(&self, tile: &Tile, found: &mut dyn FnMut(Range<usize>, Coverage)) {
        let (queries, keys) = (self.blocks(&tile.queries), &tile.keys);
        let whole = if queries.len() == 1 { Coverage::Full } else { Coverage::Partial };
        for drawn in queries.flat_map(|block| self.row(tile.head, block)) {
            let start = *drawn as usize * self.block;
            let seen = start.max(keys.start)..(start + self.block).min(keys.end);
            if !seen.is_empty() {
                found(seen, whole);
            }
        }
    }

    fn check(&self, shape: &Shape) -> Result<(), Error> {
        let enough = shape.heads <= self.heads;
        expect_range("heads", shape.heads, enough, "the heads that random blocks were drawn for")
    }
}

/// `count` of the numbers below `end`, each set equally likely, in ascending order (Floyd's algorithm).
fn distinct(count: u32, end: u32, mut draws: whatwhere_random::Random) -> Vec<u32> {
    let mut drawn = Vec::with_capacity(count as usize);
    for greatest in end - count..end {
        let next = draws.below(greatest as usize + 1) as u32;
        match drawn.binary_search(&next) {
            Ok(_) => drawn.push(greatest),
            Err(index) => drawn.insert(index, next),
        }
    }
    drawn
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

    /// Random: every block of queries sees `count` blocks of keys, drawn once from the seed.
    /// BigBird, Zaheer et al. 2020, <https://arxiv.org/abs/2007.14062>. Joined by `or` to a window and global positions.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    pub struct Random {
        /// Positions in a block; default 64.
        pub block: usize,
        /// Blocks drawn for each block of queries, or all if there are fewer; default 3.
        pub count: usize,
        /// Positions the draws are made among, whatever the length of a call, so that decoding sees what training saw;
        /// default 4096. Positions beyond see nothing of it.
        pub length: usize,
        /// Selects the draws; default 0.
        pub seed: u64,
    }

    impl Default for Random {
        fn default() -> Self {
            Self { block: 64, count: 3, length: 4096, seed: 0 }
        }
    }

    impl PatternSettings for Random {
        fn check(&self) -> Result<(), Error> {
            if self.block == 0 {
                return Err(Error::setting(
                    "pattern.block",
                    0,
                    "a block has at least one position",
                ));
            }
            if self.count == 0 {
                return Err(Error::setting("pattern.count", 0, "draw at least one block"));
            }
            Ok(())
        }

        fn build(&self, context: &PatternContext) -> Result<Box<dyn super::Pattern>, Error> {
            let blocks = self.length.div_ceil(self.block.max(1));
            Ok(Box::new(super::Random::new(super::Draw {
                heads: context.heads,
                queries: self.length,
                keys: self.length,
                block: self.block,
                count: self.count.min(blocks),
                seed: self.seed,
            })?))
        }

        fn is_causal(&self) -> bool {
            false
        }

        fn differs_by_head(&self) -> bool {
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::visible_keys, *};

    const DRAW: Draw = Draw { heads: 2, queries: 4000, keys: 40, block: 4, count: 3, seed: 5 };

    #[test]
    fn every_query_sees_as_many_whole_blocks_as_drawn() {
        let pattern = Random::new(DRAW).unwrap();
        for query in 0..400 {
            let keys = visible_keys(&pattern, query, 40);
            assert_eq!(keys.len(), DRAW.count * DRAW.block);
            assert!(keys.chunks(4).all(|block| block[0] % 4 == 0 && block[3] == block[0] + 3));
        }
    }

    #[test]
    fn every_block_and_every_pair_of_blocks_is_equally_likely() {
        let pattern = Random::new(DRAW).unwrap();
        let rows: Vec<&[u32]> = pattern.drawn.chunks(3).collect();
        let share = |blocks: &[u32]| {
            let hits = rows.iter().filter(|row| blocks.iter().all(|b| row.contains(b))).count();
            hits as f64 / rows.len() as f64
        };
        for (blocks, chance) in (0..10)
            .map(|a| (vec![a], 3.0 / 10.0))
            .chain((0..9).map(|a| (vec![a, a + 1], 3.0 / 10.0 * 2.0 / 9.0)))
        {
            // Five standard deviations of a binomial share.
            let bound = 5.0 * (chance * (1.0 - chance) / rows.len() as f64).sqrt();
            assert!((share(&blocks) - chance).abs() < bound, "{blocks:?}: {}", share(&blocks));
        }
    }

    #[test]
    fn seed_head_and_query_block_each_change_the_draws() {
        let first = Random::new(DRAW).unwrap();
        let other = Random::new(Draw { seed: 6, ..DRAW }).unwrap();
        let head = |pattern: &Random, head| {
            (0..100).flat_map(|block| pattern.row(head, block).to_vec()).collect::<Vec<_>>()
        };
        assert_ne!(head(&first, 0), head(&other, 0));
        assert_ne!(head(&first, 0), head(&first, 1));
        assert!((1..100).any(|block| first.row(0, block) != first.row(0, 0)));
    }

    #[test]
    fn more_heads_and_queries_leave_the_draws_unchanged() {
        let small = Random::new(Draw { heads: 1, queries: 30, ..DRAW }).unwrap();
        let large = Random::new(DRAW).unwrap();
        assert!((0..8).all(|block| small.row(0, block) == large.row(0, block)));
        assert_eq!(small.row(0, 7).len(), DRAW.count);
    }

    #[test]
    fn the_draws_of_a_seed_never_change() {
        // Trained models depend on them; computed apart from this code.
        let pattern = Random::new(DRAW).unwrap();
        let rows = [pattern.row(0, 0), pattern.row(1, 0), pattern.row(1, 999)];
        assert_eq!(rows, [[4, 6, 7], [2, 7, 9], [2, 4, 5]]);
    }

    #[test]
    fn settings_without_meaning_are_refused() {
        let refusal = |draw| Random::new(draw).unwrap_err();
        assert_eq!(refusal(Draw { block: 0, ..DRAW }), Error::Zero { what: "block" });
        assert!(matches!(refusal(Draw { count: 11, ..DRAW }), Error::Range { what: "count", .. }));
        assert_eq!(refusal(Draw { heads: usize::MAX, ..DRAW }), Error::TooLarge);
    }
}
