//! Trained run folders: a model that writes, translates, fills masked tokens or tells classes, scores text and shows its attention.

use std::{
    ops::ControlFlow,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use numpy::{PyArray1, PyArray3, PyArrayMethods};
use pyo3::{exceptions::PyValueError, prelude::*};
use serde::de::DeserializeOwned;
use whatwhere_lab::{
    heads::{self, ablation},
    show::Reading,
};
use whatwhere_training::{Error, Filling, Generation, Input, Run, Sampling, Translation, Weights};

/// A trained model; made by `whatwhere.load`.
#[pyclass(frozen, module = "whatwhere._native")]
pub(crate) struct Model {
    run: Mutex<Run>,
}

#[pymethods]
impl Model {
    /// Opens a run folder; `weights` are f32, int8, or as they are stored.
    #[new]
    #[pyo3(signature = (folder, weights=None))]
    fn new(py: Python, folder: PathBuf, weights: Option<&str>) -> PyResult<Self> {
        let weights = match weights {
            None => None,
            Some("f32") => Some(Weights::F32),
            Some("int8") => Some(Weights::Int8),
            Some(other) => {
                let reason = format!("weights = {other:?}, expected \"f32\" or \"int8\"");
                return Err(PyValueError::new_err(reason));
            }
        };
        let run = py.detach(|| Run::open_with(folder, weights)).map_err(refused)?;
        Ok(Self { run: Mutex::new(run) })
    }

    /// Updates behind the weights.
    #[getter]
    fn step(&self) -> u64 {
        self.run().step
    }

    /// The settings it was trained with, as JSON.
    fn settings(&self) -> PyResult<String> {
        serde_json::to_string(&self.run().settings)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// The tokens of a text.
    fn tokens(&self, text: &str) -> PyResult<Vec<String>> {
        let run = self.run();
        let tokenizer = run.tokenizer().map_err(refused)?;
        let tokens = run.encode(text).map_err(refused)?;
        Ok(tokens.into_iter().map(|token| tokenizer.token(token)).collect())
    }

    /// What comes after a prompt; `sampling` is JSON.
    fn generate(
        &self,
        py: Python,
        prompt: &str,
        limit: usize,
        stop: Vec<String>,
        sampling: &str,
    ) -> PyResult<String> {
        let sampling: Sampling = settings(sampling)?;
        let generation = Generation { sampling, limit, stop };
        py.detach(|| self.run().generate(prompt, &generation, |_| ControlFlow::Continue(())))
            .map_err(refused)
    }

    /// Translates sentences; `translation` is JSON.
    fn translate(
        &self,
        py: Python,
        sentences: Vec<String>,
        translation: &str,
    ) -> PyResult<Vec<String>> {
        let translation: Translation = settings(translation)?;
        py.detach(|| self.run().translate(&sentences, &translation)).map_err(refused)
    }

    /// The likeliest tokens for every blank of a text, with their probabilities.
    fn fill(&self, py: Python, text: &str, count: usize) -> PyResult<Vec<Vec<(String, f64)>>> {
        let found = py.detach(|| self.run().fill(text, count)).map_err(refused)?;
        let pair = |filling: Filling| (filling.text, filling.probability);
        Ok(found.into_iter().map(|blank| blank.into_iter().map(pair).collect()).collect())
    }

    /// Names of the classes that it tells.
    fn classes(&self) -> PyResult<Vec<String>> {
        self.run().classes().map_err(refused)
    }

    /// The probability of every class for each text, or pair of texts, and whether its end was not read.
    fn classify(
        &self,
        py: Python,
        texts: Vec<(String, Option<String>)>,
    ) -> PyResult<Vec<(Vec<f64>, bool)>> {
        let input = |(text, second)| Input { text, second };
        let inputs: Vec<Input> = texts.into_iter().map(input).collect();
        let found = py.detach(|| self.run().classify(&inputs)).map_err(refused)?;
        Ok(found.into_iter().map(|found| (found.probabilities, found.is_cut)).collect())
    }

    /// Every token of a text after the first, with its log-probability given those before it.
    fn score(&self, py: Python, text: &str) -> PyResult<Vec<(String, f64)>> {
        py.detach(|| {
            let run = self.run();
            let scored = run.score(text)?;
            let tokenizer = run.tokenizer()?;
            Ok(scored.into_iter().map(|(token, log)| (tokenizer.token(token), log)).collect())
        })
        .map_err(refused)
    }

    /// Logits of token ids, `[batch, length, vocabulary]`; `sources` for an encoder-decoder.
    fn logits<'py>(
        &self,
        py: Python<'py>,
        sources: Option<Vec<Vec<u32>>>,
        ids: Vec<Vec<u32>>,
    ) -> PyResult<Bound<'py, PyArray3<f32>>> {
        let (values, sizes) =
            py.detach(|| self.run().logits(sources.as_deref(), &ids)).map_err(refused)?;
        PyArray1::from_vec(py, values).reshape(sizes)
    }

    /// The weights of one layer over a text, `[heads, tokens, tokens]`.
    fn attention_weights<'py>(
        &self,
        py: Python<'py>,
        text: &str,
        layer: usize,
    ) -> PyResult<Bound<'py, PyArray3<f32>>> {
        let (values, sizes) =
            py.detach(|| self.run().attention_weights(text, layer)).map_err(refused)?;
        PyArray1::from_vec(py, values).reshape(sizes)
    }

    /// What every head does over a text, and the loss without each if `ablation`, as JSON.
    fn heads(
        &self,
        py: Python,
        text: &str,
        target: Option<&str>,
        ablation: bool,
    ) -> PyResult<String> {
        let mut interrupted = None;
        let measured = py.detach(|| {
            let run = self.run();
            let reading = Reading::new(&run, text, target)?;
            let batches = ablation.then(|| ablation::batches_of(&reading)).transpose()?;
            heads::measure(&reading, batches.as_deref(), &mut |_| {
                // Ctrl-C, which only the interpreter hears of.
                match Python::attach(|py| py.check_signals()) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        interrupted = Some(error);
                        ControlFlow::Break(())
                    }
                }
            })
        });
        if let Some(error) = interrupted {
            return Err(error);
        }
        let report = measured.map_err(|error| PyValueError::new_err(error.to_string()))?;
        serde_json::to_string(&report).map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

impl Model {
    fn run(&self) -> MutexGuard<'_, Run> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Settings from keyword arguments.
fn settings<T: DeserializeOwned>(json: &str) -> PyResult<T> {
    serde_json::from_str(json).map_err(|error| {
        let error = error.to_string();
        // The text is ours, not the caller's.
        PyValueError::new_err(error.split(" at line ").next().unwrap_or_default().to_owned())
    })
}

fn refused(error: Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}
