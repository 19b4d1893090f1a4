//! A text that comes with the program: its own source and documents, to train on without any file.

use include_dir::{Dir, include_dir};
use whatwhere_data::{Corpus, DataSettings, Source};

use crate::{Error, RunSettings};

const DOCUMENTS: [(&str, &str); 4] = [
    ("README.md", include_str!("../../../README.md")),
    ("ARCHITECTURE.md", include_str!("../../../ARCHITECTURE.md")),
    ("CONTRIBUTING.md", include_str!("../../../CONTRIBUTING.md")),
    ("LOG.md", include_str!("../../../LOG.md")),
];

static SOURCES: [(&str, Dir); 2] = [
    ("kernels", include_dir!("$CARGO_MANIFEST_DIR/../kernels/src")),
    ("attention", include_dir!("$CARGO_MANIFEST_DIR/../attention/src")),
];

/// Whether settings name no text of their own.
pub fn needed(settings: &RunSettings) -> bool {
    matches!(&settings.data.source, Source::Text(text) if text.path.as_os_str().is_empty())
}

/// The corpus of the program's own text. What is held out follows from the names of files, so that a change to one of them
/// does not make another task of it.
pub fn corpus(settings: &DataSettings) -> Result<Corpus, Error> {
    Ok(Corpus::from_named_texts(texts(), settings)?)
}

/// Every document and source file, by name.
pub fn texts() -> Vec<(String, String)> {
    let mut texts: Vec<(String, String)> =
        DOCUMENTS.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect();
    for (name, folder) in &SOURCES {
        collect(name, folder, &mut texts);
    }
    texts
}

fn collect(name: &str, folder: &Dir, texts: &mut Vec<(String, String)>) {
    for file in folder.files() {
        let parts: Vec<_> = file.path().iter().map(|part| part.to_string_lossy()).collect();
        let text = file.contents_utf8().map(Into::into);
        texts.extend(text.map(|text| (format!("{name}/{}", parts.join("/")), text)));
    }
    for inner in folder.dirs() {
        collect(name, inner, texts);
    }
}
