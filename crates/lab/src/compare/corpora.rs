//! Corpora that several runs share.

use std::ops::ControlFlow;

use whatwhere_data::{Corpus, DataSettings};
use whatwhere_training::{RunSettings, interrupt::Interrupt};

use crate::Error;

/// Corpora by their settings, each read once.
#[derive(Debug, Default)]
pub struct Corpora(Vec<(DataSettings, Corpus)>);

impl Corpora {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The corpus of some settings. Preparing it ends when that is asked for.
    pub fn of(&mut self, settings: &RunSettings, interrupt: &Interrupt) -> Result<Corpus, Error> {
        if let Some((_, corpus)) = self.0.iter().find(|(data, _)| *data == settings.data) {
            return Ok(corpus.clone());
        }
        let corpus = Corpus::load_watched(&settings.data, &mut |_| match interrupt.requested() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })?;
        self.0.push((settings.data.clone(), corpus.clone()));
        Ok(corpus)
    }
}
