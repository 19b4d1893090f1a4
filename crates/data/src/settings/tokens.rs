//! Ways of cutting text into tokens.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
}
