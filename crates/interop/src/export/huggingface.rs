//! A run folder as transformers reads it: the tables of the families the other way round.

use std::{fs, io::Write, path::Path};

use serde_json::{Value, json};
use whatwhere_files as files;
use whatwhere_training::{Folder, Run};

use super::{Exported, must_be_new, truly, worded};
use crate::{
    Error,
    error::Result,
    give::{Ours, plan},
    huggingface::{OURS, family},
    tensors::safetensors,
};

/// Writes a run as a model folder for transformers, which must not be there yet.
pub fn to_huggingface(run: &Path, out: &Path) -> Result<Exported> {
    must_be_new(out, "folder")?;
    let opened = Run::open(run)?;
    let words = truly(worded(&opened), &opened)?;
    let mut config = words.config;
    if !config.contains_key("architectures")
        && let Some(class) = family::class(&words.family)
    {
        config.insert("architectures".into(), json!([class]));
    }
    let own = serde_json::to_value(&opened.settings.model);
    config.insert(OURS.into(), own.map_err(|e| Error::Refused(e.to_string()))?);
    let views = opened.model().views();
    let ours = Ours::new(&views).widened(&words.settings)?;
    let pieces = plan(&words.names, &ours, &words.settings)?;
    fs::create_dir_all(out).map_err(Error::file(out))?;
    let write = |name: &str, text: &str| {
        files::replace(&out.join(name), |file| file.write_all(text.as_bytes()))
            .map_err(whatwhere_training::Error::from)
    };
    safetensors::save(&out.join("model.safetensors"), &pieces, &ours)?;
    let from = Folder::new(run);
    if opened.tokenizer().is_ok() {
        let path = from.tokenizer();
        let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
        write("tokenizer.json", &text)?;
        write("tokenizer_config.json", &format!("{:#}\n", tokenizer_config(&opened)))?;
    }
    if let Some(imported) = opened.imported.as_ref().filter(|i| !i.generation.is_empty()) {
        let text = format!("{:#}\n", Value::Object(imported.generation.clone()));
        write("generation_config.json", &text)?;
    }
    // Last: with it there is a model.
    write("config.json", &format!("{:#}\n", Value::Object(config)))?;
    Ok(Exported { path: out.into(), family: words.family, tensors: pieces.len() })
}

fn tokenizer_config(run: &Run) -> Value {
    let mut said = json!({ "tokenizer_class": "PreTrainedTokenizerFast" });
    if let Ok(tokenizer) = run.tokenizer() {
        for (key, id) in [
            ("bos_token", tokenizer.begin()),
            ("eos_token", tokenizer.end()),
            ("pad_token", tokenizer.padding()),
            ("mask_token", tokenizer.mask()),
            ("unk_token", tokenizer.unknown()),
        ] {
            if let Some(id) = id {
                said[key] = tokenizer.token(id).into();
            }
        }
    }
    if let Some(template) = run.imported.as_ref().and_then(|i| i.chat_template.as_ref()) {
        said["chat_template"] = template.clone().into();
    }
    said
}
