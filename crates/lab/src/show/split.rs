//! `show split`: scores of a run taken apart into what and where.

use std::ops::Range;

use burn::tensor::Tensor;
use whatwhere_attention::{CallView, Path};
use whatwhere_kernels::attention::FeatureKind;
use whatwhere_transformer::{AttentionInput, Site, Stack};

use super::{
    Kind, Page, Parts, Picture, Reading, Section, Terms,
    attention::{Heads, heading, stem},
};
use crate::{Error, chart::Heat};

/// Tokens of a split at the most: every pair of every head is held several times.
pub const LONGEST_SPLIT: usize = 512;

const CELLS: usize = 128; // of a map, across and down
const PANEL: usize = 64; // tokens whose names can be read in a small picture

/// Splits the scores of a run over a text it has read. Maps are drawn of the first layer and head unless others are chosen;
/// the table has all.
pub fn split(reading: &Reading, heads: &Heads) -> Result<Page, Error> {
    heads.check(reading)?;
    let longest = reading.seen().iter().map(|seen| reading.keys(seen.site).len()).max();
    let longest = longest.unwrap_or(0).max(reading.queries(Site::Decoder).len());
    if longest > LONGEST_SPLIT {
        let reason = format!("found {longest} tokens, expected at most {LONGEST_SPLIT}");
        return Err(Error::Request(format!("a split holds the score of every pair: {reason}")));
    }
    let chosen = Heads {
        layers: if heads.layers.is_empty() { vec![0] } else { heads.layers.clone() },
        heads: if heads.heads.is_empty() { vec![0] } else { heads.heads.clone() },
    };
    let mut table = vec![
        ["", "head", "content", "position", "interaction", "score"].map(String::from).to_vec(),
    ];
    let mut sections = Vec::new();
    let mut last_note = None;
    for seen in reading.seen() {
        let (terms, note) = terms(reading, seen)?;
        let (queries, keys) = (reading.queries(seen.site).len(), reading.keys(seen.site).len());
        let split = Split { terms, queries, keys };
        for head in 0..reading.attention(seen).settings().heads {
            let mark = if note.is_some() { " *" } else { "" };
            table.push(split.row(&format!("{}{mark}", heading(seen)), head));
        }
        last_note = note.clone().or(last_note);
        if chosen.has_layer(seen.layer) {
            sections.extend(chosen.heads.iter().map(|head| {
                let mut section = split.section(reading, seen, *head);
                section.words.extend(note.clone());
                section
            }));
        }
    }
    let mut words = [
        "The terms of a score add up to it: content is what the tokens alone say, position what their positions alone say, \
         interaction what only both together say. Below each map stands what its term is.",
        "Spread of each kind of term: the standard deviation over the visible keys of a query, which is what the softmax sees; \
         it does not see what all keys of a query have in common.",
    ]
    .map(String::from)
    .to_vec();
    words.extend(last_note.map(|note| format!("* {note}")));
    let summary = Section {
        heading: "What and where in every head".into(),
        words,
        table,
        ..Default::default()
    };
    sections.insert(0, summary);
    let text = reading.text().into();
    Ok(Page { title: "What and where".into(), words: reading.about(), text, sections })
}

/// The terms of the scores of one attention, and what must be said of them, if anything.
pub fn terms(reading: &Reading, seen: &AttentionInput) -> Result<(Terms, Option<String>), Error> {
    let look = reading.attention(seen).look(seen.input.clone())?;
    let queries = 0..look.call().shape.queries;
    terms_of(reading, seen, &look, queries)
}

/// [`terms`] of some of the queries, as `[heads, queries, keys]` of these alone; memory grows with their number times the keys.
pub fn terms_of(
    reading: &Reading,
    seen: &AttentionInput,
    look: &CallView,
    queries: Range<usize>,
) -> Result<(Terms, Option<String>), Error> {
    let attention = reading.attention(seen);
    let (parts, note) = added_places(reading, seen, look)?;
    let positions = &attention.settings().position;
    let terms = Terms::of_queries(look, positions, parts.as_ref(), queries);
    Ok((terms.map_err(|error| Error::Attention(error.into()))?, note))
}

/// What positions added to embeddings contribute to q and k of a layer; or why that cannot be said, if there are any.
fn added_places(
    reading: &Reading,
    seen: &AttentionInput,
    look: &CallView,
) -> Result<(Option<Parts>, Option<String>), Error> {
    let model = reading.run().model();
    let stack = if seen.site == Site::Encoder { &model.encoder } else { &model.decoder };
    // A recurrent model has none, and adds nothing to embeddings.
    let Some(stack): Option<&Stack> = stack.as_ref() else { return Ok((None, None)) };
    if stack.position.is_empty() {
        return Ok((None, None));
    }
    let why =
        |reason: &str| Ok((None, Some(format!("Content holds the position, too: {reason}."))));
    if seen.layer > 0 || seen.site == Site::Cross {
        return why(
            "positions were added to the embeddings, and the layers before this one have mixed the two",
        );
    }
    let call = look.call();
    if call.features.iter().any(|feature| matches!(feature.kind, FeatureKind::Polar { .. })) {
        return why("polar takes the magnitude of the sum of the two");
    }
    let attention = reading.attention(seen);
    if !attention.settings().score.is_product() {
        return why("the additive score takes tanh of the sum of the two");
    }
    let embeddings = model.embed(&reading.sequences(seen.site), Path::Auto);
    let share = stack.place_share(embeddings, seen.input.first)?;
    let (q, k) = attention.shares(share, seen.input.x.clone());
    let slice = |tensor: Tensor<4>| tensor.into_data().try_into_vec().expect("f32 as everywhere");
    Ok((Some(Parts { q: slice(q), k: slice(k) }), None))
}

