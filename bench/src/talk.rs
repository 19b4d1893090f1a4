//! A worker: another process that answers one JSON line for each it is sent.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, ErrorKind, Write},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio},
    thread::{self, JoinHandle},
};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

/// Lines of the worker's stderr that are shown when it dies.
const TAIL: usize = 20;

/// The process and its pipes; it ends with the value.
pub struct Talk {
    name: &'static str,
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    stderr: Option<JoinHandle<VecDeque<String>>>,
}

impl Talk {
    /// Starts a worker; `name` stands in messages.
    pub fn start(name: &'static str, command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let piped = "the pipe was asked for above";
        let requests = child.stdin.take().expect(piped);
        let answers = BufReader::new(child.stdout.take().expect(piped));
        let stderr = child.stderr.take().expect(piped);
        let stderr = Some(thread::spawn(move || tail(stderr)));
        Ok(Self { name, child, requests, answers, stderr })
    }

    /// The answer to one request.
    pub fn ask(&mut self, request: &Value) -> Result<Value> {
        let name = self.name;
        match writeln!(self.requests, "{request}") {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Err(self.obituary()),
            result => result.with_context(|| format!("cannot write to the {name} worker"))?,
        }
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        if read.with_context(|| format!("cannot read from the {name} worker"))? == 0 {
            return Err(self.obituary());
        }
        let answer: Value = serde_json::from_str(&line)
            .with_context(|| format!("the {name} worker said {line:?}, expected JSON"))?;
        match answer["error"].as_str() {
            Some(error) => Err(anyhow!("{name}: {error}")),
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
        anyhow!("the {} worker ended ({status}){words}", self.name).context(Died)
    }
}

/// The worker ended, so nothing else can be asked either.
#[derive(Debug)]
pub struct Died;

impl std::fmt::Display for Died {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the worker cannot go on")
    }
}

impl Drop for Talk {
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

/// A text of an answer.
pub fn text(value: &Value) -> Result<String> {
    let text = value.as_str();
    Ok(text.with_context(|| format!("the worker said {value}, expected a text"))?.to_owned())
}

/// A number of an answer.
pub fn number(value: &Value) -> Result<f64> {
    value.as_f64().with_context(|| format!("the worker said {value}, expected a number"))
}

/// A list of names of an answer.
pub fn names(value: &Value) -> Result<Vec<String>> {
    let Some(names) = value.as_array() else {
        bail!("the worker said {value}, expected a list of names");
    };
    names.iter().map(text).collect()
}
