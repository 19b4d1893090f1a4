//! Batches of a task's examples. An example is a function of its split and number, the same for every seed;
//! the seed says which examples of the training split a step shows.

use whatwhere_random::Random;
use whatwhere_settings::Refuses;

use super::{BatchSettings, Row};
use crate::{
    Error, Result,
    corpus::{Content, Corpus, Split, example_random},
    frame::Framed,
    settings::{Objective, Source},
    task::{Example, Task},
};

#[derive(Clone, Debug)]
pub(crate) struct TaskRows {
    split: Split,
    seed: u64,
    length: usize,
    /// None: without end.
    examples: Option<u64>,
    longest: usize,
}

impl TaskRows {
    pub(super) fn new(corpus: &Corpus, split: Split, settings: &BatchSettings) -> Result<Self> {
        let examples = Some(corpus.documents(split)).filter(|&examples| examples != u64::MAX);
        let (prompt, answer) = longest(corpus);
        let needed = match corpus.objective() {
            Objective::NextToken(_) | Objective::Prefix(_) => prompt + answer - 1,
            Objective::Masked(_) => prompt + answer,
            Objective::Translate(_) => prompt.max(answer) + 1,
            Objective::Classify(_) => prompt,
        };
        if needed > settings.length {
            let reason =
                format!("the task's examples have up to {needed} tokens; use at least that");
            return Err(Error::setting("length", settings.length, reason));
        }
        let (seed, length) = (settings.seed, settings.length);
        Ok(Self { split, seed, length, examples, longest: needed })
    }

    pub(super) fn longest(&self) -> usize {
        self.longest
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
                self.row(corpus, number, true)
            })
            .collect()
    }

    pub(super) fn held_out(&self, corpus: &Corpus, index: usize) -> Result<Row> {
        self.row(corpus, index as u64, false)
    }

    /// A row; of classes the weight counts where it is learned from.
    fn row(&self, corpus: &Corpus, number: u64, is_weighed: bool) -> Result<Row> {
        let Example { prompt, answer } = match corpus.content() {
            Content::Examples(splits) => splits[&self.split][number as usize].clone(),
            Content::Task(source) => made(source).example(&mut example_random(self.split, number)),
            _ => unreachable!("only tasks and examples come here"),
        };
        let tokenizer = corpus.tokenizer();
        if let Objective::Classify(_) = corpus.objective() {
            let class = corpus.classes().iter().position(|class| *class == answer);
            let reason = || format!("a task answered {answer:?}, which is none of its classes");
            let class =
                class.ok_or_else(|| Error::content(reason(), "a fault of the task"))? as u32;
            let row = Framed::new(tokenizer, &tokenizer.encode(&prompt)?, None, self.length);
            return Ok(Row::labeled(corpus, row, class, is_weighed));
        }
        let (prompt, answer) = (tokenizer.encode(&prompt)?, tokenizer.encode(&answer)?);
        let all = [prompt.as_slice(), &answer].concat();
        Ok(match corpus.objective() {
            Objective::NextToken(_) => {
                let mut row = Row::next(all);
                row.weights[..prompt.len() - 1].fill(0.0);
                row
            }
            Objective::Prefix(_) => Row::after(all, prompt.len()),
            Objective::Masked(_) => {
                let mask = tokenizer.mask().expect("the objective asked for a mask");
                let mut tokens = all.clone();
                tokens[prompt.len()..].fill(mask);
                let mut weights = vec![1.0; all.len()];
                weights[..prompt.len()].fill(0.0);
                Row { tokens, targets: all, weights, ..Row::default() }
            }
            Objective::Translate(_) => Row::translate(corpus, &prompt, &answer, self.length),
            Objective::Classify(_) => unreachable!("its rows are made above"),
        })
    }
}

/// The most tokens of a prompt and of an answer.
fn longest(corpus: &Corpus) -> (usize, usize) {
    match corpus.content() {
        Content::Task(source) => made(source).longest(),
        Content::Examples(splits) => {
            let words = |text: &str| text.split(' ').count();
            let all = || splits.values().flatten();
            let prompt = all().map(|example| words(&example.prompt)).max();
            let answer = all().map(|example| words(&example.answer)).max();
            (prompt.unwrap_or(1), answer.unwrap_or(1))
        }
        _ => unreachable!("only tasks and examples come here"),
    }
}

fn made(source: &Source) -> &dyn Task {
    source.task().expect("a corpus of a task has one")
}
