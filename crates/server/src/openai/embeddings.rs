//! `/v1/embeddings`: a vector for each text.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::block_in_place;
use whatwhere_training::Pooling;
use whatwhere_transformer::Family;

use crate::{Refusal, Served, Shared, body::Json, routes::json_response};

/// Texts of one request at the most.
const TEXTS: usize = 256;

/// Texts, each to become a vector.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct EmbeddingRequest {
    /// The name of a run; may be left out where only one is served.
    model: Option<String>,
    /// Text, tokens, or several of either.
    input: super::completions::Prompt,
    /// Numbers in JSON, or their bytes in base64 (f32, little-endian); default `float`.
    encoding_format: Option<Encoding>,
    /// So many of the first channels, made one of length 1 again; all by default.
    dimensions: Option<u32>,
    /// How the states of a text become one vector: their mean, the first or the last; default `mean`, of a decoder `last`.
    pooling: Option<PoolingName>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    #[default]
    Float,
    Base64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PoolingName {
    Mean,
    First,
    Last,
}

pub(crate) async fn embed(
    State(shared): State<Arc<Shared>>,
    Json(request): Json<EmbeddingRequest>,
) -> Result<Response, Refusal> {
    let served = shared.find(request.model.as_deref())?;
    let width = served.run.settings.model.width;
    let dimensions = request.dimensions.map_or(width, |dimensions| dimensions as usize);
    if !(1..=width).contains(&dimensions) {
        let message = format!("dimensions = {dimensions}, expected 1 to {width}");
        return Err(Refusal::invalid("dimensions", message));
    }
    let wanted = Wanted { pooling: request.pooling, normalize: true, name: "input" };
    let (vectors, tokens) = vectors(&shared, served, request.input, wanted).await?;
    let encoding = request.encoding_format.unwrap_or_default();
    let mut data = Vec::with_capacity(vectors.len());
    for (index, mut vector) in vectors.into_iter().enumerate() {
        shorten(&mut vector, dimensions);
        let embedding = match encoding {
            Encoding::Float => json!(vector),
            Encoding::Base64 => {
                base64(&vector.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
                    .into()
            }
        };
        data.push(json!({ "object": "embedding", "index": index, "embedding": embedding }));
    }
    let usage: Value = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
    let name = &served.name;
    Ok(json_response(&json!({ "object": "list", "data": data, "model": name, "usage": usage })))
}

/// What kind of vectors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) pooling: Option<PoolingName>,
    /// Whether each has length 1.
    pub(crate) normalize: bool,
    /// The field that has the texts.
    pub(crate) name: &'static str,
}

/// A vector for each text, and how many tokens the texts have.
pub(crate) async fn vectors(
    shared: &Shared,
    served: &Served,
    texts: super::completions::Prompt,
    wanted: Wanted,
) -> Result<(Vec<Vec<f32>>, usize), Refusal> {
    let deadline = shared.deadline();
    let Wanted { pooling, normalize, name } = wanted;
    let family = served.run.model().family();
    if family == Family::EncoderDecoder {
        let message = format!("{} is an encoder-decoder; embeddings need one stack", served.name);
        return Err(Refusal::invalid("model", message));
    }
    let pooling = match (pooling, family) {
        (Some(PoolingName::Mean), _) | (None, Family::Encoder) => Pooling::Mean,
        (Some(PoolingName::First), _) => Pooling::First,
        (Some(PoolingName::Last) | None, _) => Pooling::Last,
    };
    let all = block_in_place(|| texts.read_for(served, name, TEXTS))?;
    let mut tokens = 0;
    for (text, _) in &all {
        check(served, name, text)?;
        tokens += text.len();
    }
    let mut vectors = Vec::with_capacity(all.len());
    for (text, _) in all {
        // One question each, so that others are answered in between.
        let vector =
            served.ask(deadline, move |run| run.embed_tokens(text, pooling, normalize)).await?;
        vectors.push(vector.map_err(|error| Refusal::invalid(name, error.to_string()))?);
    }
    Ok((vectors, tokens))
}

fn check(served: &Served, name: &str, text: &[u32]) -> Result<(), Refusal> {
    let (found, most) = (text.len(), served.context);
    match found {
        0 => Err(Refusal::invalid(name, "a text has no tokens, expected at least 1")),
        _ if found > most => {
            let message = format!("a text has {found} tokens, the model reads {most} at the most");
            Err(Refusal::too_long(name, message))
        }
        _ => Ok(()),
    }
}

/// The first channels, as a vector of length 1.
fn shorten(vector: &mut Vec<f32>, dimensions: usize) {
    if dimensions == vector.len() {
        return;
    }
    vector.truncate(dimensions);
    let squares: f64 = vector.iter().map(|value| f64::from(*value).powi(2)).sum();
    let size = squares.sqrt().max(1e-12);
    vector.iter_mut().for_each(|value| *value = (f64::from(*value) / size) as f32);
}

/// Bytes in base64, padded (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for letter in 0..4 {
            let at = bits >> (18 - 6 * letter) & 63;
            text.push(if letter <= three.len() { char::from(LETTERS[at as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4648, section 10.
    #[test]
    fn base64_is_that_of_the_standard() {
        let all = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (length, expected) in all.into_iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..length]), expected);
        }
    }

    #[test]
    fn a_shortened_vector_has_length_1() {
        let mut vector = vec![3.0, 4.0, 12.0];
        shorten(&mut vector, 2);
        assert_eq!(vector, [0.6, 0.8]);
    }
}
