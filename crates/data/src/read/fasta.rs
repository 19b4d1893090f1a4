//! FASTA: a header line `>name` starts a sequence; the lines after it are joined.

use std::path::Path;

use super::{Document, documents};
use crate::{Error, Result};

/// Visits the sequences of a file or folder. Notes beside them (`.md`) are none.
pub(crate) fn fasta(
    path: &Path,
    upper: bool,
    visit: &mut dyn FnMut(Document) -> Result<()>,
) -> Result<()> {
    let is_folder = path.is_dir();
    documents(path, "text", &mut |file| {
        if is_folder && file.name.to_ascii_lowercase().ends_with(".md") {
            return Ok(());
        }
        let mut sequence: Option<Document> = None;
        for (i, line) in file.text.lines().enumerate() {
            let line = line.trim_end();
            if let Some(header) = line.strip_prefix('>') {
                let name = format!("{}, {}", file.name, header.trim());
                if let Some(done) = sequence.replace(Document { name, text: String::new() }) {
                    finish(done, visit)?;
                }
            } else if let Some(sequence) = &mut sequence {
                let strange = |c: &char| !c.is_ascii_alphabetic() && *c != '-' && *c != '*';
                if let Some(found) = line.chars().find(strange) {
                    let at = format!("{}, line {}", file.name, i + 1);
                    let reason = format!("found {found:?} in a sequence, expected letters");
                    return Err(Error::content(at, reason));
                }
                sequence
                    .text
                    .extend(line.chars().map(|c| if upper { c.to_ascii_uppercase() } else { c }));
            } else if !line.is_empty() {
                let at = format!("{}, line {}", file.name, i + 1);
                let start: String = line.chars().take(20).collect();
                let reason = format!("found {start:?}, expected a header such as \">name\"");
                return Err(Error::content(at, reason));
            }
        }
        match sequence {
            Some(last) => finish(last, visit),
            None => Err(Error::content(file.name, "is empty, expected a header and a sequence")),
        }
    })
}

fn finish(sequence: Document, visit: &mut dyn FnMut(Document) -> Result<()>) -> Result<()> {
    if sequence.text.is_empty() {
        return Err(Error::content(sequence.name, "has a header and no sequence"));
    }
    visit(sequence)
}
