//! The torch worker: a Python process that answers one JSON line for each it is sent.

use std::{
    collections::VecDeque,
    fs,
    io::{BufRead, BufReader, ErrorKind, Write},
    path::Path,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio},
    thread::{self, JoinHandle},
};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};

use crate::{
    ours::{Pass, Problem},
    place::Place,
};

/// Lines of the worker's stderr that are shown when it dies.
const TAIL: usize = 20;

pub(crate) struct Worker<'p> {
    place: &'p Place,
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    stderr: Option<JoinHandle<VecDeque<String>>>,
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
        let mut child = Command::new(python)
            .arg("-B")
            .arg(place.bench().join("worker.py"))
            .env("OMP_NUM_THREADS", &count)
            .env("MKL_NUM_THREADS", &count)
            .env("TORCHINDUCTOR_CACHE_DIR", place.target().join("bench-inductor"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| {
                format!(
                    "cannot start {path}, expected a Python with torch and numpy: run \
                     bench/attention, which makes one, or name another with --python"
                )
            })?;
        let piped = "the pipe was asked for above";
        let requests = child.stdin.take().expect(piped);
        let answers = BufReader::new(child.stdout.take().expect(piped));
        let stderr = child.stderr.take().expect(piped);
        let stderr = Some(thread::spawn(move || tail(stderr)));
        let (torch, python) = (String::new(), String::new());
        let mut worker = Self { place, child, requests, answers, stderr, torch, python };
        let hello = worker
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
        names(&self.ask(&request)?["ways"])
    }

    /// Runs a way once and fetches the output and the gradients by name.
    pub(crate) fn results(&mut self, way: Way) -> Result<Vec<(String, Vec<f32>)>> {
        let mut results = Vec::new();
        for name in names(&self.ask(&way.request("check"))?["results"])? {
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
        number(&self.ask(&request)?["ms"])
    }

    /// MiB at the peak of one call above what was in use before.
    pub(crate) fn memory(&mut self, way: Way) -> Result<f64> {
        number(&self.ask(&way.request("memory"))?["mib"])
    }

    fn ask(&mut self, request: &Value) -> Result<Value> {
        match writeln!(self.requests, "{request}") {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Err(self.obituary()),
            result => result.context("cannot write to the torch worker")?,
        }
        let mut line = String::new();
        if self.answers.read_line(&mut line).context("cannot read from the torch worker")? == 0 {
            return Err(self.obituary());
        }
        let answer: Value = serde_json::from_str(&line)
            .with_context(|| format!("the torch worker said {line:?}, expected JSON"))?;
        match answer["error"].as_str() {
            Some(error) => Err(anyhow!("torch: {error}")),
            None => Ok(answer),
        }
    }

    /// What to say of a worker that ended on its own.
    fn obituary(&mut self) -> anyhow::Error {
        let status = match self.child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let tail = self.stderr.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        let words = Vec::from(tail).join("\n");
        let words = if words.is_empty() { String::new() } else { format!("; it said\n{words}") };
        anyhow!("the torch worker ended ({status}){words}").context(Died)
    }
}

/// The worker ended, so no other way can be asked either.
#[derive(Debug)]
pub(crate) struct Died;

impl std::fmt::Display for Died {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "torch cannot go on")
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        // Already ended is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tail(stderr: ChildStderr) -> VecDeque<String> {
    let mut last = VecDeque::new();
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        if last.len() == TAIL {
            last.pop_front();
        }
        last.push_back(String::from_utf8_lossy(&line).into_owned());
    }
    last
}

fn text(value: &Value) -> Result<String> {
    let text = value.as_str();
    Ok(text.with_context(|| format!("the worker said {value}, expected a text"))?.to_owned())
}

fn number(value: &Value) -> Result<f64> {
    value.as_f64().with_context(|| format!("the worker said {value}, expected a number"))
}

fn names(value: &Value) -> Result<Vec<String>> {
    let Some(names) = value.as_array() else {
        bail!("the worker said {value}, expected a list of names");
    };
    names.iter().map(text).collect()
}
