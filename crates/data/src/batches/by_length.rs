//! Batches of texts of like length, so that little is padding.
//!
//! Each epoch orders the texts by length, ties at random, cuts the order into batches and shuffles these.
//! The lengths in that order are the same in every epoch, and so is the number of batches.

use std::sync::{Arc, Mutex, PoisonError};

use whatwhere_random::Random;

use super::BatchSize;

/// Indices of the texts of each batch.
pub(super) type Plan = Vec<Vec<usize>>;
/// An epoch with its plan.
type PlanOfEpoch = (u64, Arc<Plan>);

#[derive(Clone, Debug)]
pub(super) struct ByLength {
    /// Length of each text, with its index.
    texts: Arc<Vec<(usize, usize)>>,
    size: BatchSize,
    seed: u64,
    batches_per_epoch: u64,
    /// The epoch last asked for: a plan is a function of seed and epoch, and dear to make.
    last: Arc<Mutex<Option<PlanOfEpoch>>>,
}

impl ByLength {
    /// Of texts with these lengths and indices, at least one.
    pub(super) fn new(texts: Vec<(usize, usize)>, size: BatchSize, seed: u64) -> Self {
        let texts = Arc::new(texts);
        let mut order = Self { texts, size, seed, batches_per_epoch: 0, last: Arc::default() };
        order.batches_per_epoch = order.make(0).len() as u64;
        order
    }

    pub(super) fn batches_per_epoch(&self) -> u64 {
        self.batches_per_epoch
    }

    /// The texts of a step's batch.
    pub(super) fn batch(&self, step: u64) -> Vec<usize> {
        let plan = self.plan(step / self.batches_per_epoch);
        plan[(step % self.batches_per_epoch) as usize].clone()
    }

    fn plan(&self, epoch: u64) -> Arc<Plan> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((known, plan)) if *known == epoch => plan.clone(),
            _ => {
                let plan = Arc::new(self.make(epoch));
                *last = Some((epoch, plan.clone()));
                plan
            }
        }
    }

    fn make(&self, epoch: u64) -> Plan {
        let mut random = Random::new(&[self.seed, epoch]);
        let mut order = self.texts.to_vec();
        random.shuffle(&mut order);
        order.sort_by_key(|&(length, _)| length);
        let mut plan = cut(&order, self.size);
        random.shuffle(&mut plan);
        plan
    }
}

/// Cuts an order of rising lengths into batches.
pub(super) fn cut(order: &[(usize, usize)], size: BatchSize) -> Plan {
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
