//! Writing token after token.

use std::{
    ops::ControlFlow,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use burn::module::Module;
use whatwhere_kernels::EXACT_ROWS;

use super::{Sampler, Sampling, check_tokens, draft::Draft, scores};
use crate::{Error, Model, Sequences, Writing, with_busy_pool};

/// Tokens that are guessed at a time and checked together with the one before them. What is written must not
/// depend on guesses.
const GUESSES: usize = 3;
// The kernels read so many tokens together as each by itself, to the bit.
const _: () = assert!(GUESSES < EXACT_ROWS);
/// A model with fewer weights is read as fast as guesses about it are made.
const WORTHWHILE: usize = 1 << 20;
/// Tokens that a writer writes before it prepares to guess, which takes as long as writing a few dozen.
const BEFORE: usize = 64;

/// Writes with one model, one sequence at a time.
///
/// A token that is written by itself costs a pass over all weights. For all but small models on the CPU a writer keeps a copy of
/// the weights in int8, which guesses the next tokens; the model reads all of them in one pass, and those it would have
/// chosen itself stay. What is written is the same with guesses and without, also where it is drawn: guesses are drawn
/// with the numbers that the model will draw with.
#[derive(Debug)]
pub struct Writer {
    model: Model,
    /// Tokens after which it guesses.
    before: usize,
    /// Tokens written so far.
    written: AtomicUsize,
    /// Tokens guessed so far, and how many of them were right.
    guessed: [AtomicUsize; 2],
    /// Made when it is first needed; nothing where there can be none.
    draft: OnceLock<Option<Draft>>,
}

impl Writer {
    /// A writer that guesses once it is worth its while.
    pub fn new(model: &Model) -> Self {
        let large = model.num_params() >= WORTHWHILE;
        Self::after(model, if large { BEFORE } else { usize::MAX })
    }

    /// A writer that writes every token by itself, and keeps no copy of the weights.
    pub fn plain(model: &Model) -> Self {
        Self::after(model, usize::MAX)
    }

    /// A writer that guesses from the first token on, if the model can take back what it has read: on the CPU, without
    /// gradients, linear mixing, and angles that follow the length.
    pub fn guessing(model: &Model) -> Self {
        Self::after(model, 0)
    }

    fn after(model: &Model, before: usize) -> Self {
        Self {
            model: model.clone(),
            before,
            written: AtomicUsize::new(0),
            guessed: [const { AtomicUsize::new(0) }; 2],
            draft: OnceLock::new(),
        }
    }

    /// The model it writes with.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Tokens guessed so far, and how many of them were right.
    pub fn guessed(&self) -> [usize; 2] {
        self.guessed.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Goes on after a prompt until `each` breaks or `limit` tokens are written. Returns what was written, without the
    /// prompt. `source` is what an encoder-decoder reads; its prompt is the token that begins.
    ///
    /// A model that knows only so many places reads the last half of them again when it has come to their end.
    pub fn write(
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
        let mut trust = Trust::default();
        let mut text = prompt.to_vec();
        let end = prompt.len() + limit;
        let places = self.model.settings().longest().unwrap_or(usize::MAX);
        let mut writing = self.model.start(source)?;
        // Tokens at the end of the text that were not read yet.
        let mut unread = text.len().min(places);
        while text.len() < end {
            if writing.length() + unread > places {
                writing = self.model.start(source)?;
                unread = places.div_ceil(2);
            }
            let room = (end - text.len() - 1).min(places - writing.length() - unread);
            let guesses = match unread {
                1 => self.guess(&mut text, room, &trust, &sampler, &mut writing)?,
                // A prompt fills a pass by itself.
                _ => Vec::new(),
            };
            let first = text.len() - unread;
            text.extend(&guesses);
            let read = scores(&self.model, &[&text[first..]], guesses.len() + 1, &mut writing)?;
            text.truncate(first + unread);
            let mut right = 0;
            for mut scores in read {
                let token = sampler.pick(&mut scores, &text);
                text.push(token);
                self.written.fetch_add(1, Ordering::Relaxed);
                if each(token).is_break() {
                    return Ok(text.split_off(prompt.len()));
                }
                if guesses.get(right) != Some(&token) {
                    break;
                }
                right += 1;
            }
            for (count, more) in self.guessed.iter().zip([guesses.len(), right]) {
                count.fetch_add(more, Ordering::Relaxed);
            }
            trust.learn(guesses.len(), right);
            writing.take_back(guesses.len() - right)?;
            unread = 1;
        }
        Ok(text.split_off(prompt.len()))
    }

    /// The tokens that probably follow, at most `room`.
    fn guess(
        &self,
        text: &mut Vec<u32>,
        room: usize,
        trust: &Trust,
        sampler: &Sampler,
        writing: &mut Writing,
    ) -> Result<Vec<u32>, Error> {
        let count = GUESSES.min(room);
        if count == 0 || !trust.guesses() || self.written.load(Ordering::Relaxed) < self.before {
            return Ok(Vec::new());
        }
        let draft = self.draft.get_or_init(|| Draft::new(&self.model));
        let Some(draft) = draft else { return Ok(Vec::new()) };
        let (known, mut sampler) = (text.len(), sampler.clone());
        for _ in 0..count {
            let last = *text.last().expect("a prompt is not empty");
            let mut scores = with_busy_pool(|| draft.next(&self.model, last, writing))?;
            let token = sampler.pick(&mut scores, text);
            text.push(token);
        }
        writing.take_back(count)?;
        Ok(text.split_off(known))
    }
}

/// How often guesses were right of late. Wrong ones cost more than they save, so that a while is written without.
#[derive(Debug)]
struct Trust {
    share: f64,
    /// Passes without guesses that are left.
    pause: usize,
}

impl Default for Trust {
    fn default() -> Self {
        Self { share: 1.0, pause: 0 }
    }
}

impl Trust {
    /// Guesses are worth their while if so many are right.
    const ENOUGH: f64 = 0.6;
    /// How much the last pass counts.
    const LAST: f64 = 0.1;
    /// Passes until guesses are tried again.
    const PAUSE: usize = 64;

    fn guesses(&self) -> bool {
        self.pause == 0
    }

    fn learn(&mut self, guesses: usize, right: usize) {
        if guesses == 0 {
            self.pause = self.pause.saturating_sub(1);
            return;
        }
        // What follows a wrong guess was not judged.
        let judged = guesses.min(right + 1);
        self.share += Self::LAST * (right as f64 / judged as f64 - self.share);
        if self.share < Self::ENOUGH {
            *self = Self { share: (1.0 + Self::ENOUGH) / 2.0, pause: Self::PAUSE };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_that_are_mostly_wrong_are_left_for_a_while() {
        let mut trust = Trust::default();
        for _ in 0..100 {
            trust.learn(3, 3);
            trust.learn(3, 2);
            assert!(trust.guesses());
        }
        let tries = (1..).find(|_| {
            trust.learn(3, 0);
            !trust.guesses()
        });
        assert!(tries.is_some_and(|tries| tries < 10));
        let passes = (1..).find(|_| {
            trust.learn(0, 0);
            trust.guesses()
        });
        assert_eq!(passes, Some(Trust::PAUSE));
    }
}
