//! Batches of a task's examples. An example is a function of its split and number, the same for every seed;
//! the seed says which examples of the training split a step shows.

use super::{BatchSettings, Row};
use crate::{
    Error, Random, Result,
    corpus::{Content, Corpus, Split},
    settings::Objective,
    task::{Example, Task},
};

#[derive(Clone, Debug)]
pub(crate) struct TaskRows {
    split: Split,
    seed: u64,
    length: usize,
    /// None: without end.
    examples: Option<u64>,
}

impl TaskRows {
    pub(super) fn new(corpus: &Corpus, split: Split, settings: &BatchSettings) -> Result<Self> {
        let (task, examples) = task(corpus)?;
        let examples = match split {
            Split::Train if examples.train == 0 => None,
            Split::Train => Some(examples.train as u64),
            Split::Valid => Some(examples.valid as u64),
            Split::Test => Some(examples.test as u64),
        };
        let (prompt, answer) = task.longest();
        let needed = match corpus.objective() {
            Objective::NextToken(_) => prompt + answer - 1,
            Objective::Masked(_) => prompt + answer,
            Objective::Translate(_) => prompt.max(answer) + 1,
        };
        if needed > settings.length {
            let reason =
                format!("the task's examples have up to {needed} tokens; use at least that");
            return Err(Error::setting("length", settings.length, reason));
        }
        Ok(Self { split, seed: settings.seed, length: settings.length, examples })
    }

    pub(super) fn examples(&self) -> Option<u64> {
        self.examples
    }

    pub(super) fn held_out_examples(&self) -> usize {
        self.examples.unwrap_or(10_000) as usize
    }

    pub(super) fn rows(&self, corpus: &Corpus, step: u64, rows: usize) -> Result<Vec<Row>> {
        (0..rows as u64)
            .map(|row| {
                let mut random = Random::new(&[self.seed, step, row]);
                let number = match self.examples {
                    Some(examples) => random.below(examples as usize) as u64,
                    None => random.bits(),
                };
                self.row(corpus, number)
            })
            .collect()
    }

    pub(super) fn held_out(&self, corpus: &Corpus, index: usize) -> Result<Row> {
        self.row(corpus, index as u64)
    }

    fn row(&self, corpus: &Corpus, number: u64) -> Result<Row> {
        let (task, _) = task(corpus)?;
        let Example { prompt, answer } =
            task.example(&mut Random::new(&[self.split as u64, number]));
        let tokenizer = corpus.tokenizer();
        let (prompt, answer) = (tokenizer.encode(&prompt)?, tokenizer.encode(&answer)?);
        let all = [prompt.as_slice(), &answer].concat();
        Ok(match corpus.objective() {
            Objective::NextToken(_) => {
                let mut row = Row::next(all);
                row.weights[..prompt.len() - 1].fill(0.0);
                row
            }
            Objective::Masked(_) => {
                let mask = tokenizer.mask().expect("the objective asked for a mask");
                let mut tokens = all.clone();
                tokens[prompt.len()..].fill(mask);
                let mut weights = vec![1.0; all.len()];
                weights[..prompt.len()].fill(0.0);
                Row { tokens, targets: all, weights, source: None }
            }
            Objective::Translate(_) => Row::translate(corpus, &prompt, &answer, self.length),
        })
    }
}

fn task(corpus: &Corpus) -> Result<(&dyn Task, &crate::settings::Examples)> {
    match corpus.content() {
        Content::Task(source, examples) => source
            .task()
            .map(|task| (task, examples))
            .ok_or_else(|| Error::setting("source.kind", source.name(), "expected a task")),
        _ => Err(Error::setting("source.kind", "a corpus", "expected a task")),
    }
}
