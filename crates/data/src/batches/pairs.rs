//! Batches of sentence pairs: like lengths together, so that little is padding.
//!
//! Each epoch orders the pairs by length, ties at random, cuts the order into batches and shuffles these.
//! The lengths in that order are the same in every epoch, and so is the number of batches.

use std::sync::{Arc, Mutex, PoisonError};

use whatwhere_random::Random;

use super::{BatchSettings, BatchSize, Row};
use crate::{
    Error, Result,
    corpus::{Corpus, Pair, Split},
};

#[derive(Clone, Debug)]
pub(crate) struct PairRows {
    split: Split,
    settings: BatchSettings,
    /// Longer side of each pair that training uses, with its index.
    kept: Arc<Vec<(usize, usize)>>,
    left_out: usize,
    batches_per_epoch: u64,
    /// The epoch last asked for: a plan is a function of seed and epoch, and dear to make.
    plan: Arc<Mutex<LastPlan>>,
}

/// Indices of the pairs of each batch.
type Plan = Vec<Vec<usize>>;

type LastPlan = Option<(u64, Arc<Plan>)>;

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
        let mut rows = Self {
            split,
            settings: settings.clone(),
            left_out: pairs.len() - kept.len(),
            kept: Arc::new(kept),
            batches_per_epoch: 0,
            plan: Arc::default(),
        };
        rows.batches_per_epoch = rows.make_plan(0).len() as u64;
        Ok(rows)
    }

    pub(super) fn rows(&self, corpus: &Corpus, step: u64) -> Vec<Row> {
        let plan = self.plan(step / self.batches_per_epoch);
        let batch = &plan[(step % self.batches_per_epoch) as usize];
        batch.iter().map(|&index| self.row(corpus, index)).collect()
    }

    pub(super) fn batches_per_epoch(&self) -> u64 {
        self.batches_per_epoch
    }

    pub(super) fn left_out(&self) -> usize {
        self.left_out
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

    fn plan(&self, epoch: u64) -> Arc<Plan> {
        let mut last = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((known, plan)) if *known == epoch => plan.clone(),
            _ => {
                let plan = Arc::new(self.make_plan(epoch));
                *last = Some((epoch, plan.clone()));
                plan
            }
        }
    }

    fn make_plan(&self, epoch: u64) -> Plan {
        let mut random = Random::new(&[self.settings.seed, epoch]);
        let mut order = self.kept.to_vec();
        random.shuffle(&mut order);
        order.sort_by_key(|&(length, _)| length);
        let mut plan = cut(&order, self.settings.batch);
        random.shuffle(&mut plan);
        plan
    }
}

/// Cuts an order of rising lengths into batches.
fn cut(order: &[(usize, usize)], size: BatchSize) -> Plan {
    let mut plan: Plan = Vec::new();
    let mut batch = Vec::new();
    for &(length, index) in order {
        if batch.len() >= size.rows(length) {
            plan.push(std::mem::take(&mut batch));
        }
        batch.push(index);
    }
    plan.push(batch);
    plan
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
        Self { weights, tokens, targets, source, prefix: None }
    }
}
