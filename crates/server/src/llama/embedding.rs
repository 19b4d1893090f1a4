//! `/embedding`: vectors of texts, in llama.cpp's words.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Refusal, Shared,
    body::Json,
    openai::{
        completions::Prompt,
        embeddings::{PoolingName, Wanted, vectors},
    },
    routes::json_response,
};

/// Texts in llama.cpp's words, each to become a vector.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct LlamaEmbeddingRequest {
    /// The name of a run; may be left out where only one is served.
    model: Option<String>,
    /// Text, tokens, or several of either.
    content: Option<Prompt>,
    /// The same, by OpenAI's name.
    input: Option<Prompt>,
    /// 2, vectors of length 1, or -1, vectors as they are; default 2.
    embd_normalize: Option<i64>,
    /// How the states of a text become one vector: their mean, the first or the last; default `mean`, of a decoder `last`.
    pooling: Option<PoolingName>,
}

pub(crate) async fn embed(
    State(shared): State<Arc<Shared>>,
    Json(request): Json<LlamaEmbeddingRequest>,
) -> Result<Response, Refusal> {
    let served = shared.find(request.model.as_deref())?;
    let (name, texts) = match (request.content, request.input) {
        (Some(texts), None) => ("content", texts),
        (None, Some(texts)) => ("input", texts),
        (None, None) => {
            let message = "the text is missing, expected content or input";
            return Err(Refusal::invalid("content", message));
        }
        (Some(_), Some(_)) => {
            return Err(Refusal::invalid("input", "expected content or input, found both"));
        }
    };
    let normalize = match request.embd_normalize.unwrap_or(2) {
        2 => true,
        -1 => false,
        other => {
            let message = format!("embd_normalize = {other}, expected 2 or -1");
            return Err(Refusal::invalid("embd_normalize", message));
        }
    };
    let wanted = Wanted { pooling: request.pooling, normalize, name };
    let (vectors, _) = vectors(&shared, served, texts, wanted).await?;
    // A list, as it is there for those who ask for a vector of every token.
    let all = vectors.into_iter().enumerate();
    let all: Value =
        all.map(|(index, vector)| json!({ "index": index, "embedding": [vector] })).collect();
    Ok(json_response(&all))
}
