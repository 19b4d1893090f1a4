//! The keys that the queries of one tile see, gathered into columns: which, in which order, and who sees each.

use std::ops::Range;

use crate::{
    attention::pattern::{Coverage, Pattern, Tile},
    tile::{Outline, PAD, STRIP, STRIPS, TILE},
};

/// The gathered keys of a tile of queries. Used again for one tile after the other.
pub(crate) struct Layout {
    /// By key: the strips of queries that see it, one bit each.
    strips: Vec<u8>,
    /// By key: its column.
    column: Vec<u32>,
    /// The keys that are seen, in the order of their columns, and as they were found.
    keys: Vec<u32>,
    found: Vec<u32>,
    /// What single queries see, for strips that do not see all alike.
    runs: Vec<(u8, Range<u32>)>,
    /// By tile of keys: who sees which.
    shown: Vec<Shown>,
    rows: usize,
}

/// Who sees which columns of a tile: one bit for each column of a row.
pub(crate) type Shown = [u128; TILE];

impl Layout {
    /// Room for the keys of a head.
    pub(crate) fn new(keys: usize) -> Self {
        Self {
            strips: vec![0; keys],
            column: vec![0; keys],
            keys: Vec::new(),
            found: Vec::new(),
            runs: Vec::new(),
            shown: Vec::new(),
            rows: 0,
        }
    }

    /// Gathers the keys that some queries, by index, see of `whole`.
    pub(crate) fn lay(&mut self, pattern: &dyn Pattern, whole: &Tile, queries: &[u32]) {
        for key in self.found.drain(..) {
            self.strips[key as usize] = 0;
        }
        self.runs.clear();
        self.rows = queries.len();
        let mut mixed = 0u8;
        for (strip, members) in queries.chunks(STRIP).enumerate() {
            if !self.see_alike(pattern, whole, strip, members) {
                mixed |= 1 << strip;
                for (i, query) in members.iter().enumerate() {
                    self.see(pattern, whole, strip, (strip * STRIP + i) as u8, *query as usize);
                }
            }
        }
        self.sort();
        self.show(mixed);
    }

    /// What a strip of neighbors sees, if every query of it sees the same.
    fn see_alike(
        &mut self,
        pattern: &dyn Pattern,
        whole: &Tile,
        strip: usize,
        members: &[u32],
    ) -> bool {
        let (first, last) = (members[0] as usize, members[members.len() - 1] as usize);
        if last - first + 1 != members.len() {
            return false;
        }
        let start = whole.queries.start;
        let tile = Tile { queries: start + first..start + last + 1, ..whole.clone() };
        let before = self.runs.len();
        let mut alike = true;
        pattern.shown(&tile, &mut |keys, coverage| {
            alike &= coverage == Coverage::Full;
            if alike {
                self.runs.push((0, indices(whole, keys)));
            }
        });
        for (_, keys) in self.runs.split_off(before) {
            if alike {
                mark(&mut self.strips, &mut self.found, strip, keys);
            }
        }
        alike
    }

    /// What one query sees.
    fn see(&mut self, pattern: &dyn Pattern, whole: &Tile, strip: usize, row: u8, query: usize) {
        let position = whole.queries.start + query;
        let tile = Tile { queries: position..position + 1, ..whole.clone() };
        pattern.shown(&tile, &mut |keys, _| {
            let keys = indices(whole, keys);
            mark(&mut self.strips, &mut self.found, strip, keys.clone());
            self.runs.push((row, keys));
        });
    }

    /// Orders the keys by the first and the last strip that see them, so that what a strip sees lies together.
    fn sort(&mut self) {
        const CLASSES: usize = STRIPS * STRIPS;
        let class = |strips: u8| {
            let (first, last) = (strips.trailing_zeros(), 7 - strips.leading_zeros());
            first as usize * STRIPS + last as usize
        };
        let mut starts = [0; CLASSES + 1];
        for key in &self.found {
            starts[class(self.strips[*key as usize]) + 1] += 1;
        }
        for i in 0..CLASSES {
            starts[i + 1] += starts[i];
        }
        self.keys.resize(self.found.len(), 0);
        for key in &self.found {
            let next = &mut starts[class(self.strips[*key as usize])];
            self.keys[*next] = *key;
            self.column[*key as usize] = *next as u32;
            *next += 1;
        }
    }

    /// Notes who sees which column; `mixed` are the strips whose queries do not see all alike.
    fn show(&mut self, mixed: u8) {
        self.shown.clear();
        for keys in self.keys.chunks(TILE) {
            let mut of_strips = [0u128; STRIPS];
            let mut column = 0;
            let strips = |key: &u32| self.strips[*key as usize] & !mixed;
            for alike in keys.chunk_by(|a, b| strips(a) == strips(b)) {
                // At most 96 of the 128 bits.
                let bits = ((1 << alike.len()) - 1) << column;
                column += alike.len();
                for (strip, shown) in of_strips.iter_mut().enumerate() {
                    if strips(&alike[0]) >> strip & 1 == 1 {
                        *shown |= bits;
                    }
                }
            }
            self.shown.push(std::array::from_fn(|row| of_strips[row / STRIP]));
        }
        for (row, keys) in &self.runs {
            for key in keys.clone() {
                let column = self.column[key as usize] as usize;
                self.shown[column / TILE][usize::from(*row)] |= 1 << (column % TILE);
            }
        }
    }

    /// The tiles of keys, by index, with who sees them and their outlines.
    pub(crate) fn tiles(&self) -> impl Iterator<Item = (&[u32], &Shown, Outline)> {
        let tiles = self.keys.chunks(TILE).zip(&self.shown);
        tiles.map(|(keys, shown)| (keys, shown, self.outline(keys.len(), shown)))
    }

    fn outline(&self, cols: usize, shown: &Shown) -> Outline {
        let strips = std::array::from_fn(|strip| {
            let rows = &shown[strip * STRIP..(strip + 1) * STRIP];
            let any = rows.iter().fold(0, |any, row| any | row);
            if any == 0 {
                return (0, 0);
            }
            let first = any.trailing_zeros() as usize / PAD * PAD;
            (first, (128 - any.leading_zeros() as usize).next_multiple_of(PAD))
        });
        Outline::gathered(self.rows, cols, strips)
    }

    /// How many pairs are computed, padding included.
    pub(crate) fn pairs(&self) -> u64 {
        let regions = self.tiles().flat_map(|(_, _, outline)| outline.regions());
        regions.map(|r| r.rows.len() as u64 * r.cols.len() as u64).sum()
    }
}

/// From positions to indices.
fn indices(whole: &Tile, keys: Range<usize>) -> Range<u32> {
    (keys.start - whole.keys.start) as u32..(keys.end - whole.keys.start) as u32
}

fn mark(strips: &mut [u8], found: &mut Vec<u32>, strip: usize, keys: Range<u32>) {
    for key in keys {
        let strips = &mut strips[key as usize];
        if *strips == 0 {
            found.push(key);
        }
        *strips |= 1 << strip;
    }
}
