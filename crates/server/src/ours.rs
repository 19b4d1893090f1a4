//! What OpenAI's interface has no word for: translations, blanks, classes and scores.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::block_in_place;
use whatwhere_training::{BLANK, Input, Translation};
use whatwhere_transformer::Family;

use crate::{
    Refusal, Served, Shared,
    asked::{Asked, Limit, OneOrMany, Telling},
    body::Json,
    engine::Probability,
    openai::{completions::finite, require_writer},
    routes::json_response,
    text::Text,
};

/// Texts of one request at the most.
const TEXTS: usize = 64;
/// Beginnings that a search keeps side by side at the most.
const BEAM: usize = 16;
/// Words for a blank at the most.
const WORDS: usize = 100;

/// Texts to be translated.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct TranslateRequest {
    /// The name of a run; may be left out where only one is served.
    model: Option<String>,
    /// Sentences, each by itself.
    text: OneOrMany,
    /// Beginnings kept side by side, 1 to 16; default 4.
    #[schemars(range(min = 1, max = 16))]
    beam: Option<usize>,
    /// α of the length penalty, -10 to 10; default 0.6.
    #[schemars(range(min = -10.0, max = 10.0))]
    length_penalty: Option<f32>,
    /// The language of the texts, where a model has several.
    from_language: Option<String>,
    /// The language to translate to, where a model has several.
    to_language: Option<String>,
}

pub(crate) async fn translate(
    State(shared): State<Arc<Shared>>,
    Json(request): Json<TranslateRequest>,
) -> Result<Response, Refusal> {
    let deadline = shared.deadline();
    let served = shared.find(request.model.as_deref())?;
    require(served, Family::EncoderDecoder, "translates nothing")?;
    let defaults = Translation::default();
    let translation = Translation {
        beam: request.beam.unwrap_or(defaults.beam),
        length_penalty: request.length_penalty.unwrap_or(defaults.length_penalty),
        from_language: request.from_language,
        to_language: request.to_language,
        ..defaults
    };
    if !(1..=BEAM).contains(&translation.beam) {
        let message = format!("beam = {}, expected 1 to {BEAM}", translation.beam);
        return Err(Refusal::invalid("beam", message));
    }
    if !(-10.0..=10.0).contains(&translation.length_penalty) {
        let message =
            format!("length_penalty = {}, expected -10 to 10", translation.length_penalty);
        return Err(Refusal::invalid("length_penalty", message));
    }
    let texts = several("text", request.text)?;
    let mut found = Vec::with_capacity(texts.len());
    for text in texts {
        check_length(served, "text", &text)?;
        let translation = translation.clone();
        // One question each, so that others are answered in between.
        let translated =
            served.ask(deadline, move |run| run.translate(&[text], &translation)).await?;
        let translated = translated.map_err(|error| {
            let said = error.to_string();
            let languages = ["from_language", "to_language"];
            let name = languages.into_iter().find(|name| said.starts_with(name));
            Refusal::invalid(name.unwrap_or("text"), said)
        })?;
        found.extend(translated.into_iter().map(|text| json!({ "text": text })));
    }
    Ok(json_response(&json!({ "model": served.name, "translations": found })))
}

/// A text with blanks.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct FillRequest {
    /// The name of a run; may be left out where only one is served.
    model: Option<String>,
    /// With `[MASK]` for every blank.
    text: String,
    /// Words for each blank, 1 to 100; default 5.
    #[schemars(range(min = 1, max = 100))]
    count: Option<usize>,
}

pub(crate) async fn fill(
    State(shared): State<Arc<Shared>>,
    Json(request): Json<FillRequest>,
) -> Result<Response, Refusal> {
    let deadline = shared.deadline();
    let served = shared.find(request.model.as_deref())?;
    require(served, Family::Encoder, "fills no blanks")?;
    let count = request.count.unwrap_or(5);
    if !(1..=WORDS).contains(&count) {
        return Err(Refusal::invalid("count", format!("count = {count}, expected 1 to {WORDS}")));
    }
    let text = request.text;
    if !text.contains(BLANK) {
        let message = format!("found no {BLANK} in the text, expected at least one");
        return Err(Refusal::invalid("text", message));
    }
    // Every blank is one token; their name may have none.
    check_tokens(served, "text", &text.replace(BLANK, ""), text.matches(BLANK).count())?;
    let blanks = served.ask(deadline, move |run| run.fill(&text, count)).await?;
    let blanks = blanks.map_err(|error| Refusal::invalid("text", error.to_string()))?;
    Ok(json_response(&json!({ "model": served.name, "blanks": blanks })))
}

/// Texts, or pairs of texts, whose classes are asked for.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ClassifyRequest {
    /// The name of a run; may be left out where only one is served.
    model: Option<String>,
    /// One text or several.
    input: OneOrMany,
    /// The second text of each pair, where the run was trained on pairs.
    second: Option<OneOrMany>,
}

