//! The torch worker: a Python process that answers one JSON line for each it is sent.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use whatwhere_bench::{
    place::Place,
    talk::{Talk, names, number, text},
};

use crate::ours::{Pass, Problem};

pub(crate) struct Worker<'p> {
    place: &'p Place,
    talk: Talk,
    /// Versions, as the worker tells them.
    pub(crate) torch: String,
    pub(crate) python: String,
}

/// One way of torch's on what is prepared, ready to run.
#[derive(Clone, Copy)]
pub(crate) struct Way<'w> {
    pub(crate) name: &'w str,
    pub(crate) pass: Pass,
}

impl Way<'_> {
    fn request(&self, verb: &str) -> Value {
        json!({ "do": verb, "way": self.name, "backward": self.pass == Pass::Both })
    }
}

impl<'p> Worker<'p> {
    pub(crate) fn start(place: &'p Place, python: &Path, threads: usize) -> Result<Self> {
        let (path, count) = (python.display(), threads.to_string());
        // torch's threads spin for some milliseconds after a call. The driver waits for them to sleep and leaves
        // OMP_WAIT_POLICY alone: PASSIVE would cost torch a wake-up for each of its parallel loops.
        let mut command = Command::new(python);
        command
            .arg("-B")
            .arg(place.bench().join("worker.py"))
            .env("OMP_NUM_THREADS", &count)
            .env("MKL_NUM_THREADS", &count)
            .env("TORCHINDUCTOR_CACHE_DIR", place.target().join("bench-inductor"));
        let talk = Talk::start("torch", &mut command).context(
            "expected a Python with torch and numpy: run bench/attention, which makes one, or name another with \
             --python",
        )?;
        let (torch, python) = (String::new(), String::new());
        let mut worker = Self { place, talk, torch, python };
        let hello = worker
            .talk
            .ask(&json!({ "do": "hello", "threads": threads }))
            .with_context(|| format!("{path} is not a Python with torch and numpy"))?;
        worker.torch = text(&hello["torch"])?;
        worker.python = text(&hello["python"])?;
        Ok(worker)
    }

    /// Hands over a problem's tensors and tells the names of the ways to compute a kind.
    pub(crate) fn prepare(&mut self, kind: &str, problem: &Problem) -> Result<Vec<String>> {
        let mut tensors = Vec::new();
        for tensor in &problem.tensors {
            let bytes: Vec<u8> = tensor.values.iter().flat_map(|x| x.to_le_bytes()).collect();
            let path = self.place.tensor(tensor.name);
            fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
            tensors.push(json!({
                "name": tensor.name, "shape": tensor.shape, "learned": tensor.learned,
            }));
        }
        let folder = self.place.folder();
        let request = json!({
            "do": "prepare", "kind": kind, "folder": folder, "tensors": tensors,
        });
        names(&self.talk.ask(&request)?["ways"])
    }

    /// Runs a way once and fetches the output and the gradients by name.
    pub(crate) fn results(&mut self, way: Way) -> Result<Vec<(String, Vec<f32>)>> {
        let mut results = Vec::new();
        for name in names(&self.talk.ask(&way.request("check"))?["results"])? {
            let path = self.place.tensor(&name);
            let bytes =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            fs::remove_file(&path)?;
            let (values, _) = bytes.as_chunks::<4>();
            results.push((name, values.iter().map(|x| f32::from_le_bytes(*x)).collect()));
        }
        Ok(results)
    }

    /// Milliseconds of a way's fastest call out of `calls`.
    pub(crate) fn time(&mut self, way: Way, calls: usize) -> Result<f64> {
        let mut request = way.request("time");
        request["calls"] = calls.into();
        number(&self.talk.ask(&request)?["ms"])
    }

    /// MiB at the peak of one call above what was in use before.
    pub(crate) fn memory(&mut self, way: Way) -> Result<f64> {
        number(&self.talk.ask(&way.request("memory"))?["mib"])
    }
}
