//! A run folder whose model was not trained here: `import.json` says where it came from, and what its own files say of
//! special tokens, generation and chat.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use whatwhere_data::{
    BatchSize, SpecialTokens, Tokenizer,
    settings::{File, Masked, Pairs},
};
use whatwhere_files as files;
use whatwhere_transformer::{Family, ModelSettings, Parameter};

use crate::{
    Error, Folder, Run, RunSettings,
    checkpoint::{self, Array},
    hash,
    trainer::saving,
};

/// Tokens of a sequence that an imported model is evaluated with, if it was made for as many.
const LENGTH: usize = 1024;

/// What `import.json` holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Imported {
    /// The folder or file it came from, as it was named.
    pub origin: String,
    /// Its family by its own name, such as `llama`.
    pub family: String,
    /// SHA-256 of the files it came from, by name.
    pub files: BTreeMap<String, String>,
    /// The longest text it was made for, if its files say so.
    pub context: Option<usize>,
    /// Special tokens.
    pub specials: SpecialIds,
    /// Its config in transformers' words, for the way back.
    pub config: Map<String, Value>,
    /// How it was meant to generate, in transformers' words.
    pub generation: Map<String, Value>,
    /// How messages of a chat become text, in Jinja.
    pub chat_template: Option<String>,
}

/// Special tokens by id.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpecialIds {
    /// Begins a text.
    pub begin: Option<u32>,
    /// Each of them ends a text; the first is the one that is written.
    pub ends: Vec<u32>,
    /// Fills rows.
    pub padding: Option<u32>,
    /// Hides a token.
    pub mask: Option<u32>,
    /// Stands for what has no token.
    pub unknown: Option<u32>,
    /// Begins the target of an encoder-decoder.
    pub decoder_start: Option<u32>,
    /// The first token of every target, such as a language.
    pub forced_begin: Option<u32>,
}

impl Imported {
    /// Reads `import.json`; nothing if the run was trained here.
    pub(crate) fn load(folder: &Folder) -> Result<Option<Self>, Error> {
        let path = folder.import();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::file(&path, "read")(e)),
        };
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|e| Error::Settings(format!("{}: found {e}", path.display())))
    }

    /// The tokenizer with its special tokens by id.
    pub(crate) fn tokenizer(&self, tokenizer: Tokenizer) -> Tokenizer {
        let SpecialIds { begin, ends, padding, mask, unknown, decoder_start, .. } = &self.specials;
        tokenizer.with_special_ids(&SpecialTokens {
            begin: decoder_start.or(*begin),
            ends: ends.clone(),
            padding: *padding,
            mask: *mask,
            unknown: *unknown,
        })
    }

    /// The tokenizer of a run folder as a setting of data that its model is to read, with the ids of an imported model's special
    /// tokens: none may be added that the model does not know.
    pub fn tokens_of(folder: &Folder) -> Result<File, Error> {
        let mut file = File::at(folder.tokenizer());
        if let Some(Self { specials, .. }) = Self::load(folder)? {
            let end = specials.ends.first().copied();
            file.begin = specials.decoder_start.or(specials.begin).or(end);
            file.end = end;
            file.padding = specials.padding.or(end);
            (file.mask, file.unknown) = (specials.mask, specials.unknown);
        }
        Ok(file)
    }

    /// Notes the hashes of the files it came from.
    pub fn hash_files(&mut self, paths: &[PathBuf]) -> Result<(), Error> {
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            self.files.insert(name, hash_of(path)?);
        }
        Ok(())
    }

    /// Writes a run folder with the model, its tokenizer if it has one, and this.
    pub fn save(
        &self,
        folder: &Folder,
        model: ModelSettings,
        parameters: &[Parameter],
        tokenizer: Option<&str>,
    ) -> Result<(), Error> {
        let path = folder.path();
        // What cannot be read is refused before anything is written.
        let settings = self.settings(model)?;
        if let Some(text) = tokenizer {
            Tokenizer::from_json(text.as_bytes())?;
        }
        fs::create_dir_all(path).map_err(Error::file(path, "created"))?;
        let mut metadata = BTreeMap::from([("step".into(), "0".into())]);
        if let Some(text) = tokenizer {
            files::replace(&folder.tokenizer(), |out| out.write_all(text.as_bytes()))?;
            metadata.insert(saving::TOKENIZER.into(), hash::of_bytes(text.as_bytes()));
        }
        let arrays = parameters.iter().map(Array::from).collect();
        checkpoint::save(&folder.model(), arrays, &metadata)?;
        let text = serde_json::to_string_pretty(self).expect("words and numbers can be written");
        files::replace(&folder.import(), |out| writeln!(out, "{text}"))?;
        folder.save_format()?;
        // Last: with it there is a run.
        folder.save_settings(&settings)
    }

    /// The settings of a run: the model's, and data to be named by whoever evaluates it or trains it further.
    fn settings(&self, model: ModelSettings) -> Result<RunSettings, Error> {
        let mut settings = RunSettings::default();
        settings.training.length = self.context.unwrap_or(LENGTH).clamp(1, LENGTH);
        settings.training.batch = BatchSize::Rows(4);
        match model.family {
            Family::Decoder => {}
            Family::Encoder => settings.data.objective = Some(Masked::default().into()),
            Family::EncoderDecoder => settings.data.source = Pairs::default().into(),
        }
        settings.model = model;
        settings.check()?;
        Ok(settings)
    }
}

impl Run {
    /// Writes a run folder, which must not hold a run yet, with the same tokenizer and data, and another model in place of
    /// this one's.
    pub fn save_as(
        &self,
        folder: &Folder,
        model: &ModelSettings,
        parameters: &[Parameter],
    ) -> Result<(), Error> {
        let path = folder.path();
        if folder.has_run() {
            return Err(Error::RunExists { folder: path.into() });
        }
        let settings = RunSettings { model: model.clone(), ..self.settings.clone() };
        settings.check()?;
        fs::create_dir_all(path).map_err(Error::file(path, "created"))?;
        let mut metadata = BTreeMap::from([("step".into(), self.step.to_string())]);
        if let Ok(tokenizer) = self.tokenizer() {
            metadata.insert(saving::TOKENIZER.into(), folder.save_tokenizer(tokenizer)?);
        }
        checkpoint::save(&folder.model(), parameters.iter().map(Array::from).collect(), &metadata)?;
        if let Some(imported) = &self.imported {
            // The config is that of the model as it came.
            let imported = Imported { config: Map::new(), ..imported.clone() };
            let text = serde_json::to_string_pretty(&imported).expect("words can be written");
            files::replace(&folder.import(), |out| writeln!(out, "{text}"))?;
        }
        folder.save_format()?;
        // Last: with it there is a run.
        folder.save_settings(&settings)
    }
}

fn hash_of(path: &Path) -> Result<String, Error> {
    let mut file = fs::File::open(path).map_err(Error::file(path, "read"))?;
    let mut hash = Sha256::new();
    io::copy(&mut file, &mut hash).map_err(Error::file(path, "read"))?;
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
