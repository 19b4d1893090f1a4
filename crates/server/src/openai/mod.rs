//! OpenAI's interface.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod models;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use whatwhere_transformer::Family;

use crate::{Refusal, Served};

/// What every answer begins with.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
}

impl Head {
    /// The next answer's.
    pub(crate) fn new(kind: &str, served: &Served) -> Self {
        static ANSWERS: AtomicU64 = AtomicU64::new(1);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let number = ANSWERS.fetch_add(1, Ordering::Relaxed);
        Self { id: format!("{kind}-{number}"), created: now.as_secs(), model: served.name.clone() }
    }
}

/// Refuses a model that writes nothing.
pub(crate) fn require_writer(served: &Served) -> Result<(), Refusal> {
    let name = &served.name;
    match served.run.model().family() {
        _ if served.run.model().classifier.is_some() => Err(Refusal::invalid(
            "model",
            format!("{name} tells classes and does not write; ask /v1/classify"),
        )),
        Family::Decoder => Ok(()),
        Family::Encoder => Err(Refusal::invalid(
            "model",
            format!("{name} is an encoder and does not write; ask /v1/fill or /v1/embeddings"),
        )),
        Family::EncoderDecoder => Err(Refusal::invalid(
            "model",
            format!("{name} is an encoder-decoder; ask /v1/translate"),
        )),
    }
}

/// Refuses what is asked for and not done.
pub(crate) fn refuse_others(
    others: &[(&str, &Option<serde_json::Value>, &str)],
) -> Result<(), Refusal> {
    for (name, value, reason) in others {
        let is_given = value.as_ref().is_some_and(|value| {
            !value.is_null() && value.as_array().is_none_or(|all| !all.is_empty())
        });
        if is_given {
            return Err(Refusal::invalid(*name, format!("{name} is not supported: {reason}")));
        }
    }
    Ok(())
}
