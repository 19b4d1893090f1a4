//! Our side, in a process of its own: answers one JSON line on stdout for each on stdin, as `training.py` does.

use std::{
    fs::File,
    io::{self, BufRead, BufWriter, Write},
    ops::ControlFlow,
    time::Instant,
};

use anyhow::{Context, Result, anyhow};
use burn::{module::Module, tensor::Device};
use serde::Deserialize;
use serde_json::{Value, json};
use whatwhere_bench::status;
use whatwhere_data::Batch;
use whatwhere_kernels::Precision;
use whatwhere_training::{Learner, TrainingSettings};
use whatwhere_transformer::{
    Model, ModelSettings,
    generate::{Generator, Sampling},
};

/// The learning rate of every step.
const RATE: f64 = 1e-3;

/// What can be asked, by the names of `training.py`.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Request {
    /// Builds a model and tells its parameters; their values go to a file.
    Build { model: String, weights: String },
    /// Takes the model for training.
    Train { rows: usize, length: usize, precision: Precision },
    /// Takes the model for writing.
    Write { prompt: usize, tokens: usize },
    /// Steps of what was taken last.
    Steps { count: usize },
}

/// What is at work.
enum Work {
    Nothing,
    Built(Box<Model>),
    Train { learner: Box<Learner>, rows: usize, length: usize, step: u64 },
    Write { generator: Box<Generator>, prompt: Vec<u32>, tokens: usize },
}

/// Answers until there are no more requests.
pub(crate) fn work() -> Result<()> {
    let mut work = Work::Nothing;
    for line in io::stdin().lock().lines() {
        let request = serde_json::from_str(&line?)?;
        let answer = answer(request, &mut work);
        let answer = answer.unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
        let mut out = io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn answer(request: Request, work: &mut Work) -> Result<Value> {
    match request {
        Request::Build { model, weights } => {
            let model = ModelSettings::from_toml(&model)?.build(0, &Device::flex().autodiff())?;
            let answer = json!({ "parameters": write_weights(&model, &weights)? });
            *work = Work::Built(Box::new(model));
            Ok(answer)
        }
        Request::Train { rows, length, precision } => {
            let training = TrainingSettings { precision, ..Default::default() };
            let learner = Box::new(Learner::new(built(work)?, &training));
            *work = Work::Train { learner, rows, length, step: 0 };
            Ok(json!({}))
        }
        Request::Write { prompt, tokens } => {
            let model = built(work)?.valid();
            let prompt = numbers(0, prompt, model.settings().vocabulary);
            let generator = Generator::new(&model);
            *work = Work::Write { generator: Box::new(generator), prompt, tokens };
            Ok(json!({}))
        }
        Request::Steps { count } => steps(work, count),
    }
}

fn built(work: &mut Work) -> Result<Model> {
    match std::mem::replace(work, Work::Nothing) {
        Work::Built(model) => Ok(*model),
        _ => Err(anyhow!("no model was built")),
    }
}

/// Names and shapes, in the order of their values in the file.
fn write_weights(model: &Model, path: &str) -> Result<Vec<Value>> {
    let file = File::create(path).with_context(|| format!("cannot write {path}"))?;
    let mut file = BufWriter::new(file);
    let mut listed = Vec::new();
    for parameter in model.parameters() {
        for value in &parameter.values {
            file.write_all(&value.to_le_bytes())?;
        }
        listed.push(json!({ "name": parameter.name, "shape": parameter.shape }));
    }
    file.flush()?;
    Ok(listed)
}

/// The fastest of some steps, what came out of each, the fresh pages of the last, and the peak of memory.
fn steps(work: &mut Work, count: usize) -> Result<Value> {
    status::reset_peak()?;
    let (mut best, mut fresh, mut results) = (f64::INFINITY, 0, Vec::new());
    for _ in 0..count {
        let pages = status::fresh_pages()?;
        let start = Instant::now();
        results.push(step(work)?);
        best = best.min(start.elapsed().as_secs_f64() * 1e3);
        fresh = status::fresh_pages()? - pages;
    }
    let peak = status::kib("VmHWM:")? / 1024.0;
    Ok(json!({ "ms": best, "results": results, "fresh_pages": fresh, "peak_mib": peak }))
}

fn step(work: &mut Work) -> Result<Value> {
    match work {
        Work::Train { learner, rows, length, step } => {
            let vocabulary = learner.model().settings().vocabulary;
            let numbers = numbers(*step, *rows * *length + 1, vocabulary);
            let (tokens, targets) = (numbers[..numbers.len() - 1].to_vec(), numbers[1..].to_vec());
            let batch = Batch {
                rows: *rows,
                length: *length,
                weights: vec![1.0; tokens.len()],
                tokens,
                targets,
                lengths: vec![*length; *rows],
                documents: vec![vec![0]; *rows],
                prefixes: None,
                source: None,
                labels: None,
            };
            *step += 1;
            learner.accumulate(&batch, *step)?;
            let stats = learner.finish();
            learner.update(&stats, RATE, *step);
            Ok(json!(stats.loss))
        }
        Work::Write { generator, prompt, tokens } => {
            let sampling = Sampling::greedy();
            let go_on = |_| ControlFlow::Continue(());
            Ok(json!(generator.generate(None, prompt, *tokens, &sampling, go_on)?))
        }
        _ => Err(anyhow!("nothing to do was taken")),
    }
}

/// Tokens that look random, the same in both languages.
fn numbers(step: u64, count: usize, vocabulary: usize) -> Vec<u32> {
    let number = |i: u64| (i + 7919 * step).wrapping_mul(2_654_435_761) % (1 << 32) / 256;
    (0..count as u64).map(|i| (number(i) % vocabulary as u64) as u32).collect()
}
