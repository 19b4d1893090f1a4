//! Self-speculative decoding: the model's own int8 copy proposes tokens, the model checks several in one pass. For a model
//! of int8 weights the text proposes (prompt lookup decoding).

use std::{
    ops::ControlFlow,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use burn::module::Module;
use whatwhere_kernels::{EXACT_ROWS, with_busy_pool};

use super::{
    Sampler, Sampling, check_tokens,
    draft::{Draft, looked_up},
    logits,
};
use crate::{DecoderState, Error, Model, Sequences};

/// Tokens that are drafted at a time and checked together with the one before them: fewer, and more while nearly all are
/// accepted. What is generated must not depend on the draft.
const DRAFT_TOKENS: [usize; 2] = [3, 6];
// The kernels read so many tokens together as each by itself, to the bit.
const _: () = assert!(DRAFT_TOKENS[1] < EXACT_ROWS);
/// A model with fewer weights is read as fast as its draft.
const WORTHWHILE: usize = 1 << 20;
/// Tokens that are generated before a draft is made, which takes as long as generating a few dozen.
const BEFORE: usize = 64;

/// Generates with one model, one sequence at a time.
///
/// A token by itself costs a pass over all weights. For all but small models on the CPU a generator keeps an int8 copy of the
/// weights, which drafts the next tokens; the model reads all of them in one pass, and those it would have chosen itself
/// are accepted. What is generated is the same with a draft and without, also where it is sampled: the draft samples with
/// the numbers that the model will sample with. A model whose weights are int8 already is proposed what followed in the text
/// the last time that it ended so, which costs nothing and helps where texts repeat themselves.
#[derive(Debug)]
pub struct Generator {
    model: Model,
    /// Tokens after which it drafts.
    before: usize,
    /// Tokens generated so far.
    written: AtomicUsize,
    /// Tokens drafted so far, and how many of them were accepted.
    drafted: [AtomicUsize; 2],
    /// Made when it is first needed; nothing where there can be none.
    draft: OnceLock<Option<Draft>>,
    /// Whether prompts are seen in both directions.
    has_prefix: bool,
}

impl Generator {
    /// A generator that drafts once it is worth its while.
    pub fn new(model: &Model) -> Self {
        let large = model.num_params() >= WORTHWHILE;
        // Nothing has to be made for what is looked up.
        let before = if model.is_int8() { 0 } else { BEFORE };
        Self::after(model, if large { before } else { usize::MAX })
    }

    /// A generator without a draft: every token by itself, and no copy of the weights.
    pub fn without_draft(model: &Model) -> Self {
        Self::after(model, usize::MAX)
    }

    /// A generator that drafts from the first token on, if the model can roll back what it has read: on the CPU, without
    /// gradients, mixing that keeps a state, and angles that follow the length.
    pub fn speculative(model: &Model) -> Self {
        Self::after(model, 0)
    }

    fn after(model: &Model, before: usize) -> Self {
        Self {
            model: model.clone(),
            before,
            written: AtomicUsize::new(0),
            drafted: [const { AtomicUsize::new(0) }; 2],
            draft: OnceLock::new(),
            has_prefix: false,
        }
    }

    /// The same, for a prefix language model if so: it reads a prompt in both directions.
    pub fn with_prefix(mut self, has_prefix: bool) -> Self {
        self.has_prefix = has_prefix;
        self
    }

    /// A state before so many tokens are read at once.
    fn start(&self, source: Option<&Sequences>, unread: usize) -> Result<DecoderState, Error> {
        let state = self.model.start(source)?;
        Ok(if self.has_prefix { state.with_prefixes(vec![unread]) } else { state })
    }

    /// The model it generates with.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Tokens drafted so far, and how many of them were accepted.
    pub fn drafted(&self) -> [usize; 2] {
        self.drafted.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Goes on after a prompt until `each` breaks or `limit` tokens are generated. Returns what was generated, without the
    /// prompt. `source` is what an encoder-decoder reads; its prompt is the token that begins.
    ///
    /// A model that knows only so many positions reads the last half of them again when it has come to their end.
    pub fn generate(
        &self,
        source: Option<&Sequences>,
        prompt: &[u32],
        limit: usize,
        sampling: &Sampling,
        mut each: impl FnMut(u32) -> ControlFlow<()>,
    ) -> Result<Vec<u32>, Error> {
        sampling.check()?;
        check_tokens(prompt, self.model.settings().vocabulary)?;
        let mut sampler = Sampler::new(*sampling);
        let mut rate = AcceptanceRate::of(&self.model);
        let mut text = prompt.to_vec();
        let end = prompt.len() + limit;
        let positions = self.model.settings().longest().unwrap_or(usize::MAX);
        // Tokens at the end of the text that were not read yet.
        let mut unread = text.len().min(positions);
        let mut state = self.start(source, unread)?;
        while text.len() < end {
            if state.length() + unread > positions {
                unread = positions.div_ceil(2);
                state = self.start(source, unread)?;
            }
            let capacity = (end - text.len() - 1).min(positions - state.length() - unread);
            let draft = match unread {
                1 => self.propose(&mut text, capacity, &rate, &sampler, &mut state)?,
                // A prompt fills a pass by itself.
                _ => Vec::new(),
            };
            let first = text.len() - unread;
            text.extend(&draft);
            let read = logits(&self.model, &[&text[first..]], draft.len() + 1, &mut state)?;
            text.truncate(first + unread);
            let mut accepted = 0;
            for mut logits in read {
                let token = sampler.pick(&mut logits, &text);
                text.push(token);
                self.written.fetch_add(1, Ordering::Relaxed);
                if each(token).is_break() {
                    return Ok(text.split_off(prompt.len()));
                }
                if draft.get(accepted) != Some(&token) {
                    break;
                }
                accepted += 1;
            }
            for (count, more) in self.drafted.iter().zip([draft.len(), accepted]) {
                count.fetch_add(more, Ordering::Relaxed);
            }
            rate.observe(draft.len(), accepted);
            state.rollback(draft.len() - accepted)?;
            unread = 1;
        }
        Ok(text.split_off(prompt.len()))
    }

    /// The tokens that probably follow, at most `capacity`.
    fn propose(
        &self,
        text: &mut Vec<u32>,
        capacity: usize,
        rate: &AcceptanceRate,
        sampler: &Sampler,
        state: &mut DecoderState,
    ) -> Result<Vec<u32>, Error> {
        let count = rate.draft_tokens().min(capacity);
        if count == 0 || !rate.is_worthwhile() || self.written.load(Ordering::Relaxed) < self.before
        {
            return Ok(Vec::new());
        }
        let draft = self.draft.get_or_init(|| Draft::new(&self.model));
        let draft = match draft {
            None => return Ok(Vec::new()),
            Some(Draft::Lookup) => return Ok(looked_up(text, count)),
            Some(Draft::Int8(draft)) => draft,
        };
        let (known, mut sampler) = (text.len(), sampler.clone());
        for _ in 0..count {
            let last = *text.last().expect("a prompt is not empty");
            let mut logits = with_busy_pool(|| draft.next(&self.model, last, state))?;
            let token = sampler.pick(&mut logits, text);
            text.push(token);
        }
        state.rollback(count)?;
        Ok(text.split_off(known))
    }
}

/// The share of drafted tokens that were accepted of late. Rejected ones cost more than they save, so that a while is
/// generated without.
#[derive(Debug)]
struct AcceptanceRate {
    share: f64,
    /// A draft is worth its while if so many are accepted.
    enough: f64,
    /// Passes without a draft that are left.
    pause: usize,
}

impl AcceptanceRate {
    /// Enough of an int8 draft, which reads its weights.
    const OF_INT8: f64 = 0.6;
    /// Enough of what is looked up, which costs the model some more rows of a pass.
    const OF_LOOKUP: f64 = 0.3;
    /// More tokens are drafted if so many are accepted.
    const NEARLY_ALL: f64 = 0.9;
    /// How much the last pass counts.
    const LAST: f64 = 0.1;
    /// Passes until a draft is tried again.
    const PAUSE: usize = 64;

    fn of(model: &Model) -> Self {
        let enough = if model.is_int8() { Self::OF_LOOKUP } else { Self::OF_INT8 };
        Self { share: 1.0, enough, pause: 0 }
    }

    /// How many tokens are drafted next.
    fn draft_tokens(&self) -> usize {
        DRAFT_TOKENS[usize::from(self.share >= Self::NEARLY_ALL)]
    }

    fn is_worthwhile(&self) -> bool {
        self.pause == 0
    }

    fn observe(&mut self, drafted: usize, accepted: usize) {
        if drafted == 0 {
            self.pause = self.pause.saturating_sub(1);
            return;
        }
        // What follows a rejected token was not judged.
        let judged = drafted.min(accepted + 1);
        self.share += Self::LAST * (accepted as f64 / judged as f64 - self.share);
        if self.share < self.enough {
            (self.share, self.pause) = ((1.0 + self.enough) / 2.0, Self::PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_that_are_mostly_rejected_are_left_for_a_while() {
        let mut rate = AcceptanceRate { share: 1.0, enough: AcceptanceRate::OF_INT8, pause: 0 };
        for _ in 0..100 {
            rate.observe(6, 6);
            assert_eq!(rate.draft_tokens(), 6);
        }
        for _ in 0..100 {
            rate.observe(3, 3);
            rate.observe(3, 2);
            assert!(rate.is_worthwhile());
        }
        assert_eq!(rate.draft_tokens(), 3);
        let tries = (1..).find(|_| {
            rate.observe(3, 0);
            !rate.is_worthwhile()
        });
        assert!(tries.is_some_and(|tries| tries < 10));
        let passes = (1..).find(|_| {
            rate.observe(0, 0);
            rate.is_worthwhile()
        });
        assert_eq!(passes, Some(AcceptanceRate::PAUSE));
    }
}
