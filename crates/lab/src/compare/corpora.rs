//! Corpora that several runs share.

use whatwhere_data::{Corpus, DataSettings};
use whatwhere_training::RunSettings;

use crate::Error;

/// Corpora by their settings, each read once.
#[derive(Debug, Default)]
pub struct Corpora(Vec<(DataSettings, Corpus)>);

impl Corpora {
    /// The corpus of some settings.
    pub fn of(&mut self, settings: &RunSettings) -> Result<Corpus, Error> {
        if let Some((_, corpus)) = self.0.iter().find(|(data, _)| *data == settings.data) {
            return Ok(corpus.clone());
        }
        let corpus = Corpus::load(&settings.data)?;
        self.0.push((settings.data.clone(), corpus.clone()));
        Ok(corpus)
    }
}
