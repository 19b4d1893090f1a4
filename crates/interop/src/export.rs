//! A run folder as transformers reads it: the tables of the families the other way round.
//!
//! An imported model goes back under the config it came with. A trained one is tried under the families that could have its
//! settings: a config is written for each, read as any other, and taken if it means the same model.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::{Map, Value, json};
use whatwhere_files as files;
use whatwhere_training::{Folder, Run};
use whatwhere_transformer::{Activation, Family, ModelSettings, Site};

use crate::{
    Error,
    error::Result,
    exchange,
    huggingface::{config::Config, family},
    tensors::safetensors,
};

/// The key of `config.json` that holds our settings, for a return without loss.
const OURS: &str = "whatwhere";

/// What an export has done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exported {
    /// The folder.
    pub folder: PathBuf,
    /// The family that transformers reads.
    pub family: String,
    /// Tensors in the file.
    pub tensors: usize,
}

/// Writes a run as a model folder for transformers, which must not be there yet.
pub fn export(run: &Path, out: &Path) -> Result<Exported> {
    if out.exists() {
        return Err(Error::content(out, "there is something already, expected a new folder"));
    }
    let opened = Run::open(run)?;
    let settings = &opened.settings.model;
    let mut config = match &opened.imported {
        Some(imported) if !imported.config.is_empty() => imported.config.clone(),
        _ => found(settings)?,
    };
    let parameters = opened.model().parameters();
    let read = read(&config, settings)?;
    let tensors = exchange::give(&(read.family.names)(&read.config)?, &parameters, settings)?;
    let ours = serde_json::to_value(settings).map_err(|e| Error::Refused(e.to_string()))?;
    config.insert(OURS.into(), ours);
    fs::create_dir_all(out).map_err(Error::file(out))?;
    let text = format!("{:#}\n", Value::Object(config));
    let write = |name: &str, text: &str| {
        files::replace(&out.join(name), |file| file.write_all(text.as_bytes()))
            .map_err(whatwhere_training::Error::from)
    };
    safetensors::save(&out.join("model.safetensors"), &tensors)?;
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
    write("config.json", &text)?;
    let family = read.config.model_type()?;
    Ok(Exported { folder: out.into(), family, tensors: tensors.len() })
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

/// A config that was read as an import would.
struct Read {
    config: Config,
    family: family::Family,
}

/// Reads a config, which must mean these settings.
fn read(config: &Map<String, Value>, settings: &ModelSettings) -> Result<Read> {
    let mut config = Config::new(Path::new("config.json"), "", config.clone());
    let family = family::find(&config)?;
    // Heads are known by their tensors; these are all that any family asks for.
    config.tensors = family::heads(settings);
    let read = (family.settings)(&config)?.model()?;
    if same(&read, settings) {
        return Ok(Read { config, family });
    }
    let name = config.model_type()?;
    let reason = "the run has other settings than the family can say; keep it as a run folder";
    Err(Error::Refused(format!("export as {name}: {reason}")))
}

/// The config of the first family that has these settings.
fn found(settings: &ModelSettings) -> Result<Map<String, Value>> {
    let refused = || {
        let names = CANDIDATES.join(", ");
        let reason = "no family of transformers that is tried has these settings";
        Error::Refused(format!("{reason}; tried are {names}"))
    };
    if settings.family != Family::Decoder {
        return Err(refused());
    }
    for name in CANDIDATES {
        let Some(config) = candidate(name, settings)? else { continue };
        if read(&config, settings).is_ok() {
            return Ok(config);
        }
    }
    Err(refused())
}

const CANDIDATES: [&str; 6] = ["llama", "mistral", "qwen3", "qwen2", "gpt2", "opt"];

/// What a family's config would be, if nothing stood against it.
fn candidate(name: &str, settings: &ModelSettings) -> Result<Option<Map<String, Value>>> {
    let attention = settings.attention(Site::Decoder, 0)?;
    let own = serde_json::to_value(&attention).map_err(|e| Error::Refused(e.to_string()))?;
    let position = if own["position"].is_array() { &own["position"][0] } else { &own["position"] };
    let (heads, width) = (attention.heads, settings.width);
    let activation = match settings.activation {
        Activation::Relu => "relu",
        Activation::Gelu => "gelu",
        Activation::GeluTanh => "gelu_new",
        _ => "silu",
    };
    let (inner, layers) = (settings.feed_forward_width(), settings.layers);
    let length = position["length"].as_u64().unwrap_or(1024);
    let mut config = json!({
        "model_type": name, "vocab_size": settings.vocabulary, "tie_word_embeddings": settings.tied,
    });
    let more = match name {
        "gpt2" => json!({
            "architectures": ["GPT2LMHeadModel"], "n_embd": width, "n_head": heads, "n_layer": layers, "n_inner": inner,
            "n_positions": length, "activation_function": activation, "layer_norm_epsilon": settings.epsilon,
        }),
        "opt" => json!({
            "architectures": ["OPTForCausalLM"], "hidden_size": width, "num_attention_heads": heads,
            "num_hidden_layers": layers, "ffn_dim": inner, "max_position_embeddings": length, "word_embed_proj_dim": width,
            "activation_function": activation,
        }),
        _ => {
            let bias = own["bias"] == "all";
            let window = own["pattern"]["left"].as_u64().map(|left| left + 1);
            let mut config = json!({
                "hidden_size": width, "num_attention_heads": heads, "num_hidden_layers": layers,
                "num_key_value_heads": attention.kv_heads.unwrap_or(heads), "intermediate_size": inner,
                "head_dim": attention.head_dim.unwrap_or(width / heads.max(1)), "hidden_act": activation,
                "rms_norm_eps": settings.epsilon, "rope_theta": position["base"].as_f64().unwrap_or(10_000.0),
                "max_position_embeddings": 1 << 20,
            });
            let (class, extra) = match name {
                "llama" => ("Llama", json!({ "attention_bias": bias, "mlp_bias": settings.bias })),
                "mistral" => ("Mistral", json!({ "sliding_window": window })),
                "qwen3" => ("Qwen3", json!({ "attention_bias": bias })),
                _ => ("Qwen2", json!({})),
            };
            config["architectures"] = json!([format!("{class}ForCausalLM")]);
            extend(&mut config, extra);
            config
        }
    };
    extend(&mut config, more);
    Ok(config.as_object().cloned())
}

fn extend(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend(more);
    }
}

