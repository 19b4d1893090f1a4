//! What a conversion costs, and how much of it training gets back.

use serde::Serialize;
use whatwhere_data::{Corpus, Split};
use whatwhere_training::{Evaluation, Learner, RunSettings, evaluate, trainer};
use whatwhere_transformer::{Model, Parameter};

use super::Converted;
use crate::error::Result;

/// Losses around a conversion, in nats per token.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Loss {
    /// Of the model as it was.
    pub before: f64,
    /// Of the converted one.
    pub after: f64,
    /// After so many updates each, the last at the end.
    pub recovered: Vec<(u64, f64)>,
}

/// How a converted model is measured and trained.
#[derive(Clone, Copy)]
pub struct Recovery<'a> {
    /// The settings of the run: batches, optimizer, learning rate.
    pub settings: &'a RunSettings,
    /// What it reads.
    pub corpus: &'a Corpus,
    /// Batches of an evaluation at the most.
    pub limit: Option<usize>,
    /// Updates.
    pub updates: u64,
}

impl Recovery<'_> {
    /// Measures a model on what is held out, or on all there is.
    pub fn evaluate(&self, model: &Model) -> Result<Evaluation> {
        let split = if self.corpus.has(Split::Valid) { Split::Valid } else { Split::Train };
        let batches = trainer::batches(self.settings, self.corpus, split)?;
        Ok(evaluate(model, &batches, self.limit, self.corpus.bytes_per_token(split))?)
    }

    /// The losses, with the parameters after the last update; `each` hears of every update and its loss.
    pub fn run(
        &self,
        before: &Model,
        converted: &Converted,
        each: &mut dyn FnMut(u64, f64),
    ) -> Result<(Loss, Vec<Parameter>)> {
        let (settings, device) = (&converted.settings, before.device());
        let build = |parameters: &[Parameter]| settings.build_with(parameters.to_vec(), &device);
        let model = build(&converted.parameters)?;
        let mut loss = Loss {
            before: self.evaluate(before)?.loss,
            after: self.evaluate(&model)?.loss,
            recovered: Vec::new(),
        };
        if self.updates == 0 {
            return Ok((loss, converted.parameters.clone()));
        }
        let training = &self.settings.training;
        let learning = settings
            .build_with(converted.parameters.clone(), &self.settings.device().autodiff())?;
        let mut learner = Learner::new(learning, training);
        let batches = trainer::batches(self.settings, self.corpus, Split::Train)?;
        let mut parameters = Vec::new();
        for step in 1..=self.updates {
            for part in 0..training.accumulate.max(1) {
                let at = (step - 1) * training.accumulate.max(1) + part;
                learner.accumulate(&batches.get(at)?, self.settings.seed.wrapping_add(at))?;
            }
            let stats = learner.finish();
            learner.update(&stats, self.rate(step), step);
            each(step, stats.loss);
            // Halves of the way, so that the curve is seen with a few evaluations.
            let is_half = (0..4).any(|half| step == self.updates >> half);
            if is_half {
                parameters = learner.model().parameters();
                loss.recovered.push((step, self.evaluate(&build(&parameters)?)?.loss));
            }
        }
        Ok((loss, parameters))
    }

    /// Up over the first tenth, down to nothing at the end.
    fn rate(&self, step: u64) -> f64 {
        let (step, all) = (step as f64, self.updates as f64);
        let warmup = (all / 10.0).max(1.0);
        let left = (all - step + 1.0) / all;
        self.settings.training.lr * (step / warmup).min(1.0).min(left.max(0.0))
    }
}
