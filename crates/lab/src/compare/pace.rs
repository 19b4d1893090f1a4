//! How fast a run trains, over several stretches of it, and what else the machine did meanwhile.

use std::time::Instant;

use whatwhere_training::{Evaluation, Observer, Record};
use whatwhere_transformer::Model;

/// Stretches that a run is cut into, each with a speed of its own: their spread is what a speed is uncertain by.
const STRETCHES: u64 = 10;

/// Hears every update, and times it.
pub(super) struct Pace<'a> {
    updated: &'a mut dyn FnMut(&Record, u64),
    /// Updates of a stretch.
    each: u64,
    /// The end of the last update and the tokens read by then; none after an evaluation, which is not training.
    last: Option<(Instant, u64)>,
    /// Updates, tokens and seconds of the stretch so far.
    stretch: (u64, u64, f64),
    /// Tokens per second.
    pub(super) stretches: Vec<f64>,
}

impl<'a> Pace<'a> {
    pub(super) fn new(steps: u64, updated: &'a mut dyn FnMut(&Record, u64)) -> Self {
        let each = (steps / STRETCHES).max(1);
        Self { updated, each, last: None, stretch: (0, 0, 0.0), stretches: Vec::new() }
    }

    fn read(&mut self, tokens: u64, now: Instant) {
        if let Some((since, before)) = self.last.replace((now, tokens)) {
            let (updates, read, seconds) = &mut self.stretch;
            *updates += 1;
            *read += tokens.saturating_sub(before);
            *seconds += (now - since).as_secs_f64();
            if *updates >= self.each && *seconds > 0.0 {
                self.stretches.push(*read as f64 / *seconds);
                self.stretch = (0, 0, 0.0);
            }
        }
    }
}

impl Observer for Pace<'_> {
    fn updated(&mut self, record: &Record, step: u64) {
        self.read(record.tokens, Instant::now());
        (self.updated)(record, step);
    }

    fn evaluated(&mut self, _evaluation: &Evaluation, _step: u64, _best: bool, _model: &Model) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn stretches_have_speeds_of_their_own_and_evaluations_do_not_count() {
        let mut nobody = |_: &Record, _: u64| {};
        let mut pace = Pace::new(40, &mut nobody);
        let begin = Instant::now();
        let mut now = begin;
        for update in 1..=40_u64 {
            now += Duration::from_millis(if update > 20 { 20 } else { 10 });
            pace.read(update * 100, now);
            if update == 20 {
                pace.last = None;
                now += Duration::from_secs(9);
            }
        }
        let speeds: Vec<f64> = pace.stretches.iter().map(|speed| speed.round()).collect();
        assert_eq!(speeds[..4], [10_000.0; 4]);
        assert_eq!(speeds[5..], [5_000.0; 4]);
    }
}