/// The terms of one attention.
struct Split {
    terms: Terms,
    queries: usize,
    keys: usize,
}

impl Split {
    /// The values of one head.
    fn of<'v>(&self, values: &'v [f64], head: usize) -> &'v [f64] {
        let pairs = self.queries * self.keys;
        &values[head * pairs..(head + 1) * pairs]
    }

    /// The spread of each kind and of the score.
    fn row(&self, heading: &str, head: usize) -> Vec<String> {
        let mut row = vec![heading.to_owned(), head.to_string()];
        let spreads = Kind::ALL.map(|kind| {
            let mut sum = vec![0.0; self.queries * self.keys];
            for term in self.terms.terms.iter().filter(|term| term.kind == kind) {
                let values = self.of(&term.values, head);
                sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            }
            self.spread(&sum, head)
        });
        let score = self.spread(self.of(&self.terms.scores, head), head);
        row.extend(spreads.into_iter().chain([score]).map(|spread| format!("{spread:.3}")));
        row
    }

    /// The standard deviation over the visible keys of a query, as the root of the mean square over all queries.
    fn spread(&self, values: &[f64], head: usize) -> f64 {
        let (mut squares, mut count) = (0.0, 0usize);
        let scores = self.of(&self.terms.scores, head);
        for (row, scores) in values.chunks(self.keys).zip(scores.chunks(self.keys)) {
            // A sum over no terms is 0 where a pair is hidden; the scores know.
            let seen = row.iter().zip(scores).filter(|(_, s)| s.is_finite()).map(|(v, _)| *v);
            let seen: Vec<f64> = seen.collect();
            let mean = seen.iter().sum::<f64>() / seen.len().max(1) as f64;
            squares += seen.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
            count += seen.len();
        }
        (squares / count.max(1) as f64).sqrt()
    }

    fn section(&self, reading: &Reading, seen: &AttentionInput, head: usize) -> Section {
        let largest = |values: &[f64]| {
            let finite = values.iter().filter(|value| value.is_finite());
            finite.fold(0.0, |most: f64, value| most.max(value.abs()))
        };
        let all = self.terms.terms.iter().map(|term| &term.values).chain([&self.terms.scores]);
        let most = all.map(|values| largest(self.of(values, head))).fold(0.0, f64::max);
        let picture = |title: String, caption: &str, values: &[f64], index: usize| {
            let labels = |tokens: &[u32]| match tokens.len() {
                0..=CELLS => reading.words(tokens),
                length => (0..CELLS).map(|cell| (cell * length / CELLS).to_string()).collect(),
            };
            let chart = Heat {
                title,
                x: "key".into(),
                y: "query".into(),
                columns: labels(reading.keys(seen.site)),
                rows: labels(reading.queries(seen.site)),
                values: self.cells(self.of(values, head)),
                range: Some((-most, most)),
                diverging: true,
            };
            Picture::new(format!("{}-head{head}-{index}", stem(seen)), chart.svg(), caption)
        };
        let mut pictures = vec![picture("score".into(), "the sum", &self.terms.scores, 0)];
        pictures.extend((1..).zip(&self.terms.terms).map(|(i, term)| {
            let title = format!("{}: {}", term.kind.name(), term.name);
            picture(title, term.meaning, &term.values, i)
        }));
        let names: Vec<&str> = self.terms.terms.iter().map(|term| term.name).collect();
        Section {
            heading: format!("{}, head {head}", heading(seen)),
            words: vec![format!("score = {}. One scale for all maps.", names.join(" + "))],
            pictures,
            side_by_side: self.queries.max(self.keys) <= PANEL,
            table: Vec::new(),
        }
    }

    /// A map of at most `CELLS` each way: the mean over the visible pairs of a cell.
    fn cells(&self, values: &[f64]) -> Vec<Vec<f64>> {
        let (rows, columns) = (self.queries.min(CELLS), self.keys.min(CELLS));
        let range = |cell: usize, cells: usize, length: usize| {
            cell * length / cells..(cell + 1) * length / cells
        };
        let mean = |row: usize, column: usize| {
            let keys = range(column, columns, self.keys);
            let pairs = range(row, rows, self.queries)
                .flat_map(|query| keys.clone().map(move |key| values[query * self.keys + key]));
            let visible: Vec<f64> = pairs.filter(|value| value.is_finite()).collect();
            visible.iter().sum::<f64>() / visible.len() as f64
        };
        (0..rows).map(|row| (0..columns).map(|column| mean(row, column)).collect()).collect()
    }
}
