//! The engine: one thread that owns a model and writes several texts at once.
//!
//! Each turn reads a chunk of one waiting prompt, then writes one token of every text that is being written. **The bytes of
//! an answer do not depend on what else is served**: texts are stepped together only in numbers that have the bits of each
//! by itself ([`exact_rows`](whatwhere_transformer::Model::exact_rows)), and a prompt is cut into chunks by its own length
//! alone, which also says what of an earlier prompt may be used again (`chunks.rs`).

mod chunks;
mod heard;
mod kept;
mod probabilities;
mod sequence;
#[cfg(test)]
mod tests;
mod thread;

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc as blocking,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tokio::{sync::oneshot, time::timeout_at};
use whatwhere_training::Run;
use whatwhere_transformer::generate::Sampling;

use crate::{Refusal, metrics::Metrics};

pub(crate) use heard::Heard;
pub(crate) use probabilities::Probability;

use heard::Said;

/// Until it is looked again whether a thread has ended.
const PAUSE: Duration = Duration::from_millis(5);

/// A prompt, and what is to be written after it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// At least one token, all in the vocabulary.
    pub(crate) prompt: Vec<u32>,
    /// How many texts are written, each with a seed of its own.
    pub(crate) seeds: Vec<u64>,
    pub(crate) choosing: Choosing,
    /// Tokens at the most.
    pub(crate) limit: usize,
    /// Whether a token that ends a text is one like any other.
    pub(crate) ignores_end: bool,
    /// How many of the likeliest tokens are told with every token, if any is told at all.
    pub(crate) told: Option<usize>,
    /// Whether the prompt's tokens are told, too.
    pub(crate) tells_prompt: bool,
    pub(crate) deadline: Instant,
}

/// How a token is chosen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choosing {
    /// Its seed is that of each text.
    pub(crate) sampling: Sampling,
    /// Added to the scores of these tokens.
    pub(crate) bias: Vec<(u32, f32)>,
    /// Taken from the scores of tokens that were written.
    pub(crate) presence_penalty: f32,
    /// The same, for every time.
    pub(crate) frequency_penalty: f32,
}

/// What is heard of a text.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The prompt was read; so many of its tokens were known before.
    Read { cached: usize, told: Vec<Probability> },
    /// One more token.
    Token { token: u32, told: Option<Probability> },
    /// No more tokens.
    Done(Finish),
    /// It went wrong.
    Failed(Refusal),
}

/// Why a text ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// The model ended it.
    Stop,
    /// It has as many tokens as it may.
    Length,
}

/// What is asked of a run between two turns.
trait Question: Send {
    /// Whether whoever asked has left, or has waited too long.
    fn is_abandoned(&self) -> bool;
    /// Computes the answer, and says it.
    fn answer(self: Box<Self>, run: &Run);
}

struct Asked<F, T> {
    question: F,
    answer: oneshot::Sender<T>,
}

impl<T: Send, F: FnOnce(&Run) -> T + Send> Question for Asked<F, T> {
    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn answer(self: Box<Self>, run: &Run) {
        let Self { question, answer } = *self;
        if !answer.is_closed() {
            let _ = answer.send(question(run));
        }
    }
}

enum Command {
    Write(Arc<Request>, Vec<Said>),
    Ask(Box<dyn Question>),
}

/// The way to a run's thread.
pub(crate) struct Engine {
    commands: Mutex<Option<blocking::Sender<Command>>>,
    status: Arc<Status>,
    /// Texts that may wait.
    queue: usize,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What others may know of an engine.
#[derive(Debug, Default)]
pub(crate) struct Status {
    /// Texts and questions that wait.
    waiting: AtomicUsize,
    is_dead: AtomicBool,
    slots: Mutex<Vec<Slot>>,
}

/// A text that is being read or written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) prompt: usize,
    pub(crate) read: usize,
    pub(crate) written: usize,
}

impl Status {
    fn publish(&self, slots: Vec<Slot>) {
        *self.slots.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = slots;
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Engine").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Engine {
    /// Starts a thread for a run, which writes so many texts at once and lets so many wait.
    pub(crate) fn start(
        run: Arc<Run>,
        slots: usize,
        queue: usize,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<Self> {
        let (sender, inbox) = blocking::channel();
        let status = Arc::new(Status::default());
        let its_status = status.clone();
        let thread = std::thread::Builder::new().name("engine".into()).spawn(move || {
            thread::work(&run, slots, &inbox, &its_status, &metrics);
            // With the inbox everything in it is dropped, and whoever waits for it hears so.
        })?;
        let commands = Mutex::new(Some(sender));
        // As many as can begin at once may come at once.
        let queue = queue.max(slots);
        Ok(Self { commands, status, queue, thread: Mutex::new(Some(thread)) })
    }

    /// Texts after prompts, in the same order: what is heard of each. All are taken, or none.
    pub(crate) fn write(&self, requests: Vec<Request>) -> Result<Vec<Vec<Heard>>, Refusal> {
        let count = requests.iter().map(|request| request.seeds.len()).sum();
        self.wait_for(count)?;
        let mut heard = Vec::with_capacity(requests.len());
        for request in requests {
            let (said, texts) = request.seeds.iter().map(|_| heard::pair(request.deadline)).unzip();
            self.send(Command::Write(Arc::new(request), said))?;
            heard.push(texts);
        }
        Ok(heard)
    }

    /// What a question about the run answers; it is asked between two turns. Nobody waits beyond the deadline, and what has
    /// not begun by then never does; a question under way is finished for nobody.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        deadline: Instant,
        question: impl FnOnce(&Run) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        if Instant::now() >= deadline {
            return Err(Refusal::late());
        }
        self.wait_for(1)?;
        let (sender, answer) = oneshot::channel();
        self.send(Command::Ask(Box::new(Asked { question, answer: sender })))?;
        match timeout_at(deadline.into(), answer).await {
            Ok(answer) => answer.map_err(|_| dead()),
            Err(_) => Err(Refusal::late()),
        }
    }

    fn wait_for(&self, count: usize) -> Result<(), Refusal> {
        if self.is_dead() {
            return Err(dead());
        }
        let before = self.status.waiting.fetch_add(count, Ordering::SeqCst);
        if before + count > self.queue {
            self.status.waiting.fetch_sub(count, Ordering::SeqCst);
            let queue = self.queue;
            return Err(Refusal::busy(format!(
                "{before} texts wait already and {count} more were asked for, of {queue} that may wait; try again later"
            )));
        }
        Ok(())
    }

    fn send(&self, command: Command) -> Result<(), Refusal> {
        let commands = self.commands.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let sent = commands.as_ref().map(|commands| commands.send(command));
        sent.and_then(Result::ok).ok_or_else(dead)
    }

    /// Whether its thread has ended before it was told to.
    pub(crate) fn is_dead(&self) -> bool {
        self.status.is_dead.load(Ordering::SeqCst)
    }

    /// Texts and questions that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.status.waiting.load(Ordering::SeqCst)
    }

    /// Texts that are being read or written.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        self.status.slots.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Takes no more, and waits until what is under way has ended, or been given up by whoever asked for it; but not longer
    /// than that: a question cannot be broken off, and its thread is left to the end of the process.
    pub(crate) fn stop(&self, until: Instant) {
        *self.commands.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
        let thread = self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        let Some(thread) = thread else { return };
        while !thread.is_finished() {
            if Instant::now() >= until {
                return;
            }
            std::thread::sleep(PAUSE);
        }
        let _ = thread.join();
    }
}

fn dead() -> Refusal {
    Refusal::internal(
        "the engine of this model has stopped; /health says so, and the server must be started again",
    )
}
