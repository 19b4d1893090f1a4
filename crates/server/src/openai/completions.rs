//! `/v1/completions`: text after a prompt, with exact log-probabilities of both.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::task::block_in_place;
use whatwhere_data::Tokenizer;

use super::{Head, refuse_others, require_writer};
use crate::{
    Refusal, Served, Shared,
    answer::{Order, Sending, Shape, Usage, Written, answer},
    asked::{Asked, Limit, Telling},
    body::Json,
    engine::Probability,
    text::{Ending, Piece},
};

/// Prompts of one request at the most.
const PROMPTS: usize = 128;
/// Tokens where nothing says how many, as OpenAI has it.
const TOKENS: u32 = 16;

/// A prompt, and what is to follow.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct CompletionRequest {
    /// The name of a run; may be left out where only one is served.
    model: Option<String>,
    /// Text, tokens, or several of either.
    prompt: Prompt,
    /// Tokens at the most; default 16.
    max_tokens: Option<u32>,
    /// How many of the likeliest tokens are told with every token, 0 to 20.
    #[schemars(range(min = 0, max = 20))]
    logprobs: Option<u32>,
    /// Whether the prompt is part of the text, and told, too.
    echo: Option<bool>,
    /// As many as `n` or absent.
    best_of: Option<u32>,
    /// Not supported.
    suffix: Option<Value>,
    #[serde(flatten)]
    asked: Asked,
}

/// Text, tokens, or several of either.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a string, a list of strings, a list of tokens, or a list of lists of tokens"
)]
pub(crate) enum Prompt {
    /// A text.
    Text(String),
    /// Several texts.
    Texts(Vec<String>),
    /// Tokens by number.
    Tokens(Vec<u32>),
    /// Several lists of tokens.
    Several(Vec<Vec<u32>>),
}

impl Prompt {
    /// Tokens of each, with the text that is echoed; `name` is what the field is called.
    pub(crate) fn read_for(
        self,
        served: &Served,
        name: &'static str,
        most: usize,
    ) -> Result<Vec<(Vec<u32>, String)>, Refusal> {
        let tokenizer = served.run.tokenizer().map_err(|e| Refusal::bad(e.to_string()))?;
        let refused = |error: whatwhere_training::Error| Refusal::invalid(name, error.to_string());
        let text = |text: String| -> Result<(Vec<u32>, String), Refusal> {
            let tokens = served.run.encode(&text).map_err(refused)?;
            match tokens.is_empty() {
                true => Ok((vec![served.run.first_token(0).map_err(refused)?], text)),
                false => Ok((tokens, text)),
            }
        };
        let vocabulary = served.run.settings.model.vocabulary;
        let tokens = |tokens: Vec<u32>| -> Result<(Vec<u32>, String), Refusal> {
            if let Some(token) = tokens.iter().find(|token| **token as usize >= vocabulary) {
                let last = vocabulary.saturating_sub(1);
                return Err(Refusal::invalid(
                    name,
                    format!("token {token} is outside the vocabulary, expected 0 to {last}"),
                ));
            }
            let text = tokenizer.decode(&tokens);
            Ok((tokens, text))
        };
        let all: Result<Vec<_>, Refusal> = match self {
            Self::Text(one) => vec![text(one)].into_iter().collect(),
            Self::Texts(several) => several.into_iter().map(text).collect(),
            Self::Tokens(one) => vec![tokens(one)].into_iter().collect(),
            Self::Several(several) => several.into_iter().map(tokens).collect(),
        };
        let all = all?;
        match all.len() {
            found if (1..=most).contains(&found) => Ok(all),
            found => {
                let message = format!("found {found} texts, expected 1 to {most}");
                Err(Refusal::invalid(name, message))
            }
        }
    }
}

