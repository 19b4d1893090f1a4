//! Batches of sentence pairs, pairs of like length together; see `by_length`.

use super::{
    BatchSettings, Row,
    by_length::{ByLength, Plan, cut},
};
use crate::{
    Error, Result,
    corpus::{Corpus, Pair, Split},
};

#[derive(Clone, Debug)]
pub(crate) struct PairRows {
    split: Split,
    settings: BatchSettings,
    /// Those that training uses, by their longer side.
    order: ByLength,
    left_out: usize,
}

impl PairRows {
    pub(super) fn new(corpus: &Corpus, split: Split, settings: &BatchSettings) -> Result<Self> {
        let pairs = corpus.pairs(split).unwrap_or_default();
        let lengths = pairs.iter().map(Pair::longer).zip(0..);
        let kept: Vec<(usize, usize)> =
            lengths.filter(|&(length, _)| length <= settings.length).collect();
        if kept.is_empty() {
            let shortest = pairs.iter().map(Pair::longer).min().unwrap_or(0);
            let found = format!("no pair of length = {} or less", settings.length);
            let expected = format!("length to be at least {shortest}");
            return Err(Error::Short { split: split.name(), found, expected });
        }
        Ok(Self {
            split,
            left_out: pairs.len() - kept.len(),
            order: ByLength::new(kept, settings.batch, settings.seed),
            settings: settings.clone(),
        })
    }

    pub(super) fn rows(&self, corpus: &Corpus, step: u64) -> Vec<Row> {
        let batch = self.order.batch(step);
        batch.into_iter().map(|index| self.row(corpus, index)).collect()
    }

    pub(super) fn batches_per_epoch(&self) -> u64 {
        self.order.batches_per_epoch()
    }

    pub(super) fn left_out(&self) -> usize {
        self.left_out
    }

    /// With those that only evaluation reads.
    pub(super) fn longest(&self, corpus: &Corpus) -> usize {
        let pairs = corpus.pairs(self.split).unwrap_or_default();
        pairs.iter().map(Pair::longer).max().unwrap_or(0).min(self.settings.length)
    }

    /// All pairs by length, also those that training leaves out.
    pub(super) fn evaluation_plan(&self, corpus: &Corpus) -> Plan {
        let pairs = corpus.pairs(self.split).unwrap_or_default();
        let mut order: Vec<(usize, usize)> =
            pairs.iter().map(|pair| pair.longer().min(self.settings.length)).zip(0..).collect();
        order.sort_unstable();
        cut(&order, self.settings.batch)
    }

    /// Source with end; begin and target; target with end. Sides beyond the length are cut.
    pub(super) fn row(&self, corpus: &Corpus, index: usize) -> Row {
        let pair = &corpus.pairs(self.split).unwrap_or_default()[index];
        Row::translate(corpus, &pair.source, &pair.target, self.settings.length)
    }
}

impl Row {
    pub(super) fn translate(
        corpus: &Corpus,
        source: &[u32],
        target: &[u32],
        length: usize,
    ) -> Self {
        let tokenizer = corpus.tokenizer();
        let begin = tokenizer.begin().expect("the objective asked for a begin");
        let end = tokenizer.end().expect("the objective asked for an end");
        let with_end = |side: &[u32]| -> Vec<u32> {
            side.iter().copied().take(length - 1).chain([end]).collect()
        };
        let targets = with_end(target);
        let tokens = [&[begin], &targets[..targets.len() - 1]].concat();
        let (weights, source) = (vec![1.0; tokens.len()], Some(with_end(source)));
        Self { weights, tokens, targets, source, ..Self::default() }
    }
}
