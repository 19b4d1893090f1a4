//! A line at the bottom of the terminal while a comparison runs: cells, seeds, time left.

use std::time::{Duration, Instant};

use whatwhere_data::Description;
use whatwhere_lab::{
    compare::{At, Observer, Trained},
    grid::Cell,
};
use whatwhere_training::Record;

use crate::progress::Bar;

/// A bar over all updates of all runs; a line for each finished run.
pub(crate) struct Progress {
    bar: Bar,
    begun: Instant,
    /// Finished by an earlier call: they say nothing about the time left.
    skipped: usize,
    /// Runs at work, in the order they were begun.
    running: Vec<Running>,
    /// Whether it was said that others have what is left.
    waits: bool,
}

struct Running {
    cell: String,
    seed: u64,
    /// Of its updates.
    share: f64,
    said: String,
}

impl Running {
    fn is(&self, at: &At) -> bool {
        self.seed == at.seed && self.cell == at.cell.name
    }
}

/// Units of a run on the bar, however many updates it has.
const RUN: f64 = 1000.0;

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = Bar::new(Some(1), "{bar:24} {wide_msg}");
        Self { bar, begun: Instant::now(), skipped: 0, running: Vec::new(), waits: false }
    }

    fn draw(&self, at: &At) {
        let done = at.finished as f64 + self.running.iter().map(|run| run.share).sum::<f64>();
        self.bar.set_length((at.runs as f64 * RUN) as u64);
        self.bar.set_position((done * RUN) as u64);
        let runs: Vec<String> = self
            .running
            .iter()
            .map(|run| format!("{}, seed {}{}", run.cell, run.seed, run.said))
            .collect();
        let (finished, all) = (at.finished, at.runs);
        let left = self.left(done - self.skipped as f64, (all - self.skipped) as f64);
        self.bar.set_message(format!("{finished} of {all} runs, {left}; {}", runs.join("; ")));
    }

    fn left(&self, done: f64, all: f64) -> String {
        if done < 0.05 {
            return "…".into();
        }
        let seconds = self.begun.elapsed().as_secs_f64() / done * (all - done).max(0.0);
        format!("{} left", indicatif::HumanDuration(Duration::from_secs_f64(seconds)))
    }
}

impl Observer for Progress {
    fn reads(&mut self, data: &Description) {
        data.held_out().into_iter().for_each(|said| self.bar.say(said));
    }

    fn begins(&mut self, at: &At) {
        let (cell, seed) = (at.cell.name.clone(), at.seed);
        self.running.push(Running { cell, seed, share: 0.0, said: String::new() });
        self.waits = false;
        self.draw(at);
    }

    fn updated(&mut self, at: &At, record: &Record, step: u64) {
        if let Some(run) = self.running.iter_mut().find(|run| run.is(at)) {
            let Record { loss, tokens_per_second, .. } = record;
            run.share = step as f64 / at.steps as f64;
            run.said = format!(": loss {loss:.3}, {tokens_per_second:.0} tokens/s");
        }
        self.draw(at);
    }

    fn finished(&mut self, at: &At, trained: &Trained, was_there: bool) {
        self.running.retain(|run| !run.is(at));
        self.skipped += usize::from(was_there);
        let was = if was_there { ", from before" } else { "" };
        let quality = &trained.quality;
        self.bar.say(format!(
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

    fn waits(&mut self, held: usize) {
        let plural = if held == 1 { "" } else { "s" };
        let words = format!("waiting for {held} run{plural} that other processes have");
        self.bar.set_message(words.clone());
        if !std::mem::replace(&mut self.waits, true) {
            self.bar.say(words);
        }
    }

    fn failed(&mut self, cell: &Cell, reason: &str) {
        self.running.retain(|run| run.cell != cell.name);
        self.bar.say(format!("{}: {reason}", cell.name));
    }
}