pub(crate) async fn complete(
    State(shared): State<Arc<Shared>>,
    Json(request): Json<CompletionRequest>,
) -> Result<Response, Refusal> {
    let served = shared.find(request.model.as_deref())?;
    require_writer(served)?;
    let CompletionRequest { prompt, max_tokens, logprobs, echo, best_of, suffix, asked, .. } =
        request;
    // An empty one asks for nothing.
    let suffix = suffix.filter(|suffix| suffix != "");
    refuse_others(&[("suffix", &suffix, "models write forwards")])?;
    let echo = echo == Some(true);
    let prompts = block_in_place(|| prompt.read_for(served, "prompt", PROMPTS))?;
    let limit = Limit {
        asked: max_tokens,
        default: Some(TOKENS),
        name: "max_tokens",
        prompt: "prompt",
        told: "logprobs",
    };
    let telling = Telling { count: logprobs, of_prompt: echo && logprobs.is_some() };
    let (mut requests, mut echoes) = (Vec::new(), Vec::new());
    for (tokens, text) in prompts {
        requests.push(asked.request(&shared, served, tokens, limit, telling)?);
        echoes.push(echo.then_some(text));
    }
    let texts = requests.first().map_or(0, |request| request.seeds.len());
    if let Some(best_of) = best_of.filter(|best_of| *best_of as usize != texts) {
        let message = format!("best_of = {best_of}, expected n = {texts}: all texts are returned");
        return Err(Refusal::invalid("best_of", message));
    }
    let all = requests.len() * texts;
    if all > shared.options.queue.max(shared.options.slots) {
        let most = shared.options.queue.max(shared.options.slots);
        let message = format!("asks for {all} texts, expected {most} at the most");
        return Err(Refusal::invalid("prompt", message));
    }
    let stops = asked.stops()?;
    let (streams, tells_usage) = asked.streams();
    let prompts: Vec<Arc<Vec<u32>>> =
        requests.iter().map(|request| Arc::new(request.prompt.clone())).collect();
    let heard = served.engine.write(requests)?;
    let mut orders = Vec::with_capacity(all);
    for ((prompt, echo), heard) in prompts.into_iter().zip(echoes).zip(heard) {
        for (text, events) in heard.into_iter().enumerate() {
            let (prompt, echo) = (prompt.clone(), echo.clone());
            orders.push(Order { events, prompt, echo, counts_prompt: text == 0 });
        }
    }
    let shape = Completion { head: Head::new("cmpl", served), tells: logprobs.is_some() };
    answer(&served.run, orders, stops, shape, Sending { streams, tells_usage }).await
}

#[derive(Clone, Debug)]
struct Completion {
    head: Head,
    tells: bool,
}

impl Completion {
    fn whole_of(&self, choices: Vec<Value>, usage: Option<Usage>) -> Value {
        let Head { id, created, model } = &self.head;
        json!({
            "id": id,
            "object": "text_completion",
            "created": created,
            "model": model,
            "choices": choices,
            "usage": usage.map(Usage::to_json),
        })
    }

    fn choice(
        &self,
        index: usize,
        text: &str,
        logprobs: Option<Value>,
        ending: Option<Ending>,
    ) -> Value {
        json!({
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": ending.map(Ending::name),
        })
    }
}

impl Shape for Completion {
    fn opening(&self, _: usize) -> Option<Value> {
        None
    }

    fn piece(&self, index: usize, piece: &Piece, tokenizer: &Tokenizer) -> Option<Value> {
        if piece.text.is_empty() && (piece.told.is_empty() || !self.tells) {
            return None;
        }
        let told = self.tells.then(|| logprobs(&piece.told, piece.offset, tokenizer));
        let choice = self.choice(index, &piece.text, told, None);
        Some(self.whole_of(vec![choice], None))
    }

    fn closing(&self, index: usize, ending: Ending, _: Usage) -> Value {
        let choice =
            json!({ "index": index, "text": "", "logprobs": null, "finish_reason": ending.name() });
        self.whole_of(vec![choice], None)
    }

    fn usage(&self, usage: Usage) -> Value {
        self.whole_of(Vec::new(), Some(usage))
    }

    fn whole(&self, texts: &[Written], tokenizer: &Tokenizer) -> Value {
        let mut usage = Usage::default();
        let mut choices = Vec::with_capacity(texts.len());
        for (index, written) in texts.iter().enumerate() {
            usage.add(written.usage);
            let Written { text, told, ending, .. } = written;
            let told = self.tells.then(|| logprobs(told, 0, tokenizer));
            choices.push(self.choice(index, text, told, *ending));
        }
        self.whole_of(choices, Some(usage))
    }
}

/// What is told of tokens that begin at a character of the text, in OpenAI's words.
fn logprobs(told: &[Probability], mut offset: usize, tokenizer: &Tokenizer) -> Value {
    let (mut tokens, mut logs, mut tops, mut offsets) = (vec![], vec![], vec![], vec![]);
    for Probability { token, log, top } in told {
        let text = tokenizer.token(*token);
        offsets.push(offset);
        offset += text.chars().count();
        let mut likely = Map::new();
        // Tokens may look alike; the likelier one stands for both.
        let own = log.map(|log| (*token, log));
        for (token, log) in top.iter().copied().chain(own) {
            likely.entry(tokenizer.token(token)).or_insert_with(|| json!(finite(log)));
        }
        tops.push(log.map(|_| Value::Object(likely)));
        logs.push(log.map(finite));
        tokens.push(text);
    }
    json!({
        "tokens": tokens,
        "token_logprobs": logs,
        "top_logprobs": tops,
        "text_offset": offsets,
    })
}

/// JSON has no number for the logarithm of 0.
pub(crate) fn finite(log: f64) -> f64 {
    log.max(-9999.0)
}
