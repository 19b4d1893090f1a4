//! Batches of pieces of music: each epoch every piece once; longer ones are cropped at the start of a step, and in
//! training moved to another key or tempo where the source says so.

use whatwhere_random::Random;

use super::{BatchSettings, Row, masked::hide};
use crate::{
    corpus::{Content, Corpus, Pieces, Split},
    settings::Objective,
};

#[derive(Clone, Debug)]
pub(crate) struct PieceRows {
    split: Split,
    length: usize,
    seed: u64,
}

impl PieceRows {
    pub(super) fn new(split: Split, settings: &BatchSettings) -> Self {
        Self { split, length: settings.length, seed: settings.seed }
    }

    pub(super) fn pieces(&self, corpus: &Corpus) -> usize {
        self.all(corpus).len()
    }

    pub(super) fn rows(&self, corpus: &Corpus, step: u64, rows: usize) -> Vec<Row> {
        let pieces = self.all(corpus);
        let stride = of(corpus).map_or(1, |pieces| pieces.stride);
        let augment = of(corpus).and_then(|pieces| pieces.augment.as_ref());
        let augment = augment.filter(|_| self.split == Split::Train);
        let per_epoch = pieces.len().div_ceil(rows) as u64;
        let (epoch, batch) = (step / per_epoch, (step % per_epoch) as usize);
        let mut order: Vec<usize> = (0..pieces.len()).collect();
        Random::new(&[self.seed, epoch]).shuffle(&mut order);
        let chosen = order.into_iter().skip(batch * rows).take(rows);
        chosen
            .map(|index| {
                let piece = &pieces[index];
                let mut random = Random::new(&[self.seed, epoch, index as u64]);
                let spare = piece.len().saturating_sub(self.span(corpus));
                let start = random.below(spare / stride + 1) * stride;
                match augment {
                    None => self.row(corpus, &piece[start..], &mut random),
                    Some(augment) => {
                        let piece = augment.apply(&piece[start..], self.span(corpus), &mut random);
                        self.row(corpus, &piece, &mut random)
                    }
                }
            })
            .collect()
    }

    /// Another tempo makes pieces longer.
    pub(super) fn longest(&self, corpus: &Corpus) -> usize {
        let is_fixed = of(corpus).is_some_and(|pieces| pieces.augment.is_none());
        match self.all(corpus).iter().map(Vec::len).max() {
            Some(longest) if is_fixed => longest.min(self.length),
            _ => self.length,
        }
    }

    pub(super) fn windows(&self, corpus: &Corpus) -> usize {
        self.all(corpus).iter().map(|piece| self.windows_of(corpus, piece)).sum()
    }

    /// A window of evaluation: pieces one after another, each in windows that do not overlap.
    pub(super) fn window(&self, corpus: &Corpus, mut index: usize) -> Row {
        for piece in self.all(corpus) {
            let windows = self.windows_of(corpus, piece);
            if index < windows {
                let mut random = Random::new(&[piece.len() as u64, index as u64]);
                return self.row(corpus, &piece[index * self.length..], &mut random);
            }
            index -= windows;
        }
        Row::default()
    }

    fn windows_of(&self, corpus: &Corpus, piece: &[u32]) -> usize {
        let ahead = self.span(corpus) - self.length;
        piece.len().saturating_sub(ahead).div_ceil(self.length)
    }

    /// Tokens of a crop, with the last target.
    fn span(&self, corpus: &Corpus) -> usize {
        self.length + usize::from(corpus.objective().looks_ahead())
    }

    fn row(&self, corpus: &Corpus, piece: &[u32], random: &mut Random) -> Row {
        let crop = piece[..piece.len().min(self.span(corpus))].to_vec();
        match corpus.objective() {
            Objective::Masked(masked) => hide(crop, masked, corpus.tokenizer(), random),
            Objective::Prefix(prefix) => Row::after_part(crop, prefix, random),
            Objective::NextToken(_) | Objective::Translate(_) | Objective::Classify(_) => {
                Row::next(crop)
            }
        }
    }

    fn all<'a>(&self, corpus: &'a Corpus) -> &'a [Vec<u32>] {
        let pieces = of(corpus).and_then(|pieces| pieces.splits.get(&self.split));
        pieces.map_or(&[], Vec::as_slice)
    }
}

/// The pieces of a corpus that has some.
fn of(corpus: &Corpus) -> Option<&Pieces> {
    match corpus.content() {
        Content::Pieces(pieces) => Some(pieces),
        _ => None,
    }
}
