//! Batches as a pure function of seed and step, and a fixed pass for evaluation.
//!
//! Every kind of content makes [`Row`]s; rows become a [`Batch`] by padding. `stream` crops a run of tokens,
//! `pairs` and `labeled` group texts of like length (`by_length`), `pieces` and `tasks` are sequences of their own; `masked` hides tokens.

mod by_length;
mod labeled;
mod masked;
mod pairs;
mod pieces;
mod stream;
mod tasks;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_settings::Refuses;

use crate::{
    Error, Result,
    corpus::{Content, Corpus, Split},
    tokenizer::Tokenizer,
};

/// Rows of tokens with what is to be predicted, all padded to one length.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Number of rows.
    pub rows: usize,
    /// Tokens in each row, padding included.
    pub length: usize,
    /// What the model reads; `rows · length`, row by row.
    pub tokens: Vec<u32>,
    /// What it should predict at each position.
    pub targets: Vec<u32>,
    /// How much each prediction counts: 0 where there is none.
    pub weights: Vec<f32>,
    /// Tokens of each row without padding.
    pub lengths: Vec<usize>,
    /// Where documents start in each row, ascending. The token that ends a document starts the next: what begins a document
    /// is then predicted from that token alone, as when a model begins to write.
    pub documents: Vec<Vec<usize>>,
    /// How many tokens at the start of each row are seen in both directions and not predicted, for `prefix`.
    pub prefixes: Option<Vec<usize>>,
    /// What the encoder reads, for `translate`.
    pub source: Option<SourceSide>,
    /// The class of each row, for `classify`; no token is then predicted.
    pub labels: Option<Labels>,
}

/// What rows are to be told as, for `classify`.
#[derive(Clone, Debug, PartialEq)]
pub struct Labels {
    /// The number of each row's class.
    pub classes: Vec<u32>,
    /// How much each row counts.
    pub weights: Vec<f32>,
    /// Where the second text of each row begins: at its end where there is none.
    pub seconds: Vec<usize>,
}

/// The source side of a batch, padded to a length of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceSide {
    /// Tokens in each row, padding included.
    pub length: usize,
    /// What the encoder reads; `rows · length`, row by row.
    pub tokens: Vec<u32>,
    /// Tokens of each row without padding.
    pub lengths: Vec<usize>,
}

/// One row before padding; tokens, targets and weights are equally long.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    tokens: Vec<u32>,
    targets: Vec<u32>,
    weights: Vec<f32>,
    source: Option<Vec<u32>>,
    prefix: Option<usize>,
    label: Option<Label>,
}

/// The class of a row, what it counts, and where its second text begins.
#[derive(Clone, Copy, Debug)]
struct Label {
    class: u32,
    weight: f32,
    second: usize,
}

impl Batch {
    fn of(rows: Vec<Row>, tokenizer: &Tokenizer) -> Self {
        // Weightless positions may show any token where no padding was asked for.
        let (padding, end) = (tokenizer.padding().unwrap_or(0), tokenizer.end());
        let starts = |row: &Row| {
            if row.label.is_some() {
                return vec![0]; // the end of a text begins no other document
            }
            let ends = (1..row.tokens.len()).filter(|&position| Some(row.tokens[position]) == end);
            std::iter::once(0).chain(ends).collect()
        };
        let labels: Option<Vec<Label>> = rows.iter().map(|row| row.label).collect();
        let length = rows.iter().map(|row| row.tokens.len()).max().unwrap_or(0);
        let source_length = rows.iter().filter_map(|row| row.source.as_ref()).map(Vec::len).max();
        let mut batch = Self {
            rows: rows.len(),
            length,
            tokens: Vec::with_capacity(rows.len() * length),
            targets: Vec::with_capacity(rows.len() * length),
            weights: Vec::with_capacity(rows.len() * length),
            lengths: rows.iter().map(|row| row.tokens.len()).collect(),
            documents: rows.iter().map(starts).collect(),
            prefixes: rows.iter().map(|row| row.prefix).collect(),
            source: source_length.map(|length| SourceSide {
                length,
                tokens: Vec::with_capacity(rows.len() * length),
                lengths: Vec::with_capacity(rows.len()),
            }),
            labels: labels.filter(|labels| !labels.is_empty()).map(|labels| Labels {
                classes: labels.iter().map(|label| label.class).collect(),
                weights: labels.iter().map(|label| label.weight).collect(),
                seconds: labels.iter().map(|label| label.second).collect(),
            }),
        };
        for (i, row) in rows.into_iter().enumerate() {
            let end = (i + 1) * length;
            batch.tokens.extend(row.tokens);
            batch.tokens.resize(end, padding);
            batch.targets.extend(row.targets);
            batch.targets.resize(end, padding);
            batch.weights.extend(row.weights);
            batch.weights.resize(end, 0.0);
            if let (Some(side), Some(source)) = (&mut batch.source, row.source) {
                side.lengths.push(source.len());
                side.tokens.extend(source);
                side.tokens.resize((i + 1) * side.length, padding);
            }
        }
        batch
    }
}

