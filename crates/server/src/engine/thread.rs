//! The thread: what waits, what is being written, and the turns.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    time::{Duration, Instant},
};

use rayon::prelude::*;
use whatwhere_data::{Objective, Tokenizer};
use whatwhere_kernels::with_busy_pool;
use whatwhere_training::Run;
use whatwhere_transformer::{DecoderState, Error, Sequences, Step};

use super::{
    Command, Event, PAUSE, Probability, Question, Request, Said, Status, chunks,
    kept::Kept,
    sequence::{Phase, Sequence},
};
use crate::{Refusal, metrics::Metrics};

/// A client that takes nothing for so long is left.
const PATIENCE: Duration = Duration::from_secs(30);

/// Answers commands until nobody can send any more.
pub(super) fn work(
    run: &Run,
    slots: usize,
    inbox: &Receiver<Command>,
    status: &Status,
    metrics: &Metrics,
) {
    let mut thread = Thread {
        run,
        tokenizer: run.tokenizer().ok(),
        has_prefix: matches!(run.settings.data.objective(), Objective::Prefix(_)),
        slots,
        status,
        metrics,
        waiting: VecDeque::new(),
        active: Vec::new(),
        kept: Kept::new(slots),
        jobs: 0,
    };
    // Declared last, so that it says so before anybody hears of a failure.
    let _failure = Failure(status);
    let mut is_open = true;
    loop {
        is_open = is_open && thread.receive(inbox);
        if !is_open && thread.waiting.is_empty() && thread.active.is_empty() {
            return;
        }
        thread.turn();
    }
}

/// Says that the engine is dead where its thread panics.
struct Failure<'a>(&'a Status);

impl Drop for Failure<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.is_dead.store(true, Ordering::SeqCst);
            self.0.publish(Vec::new());
        }
    }
}

enum Waiting {
    Text(Arc<Request>, Vec<Said>, Instant),
    Question(Box<dyn Question>),
}

struct Thread<'a> {
    run: &'a Run,
    tokenizer: Option<&'a Tokenizer>,
    /// Whether prompts are seen in both directions, and so read in one pass.
    has_prefix: bool,
    slots: usize,
    status: &'a Status,
    metrics: &'a Metrics,
    waiting: VecDeque<Waiting>,
    active: Vec<Sequence>,
    kept: Kept,
    /// Requests so far.
    jobs: u64,
}

