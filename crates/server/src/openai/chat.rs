//! `/v1/chat/completions`: what follows the messages of a chat, by the model's own template.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::task::block_in_place;
use whatwhere_data::Tokenizer;

use super::{Head, completions::finite, refuse_others, require_writer};
use crate::{
    Refusal, Served, Shared,
    answer::{Order, Sending, Shape, Usage, Written, answer},
    asked::{Asked, Limit, Telling},
    body::Json,
    engine::Probability,
    template::Template,
    text::{Ending, Piece},
};

/// Messages of one chat at the most.
const MESSAGES: usize = 1024;

/// A chat, and what is to follow.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ChatRequest {
    /// The name of a run; may be left out where only one is served.
    model: Option<String>,
    /// What was said, in order.
    messages: Vec<Message>,
    /// Tokens at the most; as many as there is room for by default.
    max_completion_tokens: Option<u32>,
    /// The same, by its older name.
    max_tokens: Option<u32>,
    /// Whether tokens are told with their log-probabilities.
    logprobs: Option<bool>,
    /// How many of the likeliest tokens are told with every token, 0 to 20.
    #[schemars(range(min = 0, max = 20))]
    top_logprobs: Option<u32>,
    /// Not supported.
    tools: Option<Value>,
    /// Not supported.
    functions: Option<Value>,
    /// Only `{"type": "text"}`.
    response_format: Option<Value>,
    #[serde(flatten)]
    asked: Asked,
}

/// What somebody said.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Message {
    /// Who said it: `system`, `developer`, `user`, `assistant` or `tool`.
    role: Role,
    /// What was said.
    content: Option<Content>,
    /// Whatever else a template asks for.
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Role {
    System,
    Developer,
    User,
    Assistant,
    Tool,
}

impl Role {
    /// As templates know it.
    fn name(self) -> &'static str {
        match self {
            Self::System | Self::Developer => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a string or a list of parts of type \"text\"")]
