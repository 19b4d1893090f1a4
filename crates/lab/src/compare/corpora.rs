//! Corpora that several runs share.

use std::ops::ControlFlow;

use whatwhere_data::{Corpus, DataSettings};
use whatwhere_training::{RunSettings, interrupt::Interrupt};

use super::Observer;
use crate::Error;

/// Corpora by their settings, each read once.
#[derive(Debug, Default)]
pub struct Corpora(Vec<(DataSettings, Corpus)>);

impl Corpora {
    /// [`Self::of`]; a corpus that was not read before is told of.
    pub(crate) fn of_told(
        &mut self,
        settings: &RunSettings,
        interrupt: &Interrupt,
        observer: &mut dyn Observer,
    ) -> Result<Corpus, Error> {
        let before = self.0.len();
        let corpus = self.of(settings, interrupt)?;
        if self.0.len() > before {
            observer.reads(&corpus.describe());
        }
        Ok(corpus)
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
