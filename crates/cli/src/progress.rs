//! A line at the bottom of the terminal while a run trains.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use whatwhere_training::{Evaluation, Record, Watcher};
use whatwhere_transformer::Model;

/// A bar with loss, rate and time left; a line for every evaluation.
pub(crate) struct Progress {
    bar: ProgressBar,
    lines: bool,
}

impl Progress {
    pub(crate) fn new(step: u64, steps: u64) -> Self {
        let terminal = io::stderr().is_terminal();
        let target =
            if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(steps), target).with_position(step);
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} {eta} left")
            .expect("a template that indicatif reads");
        bar.set_style(style);
        bar.reset_eta();
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, lines: !terminal }
    }

    fn say(&self, line: String) {
        if self.lines {
            eprintln!("{line}");
        } else {
            self.bar.println(line);
        }
    }
}

impl Watcher for Progress {
    fn updated(&mut self, record: &Record, step: u64) {
        let Record { loss, tokens_per_second, .. } = record;
        self.bar.set_message(format!("loss {loss:.4}, {tokens_per_second:.0} tokens/s,"));
        self.bar.set_position(step);
    }

    fn evaluated(&mut self, evaluation: &Evaluation, step: u64, best: bool, _model: &Model) {
        let Evaluation { loss, perplexity, accuracy, .. } = evaluation;
        let mark = if best { ", best so far" } else { "" };
        self.say(format!(
            "step {step}: valid loss {loss:.4}, perplexity {perplexity:.2}, accuracy {accuracy:.3}{mark}"
        ));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
