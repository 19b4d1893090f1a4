//! Both sides behind one face: our program again, or the Python worker.

use std::{env, path::Path, process::Command};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use whatwhere_bench::{
    place::Place,
    talk::{Talk, number},
};
use whatwhere_kernels::Precision;

use crate::cases::Job;

/// A process that does a job step by step.
pub(crate) struct Side {
    talk: Talk,
    pub(crate) best: f64,
    pub(crate) peak: f64,
    pub(crate) fresh: f64,
}

impl Side {
    /// Our program again.
    pub(crate) fn ours(
        place: &Place,
        threads: usize,
        job: &Job,
        precision: Precision,
    ) -> Result<(Self, Value)> {
        let this = env::current_exe().context("cannot find this program")?;
        Self::build(&this, place, threads, job, precision)
    }

    /// A build of this program; makes the model and writes its weights.
    pub(crate) fn build(
        program: &Path,
        place: &Place,
        threads: usize,
        job: &Job,
        precision: Precision,
    ) -> Result<(Self, Value)> {
        let mut command = Command::new(program);
        command.args(["--work", "--threads", &threads.to_string()]);
        let mut talk = Talk::start("our", &mut command)?;
        let request =
            json!({ "do": "build", "model": job.model(), "weights": place.tensor("weights") });
        let parameters = talk.ask(&request)?["parameters"].take();
        talk.ask(&taken(job, precision))?;
        Ok((Self::new(talk), parameters))
    }

    /// The Python worker on the weights that ours has written.
    pub(crate) fn python(
        place: &Place,
        python: &Path,
        threads: usize,
        job: &Job,
        parameters: &Value,
        (way, precision): (&str, Precision),
    ) -> Result<Self> {
        let mut talk = Self::worker(place, python, threads)?;
        let settings: toml::Table = toml::from_str(job.model())?;
        let request = json!({
            "do": "build", "model": settings, "weights": place.tensor("weights"), "parameters": parameters,
        });
        talk.ask(&request)?;
        let mut request = taken(job, precision);
        request["way"] = way.into();
        talk.ask(&request)?;
        Ok(Self::new(talk))
    }

    pub(crate) fn worker(place: &Place, python: &Path, threads: usize) -> Result<Talk> {
        let count = threads.to_string();
        let mut command = Command::new(python);
        command
            .arg("-B")
            .arg(place.bench().join("training.py"))
            .env("OMP_NUM_THREADS", &count)
            .env("MKL_NUM_THREADS", &count)
            .env("TORCHINDUCTOR_CACHE_DIR", place.target().join("bench-inductor"));
        Talk::start("torch", &mut command).context(
            "expected a Python with torch, numpy and transformers: run bench/training, which makes one, or name \
             another with --python",
        )
    }

    fn new(talk: Talk) -> Self {
        Self { talk, best: f64::INFINITY, peak: 0.0, fresh: 0.0 }
    }

    /// The first steps, which are not timed: what came out of each.
    pub(crate) fn warm(&mut self, count: usize) -> Result<Vec<Value>> {
        let answer = self.talk.ask(&json!({ "do": "steps", "count": count }))?;
        answer["results"].as_array().cloned().context("expected the results of the steps")
    }

    /// One turn.
    pub(crate) fn turn(&mut self, count: usize) -> Result<()> {
        let answer = self.talk.ask(&json!({ "do": "steps", "count": count }))?;
        self.best = self.best.min(number(&answer["ms"])?);
        self.peak = self.peak.max(number(&answer["peak_mib"])?);
        self.fresh = number(&answer["fresh_pages"])?;
        Ok(())
    }
}

fn taken(job: &Job, precision: Precision) -> Value {
    match job {
        Job::Train(train) => {
            let (rows, length) = (train.rows, train.length);
            json!({ "do": "train", "rows": rows, "length": length, "precision": precision })
        }
        Job::Write(write) => {
            json!({ "do": "write", "prompt": write.prompt, "tokens": write.tokens })
        }
    }
}