pub(crate) async fn classify(
    State(shared): State<Arc<Shared>>,
    Json(request): Json<ClassifyRequest>,
) -> Result<Response, Refusal> {
    let deadline = shared.deadline();
    let served = shared.find(request.model.as_deref())?;
    let classes =
        served.run.classes().map_err(|error| Refusal::invalid("model", error.to_string()))?;
    let texts = several("input", request.input)?;
    let seconds = request.second.map(|second| several("second", second)).transpose()?;
    if seconds.is_some() != served.run.reads_pairs() {
        let message = match seconds {
            Some(_) => "second: the run was trained on single texts, leave it out",
            None => "second is missing: the run was trained on pairs of texts",
        };
        return Err(Refusal::invalid("second", message));
    }
    if seconds.as_ref().is_some_and(|seconds| seconds.len() != texts.len()) {
        let (found, expected) = (seconds.map_or(0, |seconds| seconds.len()), texts.len());
        let message = format!("found {found} second texts, expected {expected}");
        return Err(Refusal::invalid("second", message));
    }
    for (name, texts) in [("input", &texts), ("second", seconds.as_ref().unwrap_or(&Vec::new()))] {
        for text in texts {
            check_length(served, name, text)?;
        }
    }
    let mut seconds = seconds.into_iter().flatten();
    let inputs: Vec<Input> =
        texts.into_iter().map(|text| Input { text, second: seconds.next() }).collect();
    let told = served.ask(deadline, move |run| run.classify(&inputs)).await?;
    let told = told.map_err(|error| Refusal::invalid("input", error.to_string()))?;
    let results: Vec<Value> = told
        .into_iter()
        .enumerate()
        .map(|(index, told)| {
            let mut result = json!(told);
            result["index"] = index.into();
            result
        })
        .collect();
    Ok(json_response(&json!({ "model": served.name, "classes": classes, "results": results })))
}

/// A text to be scored.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ScoreRequest {
    /// The name of a run; may be left out where only one is served.
    model: Option<String>,
    /// What a decoder is to predict, token by token.
    text: String,
    /// How many of the likeliest tokens are told with every token, 0 to 20; default 0.
    #[schemars(range(min = 0, max = 20))]
    top: Option<u32>,
}

pub(crate) async fn score(
    State(shared): State<Arc<Shared>>,
    Json(request): Json<ScoreRequest>,
) -> Result<Response, Refusal> {
    let served = shared.find(request.model.as_deref())?;
    require_writer(served)?;
    let tokenizer = served.run.tokenizer().map_err(|e| Refusal::bad(e.to_string()))?;
    let text = |error: whatwhere_training::Error| Refusal::invalid("text", error.to_string());
    let prompt = block_in_place(|| served.run.encode(&request.text)).map_err(text)?;
    let limit = Limit { asked: Some(0), default: None, name: "text", prompt: "text", told: "top" };
    let telling = Telling { count: Some(request.top.unwrap_or(0)), of_prompt: true };
    let asked = Asked::default().request(&shared, served, prompt.clone(), limit, telling)?;
    let events = served.engine.write(vec![asked])?.into_iter().flatten().next();
    let events = events.ok_or_else(|| Refusal::internal("nothing was asked"))?;
    let mut heard = Text::new(events, tokenizer, &prompt, &[], None);
    let mut told: Vec<Probability> = Vec::with_capacity(prompt.len());
    while let Some(piece) = heard.next().await? {
        told.extend(piece.told);
    }
    let sum = told.iter().filter_map(|told| told.log).fold(0.0, |sum, log| sum + log);
    let tokens: Vec<Value> = told
        .iter()
        .map(|Probability { token, log, top }| {
            let top: Vec<Value> = top
                .iter()
                .map(|(token, log)| {
                    let text = tokenizer.token(*token);
                    json!({ "id": token, "token": text, "logprob": finite(*log) })
                })
                .collect();
            let text = tokenizer.token(*token);
            json!({ "id": token, "token": text, "logprob": log.map(finite), "top": top })
        })
        .collect();
    let scored = tokens.len().saturating_sub(1);
    Ok(json_response(&json!({
        "model": served.name,
        "tokens": tokens,
        "logprob": finite(sum),
        "perplexity": (scored > 0).then(|| (-sum / scored as f64).exp()),
    })))
}

fn require(served: &Served, family: Family, lacks: &str) -> Result<(), Refusal> {
    let found = served.run.model().family();
    if found == family && served.run.model().classifier.is_none() {
        return Ok(());
    }
    let name = &served.name;
    let found = match (found, &served.run.model().classifier) {
        (_, Some(_)) => "a classifier",
        (Family::Decoder, None) => "a decoder",
        (Family::Encoder, None) => "an encoder",
        (Family::EncoderDecoder, None) => "an encoder-decoder",
    };
    Err(Refusal::invalid("model", format!("{name} is {found} and {lacks}")))
}

fn several(name: &str, texts: OneOrMany) -> Result<Vec<String>, Refusal> {
    let texts = texts.into_vec();
    match texts.len() {
        1..=TEXTS => Ok(texts),
        found => Err(Refusal::invalid(name, format!("found {found} texts, expected 1 to {TEXTS}"))),
    }
}

fn check_length(served: &Served, name: &str, text: &str) -> Result<(), Refusal> {
    check_tokens(served, name, text, 0)
}

/// [`check_length`] of a text with so many tokens besides.
fn check_tokens(served: &Served, name: &str, text: &str, more: usize) -> Result<(), Refusal> {
    let tokens = block_in_place(|| served.run.encode(text));
    let tokens = tokens.map_err(|e| Refusal::invalid(name, e.to_string()))?;
    let (found, most) = (tokens.len() + more, served.context);
    match found > most {
        false => Ok(()),
        true => {
            let message =
                format!("the text has {found} tokens, the model reads {most} at the most");
            Err(Refusal::too_long(name, message))
        }
    }
}
