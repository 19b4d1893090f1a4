//! `config.json`, of which every key must be understood: one that no family asks for and that is not known to be harmless is
//! refused by name, so that no convention is lost in silence.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use crate::{Error, error::Result};

/// Keys that change no logits: rates of dropout, first weights, generation, labels, and how a model is run.
const HARMLESS: &[&str] = &[
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_flash_attn_2_enabled",
    "_name_or_path",
    "_num_labels",
    "activation_dropout",
    "architectures",
    "attention_dropout",
    "attention_probs_dropout_prob",
    "attn_implementation",
    "attn_pdrop",
    "author",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "classif_dropout",
    "classifier_activation",
    "classifier_bias",
    "classifier_dropout",
    "classifier_dropout_prob",
    "classifier_pooling",
    "classifiers_size",
    "cls_token_id",
    "custom_pipelines",
    "decoder_layerdrop",
    "decoder_start_token_id",
    "decoder_vocab_size",
    "deterministic_flash_attn",
    "directionality",
    "diversity_penalty",
    "do_sample",
    "dropout",
    "dropout_rate",
    "dtype",
    "early_stopping",
    "emb_pdrop",
    "embd_pdrop",
    "embed_dropout",
    "embedding_dropout",
    "encoder_layerdrop",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "epsilon_cutoff",
    "eta_cutoff",
    "exponential_decay_length_penalty",
    "extra_pos_embeddings",
    "final_dropout",
    "finetuning_task",
    "force_bos_token_to_be_generated",
    "force_words_ids",
    "forced_bos_token_id",
    "forced_decoder_ids",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "gradient_checkpointing_kwargs",
    "hidden_dropout",
    "hidden_dropout_prob",
    "id2label",
    "init_device",
    "init_std",
    "initializer_cutoff_factor",
    "initializer_factor",
    "initializer_range",
    "is_encoder_decoder",
    "kobart_version",
    "label2id",
    "language",
    "layerdrop",
    "length_penalty",
    "mask_token_id",
    "max_length",
    "max_new_tokens",
    "max_sequence_length",
    "min_length",
    "min_new_tokens",
    "mlp_dropout",
    "model_max_length",
    "model_type",
    "name_or_path",
    "no_repeat_ngram_size",
    "normalize_after",
    "normalize_before",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "pad_token_id",
    "penalty_alpha",
    "pooler_activation",
    "pooler_dropout",
    "pooler_fc_size",
    "pooler_hidden_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "qa_dropout",
    "reference_compile",
    "remove_invalid_values",
    "renormalize_logits",
    "repad_logits_with_grad",
    "repetition_penalty",
    "resid_pdrop",
    "return_dict",
    "return_dict_in_generate",
    "save_step",
    "sentence_transformers",
    "sep_token_id",
    "seq_classif_dropout",
    "slow_but_exact",
    "sparse_pred_ignore_index",
    "sparse_prediction",
    "static_position_embeddings",
    "summary_activation",
    "summary_first_dropout",
    "summary_last_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "tokenizer_name",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "use_flash_attention_2",
    "use_flash_attn",
    "use_return_dict",
    "vocab_file_size",
    "whatwhere",
    "xla_device",
];

/// Keys that change nothing as long as they have this value.
const NEUTRAL: &[(&str, &str)] = &[
    ("add_cross_attention", "false"),
    ("cross_attention_hidden_size", "null"),
    ("do_blenderbot_90_layernorm", "false"),
    ("is_decoder", "false"),
    ("n_special", "0"),
    ("predict_special_tokens", "true"),
    ("pruned_heads", "{}"),
    ("tie_encoder_decoder", "false"),
    ("use_mrope", "false"),
];

/// What a `config.json` says.
#[derive(Debug)]
pub(crate) struct Config {
    path: PathBuf,
    /// The key of a table within it, if it is one.
    within: String,
    values: Map<String, Value>,
    asked: RefCell<BTreeSet<String>>,
    /// Names of the model's tensors: what a head has follows from them.
    pub(crate) tensors: BTreeSet<String>,
}

