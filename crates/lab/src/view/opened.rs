//! A run that has read a text and is asked about it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use serde_json::json;
use whatwhere_attention::CallView;
use whatwhere_kernels::attention::Output;
use whatwhere_training::Run;
use whatwhere_transformer::{AttentionInput, Family, Site};

use super::{Answer, Parameters, Question, answer, parameters::word_of, split, text, weights};
use crate::{
    Error,
    show::{Asked, Reader, Reading},
};

/// Bytes of what attentions read that one view may hold: 46 000 tokens of a model of 30 layers and width 576, so that one of
/// 135 million parameters reads 32 768 tokens, for which it needs 2.3 GB. A browser's module has 4 GiB for everything.
pub const MOST_BYTES: usize = if cfg!(target_pointer_width = "64") { 3 << 30 } else { 2 << 30 };

/// Which run is to read what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Opening {
    /// The text; the source, for an encoder-decoder.
    pub text: String,
    /// What is written to a source; the run's own translation if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Settings to read under that leave the weights as they are: `model.attention.position.base=500`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// Position of the first token.
    pub first: usize,
}

/// A run and a text it has read, open for questions.
pub struct View {
    reading: Reading<'static>,
    kept: Mutex<Kept>,
}

/// Where an attention stands.
type Place = (&'static str, usize);

/// What would be computed again for every question about a layer.
#[derive(Default)]
struct Kept {
    /// The log-sums of each row, of every layer that was asked about: all that the next look needs of the forward pass.
    sums: HashMap<Place, Arc<Output>>,
    /// The layer that was asked about last.
    look: Option<(Place, Arc<CallView>)>,
}

const QUESTIONS: [Question<View>; 9] = [
    ("about", View::about),
    ("text", text::tokens),
    ("surprise", text::surprise),
    ("next", text::next),
    ("layer", weights::layer),
    ("tile", weights::tile),
    ("rows", weights::rows),
    ("split", split::split),
    ("heads", split::heads),
];

impl View {
    /// Reads a text.
    pub fn open(run: &Arc<Run>, opening: &Opening) -> Result<Self, Error> {
        let run = match opening.changes.is_empty() {
            true => run.clone(),
            false => Arc::new(run.changed(&opening.changes)?),
        };
        let model = &run.settings.model;
        let layers = model.encoder_depth() + model.decoder_depth();
        let each = (model.width * layers * size_of::<f32>()).max(1);
        let asked = Asked {
            text: &opening.text,
            target: opening.target.as_deref(),
            first: opening.first,
            most: MOST_BYTES / each,
        };
        if opening.first > MOST_FIRST {
            let found = opening.first;
            return Err(Error::Request(format!("first = {found}: expected at most {MOST_FIRST}")));
        }
        let reading = Reading::of(Reader::Held(run), &asked)?;
        Ok(Self { reading, kept: Mutex::default() })
    }

    /// Bytes of what its attentions read, most of what it holds.
    pub fn bytes(&self) -> usize {
        let seen = self.reading.seen().iter();
        seen.map(|seen| seen.input.x.dims().iter().product::<usize>() * size_of::<f32>()).sum()
    }

    /// Answers a question; see [`super`].
    pub fn answer(&self, what: &str, parameters: &Parameters) -> Result<Answer, Error> {
        answer(&QUESTIONS, self, what, parameters)
    }

    pub(super) fn reading(&self) -> &Reading<'static> {
        &self.reading
    }

    /// The attention a question is about.
    pub(super) fn seen(&self, parameters: &Parameters) -> Result<&AttentionInput, Error> {
        let site = parameters.site()?;
        let layers = self.layers(site);
        if layers == 0 {
            let name = word_of(site);
            return Err(Error::Request(format!("site = {name}: the model has no such attention")));
        }
        let layer = parameters.index("layer", 0..layers)?;
        let found =
            self.reading.seen().iter().find(|seen| (seen.site, seen.layer) == (site, layer));
        Ok(found.expect("layers were counted"))
    }

    pub(super) fn layers(&self, site: Site) -> usize {
        self.reading.seen().iter().filter(|seen| seen.site == site).count()
    }

    /// An attention's call, and its log-sums.
    pub(super) fn look(
        &self,
        seen: &AttentionInput,
    ) -> Result<(Arc<CallView>, Arc<Output>), Error> {
        let place = (word_of(seen.site), seen.layer);
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let last = kept().look.clone().filter(|(last, _)| *last == place);
        let look = match last {
            Some((_, look)) => look,
            None => {
                // The one before is let go first, so that there are never two.
                kept().look = None;
                let look = self.reading.attention(seen).look(seen.input.clone())?;
                let look = Arc::new(look);
                kept().look = Some((place, look.clone()));
                look
            }
        };
        let sums = kept().sums.get(&place).cloned();
        let sums = match sums {
            Some(sums) => sums,
            None => {
                let mut made = look.call().forward(&look.inputs()).map_err(kernels)?;
                made.out = Vec::new();
                let made = Arc::new(made);
                kept().sums.insert(place, made.clone());
                made
            }
        };
        Ok((look, sums))
    }

    /// The model and where it attends.
    fn about(&self, parameters: &Parameters) -> Result<Answer, Error> {
        parameters.known(&[])?;
        let run = self.reading.run();
        let site = |site: Site| {
            let seen = self.reading.seen().iter().filter(|seen| seen.site == site);
            let layers: Vec<_> = seen
                .map(|seen| {
                    let settings = self.reading.attention(seen).settings();
                    json!({
                        "heads": settings.heads,
                        "score": settings.score.name(),
                        "pattern": settings.pattern.name(),
                        "position": settings.position.iter().map(|p| p.name()).collect::<Vec<_>>(),
                        "scores": settings.mixing.has_scores(),
                    })
                })
                .collect();
            let (queries, keys) = (self.reading.queries(site).len(), self.reading.keys(site).len());
            json!({ "site": word_of(site), "queries": queries, "keys": keys, "layers": layers })
        };
        let sites = [Site::Encoder, Site::Decoder, Site::Cross];
        let sites: Vec<_> = sites.into_iter().filter(|s| self.layers(*s) > 0).map(site).collect();
        let settings = &run.settings;
        let seen = self.reading.seen().iter().rfind(|seen| seen.site != Site::Cross);
        let first = seen.map(|seen| self.reading.attention(seen).settings());
        Ok(Answer::json(&json!({
            "family": family(run.model().family()),
            "words": self.reading.about(),
            "parameters": run.model().size(),
            "step": run.step,
            "layers": settings.model.layers,
            "width": settings.model.width,
            "vocabulary": settings.model.vocabulary,
            "longest": settings.model.longest(),
            "classes": settings.model.classes,
            "first": self.reading.first(),
            "position": first.map(|first| &first.position),
            "sites": sites,
        })))
    }
}

/// Positions a text may be moved by.
const MOST_FIRST: usize = 1 << 20;

/// A family as answers call it.
pub(super) fn family(family: Family) -> &'static str {
    match family {
        Family::Decoder => "decoder",
        Family::Encoder => "encoder",
        Family::EncoderDecoder => "encoder-decoder",
    }
}

/// What the kernels refuse.
pub(super) fn kernels(error: whatwhere_kernels::Error) -> Error {
    Error::Attention(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_135_million_parameters_may_read_32_768_tokens() {
        let (width, layers) = (576, 30);
        assert!(MOST_BYTES / (width * layers * size_of::<f32>()) >= 32_768);
    }
}