impl Thread<'_> {
    /// Takes what was sent; waits for it where nothing else is to be done. Whether more can be sent.
    fn receive(&mut self, inbox: &Receiver<Command>) -> bool {
        let now = Instant::now();
        let is_stuck = self.active.iter_mut().all(|text| !text.has_room(now));
        if self.waiting.is_empty() && self.active.is_empty() {
            match inbox.recv() {
                Ok(command) => self.take(command),
                Err(_) => return false,
            }
        } else if is_stuck && !self.active.is_empty() {
            match inbox.recv_timeout(PAUSE) {
                Ok(command) => self.take(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        loop {
            match inbox.try_recv() {
                Ok(command) => self.take(command),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn take(&mut self, command: Command) {
        self.waiting.push_back(match command {
            Command::Write(request, out) => Waiting::Text(request, out, Instant::now()),
            Command::Ask(question) => Waiting::Question(question),
        });
    }

    /// Gives up what nobody wants, begins what there is room for, reads a chunk of one prompt and writes a token of every text.
    fn turn(&mut self) {
        self.retire();
        self.admit();
        self.publish();
        with_busy_pool(|| {
            self.read();
            self.write();
        });
        self.retire();
        self.publish();
    }

    fn publish(&self) {
        self.status.publish(self.active.iter().map(Sequence::slot).collect());
        self.metrics.slots(self.active.len());
    }

    /// Leaves texts that are done, that nobody waits for, or that took too long.
    fn retire(&mut self) {
        let now = Instant::now();
        let unread = now.checked_sub(PATIENCE);
        for text in &mut self.active {
            if text.phase == Phase::Done {
                continue;
            }
            if text.is_enough() {
                text.phase = Phase::Done;
            } else if text.is_abandoned() || unread.is_some_and(|then| text.is_unread_since(then)) {
                self.metrics.cancelled(1);
                text.phase = Phase::Done;
            } else if now > text.request.deadline {
                text.fail(Refusal::late());
            }
        }
        let leaderless = |text: &Sequence, all: &[Sequence]| {
            text.phase == Phase::Following
                && !all.iter().any(|other| other.job == text.job && other.phase == Phase::Reading)
        };
        for at in 0..self.active.len() {
            if leaderless(&self.active[at], &self.active) {
                self.active[at].phase = Phase::Done;
            }
        }
        let (done, active) = std::mem::take(&mut self.active)
            .into_iter()
            .partition(|text| text.phase == Phase::Done);
        self.active = active;
        let done: Vec<Sequence> = done;
        for text in done.into_iter().filter(|text| text.choice == 0 && !self.has_prefix) {
            let read = text.state.length().min(text.request.prompt.len());
            self.kept.keep(&text.request.prompt[..read], text.state);
        }
        self.waiting.retain(|waiting| {
            let given_up = match waiting {
                Waiting::Text(request, out, _) if now > request.deadline => {
                    out.iter().for_each(|out| out.say(Event::Failed(Refusal::late())));
                    out.len()
                }
                Waiting::Text(_, out, _) if out.iter().all(Said::is_closed) => {
                    self.metrics.cancelled(out.len());
                    out.len()
                }
                Waiting::Text(..) => 0,
                Waiting::Question(question) => usize::from(question.is_abandoned()),
            };
            self.status.waiting.fetch_sub(given_up, Ordering::SeqCst);
            given_up == 0
        });
    }

    /// Begins what waits, in order, as far as there are slots; answers one question.
    fn admit(&mut self) {
        loop {
            let needs = match self.waiting.front() {
                None => return,
                Some(Waiting::Question(_)) => 0,
                Some(Waiting::Text(_, out, _)) => out.len(),
            };
            // A request for more texts than there are slots is refused at the door.
            if self.active.len() + needs > self.slots {
                return;
            }
            match self.waiting.pop_front() {
                Some(Waiting::Question(question)) => {
                    self.status.waiting.fetch_sub(1, Ordering::SeqCst);
                    question.answer(self.run);
                    return;
                }
                Some(Waiting::Text(request, out, asked)) => {
                    self.status.waiting.fetch_sub(out.len(), Ordering::SeqCst);
                    self.begin(&request, out, asked);
                }
                None => return,
            }
        }
    }

    fn begin(&mut self, request: &Arc<Request>, out: Vec<Said>, asked: Instant) {
        self.jobs += 1;
        // What is told of a prompt is computed with it.
        let known = match request.tells_prompt || self.has_prefix {
            true => None,
            false => self.kept.take(&request.prompt),
        };
        let fresh = || {
            let state = self.run.model().start(None)?;
            let prefix = vec![request.prompt.len()];
            Ok::<_, Error>(if self.has_prefix { state.with_prefixes(prefix) } else { state })
        };
        for (choice, out) in out.into_iter().enumerate() {
            let state = match known.clone().filter(|_| choice == 0) {
                Some(state) => Ok(state),
                None => fresh(),
            };
            match state {
                Ok(state) => {
                    if choice == 0 {
                        let cached = state.length();
                        self.metrics.began(request.prompt.len(), cached);
                    }
                    let text = Sequence::new(request.clone(), self.jobs, choice, state, out, asked);
                    self.active.push(text);
                }
                Err(error) => {
                    out.say(Event::Failed(Refusal::bad(error.to_string())));
                }
            }
        }
    }

    /// Reads one chunk of the prompt that came first; with the last one its texts begin.
    fn read(&mut self) {
        let Some(at) = self.active.iter().position(|text| text.phase == Phase::Reading) else {
            return;
        };
        let text = &mut self.active[at];
        let request = text.request.clone();
        let (first, whole) = (text.state.length(), request.prompt.len());
        let end = if self.has_prefix { whole } else { chunks::next(first).min(whole) };
        let chunk = &request.prompt[first..end];
        let read = if self.has_prefix {
            read_prefix(self.run, &request, &mut text.state)
        } else {
            read_chunk(self.run, &request, chunk, end, &mut text.state)
        };
        let logits = match read {
            Ok((told, logits)) => {
                text.told.extend(told);
                logits
            }
            Err(error) => return text.fail(Refusal::bad(error.to_string())),
        };
        if end < whole {
            return;
        }
        let (job, state) = (text.job, text.state.clone());
        let (cached, told) = (text.cached, std::mem::take(&mut text.told));
        for text in self.active.iter_mut().filter(|text| text.job == job) {
            if text.phase == Phase::Following {
                text.state = state.clone();
            }
            if text.phase != Phase::Done {
                text.say_read(cached, told.clone());
                text.phase = Phase::Writing;
                text.write(&logits, self.tokenizer);
                self.metrics.first_token(text.asked.elapsed());
                text.last_token = Some(Instant::now());
            }
        }
    }

    /// Writes one token of every text, as many at a time as have the bits of each by itself.
    fn write(&mut self) {
        let now = Instant::now();
        let rows = self.run.model().exact_rows();
        let mut writing: Vec<&mut Sequence> = self
            .active
            .iter_mut()
            .filter_map(|text| (text.phase == Phase::Writing && text.has_room(now)).then_some(text))
            .collect();
        for some in writing.chunks_mut(rows.min(self.slots)) {
            self.metrics.step(some.len());
            let mut steps: Vec<Step> = some.iter_mut().map(|text| text.step()).collect();
            let logits = match self.run.model().step_together(&mut steps) {
                Ok(logits) => logits.into_data().try_into_vec::<f32>().expect("logits are f32"),
                Err(error) => {
                    let refusal = Refusal::internal(error.to_string());
                    some.iter_mut().for_each(|text| text.fail(refusal.clone()));
                    continue;
                }
            };
            let vocabulary = logits.len() / some.len();
            let tokenizer = self.tokenizer;
            some.par_iter_mut().zip(logits.par_chunks(vocabulary)).for_each(|(text, logits)| {
                text.write(logits, tokenizer);
            });
            for text in some {
                let before = text.last_token.replace(Instant::now());
                if let Some(before) = before {
                    self.metrics.next_token(before.elapsed());
                }
            }
        }
    }
}

/// Reads a prompt that is seen in both directions: what is told of its tokens, and logits after the last. Nothing is predicted
/// by what sees it, so that what is told is of the text read forwards.
fn read_prefix(
    run: &Run,
    request: &Request,
    state: &mut DecoderState,
) -> Result<(Vec<Probability>, Vec<f32>), Error> {
    let whole = request.prompt.len();
    let mut told = Vec::new();
    if request.tells_prompt {
        let (mut forwards, mut first) = (run.model().start(None)?, 0);
        while first < whole {
            let end = chunks::next(first).min(whole);
            let chunk = &request.prompt[first..end];
            told.extend(read_chunk(run, request, chunk, end, &mut forwards)?.0);
            first = end;
        }
    }
    let silent = Request { tells_prompt: false, ..request.clone() };
    let (_, logits) = read_chunk(run, &silent, &request.prompt, whole, state)?;
    Ok((told, logits))
}

/// Reads tokens that end at a place of a prompt: what is told of them, and logits after the last.
fn read_chunk(
    run: &Run,
    request: &Request,
    chunk: &[u32],
    end: usize,
    state: &mut DecoderState,
) -> Result<(Vec<Probability>, Vec<f32>), Error> {
    let model = run.model();
    let first = end - chunk.len();
    let hidden = model.step_hidden(&Sequences::new(chunk.to_vec(), 1), state)?;
    let mut told = Vec::new();
    if let (true, Some(count)) = (request.tells_prompt, request.told) {
        if first == 0 {
            told.push(Probability::of_first(chunk[0]));
        }
        // The last row of the prompt predicts what is written, not a token of it.
        let rows = chunk.len().min(request.prompt.len() - 1 - first);
        if rows > 0 {
            let logits = model.logits(hidden.clone().narrow(1, 0, rows));
            let vocabulary = logits.dims()[2];
            let logits = logits.into_data().try_into_vec::<f32>().expect("logits are f32");
            let rows: Vec<Probability> = logits
                .par_chunks(vocabulary)
                .zip(&request.prompt[first + 1..])
                .map(|(logits, token)| Probability::new(logits, *token, count))
                .collect();
            told.extend(rows);
        }
    }
    if end < request.prompt.len() {
        return Ok((told, Vec::new()));
    }
    // By itself, so that it has the bits it has where nothing is told.
    let last = model.logits(hidden.narrow(1, chunk.len() - 1, 1));
    Ok((told, last.into_data().try_into_vec::<f32>().expect("logits are f32")))
}
