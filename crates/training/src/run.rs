//! A trained run, ready to be asked: text in, text out.

use std::{cell::Cell, ops::ControlFlow, path::Path};

use burn::tensor::activation;
use serde::{Deserialize, Serialize};
use whatwhere_data::{Objective, Tokenizer};
use whatwhere_settings::Refuses;
use whatwhere_transformer::{
    Family, Mode, Model, Sequences, Stack,
    generate::{Beam, Generator, Sampling},
};

use crate::{
    Error, Folder, RunSettings,
    archive::Archive,
    checkpoint,
    finetune::adapter_file,
    imported::Imported,
    stop::StopFilter,
    weights::{self, Weights},
};

/// A model, its tokenizer and its settings.
#[derive(Debug)]
pub struct Run {
    /// The settings it was trained with.
    pub settings: RunSettings,
    /// Where the model came from, if it was not trained here.
    pub imported: Option<Imported>,
    /// From text to tokens and back; an imported model may have come without.
    tokenizer: Option<Tokenizer>,
    /// Updates behind the weights.
    pub step: u64,
    /// Whether its folder has weights of int8 and no others.
    pub is_stored_int8: bool,
    /// Holds the model, with the best weights of the run.
    generator: Generator,
}

/// How text is written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generation {
    /// How each token is chosen.
    pub sampling: Sampling,
    /// Tokens at the most.
    pub limit: usize,
    /// Strings that end the text; they are not part of it.
    pub stop: Vec<String>,
}

/// How a translation is searched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Translation {
    /// Beginnings kept side by side; 1 is greedy. Default 4.
    pub beam: usize,
    /// α of the length penalty `((5 + length) / 6)^α`; default 0.6.
    pub length_penalty: f32,
    /// Tokens beyond the length of the longest source of a batch; default 50.
    pub longer: usize,
    /// The language of the sources, where an imported model has several: `en`, or its token, `eng_Latn`; default what its
    /// tokenizer says.
    pub from_language: Option<String>,
    /// The language to translate to; default what the model's files say.
    pub to_language: Option<String>,
}

impl Default for Translation {
    fn default() -> Self {
        Self { beam: 4, length_penalty: 0.6, longer: 50, from_language: None, to_language: None }
    }
}

/// A word for a blank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Filling {
    /// The token as text.
    pub text: String,
    /// Its probability.
    pub probability: f64,
}

/// What stands for a blank in a text.
pub const BLANK: &str = "[MASK]";

/// Sources translated at once.
const TOGETHER: usize = 32;

/// A generator that reads prompts as the model learned to.
fn generator(settings: &RunSettings, model: &Model) -> Generator {
    let has_prefix = matches!(settings.data.objective(), Objective::Prefix(_));
    Generator::new(model).with_prefix(has_prefix)
}

