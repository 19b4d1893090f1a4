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
    /// What each split has.
    pub splits: BTreeMap<Split, Part>,
}

/// How much there is in a split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Part {
    /// Documents, pairs, pieces or examples; `u64::MAX` is without end.
    pub documents: u64,
    /// Bytes of text, of pairs the target's; 0 without text.
    pub bytes: u64,
    /// Tokens, of pairs the target's; 0 if they are made when asked for.
    pub tokens: u64,
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
                write!(f, ", {} tokens", part.tokens)?;
            }
            if part.bytes > 0 {
                write!(f, ", {} bytes", part.bytes)?;
            }
        }
        Ok(())
    }
}
