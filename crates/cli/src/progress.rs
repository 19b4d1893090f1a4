//! A line at the bottom of the terminal while data are prepared, and while a run trains.

use std::{
    io::{self, IsTerminal},
    ops::{ControlFlow, Deref},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use whatwhere_data::Work;
use whatwhere_training::{Evaluation, Observer, Record, interrupt::Interrupt};
use whatwhere_transformer::Model;

use crate::say::say;

/// A bar on stderr, gone when it is dropped; without a terminal nothing is drawn, and what is said is a line of its own.
pub(crate) struct Bar {
    bar: ProgressBar,
    is_terminal: bool,
}

impl Bar {
    pub(crate) fn new(length: Option<u64>, template: &str) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let target =
            if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(length, target);
        let style =
            ProgressStyle::with_template(template).expect("a template that indicatif reads");
        bar.set_style(style);
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, is_terminal }
    }

    pub(crate) fn say(&self, line: String) {
        if self.is_terminal {
            self.bar.println(line);
        } else {
            say!("{line}");
        }
    }
}

impl Deref for Bar {
    type Target = ProgressBar;

    fn deref(&self) -> &ProgressBar {
        &self.bar
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// How fast a run goes, from where this process took it up: what was done before says nothing about it.
pub(crate) struct Pace {
    step: u64,
    begun: Instant,
}

impl Pace {
    pub(crate) fn new(step: u64) -> Self {
        Self { step, begun: Instant::now() }
    }

    /// Time to the end, evaluations included, in words: `2h 05m`, `3m 20s` or `45s`; a dash before anything is known.
    pub(crate) fn left(&self, step: u64, steps: u64) -> String {
        let left =
            left(step.saturating_sub(self.step), steps.saturating_sub(step), self.begun.elapsed());
        left.map_or("-".into(), time)
    }
}

/// Time for the updates that are left, at the pace of those done.
fn left(done: u64, left: u64, elapsed: Duration) -> Option<Duration> {
    let pace = elapsed.as_secs_f64() / Some(done).filter(|done| *done > 0)? as f64;
    Duration::try_from_secs_f64(pace * left as f64).ok()
}

fn time(span: Duration) -> String {
    let seconds = span.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m {seconds:02}s"),
        (hours, minutes, _) => format!("{hours}h {minutes:02}m"),
    }
}

/// A bar for data that are read, for a tokenizer that is trained, and for tokens that are made.
pub(crate) struct Preparing(Bar);

impl Preparing {
    pub(crate) fn new() -> Self {
        Self(Bar::new(None, "{bar:24} {pos}/{len} {msg}, {elapsed}"))
    }

    /// Shows how far it is; the first Ctrl-C ends it.
    pub(crate) fn at(&self, work: Work, interrupt: &Interrupt) -> ControlFlow<()> {
        self.0.set_length(work.of);
        self.0.set_position(work.done);
        self.0.set_message(work.what);
        if interrupt.requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Between two lines of several ranks, which have no terminal.
const OFTEN: Duration = Duration::from_secs(30);

/// A bar with loss, rate and time left; a line for every evaluation. Where several ranks train without a terminal, the bar is
/// a line now and then.
pub(crate) struct Progress {
    bar: Bar,
    pace: Pace,
    steps: u64,
    ranks: usize,
    /// How far it is, if that was not said yet, and when it was said last.
    unsaid: Option<String>,
    said: Instant,
}

impl Progress {
    pub(crate) fn new(step: u64, steps: u64, ranks: usize) -> Self {
        let bar = Bar::new(Some(steps), "{bar:24} {pos}/{len} {msg}");
        bar.set_position(step);
        Self { bar, pace: Pace::new(step), steps, ranks, unsaid: None, said: Instant::now() }
    }

    fn say_pace(&mut self) {
        if let Some(line) = self.unsaid.take() {
            self.bar.say(line);
            self.said = Instant::now();
        }
    }
}

impl Observer for Progress {
    fn updated(&mut self, record: &Record, step: u64) {
        let Record { loss, tokens_per_second, .. } = record;
        let left = self.pace.left(step, self.steps);
        let message = format!("loss {loss:.4}, {tokens_per_second:.0} tokens/s, {left} left");
        if self.ranks > 1 && !self.bar.is_terminal {
            let (steps, ranks) = (self.steps, self.ranks);
            self.unsaid = Some(format!("step {step} of {steps} on {ranks} ranks: {message}"));
            if self.said.elapsed() >= OFTEN {
                self.say_pace();
            }
        }
        self.bar.set_message(message);
        self.bar.set_position(step);
    }

    fn evaluated(&mut self, evaluation: &Evaluation, step: u64, best: bool, _model: &Model) {
        self.say_pace();
        let Evaluation { loss, perplexity, accuracy, macro_f1, .. } = evaluation;
        let mark = if best { ", best so far" } else { "" };
        let other = match macro_f1 {
            None => format!("perplexity {perplexity:.2}"),
            Some(f1) => format!("macro F1 {f1:.3}"),
        };
        self.bar.say(format!(
            "step {step}: valid loss {loss:.4}, {other}, accuracy {accuracy:.3}{mark}"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_follows_from_what_this_process_has_done() {
        // Taken up at 290 of 1000, ten updates in four seconds: 700 are left.
        let span = left(10, 700, Duration::from_secs(4)).expect("something was done");
        assert_eq!(time(span), "4m 40s");
        assert_eq!(left(0, 710, Duration::from_secs(4)), None);
        assert_eq!(Pace::new(290).left(290, 1000), "-");
    }

    #[test]
    fn times_are_short() {
        let of = |seconds| time(Duration::from_secs(seconds));
        assert_eq!([of(45), of(200), of(7500)], ["45s", "3m 20s", "2h 05m"]);
    }
}
