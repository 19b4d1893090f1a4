//! A text that is being read or written.

use std::{sync::Arc, time::Instant};

use whatwhere_data::Tokenizer;
use whatwhere_transformer::{
    DecoderState, Step,
    generate::{Sampler, Sampling},
};

use super::{Choosing, Event, Finish, Probability, Request, Said, Slot};
use crate::Refusal;

/// Events of one turn at the most: that the prompt was read, a token, the end.
const ROOM: usize = 3;

/// A text that is being read or written.
pub(super) struct Sequence {
    pub(super) request: Arc<Request>,
    /// Which of the request's texts it is, and which request that is.
    pub(super) choice: usize,
    pub(super) job: u64,
    pub(super) state: DecoderState,
    /// Prompt and what was written.
    pub(super) text: Vec<u32>,
    sampler: Sampler,
    out: Said,
    /// Since when nobody takes what is said.
    full_since: Option<Instant>,
    /// Tokens of the prompt that were known before, and what is to be told of it.
    pub(super) cached: usize,
    pub(super) told: Vec<Probability>,
    pub(super) asked: Instant,
    pub(super) last_token: Option<Instant>,
    pub(super) phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its prompt is not read yet.
    Reading,
    /// Another text of its request reads the prompt.
    Following,
    Writing,
    Done,
}

impl Sequence {
    pub(super) fn new(
        request: Arc<Request>,
        job: u64,
        choice: usize,
        state: DecoderState,
        out: Said,
        asked: Instant,
    ) -> Self {
        let sampling = Sampling { seed: request.seeds[choice], ..request.choosing.sampling };
        Self {
            cached: state.length(),
            text: request.prompt.clone(),
            request,
            choice,
            job,
            state,
            sampler: Sampler::new(sampling),
            out,
            full_since: None,
            told: Vec::new(),
            asked,
            last_token: None,
            phase: if choice == 0 { Phase::Reading } else { Phase::Following },
        }
    }

    pub(super) fn slot(&self) -> Slot {
        let prompt = self.request.prompt.len();
        Slot { prompt, read: self.state.length().min(prompt), written: self.text.len() - prompt }
    }

    /// Its last token, which was not read yet, and its state.
    pub(super) fn step(&mut self) -> Step<'_> {
        Step { tokens: &self.text[self.text.len() - 1..], state: &mut self.state }
    }

    /// Whether there is room for what one turn may say.
    pub(super) fn has_room(&mut self, now: Instant) -> bool {
        let has_room = self.out.has_room(ROOM);
        if has_room {
            self.full_since = None;
        } else {
            self.full_since.get_or_insert(now);
        }
        has_room
    }

    /// Whether nobody has taken what was said since then.
    pub(super) fn is_unread_since(&self, then: Instant) -> bool {
        self.full_since.is_some_and(|since| since < then)
    }

    /// Whether whoever asked has left.
    pub(super) fn is_abandoned(&self) -> bool {
        self.out.is_closed()
    }

    /// Whether whoever asked has all that was wanted.
    pub(super) fn is_enough(&self) -> bool {
        self.out.is_enough()
    }

    /// Says that the prompt was read.
    pub(super) fn say_read(&mut self, cached: usize, told: Vec<Probability>) {
        self.out.say(Event::Read { cached, told });
    }

    /// Chooses the token that follows these logits, says it, and may be done with it.
    pub(super) fn write(&mut self, logits: &[f32], tokenizer: Option<&Tokenizer>) {
        let request = self.request.clone();
        let prompt = request.prompt.len();
        if self.text.len() - prompt >= request.limit {
            return self.finish(Finish::Length);
        }
        let mut scores = logits.to_vec();
        request.choosing.adjust(&mut scores, &self.text[prompt..]);
        let token = self.sampler.pick(&mut scores, &self.text);
        let ends = tokenizer.is_some_and(|tokenizer| tokenizer.ends(token));
        if ends && !request.ignores_end {
            return self.finish(Finish::Stop);
        }
        let told = request.told.map(|count| Probability::new(logits, token, count));
        self.text.push(token);
        self.out.say(Event::Token { token, told });
        if self.text.len() - prompt >= request.limit {
            self.finish(Finish::Length);
        }
    }

    pub(super) fn fail(&mut self, refusal: Refusal) {
        self.out.say(Event::Failed(refusal));
        self.phase = Phase::Done;
    }

    fn finish(&mut self, finish: Finish) {
        self.out.say(Event::Done(finish));
        self.phase = Phase::Done;
    }
}

impl Choosing {
    /// What is added to scores and taken from them before a token is chosen.
    fn adjust(&self, scores: &mut [f32], written: &[u32]) {
        for (token, bias) in &self.bias {
            scores[*token as usize] += bias;
        }
        if self.presence_penalty == 0.0 && self.frequency_penalty == 0.0 {
            return;
        }
        let mut written = written.to_vec();
        written.sort_unstable();
        for same in written.chunk_by(|a, b| a == b) {
            let count = same.len() as f32;
            scores[same[0] as usize] -= self.presence_penalty + self.frequency_penalty * count;
        }
    }
}
