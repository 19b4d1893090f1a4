//! `/completion`: text after a prompt, in llama.cpp's words.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::block_in_place;
use whatwhere_data::Tokenizer;

use crate::{
    Refusal, Shared,
    answer::{Order, Sending, Shape, Usage, Written, answer},
    asked::{Asked, Limit, Telling},
    body::Json,
    engine::Probability,
    openai::{
        completions::{Prompt, finite},
        refuse_others, require_writer,
    },
    text::{Ending, Piece},
};

/// A prompt in llama.cpp's words.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct LlamaRequest {
    /// The name of a run; may be left out where only one is served.
    model: Option<String>,
    /// Text, or tokens by number.
    prompt: Prompt,
    /// Tokens at the most; -1, as many as there is room for, is the default.
    n_predict: Option<i64>,
    /// How many of the likeliest tokens are told with every token, 0 to 20; default 0, which tells nothing.
    #[schemars(range(min = 0, max = 20))]
    n_probs: Option<u32>,
    /// Not supported: what is told are the model's own probabilities.
    post_sampling_probs: Option<bool>,
    /// Not supported.
    grammar: Option<Value>,
    /// Not supported.
    json_schema: Option<Value>,
    #[serde(flatten)]
    asked: Asked,
}

pub(crate) async fn complete(
    State(shared): State<Arc<Shared>>,
    Json(mut request): Json<LlamaRequest>,
) -> Result<Response, Refusal> {
    // In llama.cpp's words -1 is no seed.
    request.asked.seed = request.asked.seed.filter(|seed| *seed != -1);
    let served = shared.find(request.model.as_deref())?;
    require_writer(served)?;
    if request.post_sampling_probs == Some(true) {
        let message =
            "post_sampling_probs is not supported: what is told are the model's own probabilities";
        return Err(Refusal::invalid("post_sampling_probs", message));
    }
    // An empty one is what clients send that ask for none.
    let grammar = request.grammar.filter(|grammar| grammar != "");
    refuse_others(&[
        ("grammar", &grammar, "text is written as it comes"),
        ("json_schema", &request.json_schema, "text is written as it comes"),
    ])?;
    let count = request.n_predict.unwrap_or(-1);
    let asked = match u32::try_from(count) {
        Ok(count) => Some(count),
        Err(_) if count == -1 => None,
        Err(_) => {
            let message = format!("n_predict = {count}, expected -1 or more");
            return Err(Refusal::invalid("n_predict", message));
        }
    };
    let prompt = block_in_place(|| request.prompt.read_for(served, "prompt", 1))?.remove(0).0;
    let limit =
        Limit { asked, default: None, name: "n_predict", prompt: "prompt", told: "n_probs" };
    let told = request.n_probs.filter(|count| *count > 0);
    let telling = Telling { count: told, of_prompt: false };
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
    let shape = Llama { model: served.name.clone(), tells: told.is_some() };
    let sending = Sending { streams, tells_usage: false };
    answer(&served.run, orders.collect(), stops, shape, sending).await
}

#[derive(Clone, Debug)]
struct Llama {
    model: String,
    tells: bool,
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

    /// Adds what is told of tokens.
    fn tell(&self, to: &mut Value, told: &[Probability], tokenizer: &Tokenizer) {
        if !self.tells {
            return;
        }
        let one = |token: u32, log: f64| {
            json!({
                "id": token,
                "token": tokenizer.token(token),
                "bytes": tokenizer.token_bytes(token),
                "logprob": finite(log),
            })
        };
        let all = told.iter().map(|Probability { token, log, top }| {
            let mut said = one(*token, log.unwrap_or_default());
            said["top_logprobs"] = top.iter().map(|(token, log)| one(*token, *log)).collect();
            said
        });
        to["completion_probabilities"] = all.collect();
    }
}

impl Shape for Llama {
    fn opening(&self, _: usize) -> Option<Value> {
        None
    }

    fn piece(&self, index: usize, piece: &Piece, tokenizer: &Tokenizer) -> Option<Value> {
        let mut event = json!({ "index": index, "content": piece.text, "stop": false });
        self.tell(&mut event, &piece.told, tokenizer);
        (!piece.text.is_empty() || self.tells && !piece.told.is_empty()).then_some(event)
    }

    fn closing(&self, _: usize, ending: Ending, usage: Usage) -> Value {
        self.last("", Some(ending), usage)
    }

    fn usage(&self, usage: Usage) -> Value {
        usage.to_json()
    }

    fn whole(&self, texts: &[Written], tokenizer: &Tokenizer) -> Value {
        let Some(written) = texts.first() else { return Value::Null };
        let mut whole = self.last(&written.text, written.ending, written.usage);
        self.tell(&mut whole, &written.told, tokenizer);
        whole
    }

    fn says_done(&self) -> bool {
        false
    }
}
