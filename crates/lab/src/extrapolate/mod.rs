//! Lengths beyond the trained one: the same text in longer windows, without training.

use serde::{Deserialize, Serialize};
use whatwhere_attention::Position;
use whatwhere_data::{BatchSettings, BatchSize, Batches, Corpus, Split};
use whatwhere_training::{Evaluation, Folder, Places, Run, loss_by_position};
use whatwhere_transformer::{Family, Site};

use crate::Error;

/// What is asked of a trained run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lengths {
    /// Tokens of a window.
    pub lengths: Vec<usize>,
    /// Tokens read at each length, the same text for all; rounded up to whole windows of the longest.
    pub tokens: usize,
    /// Whether rotary is also tried with every scaling that needs no training.
    pub scalings: bool,
}

/// What a run makes of one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtLength {
    /// How rotary was scaled for it; as trained if absent.
    pub scaling: Option<String>,
    /// Tokens of a window.
    pub length: usize,
    /// The figures.
    #[serde(flatten)]
    pub figures: Option<Figures>,
    /// Why there are none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub missing: Option<String>,
}

/// Figures at one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Over all places.
    #[serde(flatten)]
    pub whole: Evaluation,
    /// Loss by place: the end of each stretch of places, and its mean loss.
    pub places: Vec<(usize, f64)>,
}

/// Stretches that a window is cut into, each twice as long as the one before, from this length on.
const FIRST_STRETCH: usize = 32;

/// The corpus a run reads, with the run's own tokens; other data are read whole.
pub fn corpus_of(
    folder: &Folder,
    data: Option<&std::path::Path>,
) -> Result<(Corpus, Split), Error> {
    let mut settings = folder.load_settings()?;
    let mut split = Split::Valid;
    if let Some(path) = data {
        settings.read_from(path)?;
        (settings.data.valid_share, settings.data.test_share) = (0.0, 0.0);
    }
    use whatwhere_data::Source;
    if let Source::Text(_) | Source::Fasta(_) | Source::Pairs(_) = settings.data.source {
        settings.data.tokenizer =
            Some(whatwhere_data::settings::File { path: folder.tokenizer() }.into());
    }
    let corpus = Corpus::load(&settings.data)?;
    if corpus.has(Split::Test) {
        split = Split::Test;
    } else if !corpus.has(split) && data.is_some() {
        split = Split::Train;
    }
    Ok((corpus, split))
}

impl Lengths {
    /// 1, 2, 4, 8 and 16 times a trained length.
    pub fn multiples(length: usize) -> Vec<usize> {
        [1, 2, 4, 8, 16].map(|factor| length * factor).to_vec()
    }

    /// Tries a run at every length; `each` hears of it as it goes.
    pub fn measure(
        &self,
        run: &Run,
        corpus: &Corpus,
        split: Split,
        mut each: impl FnMut(&AtLength),
    ) -> Result<Vec<AtLength>, Error> {
        let Some(tokens) = corpus.tokens(split) else {
            return Err(Error::Request(
                "lengths need a text, in which any number of tokens can be read on; pairs, pieces and tasks have \
                 lengths of their own"
                    .into(),
            ));
        };
        let trained = run.settings.training.length;
        let available = tokens.len().saturating_sub(1);
        let fitting = self.lengths.iter().copied().filter(|length| *length <= available);
        let longest = fitting.max().unwrap_or(1);
        let read = self.tokens.next_multiple_of(longest).min(available / longest * longest);
        let mut found = Vec::new();
        for &length in &self.lengths {
            let mut ways = vec![None];
            if self.scalings && length > trained {
                ways.extend(scalings(run, length).into_iter().map(Some));
            }
            for way in ways {
                let outcome = if available < length {
                    Err(format!("the text has only {available} tokens to predict"))
                } else {
                    try_at(run, corpus, split, length, read, way.as_ref())
                };
                let (figures, missing) = match outcome {
                    Ok(figures) => (Some(figures), None),
                    Err(reason) => (None, Some(reason)),
                };
                let at = AtLength { scaling: way.map(|way| way.name), length, figures, missing };
                each(&at);
                found.push(at);
            }
        }
        Ok(found)
    }
}

/// A way to reach further.
struct Way {
    name: String,
    changes: Vec<String>,
}

/// Every way to reach further that needs no training, for a decoder with one encoding that knows some.
fn scalings(run: &Run, length: usize) -> Vec<Way> {
    let settings = &run.settings;
    let attention = match settings.model.family {
        Family::Decoder => settings.model.attention(Site::Decoder, 0),
        _ => return Vec::new(),
    };
    let Ok([position]) = attention.as_ref().map(|attention| attention.position.as_slice()) else {
        return Vec::new();
    };
    let ways = position.scalings(settings.training.length, length).into_iter();
    let way = |(name, position): (&str, Position)| {
        let value = toml::Value::try_from(position).ok()?;
        let changes = vec![format!("model.attention.position={value}")];
        Some(Way { name: name.into(), changes })
    };
    ways.filter_map(way).collect()
}

fn try_at(
    run: &Run,
    corpus: &Corpus,
    split: Split,
    length: usize,
    tokens: usize,
    way: Option<&Way>,
) -> Result<Figures, String> {
    let scaled = match way {
        None => None,
        Some(way) => Some(run.changed(&way.changes).map_err(|e| e.to_string())?),
    };
    let model = scaled.as_ref().unwrap_or(run).model();
    // About as many tokens at once as one long window has.
    let rows = (4096 / length).max(1);
    let settings = BatchSettings {
        batch: BatchSize::Rows(rows),
        length,
        seed: 0,
        is_continuous: run.settings.model.segment_memory > 0,
    };
    let batches = Batches::new(corpus, split, &settings).map_err(|e| e.to_string())?;
    let ends = stretches(length);
    let limit = tokens.div_ceil(rows * length);
    let parts = loss_by_position(model, &batches, Some(limit), &ends).map_err(|e| e.to_string())?;
    let bytes = corpus.bytes_per_token(split);
    let counted = ends.iter().zip(&parts).filter(|(_, part)| part.tokens() > 0);
    Ok(Figures {
        whole: Places::total(&parts).evaluation(bytes),
        places: counted.map(|(end, part)| (*end, part.evaluation(None).loss)).collect(),
    })
}

fn stretches(length: usize) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut end = FIRST_STRETCH;
    while end < length {
        ends.push(end);
        end *= 2;
    }
    ends.push(length);
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_double_and_end_with_the_window() {
        assert_eq!(stretches(256), [32, 64, 128, 256]);
        assert_eq!(stretches(100), [32, 64, 100]);
        assert_eq!(stretches(8), [8]);
    }
}