/// How batches are cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchSettings {
    /// Rows of a batch, or `{ tokens = … }` for as many as fit; default 32.
    pub batch: BatchSize,
    /// Tokens of a row; of pairs and examples the most; default 256.
    pub length: usize,
    /// What the order follows from; default 0.
    pub seed: u64,
    /// Whether each row of a text goes on where it ended a step before, for models that remember segments; default false.
    pub is_continuous: bool,
}

impl Default for BatchSettings {
    fn default() -> Self {
        Self { batch: BatchSize::Rows(32), length: 256, seed: 0, is_continuous: false }
    }
}

/// Size of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum BatchSize {
    /// So many rows.
    Rows(usize),
    /// As many rows as have so many tokens, padding included, on the longer side.
    Tokens {
        /// The most tokens.
        tokens: usize,
    },
}

impl BatchSize {
    /// Rows of a length that make a batch, at least one.
    fn rows(self, length: usize) -> usize {
        match self {
            Self::Rows(rows) => rows,
            Self::Tokens { tokens } => (tokens / length.max(1)).max(1),
        }
    }
}

/// The batches of a split. Clones share the data.
#[derive(Clone, Debug)]
pub struct Batches {
    corpus: Corpus,
    rows: usize,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Stream(stream::Stream),
    Pairs(pairs::PairRows),
    Labeled(labeled::LabeledRows),
    Pieces(pieces::PieceRows),
    Task(tasks::TaskRows),
}

impl Batches {
    /// Prepares the batches of a split; refuses sizes that do not fit it.
    pub fn new(corpus: &Corpus, split: Split, settings: &BatchSettings) -> Result<Self> {
        if settings.length == 0 {
            return Err(Error::setting("length", 0, "expected at least 1"));
        }
        match settings.batch {
            BatchSize::Rows(0) => return Err(Error::setting("batch", 0, "expected at least 1")),
            BatchSize::Tokens { tokens } if tokens < settings.length => {
                let reason = format!("expected at least length = {}", settings.length);
                return Err(Error::setting("batch.tokens", tokens, reason));
            }
            _ => {}
        }
        if !corpus.has(split) {
            let expected = "some; give a file for it or a share above 0".into();
            return Err(Error::Short { split: split.name(), found: "nothing".into(), expected });
        }
        let kind = match corpus.content() {
            Content::Stream(_) => Kind::Stream(stream::Stream::new(corpus, split, settings)?),
            Content::Pairs(_) => Kind::Pairs(pairs::PairRows::new(corpus, split, settings)?),
            Content::Labeled(_) => {
                Kind::Labeled(labeled::LabeledRows::new(corpus, split, settings)?)
            }
            Content::Pieces(_) => Kind::Pieces(pieces::PieceRows::new(split, settings)),
            Content::Task(_) | Content::Examples(_) => {
                Kind::Task(tasks::TaskRows::new(corpus, split, settings)?)
            }
        };
        let rows = settings.batch.rows(settings.length);
        Ok(Self { corpus: corpus.clone(), rows, kind })
    }