impl Config {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).map_err(Error::file(path))?;
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(values)) => Ok(Self::new(path, "", values)),
            Ok(_) => Err(Error::content(path, "found another value, expected an object")),
            Err(e) => Err(Error::content(path, format!("found no JSON ({e})"))),
        }
    }

    pub(crate) fn new(path: &Path, within: &str, values: Map<String, Value>) -> Self {
        let (within, asked) = (within.into(), RefCell::default());
        Self { path: path.into(), within, values, asked, tensors: BTreeSet::new() }
    }

    /// All of it.
    pub(crate) fn values(&self) -> Map<String, Value> {
        self.values.clone()
    }

    /// The model's own name of its family.
    pub(crate) fn model_type(&self) -> Result<String> {
        self.word("model_type")
    }

    /// The value of a key, which is then understood; `null` is as absent.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.asked.borrow_mut().insert(key.into());
        self.values.get(key).filter(|value| !value.is_null())
    }

    /// Whether the file does not have a key at all: the family's default then holds, and not with `null`.
    pub(crate) fn is_absent(&self, key: &str) -> bool {
        !self.values.contains_key(key)
    }

    /// Keys that a family understands to change nothing.
    pub(crate) fn understood(&self, keys: &[&str]) {
        self.asked.borrow_mut().extend(keys.iter().map(|key| (*key).into()));
    }

    /// In a table within the file, what is harmless in the file is harmless, too.
    pub(crate) fn harmless(&self) {
        self.understood(HARMLESS);
        self.understood(&["attn_impl"]);
    }

    /// Refuses a value.
    pub(crate) fn wrong(&self, key: &str, expected: &str) -> Error {
        let found = self.values.get(key).map_or("nothing".into(), Value::to_string);
        Error::content(&self.path, format!("{}{key} = {found}, expected {expected}", self.within))
    }

    fn typed<T>(
        &self,
        key: &str,
        read: impl Fn(&Value) -> Option<T>,
        expected: &str,
    ) -> Result<Option<T>> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| self.wrong(key, expected)),
        }
    }

    /// A size, if it is there.
    pub(crate) fn count_if(&self, key: &str) -> Result<Option<usize>> {
        // No size of a model has more digits; products of two of them must not overflow.
        let read = |value: &Value| value.as_u64().filter(|n| *n < 1 << 31).map(|n| n as usize);
        self.typed(key, read, "a whole number below 2147483648")
    }

    /// A size.
    pub(crate) fn count(&self, key: &str) -> Result<usize> {
        self.count_if(key)?.ok_or_else(|| self.wrong(key, "a whole number"))
    }

    /// A size under one of several names.
    pub(crate) fn count_of(&self, keys: &[&str]) -> Result<usize> {
        for key in keys {
            if let Some(found) = self.count_if(key)? {
                return Ok(found);
            }
        }
        Err(self.wrong(keys[0], "a whole number"))
    }

    /// A number, if it is there.
    pub(crate) fn number_if(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, |value| value.as_f64().filter(|n| n.is_finite()), "a number")
    }

    /// A number with the family's default.
    pub(crate) fn number(&self, key: &str, default: f64) -> Result<f64> {
        Ok(self.number_if(key)?.unwrap_or(default))
    }

    /// Yes or no, with the family's default.
    pub(crate) fn flag(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.typed(key, Value::as_bool, "true or false")?.unwrap_or(default))
    }

    /// A word, if it is there.
    pub(crate) fn word_if(&self, key: &str) -> Result<Option<String>> {
        self.typed(key, |value| value.as_str().map(String::from), "a word")
    }

    /// A word.
    pub(crate) fn word(&self, key: &str) -> Result<String> {
        self.word_if(key)?.ok_or_else(|| self.wrong(key, "a word"))
    }

    /// A table within this one.
    pub(crate) fn table(&self, key: &str) -> Result<Option<Self>> {
        let values = self.typed(key, |value| value.as_object().cloned(), "an object")?;
        let within = format!("{}{key}.", self.within);
        Ok(values.map(|values| Self::new(&self.path, &within, values)))
    }

    /// Whether this is a table of that name.
    pub(crate) fn is_within(&self, key: &str) -> bool {
        self.within.trim_end_matches('.').ends_with(key)
    }

    /// A list of numbers, if it is there.
    pub(crate) fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>> {
        let read = |value: &Value| value.as_array()?.iter().map(Value::as_f64).collect();
        self.typed(key, read, "a list of numbers")
    }

    /// Refuses any other value than this one, which the absent key means, too.
    pub(crate) fn only(&self, key: &str, value: impl Into<Value>) -> Result<()> {
        let value = value.into();
        match self.get(key) {
            Some(found) if *found != value => Err(self.wrong(key, &value.to_string())),
            _ => Ok(()),
        }
    }

    /// Refuses the first key that nobody has asked for and that is not known to be harmless.
    pub(crate) fn finish(&self) -> Result<()> {
        let asked = self.asked.borrow();
        for (key, value) in &self.values {
            let harmless = self.within.is_empty() && HARMLESS.contains(&key.as_str());
            if asked.contains(key) || harmless {
                continue;
            }
            if let Some((_, neutral)) = NEUTRAL.iter().find(|(name, _)| name == key) {
                let neutral_value: Option<Value> = serde_json::from_str(neutral).ok();
                if value.is_null() || Some(value) == neutral_value.as_ref() {
                    continue;
                }
                return Err(self.wrong(key, neutral));
            }
            return Err(self.wrong(
                key,
                "no such key: nobody here knows whether it changes the model; \
                 remove it from a copy of the file if it does not",
            ));
        }
        Ok(())
    }

    /// Whether the model has a tensor of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tensors.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> Config {
        let Value::Object(values) = serde_json::from_str(json).unwrap() else { panic!("{json}") };
        Config::new(Path::new("config.json"), "", values)
    }

    #[test]
    fn keys_that_nobody_asked_for_are_refused_by_name() {
        let read = config(r#"{"hidden_size": 8, "dropout": 0.1, "final_logit_softcapping": 30.0}"#);
        assert_eq!(read.count("hidden_size").unwrap(), 8);
        let message = read.finish().unwrap_err().to_string();
        assert!(message.starts_with("config.json: final_logit_softcapping = 30.0"), "{message}");
        assert!(config(r#"{"is_decoder": false, "pruned_heads": {}}"#).finish().is_ok());
        assert!(config(r#"{"is_decoder": true}"#).finish().is_err());
    }

    #[test]
    fn values_of_another_kind_are_refused_with_what_would_be_right() {
        let read = config(r#"{"a": "x", "b": -1, "c": {"d": 1}, "e": 4294967296}"#);
        for (error, expected) in [
            (read.count("a").unwrap_err(), "a = \"x\", expected a whole number"),
            (read.count("b").unwrap_err(), "b = -1"),
            (read.count("e").unwrap_err(), "e = 4294967296"),
            (read.count("z").unwrap_err(), "z = nothing"),
            (read.flag("a", true).unwrap_err(), "expected true or false"),
            (read.only("b", 0).unwrap_err(), "b = -1, expected 0"),
            (read.table("c").unwrap().unwrap().finish().unwrap_err(), "c.d = 1"),
        ] {
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