enum Content {
    /// A text.
    Text(String),
    /// Parts of a text.
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Part {
    /// `text`; models do not see or hear.
    #[serde(rename = "type")]
    kind: PartKind,
    /// The text.
    text: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum PartKind {
    Text,
}

impl Message {
    fn into_json(self) -> Value {
        let text = match self.content {
            None => Value::Null,
            Some(Content::Text(text)) => text.into(),
            Some(Content::Parts(parts)) => parts
                .into_iter()
                .map(|Part { kind: PartKind::Text, text }| text)
                .collect::<String>()
                .into(),
        };
        let mut message = self.others;
        message.insert("role".into(), self.role.name().into());
        message.insert("content".into(), text);
        message.into()
    }
}

fn template(served: &Served) -> Result<&Template, Refusal> {
    let name = &served.name;
    match &served.template {
        None => Err(Refusal::invalid(
            "model",
            format!(
                "{name} has no chat template: nothing says how it reads messages; ask /v1/completions"
            ),
        )),
        Some(Err(reason)) => Err(Refusal::invalid("model", format!("{name}: {reason}"))),
        Some(Ok(template)) => Ok(template),
    }
}

/// Messages as the model reads them, up to where it answers.
pub(crate) fn render(served: &Served, messages: Vec<Message>) -> Result<String, Refusal> {
    let found = messages.len();
    if !(1..=MESSAGES).contains(&found) {
        let message = format!("found {found} messages, expected 1 to {MESSAGES}");
        return Err(Refusal::invalid("messages", message));
    }
    let messages: Vec<Value> = messages.into_iter().map(Message::into_json).collect();
    template(served)?.render(&messages.into())
}

pub(crate) async fn complete(
    State(shared): State<Arc<Shared>>,
    Json(request): Json<ChatRequest>,
) -> Result<Response, Refusal> {
    let served = shared.find(request.model.as_deref())?;
    require_writer(served)?;
    refuse_others(&[
        ("tools", &request.tools, "models here call nothing"),
        ("functions", &request.functions, "models here call nothing"),
    ])?;
    let format = request.response_format.as_ref().filter(|format| !format.is_null());
    if format.is_some_and(|format| format["type"] != "text") {
        let message = "response_format is not supported but for {\"type\": \"text\"}: text is written as it comes";
        return Err(Refusal::invalid("response_format", message));
    }
    let tells = request.logprobs == Some(true);
    if request.top_logprobs.is_some() && !tells {
        let message = "top_logprobs needs logprobs = true";
        return Err(Refusal::invalid("top_logprobs", message));
    }
    let prompt = block_in_place(|| template(served)?.encode(&render(served, request.messages)?))?;
    let newer = request.max_completion_tokens;
    let limit = Limit {
        asked: newer.or(request.max_tokens),
        default: None,
        name: if newer.is_some() { "max_completion_tokens" } else { "max_tokens" },
        prompt: "messages",
        told: "top_logprobs",
    };
    let count = tells.then(|| request.top_logprobs.unwrap_or(0));
    let telling = Telling { count, of_prompt: false };
    let asked = request.asked;
    let asked_for = asked.request(&shared, served, prompt, limit, telling)?;
    let stops = asked.stops()?;
    let (streams, tells_usage) = asked.streams();
    let prompt = Arc::new(asked_for.prompt.clone());
    let heard = served.engine.write(vec![asked_for])?;
    let orders = heard.into_iter().flatten().enumerate().map(|(text, events)| {
        let prompt = prompt.clone();
        Order { events, prompt, echo: None, counts_prompt: text == 0 }
    });
    let shape = Chat { head: Head::new("chatcmpl", served), tells };
    let sending = Sending { streams, tells_usage };
    answer(&served.run, orders.collect(), stops, shape, sending).await
}

#[derive(Clone, Debug)]
struct Chat {
    head: Head,
    tells: bool,
}

impl Chat {
    fn event(&self, choices: Value, usage: Option<Usage>) -> Value {
        let Head { id, created, model } = &self.head;
        json!({
            "id": id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
            "choices": choices,
            "usage": usage.map(Usage::to_json),
        })
    }

    fn told(&self, told: &[Probability], tokenizer: &Tokenizer) -> Value {
        self.tells.then(|| logprobs(told, tokenizer)).into()
    }
}

impl Shape for Chat {
    fn opening(&self, index: usize) -> Option<Value> {
        let delta = json!({ "role": "assistant", "content": "" });
        let choice =
            json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": null });
        Some(self.event(json!([choice]), None))
    }

    fn piece(&self, index: usize, piece: &Piece, tokenizer: &Tokenizer) -> Option<Value> {
        if piece.text.is_empty() && (piece.told.is_empty() || !self.tells) {
            return None;
        }
        let choice = json!({
            "index": index,
            "delta": { "content": piece.text },
            "logprobs": self.told(&piece.told, tokenizer),
            "finish_reason": null,
        });
        Some(self.event(json!([choice]), None))
    }

    fn closing(&self, index: usize, ending: Ending, _: Usage) -> Value {
        let choice = json!({
            "index": index,
            "delta": {},
            "logprobs": null,
            "finish_reason": ending.name(),
        });
        self.event(json!([choice]), None)
    }

    fn usage(&self, usage: Usage) -> Value {
        self.event(json!([]), Some(usage))
    }

    fn whole(&self, texts: &[Written], tokenizer: &Tokenizer) -> Value {
        let mut usage = Usage::default();
        let mut choices = Vec::with_capacity(texts.len());
        for (index, written) in texts.iter().enumerate() {
            usage.add(written.usage);
            choices.push(json!({
                "index": index,
                "message": { "role": "assistant", "content": written.text, "refusal": null },
                "logprobs": self.told(&written.told, tokenizer),
                "finish_reason": written.ending.map(Ending::name),
            }));
        }
        let Head { id, created, model } = &self.head;
        json!({
            "id": id,
            "object": "chat.completion",
            "created": created,
            "model": model,
            "choices": choices,
            "usage": usage.to_json(),
        })
    }
}

/// What is told of tokens, in the words of chats.
fn logprobs(told: &[Probability], tokenizer: &Tokenizer) -> Value {
    let one = |token: u32, log: f64| {
        json!({
            "token": tokenizer.token(token),
            "logprob": finite(log),
            "bytes": tokenizer.token_bytes(token),
        })
    };
    let content = told.iter().map(|Probability { token, log, top }| {
        let mut said = one(*token, log.unwrap_or_default());
        said["top_logprobs"] = top.iter().map(|(token, log)| one(*token, *log)).collect();
        said
    });
    json!({ "content": content.collect::<Vec<_>>(), "refusal": null })
}
