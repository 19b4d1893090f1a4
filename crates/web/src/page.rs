//! Questions and who answers them.

use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

use serde::Deserialize;
use serde_json::json;
use whatwhere_kernels::Simd;
use whatwhere_lab::view::{Opening, Parameters, View, choices};
use whatwhere_training::{Generation, Run, Sampling};

/// Texts that are kept open.
const KEPT: usize = 6;

/// Tokens that are written for one question.
const MOST: usize = 4096;

/// Runs, and the texts they have read.
#[derive(Default)]
pub struct Page {
    runs: BTreeMap<String, Arc<Run>>,
    /// The last used comes last.
    views: Vec<(u64, View)>,
    opened: u64,
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Words that are no question.
    #[error("{0}")]
    Question(String),
    /// Refused by who answers.
    #[error(transparent)]
    Lab(#[from] whatwhere_lab::Error),
    /// From a run.
    #[error(transparent)]
    Run(#[from] whatwhere_training::Error),
}

/// A question; names and values as in the addresses of a server.
#[derive(Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
enum Question {
    /// What answers.
    About,
    /// Takes a run over; the bytes are `config.toml`, `tokenizer.json` and `model.safetensors`, of these lengths.
    Load { run: String, lengths: [usize; 3] },
    /// Lets a run read a text.
    Open { run: String, opening: Opening },
    /// About a text that was read.
    Reading { reading: u64, what: String, pairs: Vec<(String, String)> },
    /// About encodings and patterns.
    Choices { what: String, pairs: Vec<(String, String)> },
    /// Goes on after a text.
    Write { run: String, prompt: String, tokens: usize, sampling: Sampling },
}

impl Page {
    /// Answers a question: a line of JSON, and behind it the bytes it tells of.
    pub fn answer(&mut self, asked: &[u8]) -> Result<Vec<u8>, Error> {
        let end = asked.iter().position(|byte| *byte == b'\n').unwrap_or(asked.len());
        let (line, bytes) = (&asked[..end], asked.get(end + 1..).unwrap_or_default());
        let question = serde_json::from_slice(line).map_err(|e| Error::Question(e.to_string()))?;
        let words = match question {
            Question::About => {
                let version = env!("CARGO_PKG_VERSION");
                json!({ "version": version, "instructions": Simd::instructions() })
            }
            Question::Load { run, lengths } => self.load(run, lengths, bytes)?,
            Question::Open { run, opening } => {
                let view = View::open(self.run(&run)?, &opening)?;
                self.opened += 1;
                self.views.drain(..self.views.len().saturating_sub(KEPT - 1));
                self.views.push((self.opened, view));
                json!({ "reading": self.opened })
            }
            Question::Reading { reading, what, pairs } => {
                return Ok(self.view(reading)?.answer(&what, &Parameters::new(pairs))?.bytes);
            }
            Question::Choices { what, pairs } => {
                return Ok(choices::answer(&what, &Parameters::new(pairs))?.bytes);
            }
            Question::Write { run, prompt, tokens, sampling } => {
                let limit = tokens.min(MOST);
                let generation = Generation { sampling, limit, ..Generation::default() };
                let each = |_: &str| ControlFlow::Continue(());
                json!({ "text": self.run(&run)?.generate(&prompt, &generation, each)? })
            }
        };
        Ok(words.to_string().into_bytes())
    }

    fn load(
        &mut self,
        name: String,
        lengths: [usize; 3],
        bytes: &[u8],
    ) -> Result<serde_json::Value, Error> {
        let mut rest = bytes;
        let [config, tokenizer, model] = lengths.map(|length| {
            let (part, after) = rest.split_at_checked(length).unwrap_or_default();
            rest = after;
            part
        });
        let config = str::from_utf8(config).map_err(|e| Error::Question(e.to_string()))?;
        let run = Run::of_files(config, tokenizer, model.to_vec())?;
        let parameters = run.model().size();
        self.runs.insert(name, Arc::new(run));
        Ok(json!({ "parameters": parameters }))
    }

    fn run(&self, name: &str) -> Result<&Arc<Run>, Error> {
        self.runs.get(name).ok_or_else(|| Error::Question(format!("no run is called {name}")))
    }

    /// An open text, which then is the one used last.
    fn view(&mut self, reading: u64) -> Result<&View, Error> {
        let gone = || Error::Question(format!("reading {reading} is open no longer"));
        let at = self.views.iter().position(|(found, _)| *found == reading).ok_or_else(gone)?;
        let found = self.views.remove(at);
        self.views.push(found);
        Ok(&self.views[self.views.len() - 1].1)
    }
}
