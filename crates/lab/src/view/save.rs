//! A page in one file: the answers to what it will ask, beside the page.

use std::{collections::BTreeMap, io::Write, path::Path};

use serde::Serialize;
use whatwhere_attention::{Pattern, Position};
use whatwhere_files as files;
use whatwhere_transformer::Site;

use super::{Answer, CELLS, Opening, Parameters, View, choices, page, parameters::word_of};
use crate::Error;

/// A view with its name and what was opened.
pub struct Opened<'a> {
    /// What the run is called.
    pub name: &'a str,
    /// What it reads.
    pub opening: &'a Opening,
    /// The run that has read it.
    pub view: &'a View,
}

/// Pairs of all heads up to which every row's split is kept.
const SPLIT_PAIRS: usize = 1 << 18;

/// Tokens up to which what the model thought of is kept for each.
const TOLD: usize = 512;

/// Alternatives named for each token.
const NAMED: usize = 20;

/// Numbers of maps that are kept of each view: thumbnails of all heads are always kept.
const NUMBERS: usize = 4 << 20;

#[derive(Serialize)]
struct Saved<'a> {
    version: &'a str,
    readings: Vec<SavedReading<'a>>,
    choices: Answers,
}

#[derive(Serialize)]
struct SavedReading<'a> {
    name: &'a str,
    opening: &'a Opening,
    answers: Answers,
}

/// By word and parameters, as in an address: base64 of the bytes.
#[derive(Default, Serialize)]
struct Answers(BTreeMap<String, String>);

impl Answers {
    fn add(&mut self, what: &str, parameters: &Parameters, answer: &Answer) {
        let key = match parameters.query() {
            query if query.is_empty() => what.to_owned(),
            query => format!("{what}?{query}"),
        };
        self.0.insert(key, base64(&answer.bytes));
    }
}

/// The page with views of one text or several inside; of encodings and patterns it has what they are without changes.
pub fn save(opened: &[Opened]) -> Result<String, Error> {
    let readings = opened.iter().map(|opened| {
        Ok(SavedReading {
            name: opened.name,
            opening: opened.opening,
            answers: of_view(opened.view)?,
        })
    });
    let readings = readings.collect::<Result<_, Error>>()?;
    let version = env!("CARGO_PKG_VERSION");
    let saved = Saved { version, readings, choices: of_choices()? };
    let data = serde_json::to_string(&saved).map_err(|e| Error::Request(e.to_string()))?;
    Ok(page::whole(&data))
}

/// Writes a page to a file, which is replaced whole or not at all.
pub fn write(path: &Path, page: &str) -> Result<(), Error> {
    Ok(files::replace(path, |out| out.write_all(page.as_bytes()))?)
}

fn of_choices() -> Result<Answers, Error> {
    let mut answers = Answers::default();
    let mut keep = |what: &str, parameters: Parameters| -> Result<(), Error> {
        answers.add(what, &parameters, &choices::answer(what, &parameters)?);
        Ok(())
    };
    keep("choices", Parameters::default())?;
    for name in Position::NAMES {
        keep("position", Parameters::new([("name", *name)]))?;
    }
    for name in Pattern::NAMES {
        keep("pattern", Parameters::new([("name", *name)]))?;
    }
    Ok(answers)
}

fn of_view(view: &View) -> Result<Answers, Error> {
    let mut answers = Answers::default();
    let mut keep = |what: &str, pairs: Vec<(&str, String)>| -> Result<(), Error> {
        let parameters = Parameters::new(pairs);
        answers.add(what, &parameters, &view.answer(what, &parameters)?);
        Ok(())
    };
    keep("about", Vec::new())?;
    keep("text", Vec::new())?;
    text(view, &mut keep)?;
    let mut left = NUMBERS;
    for site in [Site::Encoder, Site::Decoder, Site::Cross] {
        let seen = view.reading().seen().iter().filter(|seen| seen.site == site);
        for seen in seen {
            let attention = view.reading().attention(seen).settings();
            if !attention.mixing.has_scores() {
                continue;
            }
            let place =
                || vec![("site", word_of(site).to_owned()), ("layer", seen.layer.to_string())];
            let with = |more: &[(&'static str, usize)]| {
                let more = more.iter().map(|(name, value)| (*name, value.to_string()));
                place().into_iter().chain(more).collect::<Vec<_>>()
            };
            keep("layer", with(&[("cells", 48)]))?;
            let (queries, keys) =
                (view.reading().queries(site).len(), view.reading().keys(site).len());
            let splits = queries * keys * attention.heads <= SPLIT_PAIRS / view.layers(site).max(1);
            if splits {
                keep("heads", place())?;
            }
            let levels = (0..).take_while(|zoom| CELLS << zoom < queries.max(keys)).count();
            for head in 0..attention.heads {
                // From the coarsest level on, as long as there is room.
                for zoom in (0..=levels).rev() {
                    let span = CELLS << zoom;
                    let tiles = queries.div_ceil(span) * keys.div_ceil(span);
                    let numbers = tiles * CELLS * CELLS;
                    if zoom < levels && numbers > left / 64 {
                        break;
                    }
                    left = left.saturating_sub(numbers);
                    for (row, column) in (0..queries.div_ceil(span))
                        .flat_map(|row| (0..keys.div_ceil(span)).map(move |column| (row, column)))
                    {
                        let more =
                            [("head", head), ("zoom", zoom), ("row", row), ("column", column)];
                        keep("tile", with(&more))?;
                    }
                }
                if splits {
                    for at in 0..queries {
                        keep("split", with(&[("head", head), ("at", at)]))?;
                    }
                }
            }
        }
    }
    Ok(answers)
}

/// The surprise of every token, and alternatives where there are few.
fn text(
    view: &View,
    keep: &mut impl FnMut(&str, Vec<(&'static str, String)>) -> Result<(), Error>,
) -> Result<(), Error> {
    let reading = view.reading();
    let model = reading.run().model();
    let length = reading.queries(Site::Decoder).len();
    let is_encoder = model.family() == whatwhere_transformer::Family::Encoder;
    let has_blank = reading.run().tokenizer()?.mask().is_some();
    if model.settings().classes > 0 || is_encoder && (!has_blank || length > TOLD) {
        return Ok(());
    }
    for from in (0..length).step_by(super::text::TOGETHER) {
        let to = (from + super::text::TOGETHER).min(length);
        keep("surprise", vec![("from", from.to_string()), ("to", to.to_string())])?;
    }
    let ends = if is_encoder { 0..length } else { 1..length + 1 };
    let from = if length > TOLD { length } else { ends.start };
    for at in from..ends.end {
        keep("next", vec![("at", at.to_string()), ("count", NAMED.to_string())])?;
    }
    Ok(())
}

pub(super) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let bits = part.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte))
            << (8 * (3 - part.len()));
        for i in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= part.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn bytes_become_base64() {
        let made = ["", "f", "fo", "foo", "foob", "fooba"].map(|text| base64(text.as_bytes()));
        assert_eq!(made, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE="]);
    }
}
