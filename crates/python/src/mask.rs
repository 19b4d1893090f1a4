//! A pattern from a boolean array, `true` where a query may see a key. Its tiles are looked at before they are worked on,
//! so that what a mask hides in one piece costs nothing.

use whatwhere_kernels::{
    Error,
    attention::{
        Shape,
        pattern::{Coverage, Pair, Pattern, Tile},
    },
};

/// A mask over the queries and keys of a call.
pub(crate) struct Mask<'a> {
    pub(crate) values: &'a [bool],
    /// Batch, heads, queries, keys, each 1 or the call's own.
    pub(crate) sizes: [usize; 4],
    pub(crate) first_query: usize,
    pub(crate) first_key: usize,
}

impl Mask<'_> {
    /// The row of a query, of one value if it is the same for all keys; none outside the mask.
    fn row(&self, batch: usize, head: usize, query: usize) -> Option<&[bool]> {
        let [batches, heads, queries, keys] = self.sizes;
        let at = |index: usize, size: usize| {
            if size == 1 { Some(0) } else { (index < size).then_some(index) }
        };
        let query = at(query.checked_sub(self.first_query)?, queries)?;
        let row = (at(batch, batches)? * heads + at(head, heads)?) * queries + query;
        self.values.get(row * keys..(row + 1) * keys)
    }

    fn in_row(&self, row: Option<&[bool]>, key: usize) -> bool {
        let Some(row) = row else { return false };
        if self.sizes[3] == 1 {
            return row.first() == Some(&true);
        }
        key.checked_sub(self.first_key).is_some_and(|key| row.get(key) == Some(&true))
    }
}

impl Pattern for Mask<'_> {
    fn sees(&self, pair: Pair) -> bool {
        self.in_row(self.row(pair.batch, pair.head, pair.query), pair.key)
    }

    fn coverage(&self, tile: &Tile) -> Coverage {
        let (mut any, mut all) = (false, true);
        for query in tile.queries.clone() {
            let row = self.row(tile.batch, tile.head, query);
            let span = tile.keys.start.wrapping_sub(self.first_key)
                ..tile.keys.end.wrapping_sub(self.first_key);
            match row.and_then(|row| row.get(span)) {
                Some(row) if self.sizes[3] > 1 => {
                    // Without an early end the compiler looks at many values at a time.
                    any |= row.iter().fold(false, |any, value| any | value);
                    all &= row.iter().fold(true, |all, value| all & value);
                }
                _ => {
                    for key in tile.keys.clone() {
                        let sees = self.in_row(row, key);
                        (any, all) = (any | sees, all & sees);
                    }
                }
            }
            if any && !all {
                return Coverage::Partial;
            }
        }
        if all { Coverage::Full } else { Coverage::Empty }
    }

    fn hide(&self, first: Pair, scores: &mut [f32]) {
        let row = self.row(first.batch, first.head, first.query);
        for (key, score) in (first.key..).zip(scores) {
            if !self.in_row(row, key) {
                *score = f32::NEG_INFINITY;
            }
        }
    }

    fn check(&self, shape: &Shape) -> Result<(), Error> {
        let whole = [shape.batch, shape.heads, shape.queries, shape.keys];
        match self.sizes.iter().zip(whole).find(|(found, whole)| **found != 1 && *found != whole) {
            Some((found, _)) => Err(Error::Range {
                what: "mask size",
                found: found.to_string(),
                allowed: "1 or the call's own size",
            }),
            None => Ok(()),
        }
    }
}
