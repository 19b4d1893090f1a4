//! The rows that a run reads, and how long the model lets them be.

use whatwhere_data::{BatchSettings, Batches, Corpus, Source, Split};
use whatwhere_settings::Refuses;
use whatwhere_transformer::Site;

use crate::{Error, RunSettings};

impl RunSettings {
    /// Tokens of a row at the most: `training.length`, and of texts that are told as classes no more than the model has
    /// positions for, because these can be cut.
    pub fn row_length(&self) -> usize {
        let length = self.training.length;
        match self.data.source {
            Source::Labeled(_) => {
                self.positions().map_or(length, |positions| positions.min(length))
            }
            _ => length,
        }
    }

    /// Positions that all stacks of the model have; nothing if there is no bound.
    fn positions(&self) -> Option<usize> {
        let model = &self.model;
        let stacks =
            [(Site::Encoder, model.encoder_depth()), (Site::Decoder, model.decoder_depth())];
        let own = stacks.into_iter().filter(|(_, depth)| *depth > 0);
        own.filter_map(|(site, _)| {
            let attention = model.attention(site, 0).ok()?;
            attention.position.iter().filter_map(|position| position.limit()).min()
        })
        .min()
    }
}

/// The batches of a split under a run's settings.
pub fn batches(settings: &RunSettings, corpus: &Corpus, split: Split) -> Result<Batches, Error> {
    let settings = BatchSettings {
        batch: settings.training.batch,
        length: settings.row_length(),
        seed: settings.seed,
        is_continuous: settings.model.segment_memory > 0,
    };
    Ok(Batches::new(corpus, split, &settings)?)
}

/// The batches of a run, and those of its validation where there is text for it. Refuses rows that are longer than the model
/// has positions for: it would read short ones, and end at the first long one.
pub(super) fn splits(
    settings: &RunSettings,
    corpus: &Corpus,
) -> Result<(Batches, Option<Batches>), Error> {
    let valid = corpus.has(Split::Valid).then(|| batches(settings, corpus, Split::Valid));
    let (train, valid) = (batches(settings, corpus, Split::Train)?, valid.transpose()?);
    let longest = train.longest().max(valid.as_ref().map_or(0, Batches::longest));
    match settings.positions() {
        Some(positions) if longest > positions => {
            let reason = format!(
                "rows have up to {longest} tokens, and the model has {positions} positions; use training.length = {positions}, or a larger position.length"
            );
            Err(Error::setting("training.length", settings.training.length, reason))
        }
        _ => Ok((train, valid)),
    }
}
