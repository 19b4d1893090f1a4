//! The rivals: llama.cpp's own benchmarks as programs, and a Python worker for CTranslate2.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use whatwhere_bench::talk::{Talk, number};

use crate::cases::{Engine, Job, TRANSLATOR};

/// Where rivals are; what is absent is skipped.
pub(crate) struct Rivals {
    /// Files of `generation.py make`.
    pub(crate) models: PathBuf,
    pub(crate) llama_bench: Option<PathBuf>,
    pub(crate) llama_batched_bench: Option<PathBuf>,
    pub(crate) python: Option<Talk>,
    pub(crate) threads: usize,
}

impl Rivals {
    fn gguf(&self, model: &str, kind: &str) -> Result<String> {
        let path = self.models.join(format!("{model}.{kind}.gguf"));
        if !path.is_file() {
            bail!("{} is not there; generation.py makes it", path.display());
        }
        Ok(path.display().to_string())
    }

    /// Tokens per second of one turn, and what came out, where the engine tells.
    pub(crate) fn turn(
        &mut self,
        engine: Engine,
        job: &Job,
        asked: &Asked,
    ) -> Result<(f64, Option<Value>)> {
        let threads = self.threads.to_string();
        match (engine, *job) {
            (Engine::Llama(kind), Job::Write { model, tokens }) => {
                let speed = self.bench(model, kind, &["-p", "0", "-n", &tokens.to_string()])?;
                Ok((speed, None))
            }
            (Engine::Llama(kind), Job::Prompt { model, tokens }) => {
                let speed = self.bench(model, kind, &["-n", "0", "-p", &tokens.to_string()])?;
                Ok((speed, None))
            }
            (Engine::Llama(kind), Job::Together { model, sequences, prompt, tokens }) => {
                let program = self.llama_batched_bench.as_ref();
                let program = program.context("llama-batched-bench was not named")?;
                let mut command = Command::new(program);
                command.args(["-m", &self.gguf(model, kind)?, "-t", &threads, "-c", "4096"]);
                command.args(["-b", "2048", "-ub", "512", "--output-format", "jsonl"]);
                let sizes = [("-npp", prompt), ("-ntg", tokens), ("-npl", sequences)];
                for (option, size) in sizes {
                    command.args([option, &size.to_string()]);
                }
                let said = output(&mut command)?;
                let line = said.lines().find(|line| line.starts_with('{'));
                let line: Value = serde_json::from_str(line.context("expected a line of JSON")?)?;
                Ok((number(&line["speed_tg"])?, None))
            }
            (Engine::CTranslate2(kind), Job::Prompt { model, tokens }) => {
                let model = self.models.join(format!("{model}-ctranslate2-{kind}"));
                if !model.is_dir() {
                    bail!("{} is not there; generation.py makes it", model.display());
                }
                let request = json!({
                    "do": "ctranslate2_prompt", "model": model, "type": kind, "threads": self.threads,
                    "ids": asked.prompt,
                });
                let answer = self.ask(&request)?;
                Ok((tokens as f64 / number(&answer["seconds"])?, Some(answer["ids"].clone())))
            }
            (Engine::CTranslate2(kind), Job::Translate { tokens, beam, .. }) => {
                let settings: toml::Table = toml::from_str(TRANSLATOR)?;
                let folder = self.models.join(format!("translator-ctranslate2-{kind}"));
                let request = json!({
                    "do": "ctranslate2_translate", "folder": folder, "type": kind, "threads": self.threads,
                    "settings": settings, "weights": asked.weights, "parameters": asked.parameters,
                    "sources": asked.sources, "tokens": tokens, "beam": beam,
                });
                let answer = self.ask(&request)?;
                let counted = answer["ids"].as_array().context("expected lists of ids")?;
                let counted: usize = counted.iter().filter_map(Value::as_array).map(Vec::len).sum();
                Ok((counted as f64 / number(&answer["seconds"])?, Some(answer["ids"].clone())))
            }
            (Engine::CTranslate2(_), Job::Write { .. } | Job::Together { .. })
            | (Engine::Llama(_), Job::Translate { .. }) => bail!("does no such job"),
        }
    }

    /// What llama.cpp writes after a prompt.
    pub(crate) fn llama_ids(
        &mut self,
        model: &str,
        kind: &str,
        prompt: &[u32],
        tokens: usize,
    ) -> Result<Value> {
        let model = self.gguf(model, kind)?;
        let threads = self.threads;
        let request = json!({
            "do": "llama_ids", "model": model, "threads": threads, "prompt": prompt, "tokens": tokens,
        });
        Ok(self.ask(&request)?["ids"].take())
    }

    fn ask(&mut self, request: &Value) -> Result<Value> {
        self.python.as_mut().context("no Python was named")?.ask(request)
    }

    fn bench(&self, model: &str, kind: &str, sizes: &[&str]) -> Result<f64> {
        let program = self.llama_bench.as_ref().context("llama-bench was not named")?;
        let mut command = Command::new(program);
        command.args(["-m", &self.gguf(model, kind)?, "-t", &self.threads.to_string()]);
        command.args(["-r", "1", "-o", "json"]).args(sizes);
        let said: Value = serde_json::from_str(&output(&mut command)?)?;
        number(&said[0]["avg_ts"])
    }
}

/// What a job is given.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) prompt: Vec<u32>,
    pub(crate) prompts: Vec<Vec<u32>>,
    pub(crate) sources: Vec<Vec<u32>>,
    /// Our random weights, and the names and shapes of what they are.
    pub(crate) weights: PathBuf,
    pub(crate) parameters: Value,
}

fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_owned();
    let output =
        command.output().with_context(|| format!("{} could not be started", program.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or_default();
        bail!("{} ended with {}: {last}", program.display(), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
