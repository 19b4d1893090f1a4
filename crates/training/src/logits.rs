//! Logits of token ids, for programs that have tokenizers of their own.

use whatwhere_transformer::{Family, Mode, Sequences};

use crate::{Error, Run};

impl Run {
    /// Logits of the next token at every position (of the same token, for an encoder), `[batch, length, vocabulary]`, with the
    /// sizes. `ids` are sequences of one length; an encoder-decoder also needs as many `sources` of one length.
    pub fn logits(
        &self,
        sources: Option<&[Vec<u32>]>,
        ids: &[Vec<u32>],
    ) -> Result<(Vec<f32>, [usize; 3]), Error> {
        let is_pair = self.model().family() == Family::EncoderDecoder;
        if is_pair != sources.is_some() {
            return Err(Error::Settings(
                match is_pair {
                    true => {
                        "an encoder-decoder needs ids of a source and of a target, found one list"
                    }
                    false => "a model with one stack reads one list of ids, found a source as well",
                }
                .into(),
            ));
        }
        let tokens = self.sequences(ids)?;
        let sources = sources.map(|sources| self.sequences(sources)).transpose()?;
        if let Some(found) = sources.as_ref().map(|sources| sources.dims()[0])
            && found != ids.len()
        {
            let expected = ids.len();
            return Err(Error::Settings(format!("found {found} sources, expected {expected}")));
        }
        let logits = self.model().forward(sources.as_ref(), &tokens, Mode::default())?;
        let sizes = logits.dims();
        Ok((logits.into_data().try_into_vec().expect("f32"), sizes))
    }

    /// Sequences of one length, of ids that are in the vocabulary.
    fn sequences(&self, rows: &[Vec<u32>]) -> Result<Sequences, Error> {
        let vocabulary = self.settings.model.vocabulary;
        let length = rows.first().map_or(0, Vec::len);
        if length == 0 {
            return Err(Error::Settings("found no ids, expected at least 1".into()));
        }
        for row in rows {
            if row.len() != length {
                let found = row.len();
                return Err(Error::Settings(format!(
                    "found a sequence of {found} ids after one of {length}, expected one length"
                )));
            }
            if let Some(id) = row.iter().find(|id| **id as usize >= vocabulary) {
                return Err(Error::Settings(format!(
                    "id {id} is outside the vocabulary, expected 0 to {}",
                    vocabulary.saturating_sub(1)
                )));
            }
        }
        Ok(Sequences::from_rows(rows))
    }
}
