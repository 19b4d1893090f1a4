//! Answers of texts: whole, or as they are written.

use std::{pin::pin, sync::Arc};

use axum::response::Response;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use whatwhere_data::Tokenizer;
use whatwhere_training::Run;

use crate::{
    Refusal,
    engine::{Heard, Probability},
    listen::before,
    routes::json_response,
    stream,
    text::{Ending, Piece, Text},
};

/// One text of an answer.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) events: Heard,
    pub(crate) prompt: Arc<Vec<u32>>,
    /// What stands before the text.
    pub(crate) echo: Option<String>,
    /// Whether the prompt's tokens count: once for each prompt.
    pub(crate) counts_prompt: bool,
}

/// A text that was written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) text: String,
    pub(crate) told: Vec<Probability>,
    pub(crate) ending: Option<Ending>,
    pub(crate) usage: Usage,
}

/// Tokens that were read and written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) prompt: usize,
    pub(crate) written: usize,
    pub(crate) cached: usize,
}

impl Usage {
    pub(crate) fn add(&mut self, other: Self) {
        self.prompt += other.prompt;
        self.written += other.written;
        self.cached += other.cached;
    }

    /// In OpenAI's words.
    pub(crate) fn to_json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.written,
            "total_tokens": self.prompt + self.written,
            "prompt_tokens_details": { "cached_tokens": self.cached },
        })
    }
}

/// How an answer is written down.
pub(crate) trait Shape: Clone + Send + Sync + 'static {
    /// What stands before the pieces of a text, if anything.
    fn opening(&self, index: usize) -> Option<Value>;
    /// A piece of a text; nothing where there is nothing to say.
    fn piece(&self, index: usize, piece: &Piece, tokenizer: &Tokenizer) -> Option<Value>;
    /// The last event of a text.
    fn closing(&self, index: usize, ending: Ending, usage: Usage) -> Value;
    /// After all texts, if usage is asked for.
    fn usage(&self, usage: Usage) -> Value;
    /// The whole answer.
    fn whole(&self, texts: &[Written], tokenizer: &Tokenizer) -> Value;
    /// Whether events end with `[DONE]`.
    fn says_done(&self) -> bool {
        true
    }
}

/// How an answer is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    pub(crate) streams: bool,
    pub(crate) tells_usage: bool,
}

/// Answers with these texts, each up to one of the strings that stop it.
pub(crate) async fn answer(
    run: &Arc<Run>,
    orders: Vec<Order>,
    stops: Vec<String>,
    shape: impl Shape,
    sending: Sending,
) -> Result<Response, Refusal> {
    let stops: Arc<[String]> = stops.into();
    if sending.streams {
        return Ok(streamed(run.clone(), orders, &stops, shape, sending.tells_usage));
    }
    let count = orders.len();
    let mut tasks = JoinSet::new();
    for (index, order) in orders.into_iter().enumerate() {
        let (run, stops) = (run.clone(), stops.clone());
        tasks.spawn(async move { (index, written(&run, order, &stops).await) });
    }
    // Whoever leaves drops the tasks, and these what the engine sends to.
    let mut texts: Vec<Written> = (0..count).map(|_| Written::default()).collect();
    while let Some(done) = tasks.join_next().await {
        let (index, written) = done.map_err(|_| lost())?;
        texts[index] = written?;
    }
    Ok(json_response(&shape.whole(&texts, tokenizer(run)?)))
}

/// A task that writes an answer down has panicked.
fn lost() -> Refusal {
    Refusal::internal("the answer was lost by a defect of the server")
}

fn tokenizer(run: &Run) -> Result<&Tokenizer, Refusal> {
    run.tokenizer().map_err(|error| Refusal::bad(error.to_string()))
}

async fn written(run: &Run, order: Order, stops: &[String]) -> Result<Written, Refusal> {
    let Order { events, prompt, echo, counts_prompt } = order;
    let mut text = Text::new(events, tokenizer(run)?, &prompt, stops, echo);
    let mut all = Written::default();
    while let Some(piece) = text.next().await? {
        all.text.push_str(&piece.text);
        all.told.extend(piece.told);
        all.ending = piece.finish;
    }
    all.usage = usage(&text, &prompt, counts_prompt);
    Ok(all)
}

fn usage(text: &Text, prompt: &[u32], counts_prompt: bool) -> Usage {
    let of_prompt = if counts_prompt { [prompt.len(), text.cached] } else { [0, 0] };
    Usage { prompt: of_prompt[0], cached: of_prompt[1], written: text.tokens.len() }
}

fn streamed(
    run: Arc<Run>,
    orders: Vec<Order>,
    stops: &Arc<[String]>,
    shape: impl Shape,
    tells_usage: bool,
) -> Response {
    let (events, response) = stream::events();
    let mut tasks = JoinSet::new();
    for (index, order) in orders.into_iter().enumerate() {
        let (run, stops, events, shape) =
            (run.clone(), stops.clone(), events.clone(), shape.clone());
        tasks.spawn(async move { said(&run, order, &stops, index, &shape, &events).await });
    }
    tokio::spawn(async move {
        // With the tasks of a client that has left the engine is told, whatever it is doing.
        let listener = events.clone();
        let mut left = pin!(listener.left());
        let mut usage = Usage::default();
        loop {
            let Some(done) = before(&mut left, tasks.join_next()).await else { return };
            match done {
                None => break,
                Some(Ok(Ok(more))) => usage.add(more.unwrap_or_default()),
                Some(Ok(Err(refusal))) => {
                    events.say(&refusal.to_json()).await;
                    break;
                }
                Some(Err(_)) => {
                    events.say(&lost().to_json()).await;
                    break;
                }
            }
        }
        if tells_usage {
            events.say(&shape.usage(usage)).await;
        }
        if shape.says_done() {
            events.done().await;
        }
    });
    response
}

/// Says a text as it is written; nothing if nobody listens any more.
async fn said(
    run: &Run,
    order: Order,
    stops: &[String],
    index: usize,
    shape: &impl Shape,
    events: &stream::Events,
) -> Result<Option<Usage>, Refusal> {
    let Order { events: heard, prompt, echo, counts_prompt } = order;
    let tokenizer = tokenizer(run)?;
    let mut text = Text::new(heard, tokenizer, &prompt, stops, echo);
    if let Some(opening) = shape.opening(index)
        && !events.say(&opening).await
    {
        return Ok(None);
    }
    while let Some(piece) = text.next().await? {
        if let Some(event) = shape.piece(index, &piece, tokenizer)
            && !events.say(&event).await
        {
            return Ok(None);
        }
        if let Some(ending) = piece.finish {
            let usage = usage(&text, &prompt, counts_prompt);
            if !events.say(&shape.closing(index, ending, usage)).await {
                return Ok(None);
            }
        }
    }
    Ok(Some(usage(&text, &prompt, counts_prompt)))
}
