//! Our side, in a process of its own: answers one JSON line on stdout for each on stdin.

use std::{
    fs::File,
    io::{self, BufRead, BufWriter, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, anyhow};
use burn::tensor::Device;
use serde::Deserialize;
use serde_json::{Value, json};
use whatwhere_kernels::with_busy_pool;
use whatwhere_training::{Run, Weights};
use whatwhere_transformer::{
    Model, ModelSettings, Sequences,
    generate::{Beam, Generator, Sampling},
};

/// What can be asked.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Request {
    /// Opens a run folder.
    Open { run: PathBuf, int8: bool },
    /// Builds a model of random weights, which go to a file, and tells its parameters.
    Build { model: String, weights: PathBuf, int8: bool },
    /// Writes after a prompt.
    Write { prompt: Vec<u32>, tokens: usize },
    /// Writes several sequences after prompts.
    Together { prompts: Vec<Vec<u32>>, tokens: usize },
    /// Translates.
    Translate { sources: Vec<Vec<u32>>, tokens: usize, beam: usize },
}

/// Answers until there are no more requests.
pub(crate) fn work() -> Result<()> {
    let mut generator = None;
    for line in io::stdin().lock().lines() {
        let request = serde_json::from_str(&line?)?;
        let answer = answer(request, &mut generator);
        let answer = answer.unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
        let mut out = io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn answer(request: Request, generator: &mut Option<Generator>) -> Result<Value> {
    match request {
        Request::Open { run, int8 } => {
            let weights = if int8 { Weights::Int8 } else { Weights::F32 };
            let run = Run::open_with(run, Some(weights))?;
            *generator = Some(Generator::new(run.model()));
            return Ok(json!({}));
        }
        Request::Build { model, weights, int8 } => {
            let model = ModelSettings::from_toml(&model)?.build(0, &Device::flex())?;
            let answer = json!({ "parameters": write_weights(&model, &weights)? });
            let model = if int8 { model.to_int8()? } else { model };
            *generator = Some(Generator::new(&model));
            return Ok(answer);
        }
        _ => {}
    }
    let generator = generator.as_ref().ok_or_else(|| anyhow!("no model was opened"))?;
    let start = Instant::now();
    let (ids, seconds) = match request {
        Request::Write { prompt, tokens } => {
            let go_on = |_| ControlFlow::Continue(());
            let ids = generator.generate(None, &prompt, tokens, &Sampling::greedy(), go_on)?;
            (json!(ids), start.elapsed())
        }
        Request::Together { prompts, tokens } => {
            let model = generator.model();
            let mut state = model.start(None)?;
            let first = with_busy_pool(|| model.step(&Sequences::from_rows(&prompts), &mut state))?;
            let mut last = best(first, prompts.len())?;
            let start = Instant::now();
            let mut ids = vec![last.clone()];
            for _ in 0..tokens {
                let rows: Vec<[u32; 1]> = last.iter().map(|id| [*id]).collect();
                let logits =
                    with_busy_pool(|| model.step(&Sequences::from_rows(&rows), &mut state))?;
                last = best(logits, prompts.len())?;
                ids.push(last.clone());
            }
            (json!(ids), start.elapsed())
        }
        Request::Translate { sources, tokens, beam } => {
            // The last id is none that is ever likely: every translation is as long as it may be.
            let end = generator.model().settings().vocabulary as u32 - 1;
            let (width, limit, (forced, never)) = (beam, tokens, (None, None));
            let beam = Beam { width, length_penalty: 0.0, limit, begin: 1, end, forced, never };
            let found =
                with_busy_pool(|| beam.search(generator.model(), &Sequences::from_rows(&sources)))?;
            let ids: Vec<&[u32]> = found.iter().map(|all| &all[0].tokens[..]).collect();
            (json!(ids), start.elapsed())
        }
        Request::Open { .. } | Request::Build { .. } => unreachable!("answered above"),
    };
    Ok(json!({ "seconds": seconds.as_secs_f64(), "ids": ids }))
}

/// The best token after the last place of each sequence.
fn best(logits: burn::tensor::Tensor<3>, sequences: usize) -> Result<Vec<u32>> {
    let [_, length, vocabulary] = logits.dims();
    let values: Vec<f32> = logits
        .into_data()
        .try_into_vec()
        .map_err(|error| anyhow!("logits could not be read: {error:?}"))?;
    let row = |sequence: usize| {
        let logits = &values[((sequence + 1) * length - 1) * vocabulary..][..vocabulary];
        let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
        best.map(|(id, _)| id as u32).context("a vocabulary is not empty")
    };
    (0..sequences).map(row).collect()
}

/// Names and shapes, in the order of their values in the file.
fn write_weights(model: &Model, path: &Path) -> Result<Vec<Value>> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
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
