//! Lengths beyond the trained one, without training: the same text in longer windows, the same pieces in longer parts,
//! longer pairs, longer examples of a task.

mod reader;

use serde::{Deserialize, Serialize};
use whatwhere_attention::Position;
use whatwhere_data::{Corpus, Pair, Split};
use whatwhere_training::{Evaluation, Folder, Run, imported::Imported};
use whatwhere_transformer::{Family, Site};

use crate::Error;
use reader::Reader;
pub use reader::Unit;

/// What is asked of a trained run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lengths {
    /// Tokens of a window, or what else a [`Unit`] counts.
    pub lengths: Vec<usize>,
    /// Tokens read at each length, the same text for all; rounded up to whole windows of the longest. Pieces are all read.
    pub tokens: usize,
    /// Whether rotary is also tried with every scaling that needs no training.
    pub scalings: bool,
}

/// What a run makes of one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtLength {
    /// How rotary was scaled for it; as trained if absent.
    pub scaling: Option<String>,
    /// Tokens of a window, or what else a [`Unit`] counts.
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
    /// Over all positions.
    #[serde(flatten)]
    pub whole: Evaluation,
    /// Loss by position: the end of each stretch of positions, and its mean loss.
    pub positions: Vec<(usize, f64)>,
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
    if settings.data.source.takes_tokens() {
        settings.data.tokenizer = Some(Imported::tokens_of(folder)?.fixed().into());
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

    /// Lengths worth trying: multiples of the trained one as far as there are data; powers of two for pairs; the task's own,
    /// twice and four times that, where the task has such examples.
    pub fn worth_trying(run: &Run, corpus: &Corpus, split: Split) -> Vec<usize> {
        let trained = run.settings.training.length;
        match Unit::of(corpus, split) {
            Unit::Window => Self::multiples(trained),
            Unit::Piece => {
                let longest = corpus.longest_piece(split).unwrap_or(0);
                let begun = |length: &usize| *length == trained || length / 2 < longest;
                Self::multiples(trained).into_iter().filter(begun).collect()
            }
            Unit::Pair => {
                let pairs = corpus.pairs(split).unwrap_or_default();
                let longest = pairs.iter().map(Pair::longer).max().unwrap_or(0);
                let mut lengths = vec![SHORTEST_PAIR];
                while lengths.last().is_some_and(|last| *last < longest) {
                    lengths.extend(lengths.last().map(|last| last * 2));
                }
                lengths
            }
            Unit::Example => {
                let source = &run.settings.data.source;
                let longest = source.longest().unwrap_or(1);
                let exists = |length: &usize| {
                    let task = source.at_length(*length);
                    task.is_some_and(|task| task.task().is_some_and(|task| task.check().is_ok()))
                };
                [1, 2, 4].map(|factor| longest * factor).into_iter().filter(exists).collect()
            }
        }
    }

    /// Tries a run at every length; `each` hears of it as it goes.
    pub fn measure(
        &self,
        run: &Run,
        corpus: &Corpus,
        split: Split,
        mut each: impl FnMut(&AtLength),
    ) -> Result<Vec<AtLength>, Error> {
        let reader = Reader::new(run, corpus, split, self);
        let trained = reader.trained();
        let mut found = Vec::new();
        for &length in &self.lengths {
            let mut ways = vec![None];
            let tokens = reader.tokens_at(length);
            if self.scalings && tokens > trained {
                ways.extend(scalings(run, trained, tokens).into_iter().map(Some));
            }
            for way in ways {
                let (figures, missing) = match reader.figures(length, way.as_ref()) {
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

/// Tokens of the shortest pairs that are measured by themselves, at the most.
const SHORTEST_PAIR: usize = 8;

/// A way to reach further.
struct Way {
    name: String,
    changes: Vec<String>,
}

/// Every way to reach further that needs no training, for a decoder with one encoding that knows some.
fn scalings(run: &Run, trained: usize, length: usize) -> Vec<Way> {
    let settings = &run.settings;
    let attention = match settings.model.family {
        Family::Decoder => settings.model.attention(Site::Decoder, 0),
        _ => return Vec::new(),
    };
    let Ok([position]) = attention.as_ref().map(|attention| attention.position.as_slice()) else {
        return Vec::new();
    };
    let ways = position.scalings(trained, length).into_iter();
    let way = |(name, position): (&str, Position)| {
        let value = toml::Value::try_from(position).ok()?;
        let changes = vec![format!("model.attention.position={value}")];
        Some(Way { name: name.into(), changes })
    };
    ways.filter_map(way).collect()
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
