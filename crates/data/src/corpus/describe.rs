//! Splits, and how much there is in each.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

/// A part of the data with its own purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// What the model learns from.
    Train,
    /// What decisions are made with.
    Valid,
    /// What is looked at once, at the end.
    Test,
}

impl Split {
    /// Its name in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Valid => "valid",
            Self::Test => "test",
        }
    }
}

/// How much there is of everything.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Description {
    /// Number of different tokens.
    pub vocabulary: usize,
    /// Names of the classes, where something is classified.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// What each split has.
    pub splits: BTreeMap<Split, Part>,
    /// What a token is called: `token`, or `event` of a performance.
    pub unit: &'static str,
    /// What was left out, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// How much there is in a split.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Part {
    /// Documents, pairs, pieces or examples; `u64::MAX` is without end.
    pub documents: u64,
    /// Bytes of text, of pairs the target's; 0 without text.
    pub bytes: u64,
    /// Tokens, of pairs the target's; 0 if they are made when asked for.
    pub tokens: u64,
    /// Of what is held out: the first documents by name, and how much of each where that is not all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// Documents that are named.
pub(crate) const NAMED: usize = 5;

/// Tokens below which a mean over them says little: at two nats of spread its error is above 0.03.
const FEW: u64 = 4096;

impl Split {
    fn purpose(self) -> &'static str {
        match self {
            Self::Train => "training",
            Self::Valid => "validation",
            Self::Test => "the test",
        }
    }
}

impl Description {
    /// What was left out, then what is held out: a sentence for each split, and a warning where it is too little to rest on.
    pub fn held_out(&self) -> Vec<String> {
        let held = || self.splits.iter().filter(|(split, _)| **split != Split::Train);
        if held().next().is_none() {
            let nothing = "nothing is held out: no loss is measured on unseen data".into();
            return self.notes.iter().cloned().chain([nothing]).collect();
        }
        let sentences = held().map(|(split, part)| part.sentence(*split, self.unit));
        // Of texts that are classified each is one prediction, whose error `evaluate` tells.
        let counts = held().filter(|_| self.classes.is_empty());
        let few = counts.filter(|(_, part)| (1..FEW).contains(&part.tokens)).map(|(split, part)| {
            format!(
                "warning: only {} {}s are held out for {}, and a loss on fewer than {FEW} says little; \
                 use more text, a larger data.{}_share or a file of its own",
                part.tokens,
                self.unit,
                split.purpose(),
                split.name()
            )
        });
        self.notes.iter().cloned().chain(sentences).chain(few).collect()
    }
}

impl Part {
    fn sentence(&self, split: Split, unit: &str) -> String {
        let mut said = format!("held out for {}: ", split.purpose());
        if self.tokens > 0 {
            said += &format!("{} {unit}s in ", self.tokens);
        }
        said += &match (self.documents, self.bytes) {
            (1, 1..) => "1 document".into(),
            (many, 1..) => format!("{many} documents"),
            (1, 0) if self.tokens > 0 => "1 piece".into(),
            (many, 0) if self.tokens > 0 => format!("{many} pieces"),
            (many, 0) => format!("{many} examples"),
        };
        if !self.names.is_empty() {
            said += &format!(", {}", self.names.join(", "));
        }
        match self.documents.saturating_sub(self.names.len() as u64) {
            more if more > 0 && !self.names.is_empty() => said + &format!(" and {more} more"),
            _ => said,
        }
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vocabulary {}", self.vocabulary)?;
        for (split, part) in &self.splits {
            write!(f, "; {}", split.name())?;
            match part.documents {
                u64::MAX => write!(f, " without end")?,
                1 => write!(f, " 1 document")?,
                many => write!(f, " {many} documents")?,
            }
            if part.tokens > 0 {
                write!(f, ", {} {}s", part.tokens, self.unit)?;
            }
            if part.bytes > 0 {
                write!(f, ", {} bytes", part.bytes)?;
            }
        }
        Ok(())
    }
}
