//! What cells can be ranked by: only what is a figure of the same predictions.
//!
//! Nats per token compare models that read the same held-out tokens. Other tokenizers cut the same text into other
//! tokens, which bits per byte sets right. Other texts, tasks or objectives ask other questions: no figure compares them.

use serde::{Deserialize, Serialize};
use whatwhere_data::{DataSettings, Objective, Source, TokenizerSettings, settings::Classify};
use whatwhere_training::{Evaluation, RunSettings};

use crate::{grid::Cell, statistics::Verdict};

/// What decides between cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Nats per token; lower is better.
    Loss,
    /// Bits per byte of the held-out text; lower is better.
    BitsPerByte,
    /// Share of right answers of a task; higher is better.
    Accuracy,
    /// Share of texts whose class was told; higher is better.
    ClassAccuracy,
}

impl Measure {
    /// What the cells that compose can be ranked by.
    ///
    /// # Errors
    /// In words, if there is nothing: what they differ in, and why that cannot be compared.
    pub fn of_cells(cells: &[Cell]) -> Result<Self, String> {
        let all: Vec<&RunSettings> =
            cells.iter().filter_map(|cell| cell.settings.as_ref().ok()).collect();
        let Some(first) = all.first() else { return Ok(Self::Loss) };
        let differ = |what: fn(&DataSettings) -> String| {
            let mut found: Vec<String> = all.iter().map(|settings| what(&settings.data)).collect();
            found.dedup();
            found.sort_unstable();
            found.dedup();
            (found.len() > 1).then(|| found.join(" and "))
        };
        if all.iter().any(|settings| held_out(&settings.data) != held_out(&first.data)) {
            let named = differ(|data| data.source.name().into()).unwrap_or_default();
            let named = if named.is_empty() { named } else { format!(" ({named})") };
            return Err(format!(
                "they are measured on different held-out data{named}, so the figures say as much about the data as about \
                 the models"
            ));
        }
        // Weights of classes change what is learned, and not what is asked for.
        let asked = |settings: &RunSettings| match settings.data.objective() {
            Objective::Classify(Classify { classes, .. }) => {
                Classify { classes, ..Classify::default() }.into()
            }
            other => other,
        };
        if all.iter().any(|settings| asked(settings) != asked(first)) {
            let named = differ(|data| format!("`{}`", data.objective().name()));
            let named = named.unwrap_or_else(|| "other shares of hidden tokens".into());
            return Err(format!(
                "they predict different things ({named}), which no figure compares"
            ));
        }
        if let Objective::Classify(_) = first.data.objective() {
            return Ok(Self::ClassAccuracy);
        }
        if first.data.source.task().is_some() {
            return Ok(Self::Accuracy);
        }
        if all.iter().all(|settings| same_tokens(&settings.data, &first.data)) {
            return Ok(Self::Loss);
        }
        match first.data.objective() {
            Objective::Masked(_) => Err(
                "they have different tokenizers, and a longer hidden token hides more of the text: no figure compares them"
                    .into(),
            ),
            Objective::Prefix(_) => Err(
                "they have different tokenizers, and a prefix of as many tokens gives away more of the text: no figure compares \
                 them"
                    .into(),
            ),
            Objective::NextToken(_) | Objective::Translate(_) => Ok(Self::BitsPerByte),
            Objective::Classify(_) => Ok(Self::ClassAccuracy),
        }
    }

    /// Of an evaluation.
    pub fn of(self, evaluation: &Evaluation) -> Option<f64> {
        match self {
            Self::Loss => Some(evaluation.loss),
            Self::BitsPerByte => evaluation.bits_per_byte,
            Self::Accuracy | Self::ClassAccuracy => Some(evaluation.accuracy),
        }
    }

    /// What is measured at other lengths: a loss, also of tasks.
    pub fn at_lengths(self) -> Self {
        if self.is_loss() { self } else { Self::Loss }
    }

    /// Whether less is better.
    pub fn is_loss(self) -> bool {
        !matches!(self, Self::Accuracy | Self::ClassAccuracy)
    }

    /// Whether a difference to the baseline is a gain.
    pub fn is_better(self, verdict: Verdict) -> bool {
        verdict == if self.is_loss() { Verdict::Lower } else { Verdict::Higher }
    }

