//! A line at the bottom of the terminal while a comparison runs: cells, seeds, time left.

use std::{
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use whatwhere_lab::{
    compare::{At, Spectator, Trained},
    grid::Cell,
};
use whatwhere_training::Record;

/// A bar over all updates of all runs; a line for each finished run.
pub(crate) struct Progress {
    bar: ProgressBar,
    is_terminal: bool,
    begun: Instant,
    /// Finished by an earlier call: they say nothing about the time left.
    skipped: usize,
}

/// Updates of a run on the bar, however many it has.
const RUN: u64 = 1000;

impl Progress {
    pub(crate) fn new() -> Self {
        let is_terminal = io::stderr().is_terminal();
        let target =
            if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(1), target);
        let style = ProgressStyle::with_template("{bar:24} {msg}")
            .expect("a template that indicatif reads");
        bar.set_style(style);
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, is_terminal, begun: Instant::now(), skipped: 0 }
    }

    fn say(&self, line: String) {
        if self.is_terminal {
            self.bar.println(line);
        } else {
            eprintln!("{line}");
        }
    }

    fn left(&self, at: &At, share: f64) -> String {
        let done = (at.finished - self.skipped) as f64 + share;
        let seconds = self.begun.elapsed().as_secs_f64() / done.max(1e-3)
            * ((at.runs - self.skipped) as f64 - done);
        match done > 0.05 {
            true => format!(
                "{} left",
                indicatif::HumanDuration(Duration::from_secs_f64(seconds.max(0.0)))
            ),
            false => "…".into(),
        }
    }
}

impl Spectator for Progress {
    fn begins(&mut self, at: &At) {
        self.bar.set_length(at.runs as u64 * RUN);
        self.bar.set_position(at.finished as u64 * RUN);
        self.bar.set_message(format!(
            "run {} of {}: {}, seed {}",
            at.finished + 1,
            at.runs,
            at.cell.name,
            at.seed
        ));
    }

    fn updated(&mut self, at: &At, record: &Record, step: u64) {
        let share = step as f64 / at.steps as f64;
        self.bar.set_position(((at.finished as f64 + share) * RUN as f64) as u64);
        let Record { loss, tokens_per_second, .. } = record;
        self.bar.set_message(format!(
            "run {} of {}: {}, seed {}: loss {loss:.3}, {tokens_per_second:.0} tokens/s, {}",
            at.finished + 1,
            at.runs,
            at.cell.name,
            at.seed,
            self.left(at, share)
        ));
    }

    fn finished(&mut self, at: &At, trained: &Trained, was_there: bool) {
        self.skipped += usize::from(was_there);
        let was = if was_there { ", from before" } else { "" };
        let quality = &trained.quality;
        self.say(format!(
            "{} of {}: {}, seed {}: loss {:.4}, accuracy {:.3}, {:.0} tokens/s{was}",
            at.finished + 1,
            at.runs,
            at.cell.name,
            at.seed,
            quality.loss,
            quality.accuracy,
            trained.cost.tokens_per_second,
        ));
    }

    fn failed(&mut self, cell: &Cell, reason: &str) {
        self.say(format!("{}: {reason}", cell.name));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
