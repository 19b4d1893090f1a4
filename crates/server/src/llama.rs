//! What clients of llama.cpp and vLLM ask for beside OpenAI's interface.

use std::sync::Arc;

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use whatwhere_data::Tokenizer;

use crate::{
    Refusal, Served, Shared,
    answer::{Order, Sending, Shape, Usage, Written, answer},
    asked::{Asked, Limit, Telling},
    body::Json,
    metrics::Metrics,
    openai::{completions::Prompt, require_writer},
    routes::json_response,
    text::{Ending, Piece},
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

pub(crate) async fn tokenizer_info(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    let Some(served) = shared.served.first() else {
        return Err(Refusal::not_found("no run is served"));
    };
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
    let tokens = match adds {
        true => served.run.encode(&text).map_err(|e| refused(e.to_string()))?,
        false => tokenizer(served)?.encode(&text).map_err(|e| refused(e.to_string()))?,
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
    let text = tokenizer.decode(&request.tokens);
    Ok(json_response(&json!({ "prompt": text, "content": text })))
}

/// A prompt in llama.cpp's words.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct LlamaRequest {
    /// The name of a run; may be left out where only one is served.
    model: Option<String>,
    /// Text, or tokens by number.
    prompt: Prompt,
    /// Tokens at the most; -1, as many as there is room for, is the default.
    n_predict: Option<i64>,
    #[serde(flatten)]
    asked: Asked,
}

pub(crate) async fn complete(
    State(shared): State<Arc<Shared>>,
    Json(request): Json<LlamaRequest>,
) -> Result<Response, Refusal> {
    let served = shared.find(request.model.as_deref())?;
    require_writer(served)?;
    let count = request.n_predict.unwrap_or(-1);
    let asked = match u32::try_from(count) {
        Ok(count) => Some(count),
        Err(_) if count == -1 => None,
        Err(_) => {
            let message = format!("n_predict = {count}, expected -1 or more");
            return Err(Refusal::invalid("n_predict", message));
        }
    };
    let prompt = request.prompt.read_for(served, "prompt", 1)?.remove(0).0;
    let limit =
        Limit { asked, default: None, name: "n_predict", prompt: "prompt", told: "n_probs" };
    let telling = Telling::default();
    let asked = request.asked.request(&shared, served, prompt.clone(), limit, telling)?;
    if asked.seeds.len() != 1 {
        return Err(Refusal::invalid("n", "expected 1: ask /v1/completions for several texts"));
    }
    let stops = request.asked.stops()?;
    let streams = request.asked.streams().0;
    let events = served.engine.write(vec![asked])?.into_iter().flatten();
    let prompt = Arc::new(prompt);
    let orders = events.map(|events| Order {
        events,
        prompt: prompt.clone(),
        echo: None,
        counts_prompt: true,
    });
    let shape = Llama { model: served.name.clone() };
    let sending = Sending { streams, tells_usage: false };
    answer(&served.run, orders.collect(), stops, shape, sending).await
}

#[derive(Clone, Debug)]
struct Llama {
    model: String,
}

impl Llama {
    fn last(&self, text: &str, ending: Option<Ending>, usage: Usage) -> Value {
        let kind = match ending {
            Some(Ending::End) => "eos",
            Some(Ending::Stop) => "word",
            Some(Ending::Length) => "limit",
            None => "none",
        };
        json!({
            "index": 0,
            "content": text,
            "model": self.model,
            "stop": true,
            "stop_type": kind,
            "tokens_predicted": usage.written,
            "tokens_evaluated": usage.prompt,
            "tokens_cached": usage.cached,
        })
    }
}

impl Shape for Llama {
    fn opening(&self, _: usize) -> Option<Value> {
        None
    }

    fn piece(&self, index: usize, piece: &Piece, _: &Tokenizer) -> Option<Value> {
        let event = json!({ "index": index, "content": piece.text, "stop": false });
        (!piece.text.is_empty()).then_some(event)
    }

    fn closing(&self, _: usize, ending: Ending, usage: Usage) -> Value {
        self.last("", Some(ending), usage)
    }

    fn usage(&self, usage: Usage) -> Value {
        usage.to_json()
    }

    fn whole(&self, texts: &[Written], _: &Tokenizer) -> Value {
        match texts.first() {
            Some(written) => self.last(&written.text, written.ending, written.usage),
            None => Value::Null,
        }
    }

    fn says_done(&self) -> bool {
        false
    }
}
