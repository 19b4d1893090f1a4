//! Ways of cutting text into tokens.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Result,
    tokenizer::{Special, SpecialTokens, Tokenizer},
};

/// A token for each of the 256 bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Bytes {}

/// A token for each character of the training text, in the order of Unicode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Characters {}

/// A token for each word of so many bases `ACGT`, one after another; single letters where fewer follow or another comes.
/// Of 6, Dalla-Torre et al. 2023 (Nucleotide Transformer), <https://doi.org/10.1101/2023.01.11.523679>.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Kmers {
    /// Bases of a token, 1 to 8; default 6.
    pub length: usize,
}

impl Default for Kmers {
    fn default() -> Self {
        Self { length: 6 }
    }
}

/// Byte-level BPE, trained on the training text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Bpe {
    /// Number of tokens, special ones included; default 8192.
    pub vocabulary: usize,
}

impl Default for Bpe {
    fn default() -> Self {
        Self { vocabulary: 8192 }
    }
}

/// An existing tokenizer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    /// A `tokenizer.json`; no default.
    pub path: PathBuf,
    /// The id of the token that starts a target; default by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begin: Option<u32>,
    /// The id of the token that ends a document or a target; default by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<u32>,
    /// The id of the token that fills rows; default by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub padding: Option<u32>,
    /// The id of the token that hides another; default by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask: Option<u32>,
    /// The id of the token for what has none; default by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<u32>,
    /// Whether documents have no token at their end where the file has none: a model that is read with it knows no other.
    #[serde(skip)]
    pub is_fixed: bool,
}

impl File {
    /// A file by its path, whose special tokens have names that are known.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// The same, to which documents add no token.
    pub fn fixed(self) -> Self {
        Self { is_fixed: true, ..self }
    }

    /// The tokenizer, with those of these special tokens that it lacks.
    pub(crate) fn load(&self, specials: &[Special]) -> Result<Tokenizer> {
        let ids = SpecialTokens {
            begin: self.begin,
            ends: self.end.into_iter().collect(),
            padding: self.padding,
            mask: self.mask,
            unknown: self.unknown,
        };
        Tokenizer::load(&self.path)?.with_special_ids(&ids).extended(specials)
    }
}
