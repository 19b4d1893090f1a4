//! A run that is asked for classes: texts in, names and probabilities out.

use serde::Serialize;
use whatwhere_data::{Framed, Objective, Source};
use whatwhere_transformer::{Mode, Sequences};

use crate::{
    Error, Run,
    classification::{likeliest, probabilities},
};

/// A text, or a pair of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// The text.
    pub text: String,
    /// The second text of a pair.
    pub second: Option<String>,
}

impl From<&str> for Input {
    fn from(text: &str) -> Self {
        Self { text: text.into(), second: None }
    }
}

/// What a text was told as.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Classified {
    /// The name of the likeliest class.
    pub label: String,
    /// Its probability.
    pub probability: f64,
    /// The probability of every class, in the order of [`Run::classes`].
    pub probabilities: Vec<f64>,
    /// Whether the text was longer than the model was trained on, so that its end was not read.
    #[serde(rename = "cut")]
    pub is_cut: bool,
}

/// Texts that are read at once.
const TOGETHER: usize = 32;

impl Run {
    /// Names of the classes that the run tells, in the order of their probabilities. Refuses a run that knows none.
    pub fn classes(&self) -> Result<Vec<String>, Error> {
        match self.settings.data.objective() {
            Objective::Classify(classify) if self.model().classifier.is_some() => {
                Ok(classify.classes)
            }
            other => Err(Error::Settings(format!(
                "classify needs a run that learned classes, this one was trained for {}; train --from it with objective = \"classify\"",
                other.name()
            ))),
        }
    }

    /// Whether it was trained on pairs of texts.
    pub fn reads_pairs(&self) -> bool {
        matches!(&self.settings.data.source, Source::Labeled(labeled) if labeled.second_field.is_some())
    }

    /// The class of every text, in the order given. Texts are cut to the length of the rows that the run was trained with.
    pub fn classify(&self, inputs: &[Input]) -> Result<Vec<Classified>, Error> {
        let each = self.classify_each(inputs)?.into_iter().enumerate();
        each.map(|(index, told)| {
            told.map_err(|error| Error::Settings(format!("text {}: {error}", index + 1)))
        })
        .collect()
    }

    /// [`Self::classify`] with an answer for each: a text that cannot be read ends no other.
    pub fn classify_each(&self, inputs: &[Input]) -> Result<Vec<Result<Classified, Error>>, Error> {
        let classes = self.classes()?;
        let mut rows = Vec::with_capacity(inputs.len());
        let mut failed = Vec::new();
        for (index, input) in inputs.iter().enumerate() {
            match self.framed(input) {
                Ok(row) => rows.push((index, row)),
                Err(error) => failed.push((index, error)),
            }
        }
        // Texts of like length together, so that little of a batch is padding.
        rows.sort_by_key(|(_, row)| row.tokens.len());
        let mut out: Vec<Option<Result<Classified, Error>>> = inputs.iter().map(|_| None).collect();
        for batch in rows.chunks(TOGETHER) {
            let logits = self.model().classify(&self.padded(batch)?, Mode::default())?;
            let logits: Vec<f32> = logits.into_data().try_into_vec().expect("logits are f32");
            for ((index, row), logits) in batch.iter().zip(logits.chunks(classes.len())) {
                let probabilities = probabilities(logits);
                let class = likeliest(&probabilities);
                out[*index] = Some(Ok(Classified {
                    label: classes[class].clone(),
                    probability: probabilities[class],
                    probabilities,
                    is_cut: row.is_cut,
                }));
            }
        }
        failed.into_iter().for_each(|(index, error)| out[index] = Some(Err(error)));
        Ok(out.into_iter().flatten().collect())
    }

    /// The row of a text as it was in training.
    fn framed(&self, input: &Input) -> Result<Framed, Error> {
        let tokenizer = self.tokenizer()?;
        let first = tokenizer.encode(&input.text)?;
        let second = input.second.as_ref().map(|text| tokenizer.encode(text)).transpose()?;
        let length = self.settings.row_length();
        let row = Framed::new(tokenizer, &first, second.as_deref(), length);
        if row.tokens.is_empty() {
            return Err(Error::Settings("found no tokens, expected at least 1".into()));
        }
        Ok(row)
    }

    fn padded(&self, batch: &[(usize, Framed)]) -> Result<Sequences, Error> {
        let longest = batch.iter().map(|(_, row)| row.tokens.len()).max().unwrap_or(0);
        let padding = self.tokenizer()?.padding().unwrap_or(0);
        let fill = |row: &Framed| {
            let more = longest - row.tokens.len();
            [&row.tokens[..], &vec![padding; more]].concat()
        };
        let rows: Vec<Vec<u32>> = batch.iter().map(|(_, row)| fill(row)).collect();
        let mut sequences = Sequences::from_rows(&rows);
        sequences.lengths = Some(batch.iter().map(|(_, row)| row.tokens.len()).collect());
        sequences.documents = Some(vec![vec![0]; batch.len()]);
        if self.settings.model.token_types > 1 {
            let types = |row: &Framed| {
                let second = row.second.unwrap_or(longest);
                (0..longest).map(move |at| u32::from(at >= second))
            };
            sequences.types = Some(batch.iter().flat_map(|(_, row)| types(row)).collect());
        }
        Ok(sequences)
    }
}