    /// The batch of a step: the same for the same seed, whatever was asked before.
    ///
    /// Fails only if a file of tokens can no longer be read.
    pub fn get(&self, step: u64) -> Result<Batch> {
        let rows = match &self.kind {
            Kind::Stream(stream) => stream.rows(&self.corpus, step, self.rows)?,
            Kind::Pairs(pairs) => pairs.rows(&self.corpus, step),
            Kind::Labeled(labeled) => labeled.rows(&self.corpus, step),
            Kind::Pieces(pieces) => pieces.rows(&self.corpus, step, self.rows),
            Kind::Task(tasks) => tasks.rows(&self.corpus, step, self.rows)?,
        };
        Ok(Batch::of(rows, self.corpus.tokenizer()))
    }

    /// Whether the rows of a step begin anew instead of going on from the step before.
    pub fn begins_anew(&self, step: u64) -> bool {
        match &self.kind {
            Kind::Stream(stream) => stream.begins_anew(step, self.rows),
            _ => true,
        }
    }

    /// Every position of the split once, in a fixed order that no seed changes; at most `limit` batches.
    pub fn evaluation(&self, limit: Option<usize>) -> impl Iterator<Item = Result<Batch>> + '_ {
        let plan = self.evaluation_plan();
        plan.into_iter().take(limit.unwrap_or(usize::MAX)).map(move |indices| {
            let rows = indices
                .into_iter()
                .map(|index| match &self.kind {
                    Kind::Stream(stream) => stream.window(&self.corpus, index),
                    Kind::Pairs(pairs) => Ok(pairs.row(&self.corpus, index)),
                    Kind::Labeled(labeled) => Ok(labeled.held_out(&self.corpus, index)),
                    Kind::Pieces(pieces) => Ok(pieces.window(&self.corpus, index)),
                    Kind::Task(tasks) => tasks.held_out(&self.corpus, index),
                })
                .collect::<Result<Vec<Row>>>()?;
            Ok(Batch::of(rows, self.corpus.tokenizer()))
        })
    }

    /// Batches until everything was seen once, or about once where crops are random; endless tasks say `u64::MAX`.
    pub fn batches_per_epoch(&self) -> u64 {
        let rows = match &self.kind {
            Kind::Stream(stream) => stream.windows() as u64,
            Kind::Pairs(pairs) => return pairs.batches_per_epoch(),
            Kind::Labeled(labeled) => return labeled.batches_per_epoch(),
            Kind::Pieces(pieces) => pieces.pieces(&self.corpus) as u64,
            Kind::Task(tasks) => tasks.examples().unwrap_or(u64::MAX),
        };
        if rows == u64::MAX { rows } else { rows.div_ceil(self.rows as u64) }
    }

    /// Pairs that training leaves out because a side is longer than `length`; evaluation cuts them.
    pub fn left_out(&self) -> usize {
        match &self.kind {
            Kind::Pairs(pairs) => pairs.left_out(),
            _ => 0,
        }
    }

    /// Tokens of the longest row at the most, on either side.
    pub fn longest(&self) -> usize {
        match &self.kind {
            Kind::Stream(stream) => stream.longest(),
            Kind::Pairs(pairs) => pairs.longest(&self.corpus),
            Kind::Labeled(labeled) => labeled.longest(),
            Kind::Pieces(pieces) => pieces.longest(&self.corpus),
            Kind::Task(tasks) => tasks.longest(),
        }
    }

    /// Texts with labels that are longer than `length`, so that their ends are not read.
    pub fn cut(&self) -> usize {
        match &self.kind {
            Kind::Labeled(labeled) => labeled.cut(),
            _ => 0,
        }
    }

    fn evaluation_plan(&self) -> Vec<Vec<usize>> {
        let rows = match &self.kind {
            Kind::Stream(stream) => stream.windows(),
            Kind::Pairs(pairs) => return pairs.evaluation_plan(&self.corpus),
            Kind::Labeled(labeled) => return labeled.evaluation_plan(),
            Kind::Pieces(pieces) => pieces.windows(&self.corpus),
            Kind::Task(tasks) => tasks.held_out_examples(),
        };
        if let Kind::Stream(stream) = &self.kind
            && stream.is_continuous()
        {
            // Each row reads its own stretch of the text, window after window.
            let each = rows.div_ceil(self.rows);
            let batch = |at: usize| (at..rows).step_by(each).collect();
            return (0..each).map(batch).collect();
        }
        let all: Vec<usize> = (0..rows).collect();
        all.chunks(self.rows).map(<[usize]>::to_vec).collect()
    }
}