/// Whether two settings make the same model, whatever the words and whatever only training asks for.
fn same(a: &ModelSettings, b: &ModelSettings) -> bool {
    let plain = |settings: &ModelSettings| {
        let mut plain = settings.clone();
        if plain.activation == Activation::Swiglu {
            (plain.activation, plain.gated) = (Activation::Silu, true);
        }
        plain.feed_forward = Some(settings.feed_forward_width());
        plain.encoder_layers = Some(settings.encoder_depth());
        plain.norm_bias = None;
        // What is left open follows from the encoding, which is compared below.
        plain.scale_embeddings = settings.scale_embeddings.filter(|scales| *scales);
        let default = ModelSettings::default();
        (plain.dropout, plain.init, plain.recompute) = (0.0, default.init, default.recompute);
        (plain.attention, plain.encoder) = (default.attention.clone(), default.encoder.clone());
        (plain.cross, plain.alternate) = (default.cross.clone(), default.alternate);
        plain
    };
    let layers = |settings: &ModelSettings| -> Option<Vec<_>> {
        let sites = [
            (Site::Encoder, settings.encoder_depth()),
            (Site::Decoder, settings.decoder_depth()),
            (
                Site::Cross,
                if settings.family == Family::EncoderDecoder { settings.layers } else { 0 },
            ),
        ];
        let mut all = Vec::new();
        for (site, depth) in sites {
            for layer in 0..depth {
                let mut own = settings.attention(site, layer).ok()?;
                own.kv_heads = Some(own.kv_heads.unwrap_or(own.heads));
                own.head_dim = Some(own.head_dim.unwrap_or(own.width / own.heads.max(1)));
                own.dropout = 0.0;
                all.push(own);
            }
        }
        Some(all)
    };
    plain(a) == plain(b)
        && layers(a).is_some()
        && layers(a) == layers(b)
        && a.shapes().ok() == b.shapes().ok()
}
