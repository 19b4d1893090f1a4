//! What is read at a length, by what the data are.

use whatwhere_data::{BatchSettings, BatchSize, Batches, Corpus, Split, settings::Examples};
use whatwhere_training::{Positions, Run, loss_by_position};

use super::{Figures, Lengths, Way, stretches};

/// Tokens that are read at once, unless a window is longer.
const TOGETHER: usize = 4096;
/// Examples of a task at a length: at least, and at the most.
const EXAMPLES: [usize; 2] = [64, 2000];

/// What a length counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Tokens of a window of text.
    Window,
    /// Tokens of a part of a piece, which ends with the piece.
    Piece,
    /// Tokens of the longer side of a pair, at most; more than at the next shorter length.
    Pair,
    /// Letters, digits, pairs or symbols of a task's example.
    Example,
}

impl Unit {
    /// Of what a corpus holds.
    pub fn of(corpus: &Corpus, split: Split) -> Self {
        if corpus.tokens(split).is_some() {
            Self::Window
        } else if corpus.pairs(split).is_some() {
            Self::Pair
        } else if corpus.longest_piece(split).is_some() {
            Self::Piece
        } else {
            Self::Example
        }
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Window => "tokens of a window",
            Self::Piece => "tokens of a part of a piece",
            Self::Pair => "tokens of the longer side of a pair, at most",
            Self::Example => "letters, digits, pairs or symbols of an example",
        }
    }
}

/// Reads a corpus at other lengths.
pub(super) struct Reader<'a> {
    run: &'a Run,
    corpus: &'a Corpus,
    split: Split,
    unit: Unit,
    asked: &'a Lengths,
    /// Tokens of text to predict, where it is one.
    available: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(run: &'a Run, corpus: &'a Corpus, split: Split, asked: &'a Lengths) -> Self {
        let available = corpus.tokens(split).map_or(0, |tokens| tokens.len().saturating_sub(1));
        Self { run, corpus, split, unit: Unit::of(corpus, split), asked, available }
    }

    /// Tokens that were read at once in training.
    pub(super) fn trained(&self) -> usize {
        let longest = || self.run.settings.data.source.longest();
        match self.unit {
            Unit::Example => longest().map_or(0, |length| self.tokens_at(length)),
            _ => self.run.settings.training.length,
        }
    }

    /// Tokens that are read at once at a length.
    pub(super) fn tokens_at(&self, length: usize) -> usize {
        let source = match self.unit {
            Unit::Example => self.run.settings.data.source.at_length(length),
            _ => None,
        };
        let task = source.as_ref().and_then(|source| source.task());
        task.map_or(length, |task| {
            let (prompt, answer) = task.longest();
            prompt + answer + 1
        })
    }

    /// The figures at a length, with rotary scaled or as trained; or why there are none.
    pub(super) fn figures(&self, length: usize, way: Option<&Way>) -> Result<Figures, String> {
        let scaled = match way {
            None => None,
            Some(way) => Some(self.run.changed(&way.changes).map_err(|e| e.to_string())?),
        };
        let model = scaled.as_ref().unwrap_or(self.run).model();
        let corpus = self.corpus_at(length)?;
        let window = self.tokens_at(length);
        let rows = (TOGETHER / window).max(1);
        let settings = BatchSettings {
            batch: BatchSize::Rows(rows),
            length: window,
            seed: 0,
            is_continuous: self.run.settings.model.segment_memory > 0,
        };
        let batches = Batches::new(&corpus, self.split, &settings).map_err(|e| e.to_string())?;
        let ends = stretches(window);
        let limit = self.tokens().map(|tokens| tokens.div_ceil(rows * window).max(1));
        let parts = loss_by_position(model, &batches, limit, &ends).map_err(|e| e.to_string())?;
        let bytes = corpus.bytes_per_token(self.split);
        let counted = ends.iter().zip(&parts).filter(|(_, part)| part.tokens() > 0);
        Ok(Figures {
            whole: Positions::total(&parts).evaluation(bytes),
            positions: counted.map(|(end, part)| (*end, part.evaluation(None).loss)).collect(),
        })
    }

    /// Tokens to read, the same at every length of a text; all where nothing is said.
    fn tokens(&self) -> Option<usize> {
        match self.unit {
            Unit::Window => {
                let fits = |length: &usize| *length <= self.available;
                let longest = self.asked.lengths.iter().copied().filter(fits).max().unwrap_or(1);
                let whole = self.available / longest * longest;
                Some(self.asked.tokens.next_multiple_of(longest).min(whole))
            }
            // Windows of other lengths end where pieces do, so that only all of them are the same notes.
            Unit::Piece => None,
            Unit::Pair | Unit::Example => Some(self.asked.tokens),
        }
    }

    /// What is read at a length.
    fn corpus_at(&self, length: usize) -> Result<Corpus, String> {
        let shorter = self.asked.lengths.iter().filter(|other| **other < length).max();
        let shorter = shorter.copied().unwrap_or(0);
        match self.unit {
            Unit::Window if self.available < length => {
                Err(format!("the text has only {} tokens to predict", self.available))
            }
            Unit::Piece if self.corpus.longest_piece(self.split).is_some_and(|l| l <= shorter) => {
                Err(format!("no piece has more than {shorter} tokens"))
            }
            Unit::Window | Unit::Piece => Ok(self.corpus.clone()),
            Unit::Pair => {
                let own = self.corpus.pairs_within(self.split, shorter + 1..=length);
                match own.has(self.split) {
                    true => Ok(own),
                    false => Err(format!("no pair has {} to {length} tokens", shorter + 1)),
                }
            }
            Unit::Example => self.examples(length),
        }
    }

    /// Examples of one length, made as those of the run were.
    fn examples(&self, length: usize) -> Result<Corpus, String> {
        let mut data = self.run.settings.data.clone();
        let Some(source) = data.source.at_length(length) else {
            return Err("examples and texts from a file have the lengths they have".into());
        };
        data.source = source;
        let [least, most] = EXAMPLES;
        let count = (self.asked.tokens / self.tokens_at(length)).clamp(least, most);
        data.examples = Examples { train: count, valid: count, test: count };
        let corpus = Corpus::load(&data).map_err(|e| e.to_string())?;
        let known = self.run.tokenizer().map_err(|e| e.to_string())?.vocabulary();
        match corpus.vocabulary() <= known {
            true => Ok(corpus),
            false => Err(format!("has {} symbols, the run knows {known}", corpus.vocabulary())),
        }
    }
}
