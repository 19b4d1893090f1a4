//! What clients of llama.cpp and vLLM ask for beside OpenAI's interface.

pub(crate) mod completion;
pub(crate) mod embedding;

use std::{collections::HashMap, sync::Arc};

use axum::{
    extract::{Query, State},
    http::header,
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::block_in_place;
use whatwhere_data::Tokenizer;

use crate::{
    Refusal, Served, Shared, body::Json, metrics::Metrics, openai::chat, routes::json_response,
};

/// Tokens of one text to be turned into text at the most.
const TOKENS: usize = 1 << 20;

pub(crate) async fn health(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    match shared.served.iter().find(|served| served.engine.is_dead()) {
        None => Ok(json_response(&json!({ "status": "ok" }))),
        Some(dead) => Err(Refusal::unavailable(format!("the engine of {} has stopped", dead.name))),
    }
}

pub(crate) async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let all = shared
        .served
        .iter()
        .map(|served| (served.name.as_str(), &*served.metrics, served.engine.waiting()));
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, Metrics::page(all)).into_response()
}

pub(crate) async fn slots(State(shared): State<Arc<Shared>>) -> Response {
    let mut all = Vec::new();
    for served in &shared.served {
        let busy = served.engine.slots();
        for id in 0..shared.options.slots {
            let mut slot = json!({
                "id": id,
                "model": served.name,
                "n_ctx": served.context,
                "is_processing": id < busy.len(),
            });
            if let Some(busy) = busy.get(id) {
                slot["n_prompt_tokens"] = busy.prompt.into();
                slot["n_prompt_tokens_processed"] = busy.read.into();
                slot["n_decoded"] = busy.written.into();
            }
            all.push(slot);
        }
    }
    json_response(&all.into())
}

pub(crate) async fn props(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    let models: Vec<Value> = shared
        .served
        .iter()
        .map(|served| {
            json!({
                "model": served.name,
                "n_ctx": served.context,
                "chat_template": template(served),
            })
        })
        .collect();
    let first = shared.served.first();
    Ok(json_response(&json!({
        "total_slots": shared.options.slots,
        "chat_template": first.and_then(template),
        "default_generation_settings": { "n_ctx": first.map(|served| served.context) },
        "models": models,
        "build_info": concat!("whatwhere ", env!("CARGO_PKG_VERSION")),
    })))
}

fn template(served: &Served) -> Option<&str> {
    match &served.template {
        Some(Ok(template)) => Some(&template.source),
        _ => None,
    }
}

pub(crate) async fn tokenizer_info(
    State(shared): State<Arc<Shared>>,
    Query(asked): Query<HashMap<String, String>>,
) -> Result<Response, Refusal> {
    let served = shared.find(asked.get("model").map(String::as_str))?;
    let tokenizer = tokenizer(served)?;
    let name = |token: Option<u32>| token.and_then(|token| tokenizer.name(token));
    let specials = served.run.imported.as_ref().map(|imported| &imported.specials);
    Ok(json_response(&json!({
        "model": served.name,
        "bos_token": name(specials.map_or(tokenizer.begin(), |specials| specials.begin)),
        "eos_token": name(tokenizer.end()),
        "pad_token": name(tokenizer.padding()),
        "unk_token": name(tokenizer.unknown()),
        "mask_token": name(tokenizer.mask()),
        "vocab_size": tokenizer.vocabulary(),
        "chat_template": template(served),
    })))
}

fn tokenizer(served: &Served) -> Result<&Tokenizer, Refusal> {
    served.run.tokenizer().map_err(|error| Refusal::invalid("model", error.to_string()))
}

/// A text to be turned into tokens.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct TokenizeRequest {
    /// The name of a run; may be left out where only one is served.
    model: Option<String>,
    /// The text, in vLLM's words.
    prompt: Option<String>,
    /// The text, in llama.cpp's words.
    content: Option<String>,
    /// Whether to add what the tokenizer puts around a text, in vLLM's words; default true.
    add_special_tokens: Option<bool>,
    /// The same in llama.cpp's words; default false.
    add_special: Option<bool>,
}

pub(crate) async fn tokenize(
    State(shared): State<Arc<Shared>>,
    Json(request): Json<TokenizeRequest>,
) -> Result<Response, Refusal> {
    let served = shared.find(request.model.as_deref())?;
    let (name, text, adds) = match (request.prompt, request.content) {
        (Some(text), None) => ("prompt", text, request.add_special_tokens.unwrap_or(true)),
        (None, Some(text)) => ("content", text, request.add_special.unwrap_or(false)),
        (None, None) => {
            let message = "the text is missing, expected prompt or content";
            return Err(Refusal::invalid("prompt", message));
        }
        (Some(_), Some(_)) => {
            return Err(Refusal::invalid("content", "expected prompt or content, found both"));
        }
    };
    let refused = |error: String| Refusal::invalid(name, error);
    // A text that is the name of a special token and nothing else asks for its number.
    let known = tokenizer(served)?;
    let tokens = match adds {
        _ if known.id(&text).is_some_and(|id| known.is_special(id)) => {
            known.id(&text).into_iter().collect()
        }
        true => block_in_place(|| served.run.encode(&text)).map_err(|e| refused(e.to_string()))?,
        false => block_in_place(|| known.encode(&text)).map_err(|e| refused(e.to_string()))?,
    };
    Ok(json_response(&json!({
        "count": tokens.len(),
        "max_model_len": served.context,
        "tokens": tokens,
    })))
}

/// Tokens to be turned into a text.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct DetokenizeRequest {
    /// The name of a run; may be left out where only one is served.
    model: Option<String>,
    /// By number.
    tokens: Vec<u32>,
}

pub(crate) async fn detokenize(
    State(shared): State<Arc<Shared>>,
    Json(request): Json<DetokenizeRequest>,
) -> Result<Response, Refusal> {
    let served = shared.find(request.model.as_deref())?;
    let tokenizer = tokenizer(served)?;
    let (found, last) = (request.tokens.len(), tokenizer.vocabulary().saturating_sub(1));
    if found > TOKENS {
        let message = format!("found {found} tokens, expected {TOKENS} at the most");
        return Err(Refusal::invalid("tokens", message));
    }
    if let Some(token) = request.tokens.iter().find(|token| **token as usize > last) {
        let message = format!("token {token} is outside the vocabulary, expected 0 to {last}");
        return Err(Refusal::invalid("tokens", message));
    }
    let text = block_in_place(|| tokenizer.decode(&request.tokens));
    Ok(json_response(&json!({ "prompt": text, "content": text })))
}

/// A chat whose text is asked for.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct TemplateRequest {
    /// The name of a run; may be left out where only one is served.
    model: Option<String>,
    /// What was said, in order.
    messages: Vec<chat::Message>,
}

pub(crate) async fn apply_template(
    State(shared): State<Arc<Shared>>,
    Json(request): Json<TemplateRequest>,
) -> Result<Response, Refusal> {
    let served = shared.find(request.model.as_deref())?;
    let prompt = block_in_place(|| chat::render(served, request.messages))?;
    Ok(json_response(&json!({ "prompt": prompt })))
}
