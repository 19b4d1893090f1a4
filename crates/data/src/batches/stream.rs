//! Crops of a run of tokens: at random for training, one after another for evaluation.

use whatwhere_random::Random;

use super::{BatchSettings, Row, masked::hide};
use crate::{
    Error, Result,
    corpus::{Corpus, Split},
    settings::{Objective, Prefix},
    tokens::Tokens,
};

#[derive(Clone, Debug)]
pub(crate) struct Stream {
    tokens: Tokens,
    length: usize,
    seed: u64,
    is_continuous: bool,
    /// Tokens of a crop beyond its length: the last position's target lies there.
    ahead: usize,
}

impl Stream {
    pub(super) fn new(corpus: &Corpus, split: Split, settings: &BatchSettings) -> Result<Self> {
        let ahead = usize::from(corpus.objective().looks_ahead());
        let tokens = corpus.tokens(split).cloned().unwrap_or_else(|| Vec::new().into());
        let BatchSettings { length, seed, is_continuous, batch } = *settings;
        let stream = Self { tokens, length, seed, is_continuous, ahead };
        let whole = batch.rows(length) * length + ahead;
        if is_continuous && split == Split::Train && stream.tokens.len() < whole {
            let found = format!("{} tokens", stream.tokens.len());
            let expected = format!("at least {whole}, a segment for each row; use fewer rows");
            return Err(Error::Short { split: split.name(), found, expected });
        }
        // Evaluation pads its last window; training crops whole ones.
        let least = if split == Split::Train { settings.length + ahead } else { 1 + ahead };
        if stream.tokens.len() < least {
            let found = format!("{} tokens", stream.tokens.len());
            let expected = match split {
                Split::Train => format!(
                    "at least {least} for length = {}; use more text or a shorter length",
                    settings.length
                ),
                _ => format!("at least {least}; use more text or a larger share"),
            };
            return Err(Error::Short { split: split.name(), found, expected });
        }
        Ok(stream)
    }

    pub(super) fn is_continuous(&self) -> bool {
        self.is_continuous
    }

    /// Segments that a row reads before it begins anew.
    fn segments(&self, rows: usize) -> u64 {
        ((self.tokens.len() - self.ahead) / rows / self.length) as u64
    }

    pub(super) fn begins_anew(&self, step: u64, rows: usize) -> bool {
        !self.is_continuous || step.is_multiple_of(self.segments(rows).max(1))
    }

    pub(super) fn longest(&self) -> usize {
        self.length.min(self.tokens.len() - self.ahead)
    }

    /// Random crops, or the next segment of each row. A split shorter than a crop gives all it has.
    pub(super) fn rows(&self, corpus: &Corpus, step: u64, rows: usize) -> Result<Vec<Row>> {
        (0..rows as u64)
            .map(|row| {
                let mut random = Random::new(&[self.seed, step, row]);
                let span = (self.length + self.ahead).min(self.tokens.len());
                let start = match self.is_continuous {
                    false => random.below(self.tokens.len() - span + 1),
                    true => {
                        let segments = self.segments(rows).max(1);
                        (row * segments + step % segments) as usize * self.length
                    }
                };
                let crop = self.tokens.read(start..start + span)?;
                Ok(self.row(corpus, crop, &mut random))
            })
            .collect()
    }

    /// Number of windows of evaluation.
    pub(super) fn windows(&self) -> usize {
        (self.tokens.len() - self.ahead).div_ceil(self.length)
    }

    /// A window of evaluation; the last may be shorter.
    pub(super) fn window(&self, corpus: &Corpus, index: usize) -> Result<Row> {
        let start = index * self.length;
        let end = (start + self.length + self.ahead).min(self.tokens.len());
        let mut random = Random::new(&[index as u64]);
        Ok(self.row(corpus, self.tokens.read(start..end)?, &mut random))
    }

    fn row(&self, corpus: &Corpus, crop: Vec<u32>, random: &mut Random) -> Row {
        match corpus.objective() {
            Objective::Masked(masked) => hide(crop, masked, corpus.tokenizer(), random),
            Objective::Prefix(prefix) => Row::after_part(crop, prefix, random),
            Objective::NextToken(_) | Objective::Translate(_) | Objective::Classify(_) => {
                Row::next(crop)
            }
        }
    }
}

impl Row {
    /// Every token is predicted from those before it.
    pub(super) fn next(mut tokens: Vec<u32>) -> Self {
        let targets = tokens.get(1..).unwrap_or_default().to_vec();
        tokens.pop();
        Self { weights: vec![1.0; tokens.len()], tokens, targets, ..Self::default() }
    }

    /// Every token after a prefix of so many is predicted from all of that and from those before it.
    pub(super) fn after(tokens: Vec<u32>, prefix: usize) -> Self {
        let mut row = Self::next(tokens);
        // The last token of the prefix predicts the first after it.
        row.weights[..prefix.saturating_sub(1)].fill(0.0);
        row.prefix = Some(prefix);
        row
    }

    /// [`Self::after`] a prefix whose length is drawn; at least one token is predicted.
    pub(super) fn after_part(tokens: Vec<u32>, prefix: &Prefix, random: &mut Random) -> Self {
        let read = tokens.len().saturating_sub(1);
        let longest = (prefix.share * read as f64).round() as usize;
        let length = random.below(longest.min(read) + 1);
        Self::after(tokens, length)
    }
}
