//! A text that comes with the program: its own source and documents, to train on without any file.

use include_dir::{Dir, include_dir};
use whatwhere_data::{Corpus, DataSettings, Source};

use crate::{Error, RunSettings};

const DOCUMENTS: [&str; 4] = [
    include_str!("../../../README.md"),
    include_str!("../../../ARCHITECTURE.md"),
    include_str!("../../../CONTRIBUTING.md"),
    include_str!("../../../LOG.md"),
];

static SOURCES: [Dir; 2] = [
    include_dir!("$CARGO_MANIFEST_DIR/../kernels/src"),
    include_dir!("$CARGO_MANIFEST_DIR/../attention/src"),
];

/// Whether settings name no text of their own.
pub fn needed(settings: &RunSettings) -> bool {
    matches!(&settings.data.source, Source::Text(text) if text.path.as_os_str().is_empty())
}

/// The corpus of the program's own text.
pub fn corpus(settings: &DataSettings) -> Result<Corpus, Error> {
    Ok(Corpus::from_texts(texts(), settings)?)
}

/// Every document and source file.
pub fn texts() -> Vec<String> {
    let mut texts: Vec<String> = DOCUMENTS.iter().map(|text| (*text).into()).collect();
    for folder in &SOURCES {
        collect(folder, &mut texts);
    }
    texts
}

fn collect(folder: &Dir, texts: &mut Vec<String>) {
    texts.extend(folder.files().filter_map(|file| file.contents_utf8()).map(Into::into));
    for inner in folder.dirs() {
        collect(inner, texts);
    }
}