impl Run {
    /// Opens a run folder, with weights in f32, whatever they are stored as.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(folder, Some(Weights::F32))
    }

    /// Opens a run folder with these weights, or as they are stored: int8 ones of a quantized run, f32 otherwise.
    pub fn open_with(folder: impl AsRef<Path>, weights: Option<Weights>) -> Result<Self, Error> {
        let folder = Folder::new(folder.as_ref());
        let settings = folder.load_settings()?;
        let archive = Archive::open(&folder.model())?;
        let imported = Imported::load(&folder)?;
        let (tokenizer, adapted) = rayon::join(
            || folder.load_tokenizer(&archive.metadata, imported.as_ref()),
            || match folder.adapter().is_file() {
                true => adapter_file::load(&folder, &settings, weights).map(Some),
                false => Ok(None),
            },
        );
        let (tokenizer, adapted) = (tokenizer?, adapted?);
        let (model, step) = match adapted {
            Some(adapted) => adapted,
            None => {
                let step = checkpoint::entry(&archive.metadata, &folder.model(), "step")?;
                (weights::load(&archive, &settings, weights)?, step)
            }
        };
        let (generator, is_stored_int8) = (generator(&settings, &model), archive.is_int8());
        Ok(Self { settings, imported, tokenizer, step, is_stored_int8, generator })
    }

    /// A run of which three files came as bytes: `config.toml`, `tokenizer.json` and `model.safetensors`.
    pub fn of_files(config: &str, tokenizer: &[u8], model: Vec<u8>) -> Result<Self, Error> {
        let path = Path::new("model.safetensors");
        let settings = RunSettings::read(config, &[])?;
        let tokenizer = Some(Tokenizer::from_json(tokenizer)?);
        let archive = Archive::of(path, model.into())?;
        let step = checkpoint::entry(&archive.metadata, path, "step")?;
        let model = weights::load(&archive, &settings, Some(Weights::F32))?;
        let (generator, is_stored_int8) = (generator(&settings, &model), archive.is_int8());
        Ok(Self { settings, imported: None, tokenizer, step, is_stored_int8, generator })
    }

    /// The same run with int8 weights, the nearest to its own.
    pub fn to_int8(&self) -> Result<Self, Error> {
        Ok(self.with_model(&self.model().to_int8()?))
    }

    /// The same weights under other settings than they were trained with, where these leave the parameters as they are:
    /// `model.attention.position.scaling.kind=ntk`.
    pub fn changed(&self, changes: &[String]) -> Result<Self, Error> {
        let settings = RunSettings::read(&self.settings.to_toml()?, changes)?;
        let generator = generator(&settings, &self.model().with_settings(&settings.model)?);
        let (imported, tokenizer) = (self.imported.clone(), self.tokenizer.clone());
        let (step, is_stored_int8) = (self.step, self.is_stored_int8);
        Ok(Self { settings, imported, tokenizer, step, is_stored_int8, generator })
    }

    /// The same run with the weights of another model of its kind.
    pub fn with_model(&self, model: &Model) -> Self {
        let settings = RunSettings { model: model.settings().clone(), ..self.settings.clone() };
        let generator = generator(&settings, model);
        let (imported, tokenizer) = (self.imported.clone(), self.tokenizer.clone());
        let (step, is_stored_int8) = (self.step, self.is_stored_int8);
        Self { settings, imported, tokenizer, step, is_stored_int8, generator }
    }

    /// From text to tokens and back. Refuses where the model came without.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        self.tokenizer.as_ref().ok_or_else(|| {
            let reason = "this run has no tokenizer: its model came without one; ask it by token ids (logits)";
            Error::Settings(reason.into())
        })
    }

    /// The tokens of a text as a model reads it: an imported one with what its tokenizer puts around a text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        let tokenizer = self.tokenizer()?;
        Ok(match self.imported {
            None => tokenizer.encode(text)?,
            Some(_) => tokenizer.encode_framed(text)?,
        })
    }

    /// The tokens of a source: an encoder-decoder reads its end, too.
    pub fn encode_source(&self, text: &str) -> Result<Vec<u32>, Error> {
        let mut tokens = self.encode(text)?;
        let end = self.tokenizer()?.end();
        if tokens.last().copied() != end {
            tokens.extend(end);
        }
        Ok(tokens)
    }

    /// The model, with the best weights of the run.
    pub fn model(&self) -> &Model {
        self.generator.model()
    }

    /// Goes on after a prompt until `each` breaks, which gets the text as it comes, whole characters only.
    pub fn generate(
        &self,
        prompt: &str,
        generation: &Generation,
        mut each: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<String, Error> {
        self.require(Family::Decoder, "generate")?;
        let mut text = StopFilter::new(&generation.stop);
        let broken = Cell::new(false);
        let mut each = |text: &str| {
            let flow = each(text);
            broken.set(broken.get() || flow.is_break());
            flow
        };
        let tokenizer = self.tokenizer()?;
        let mut prompt = self.encode(prompt)?;
        if prompt.is_empty() {
            prompt = vec![self.first_token(generation.sampling.seed)?];
            let first = tokenizer.decode(&prompt);
            let _ = text.push(first.trim(), &mut each);
        }
        let mut stream = tokenizer.stream_after(&prompt);
        self.generator.generate(
            None,
            &prompt,
            generation.limit,
            &generation.sampling,
            |token| {
                if tokenizer.ends(token) {
                    return ControlFlow::Break(());
                }
                text.push(&stream.push(token), &mut each)
            },
        )?;
        let rest = stream.finish();
        if !broken.get() && text.push(&rest, &mut each).is_continue() {
            let _ = text.release(&mut each);
        }
        Ok(text.said)
    }

    /// Translates line by line, in the order given.
    pub fn translate(
        &self,
        lines: &[impl AsRef<str>],
        translation: &Translation,
    ) -> Result<Vec<String>, Error> {
        self.translate_each(lines, translation)?.into_iter().collect()
    }

    /// [`Self::translate`], where a line that cannot be translated spoils no other. A blank line stays one.
    pub fn translate_each(
        &self,
        lines: &[impl AsRef<str>],
        translation: &Translation,
    ) -> Result<Vec<Result<String, Error>>, Error> {
        self.require(Family::EncoderDecoder, "translate")?;
        let tokenizer = self.tokenizer()?;
        let (Some(begin), Some(end)) = (tokenizer.begin(), tokenizer.end()) else {
            let reason = "the tokenizer has no tokens that begin and end a sentence";
            return Err(Error::Settings(reason.into()));
        };
        if translation.beam == 0 {
            return Err(Error::setting("beam", 0, "expected at least 1"));
        }
        let languages = self.languages(translation)?;
        let mut beam = Beam {
            width: translation.beam,
            length_penalty: translation.length_penalty,
            limit: 1,
            begin: languages.begin.unwrap_or(begin),
            end,
            forced: languages.forced,
            never: tokenizer.padding().filter(|padding| *padding != end),
        };
        let mut out: Vec<Result<String, Error>> = Vec::with_capacity(lines.len());
        let mut sources = Vec::with_capacity(lines.len());
        for (index, line) in lines.iter().map(AsRef::as_ref).enumerate() {
            out.push(Ok(String::new()));
            if line.trim().is_empty() {
                continue;
            }
            match self.encode_in(line, languages) {
                Ok(tokens) => sources.push((index, tokens)),
                Err(error) => out[index] = Err(error),
            }
        }
        // Sentences of like length together, so that little of a batch is padding.
        sources.sort_by_key(|(_, tokens)| tokens.len());
        for batch in sources.chunks(TOGETHER) {
            let mut search = |batch: &[(usize, Vec<u32>)]| -> Result<(), Error> {
                let longest = batch.iter().map(|(_, tokens)| tokens.len()).max().unwrap_or(0);
                let positions = self.settings.model.longest().unwrap_or(usize::MAX);
                beam.limit = (longest + translation.longer).min(positions);
                let padding = tokenizer.padding().unwrap_or(end);
                let found = beam.search(self.model(), &padded(batch, longest, padding))?;
                for ((index, _), found) in batch.iter().zip(found) {
                    let best = found.first().expect("a search finds at least one target");
                    let forced = usize::from(languages.forced.is_some()).min(best.tokens.len());
                    out[*index] = Ok(tokenizer.decode(&best.tokens[forced..]));
                }
                Ok(())
            };
            if search(batch).is_ok() {
                continue;
            }
            // One line is at fault; the others are translated without it.
            let alone: Vec<_> = batch.chunks(1).map(|line| (line[0].0, search(line))).collect();
            for (index, outcome) in alone {
                if let Err(error) = outcome {
                    out[index] = Err(error);
                }
            }
        }
        Ok(out)
    }

    /// The log-probability of every token of a text after the first, given those before it.
    pub fn score(&self, text: &str) -> Result<Vec<(u32, f64)>, Error> {
        self.require(Family::Decoder, "score")?;
        let tokens = self.encode(text)?;
        if tokens.len() < 2 {
            let found = tokens.len();
            return Err(Error::Settings(format!("found {found} tokens, expected at least 2")));
        }
        let sequences = Sequences::from_rows(&[&tokens]);
        let logits = self.model().forward(None, &sequences, Mode::default())?;
        let vocabulary = logits.dims()[2];
        let log: Vec<f32> =
            activation::log_softmax(logits, 2).into_data().try_into_vec().expect("f32");
        Ok(tokens[1..]
            .iter()
            .enumerate()
            .map(|(position, token)| {
                (*token, f64::from(log[position * vocabulary + *token as usize]))
            })
            .collect())
    }

    /// The weights of one layer over a text, `[heads, tokens, tokens]`: row by row, how much each token takes of which.
    pub fn attention_weights(
        &self,
        text: &str,
        layer: usize,
    ) -> Result<(Vec<f32>, [usize; 3]), Error> {
        if self.model().family() == Family::EncoderDecoder {
            let reason = "attention_weights needs a decoder or an encoder, this run trained both";
            return Err(Error::Settings(reason.into()));
        }
        let tokens = self.encode(text)?;
        if tokens.is_empty() {
            return Err(Error::Settings("found no tokens, expected at least 1".into()));
        }
        let mut inputs = self.model().attention_inputs(None, &Sequences::from_rows(&[tokens]))?;
        let stack = self.model().decoder.as_ref().or(self.model().encoder.as_ref());
        let Some(block) = stack.and_then(|stack| stack.block(layer)) else {
            let last = stack.map_or(0, Stack::depth).saturating_sub(1);
            return Err(Error::Settings(format!("found layer {layer}, expected 0 to {last}")));
        };
        let input = inputs.swap_remove(layer).input;
        let weights = block.attention.weights(input).map_err(whatwhere_transformer::Error::from)?;
        let [_, heads, queries, keys] = weights.dims();
        let values = weights.into_data().try_into_vec().expect("f32");
        Ok((values, [heads, queries, keys]))
    }

    pub(crate) fn require(&self, family: Family, verb: &'static str) -> Result<(), Error> {
        let found = self.model().family();
        if found == family {
            return Ok(());
        }
        let name = |family| match family {
            Family::Decoder => "a decoder",
            Family::Encoder => "an encoder",
            Family::EncoderDecoder => "an encoder-decoder",
        };
        Err(Error::Settings(format!(
            "{verb} needs {}, this run trained {}",
            name(family),
            name(found)
        )))
    }
}

/// Sources of several lines as one batch.
fn padded(lines: &[(usize, Vec<u32>)], longest: usize, padding: u32) -> Sequences {
    let rows: Vec<Vec<u32>> = lines
        .iter()
        .map(|(_, tokens)| {
            let mut row = tokens.clone();
            row.resize(longest, padding);
            row
        })
        .collect();
    let mut batch = Sequences::from_rows(&rows);
    batch.lengths = Some(lines.iter().map(|(_, tokens)| tokens.len()).collect());
    batch
}
