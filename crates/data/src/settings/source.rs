//! Sources that are read from files.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_settings::Refuses;

use crate::{Error, Result};

/// Text for a language model: a file, a folder of files, or an archive of them.
///
/// Compressed (`.gz`, `.zst`, `.xz`), packed (`.tar`, `.zip`) and both together (`.tar.zst`) are opened by their name.
/// A file is a document; so is each row of `.jsonl`, `.csv`, `.tsv` and, where the build has it, `.parquet`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Text {
    /// File, folder or archive; default empty, which reads the text that comes with the program, tiny Shakespeare.
    pub path: PathBuf,
    /// File or folder for validation; default none, so that `valid_share` applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid: Option<PathBuf>,
    /// File or folder for the test; default none, so that `test_share` applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<PathBuf>,
    /// Key of the text in `.jsonl`, or its column in a table: a number counted from 1, or a name in its first row; default `text`.
    pub field: String,
}

impl Default for Text {
    fn default() -> Self {
        Self { path: PathBuf::new(), valid: None, test: None, field: "text".into() }
    }
}

/// Pairs of lines for translation: two parallel files, or one table with a column for each side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pairs {
    /// File with the source side: lines, or a table if it is also the `target`; no default.
    pub source: PathBuf,
    /// File with the target side; default the same file, then a table.
    pub target: PathBuf,
    /// Source side for validation; default none, so that `valid_share` applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_source: Option<PathBuf>,
    /// Target side for validation; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_target: Option<PathBuf>,
    /// Source side for the test; default none, so that `test_share` applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_source: Option<PathBuf>,
    /// Target side for the test; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_target: Option<PathBuf>,
    /// In a table: column of the source counted from 1, or its name, or its key in `.jsonl`; default `1`.
    pub source_field: String,
    /// In a table: column of the target counted from 1, or its name, or its key in `.jsonl`; default `2`.
    pub target_field: String,
}

impl Default for Pairs {
    fn default() -> Self {
        Self {
            source: PathBuf::new(),
            target: PathBuf::new(),
            valid_source: None,
            valid_target: None,
            test_source: None,
            test_target: None,
            source_field: "1".into(),
            target_field: "2".into(),
        }
    }
}

/// Texts with a class each, for `classify`: rows of tables, or files in a folder for each class.
///
/// A row of `.csv`, `.tsv`, `.jsonl` and, where the build has it, `.parquet` has a text and its label; any other file is one
/// text, whose label is the name of the folder it lies in. Compressed and packed as for `text`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Labeled {
    /// File, folder or archive; no default.
    pub path: PathBuf,
    /// File or folder for validation; default none, so that `valid_share` applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid: Option<PathBuf>,
    /// File or folder for the test; default none, so that `test_share` applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<PathBuf>,
    /// In a table: column of the text counted from 1, or its name in the first row, or its key in `.jsonl`; default `text`.
    pub field: String,
    /// The same of the second text, where a label belongs to a pair; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second_field: Option<String>,
    /// The same of the label; default `label`.
    pub label_field: String,
}

impl Default for Labeled {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            valid: None,
            test: None,
            field: "text".into(),
            second_field: None,
            label_field: "label".into(),
        }
    }
}

/// Four-voice chorales from JSON with `train`, `valid` and `test`: pieces of steps of pitches.
/// Tokens run in raster order: soprano, alto, tenor, bass, then the next step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Chorales {
    /// The JSON file; no default.
    pub path: PathBuf,
}

/// Performances from MIDI files, as events of a piano: note-ons, note-offs, time shifts and velocities, 388 in all.
/// Oore et al. 2018, <https://arxiv.org/abs/1808.03715>; the sustain pedal lengthens notes, drums are left out.
///
/// A file is a piece and stays whole in one split. A table with the columns `midi_filename` and `split`, as MAESTRO has it in
/// `.csv` and `.json`, says which; otherwise the shares apply. What is no whole MIDI file is named and left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Midi {
    /// File, folder or archive of `.mid` and `.midi`, compressed or not; no default.
    pub path: PathBuf,
    /// File or folder for validation; default none, so that the table or `valid_share` applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid: Option<PathBuf>,
    /// File or folder for the test; default none, so that the table or `test_share` applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<PathBuf>,
    /// Semitones up or down that training moves a piece at the most, drawn evenly each time; default 0. Music Transformer has 3.
    pub transpose: u8,
    /// Factors of time that training draws from each time; default none. Music Transformer has
    /// `[0.95, 0.975, 1.0, 1.025, 1.05]`.
    pub stretch: Vec<f64>,
}

impl Midi {
    pub(super) fn check(&self) -> Result<()> {
        if self.transpose > 24 {
            let reason = "expected at most 24 semitones, two octaves";
            return Err(Error::setting("source.transpose", self.transpose, reason));
        }
        match self.stretch.iter().find(|factor| !(0.25..=4.0).contains(*factor)) {
            Some(factor) => {
                Err(Error::setting("source.stretch", factor, "expected factors of 0.25 to 4"))
            }
            None => Ok(()),
        }
    }
}

/// Sequences from FASTA; each header starts a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Fasta {
    /// File or folder, compressed or not; no default.
    pub path: PathBuf,
    /// File or folder for validation; default none, so that `valid_share` applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid: Option<PathBuf>,
    /// File or folder for the test; default none, so that `test_share` applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<PathBuf>,
    /// Whether `acgt` (repeats, by convention) is read as `ACGT`; default true.
    pub upper: bool,
}

impl Default for Fasta {
    fn default() -> Self {
        Self { path: PathBuf::new(), valid: None, test: None, upper: true }
    }
}
