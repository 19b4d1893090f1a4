//! Batches of texts with labels, texts of like length together.

use whatwhere_random::Random;
use whatwhere_settings::Refuses;

use super::{
    BatchSettings, BatchSize, Label, Row,
    by_length::{ByLength, Plan, cut},
};
use crate::{
    Error, Result,
    corpus::{Content, Corpus, LabeledTokens, Split},
    frame::Framed,
};

#[derive(Clone, Debug)]
pub(crate) struct LabeledRows {
    split: Split,
    length: usize,
    size: BatchSize,
    order: ByLength,
    /// Lengths with indices, rising.
    sorted: Vec<(usize, usize)>,
    cut: usize,
}

impl LabeledRows {
    pub(super) fn new(corpus: &Corpus, split: Split, settings: &BatchSettings) -> Result<Self> {
        let texts = texts(corpus, split);
        let around = |text: &LabeledTokens| {
            Framed::around(corpus.tokenizer(), text.second.is_some())
                + if text.second.is_some() { 2 } else { 1 }
        };
        let needed = texts.iter().map(around).max().unwrap_or(1);
        if settings.length < needed {
            let reason =
                format!("expected at least {needed}: special tokens, and one of each text");
            return Err(Error::setting("length", settings.length, reason));
        }
        let mut cut = 0;
        let mut sorted: Vec<(usize, usize)> = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            let second = text.second.as_ref();
            let length = text.first.len()
                + second.map_or(0, Vec::len)
                + Framed::around(corpus.tokenizer(), second.is_some());
            cut += usize::from(length > settings.length);
            sorted.push((length.min(settings.length), index));
        }
        let order = ByLength::new(sorted.clone(), settings.batch, settings.seed);
        sorted.sort_unstable();
        Ok(Self { split, length: settings.length, size: settings.batch, order, sorted, cut })
    }

    pub(super) fn rows(&self, corpus: &Corpus, step: u64) -> Vec<Row> {
        let batch = self.order.batch(step);
        batch.into_iter().map(|index| self.row(corpus, index, true)).collect()
    }

    /// A text of an evaluation, where all count the same.
    pub(super) fn held_out(&self, corpus: &Corpus, index: usize) -> Row {
        self.row(corpus, index, false)
    }

    pub(super) fn batches_per_epoch(&self) -> u64 {
        self.order.batches_per_epoch()
    }

    pub(super) fn longest(&self) -> usize {
        self.sorted.last().map_or(0, |(length, _)| *length)
    }

    /// Texts that are longer than there is room.
    pub(super) fn cut(&self) -> usize {
        self.cut
    }

    /// All texts once, in an order that has short and long ones from the start.
    pub(super) fn evaluation_plan(&self) -> Plan {
        let mut plan = cut(&self.sorted, self.size);
        Random::new(&[self.sorted.len() as u64]).shuffle(&mut plan);
        plan
    }

    fn row(&self, corpus: &Corpus, index: usize, is_weighed: bool) -> Row {
        let text = &texts(corpus, self.split)[index];
        let second = text.second.as_deref();
        let row = Framed::new(corpus.tokenizer(), &text.first, second, self.length);
        Row::labeled(corpus, row, text.class, is_weighed)
    }
}

impl Row {
    /// A row that is told as one of a corpus's classes.
    pub(super) fn labeled(corpus: &Corpus, row: Framed, class: u32, is_weighed: bool) -> Self {
        let length = row.tokens.len();
        let weights = corpus.class_weights();
        let weight = weights.get(class as usize).copied().filter(|_| is_weighed).unwrap_or(1.0);
        let second = row.second.unwrap_or(length);
        Self {
            tokens: row.tokens,
            targets: vec![0; length],
            weights: vec![0.0; length],
            label: Some(Label { class, weight, second }),
            ..Self::default()
        }
    }
}

fn texts(corpus: &Corpus, split: Split) -> &[LabeledTokens] {
    match corpus.content() {
        Content::Labeled(splits) => splits.get(&split).map_or(&[], Vec::as_slice),
        _ => &[],
    }
}