    /// What it is called in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::BitsPerByte => "bits per byte",
            Self::Accuracy | Self::ClassAccuracy => "accuracy",
        }
    }

    /// What a figure of it counts.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Loss => "nats per token",
            Self::BitsPerByte => "bits per byte",
            Self::Accuracy => "of the answers right",
            Self::ClassAccuracy => "of the texts right",
        }
    }
}

/// What decides which data are measured on, and nothing else.
fn held_out(data: &DataSettings) -> DataSettings {
    let mut data = DataSettings { tokenizer: None, objective: None, cache: None, ..data.clone() };
    data.source = data.source.unaugmented();
    data.examples.train = 0;
    let has_test = data.test_share > 0.0;
    if let Source::Text(whatwhere_data::settings::Text { path, valid, test, .. })
    | Source::Midi(whatwhere_data::settings::Midi { path, valid, test, .. })
    | Source::Labeled(whatwhere_data::settings::Labeled { path, valid, test, .. })
    | Source::Fasta(whatwhere_data::settings::Fasta { path, valid, test, .. }) = &mut data.source
        && (test.is_some() || (valid.is_some() && !has_test))
    {
        *path = Default::default(); // a file of its own is held out, whatever is learned from
        if test.is_some() {
            *valid = None;
        }
        (data.valid_share, data.test_share) = (0.0, 0.0);
    }
    data
}

/// Whether two corpora with the same held-out text cut it into the same tokens.
fn same_tokens(a: &DataSettings, b: &DataSettings) -> bool {
    let tokenizer = a.tokenizer();
    let is_learned =
        matches!(tokenizer, TokenizerSettings::Bpe(_) | TokenizerSettings::Characters(_));
    tokenizer == b.tokenizer() && (!is_learned || a.source == b.source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::{Axis, cells};

    fn of(settings: &str, axis: &str) -> Result<Measure, String> {
        Measure::of_cells(&cells(settings, &[], &[Axis::parse(axis).unwrap()]).unwrap())
    }

    #[test]
    fn other_tokens_of_the_same_text_are_compared_by_bits_per_byte() {
        let bpe = "[data]\ntokenizer = 'bpe'";
        assert_eq!(of("", "position=rotary,alibi"), Ok(Measure::Loss));
        assert_eq!(
            of("", r#"tokenizer=bytes,{kind="bpe",vocabulary=400}"#),
            Ok(Measure::BitsPerByte)
        );
        assert_eq!(of(bpe, "tokenizer.vocabulary=300,1000"), Ok(Measure::BitsPerByte));
        assert_eq!(of("[data]\nsource = 'copy'", "position=rotary,alibi"), Ok(Measure::Accuracy));
        let labeled = "[model]\nfamily = 'encoder'\n[data]\nsource = 'labeled'";
        for axis in ["position=rotary,alibi", "tokenizer=bytes,characters", "pooling=first,mean"] {
            assert_eq!(of(labeled, axis), Ok(Measure::ClassAccuracy), "{axis}");
        }
        let weights = r#"objective={kind="classify"},{kind="classify",class_weights="balanced"}"#;
        assert_eq!(of(labeled, weights), Ok(Measure::ClassAccuracy));
        let own = "[data]\nsource = { kind = 'text', path = 'a', valid = 'v' }";
        assert_eq!(of(own, "data.source.path=a,b"), Ok(Measure::Loss));
        let own = format!("{own}\ntokenizer = 'bpe'");
        assert_eq!(of(&own, "data.source.path=a,b"), Ok(Measure::BitsPerByte));
    }

    #[test]
    fn other_questions_are_not_ranked() {
        let encoder = "[model]\nfamily = 'encoder'\n[data]\nobjective = 'masked'";
        for (settings, axis, expected) in [
            ("", "data.valid_share=0.1,0.2", "different held-out data"),
            ("[data]\nsource = 'text'", "data.source.path=a,b", "different held-out data"),
            ("[data]\nsource = 'copy'", "data.source=copy,reverse", "(copy and reverse)"),
            (encoder, r#"objective=masked,{kind="masked",share=0.3}"#, "predict different things"),
            (encoder, "tokenizer=bytes,characters", "hides more of the text"),
        ] {
            let reason = of(settings, axis).unwrap_err();
            assert!(reason.contains(expected), "{axis}: {reason}");
        }
    }
}
