//! Files to documents: plain, compressed, packed, in folders, in lines of a table.
//!
//! [`documents`] visits one document at a time, so that a corpus need not fit in memory; a document must.
//! What a file is, its name says: `books.tar.zst` is unpacked, `reviews.jsonl.gz` is read line by line.

mod chorales;
mod compressed;
mod fasta;
mod listops;
mod pairs;

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

pub(crate) use chorales::{Pieces, VOICES, chorales};
pub(crate) use compressed::zstandard;
pub(crate) use fasta::fasta;
pub(crate) use listops::listops;
pub(crate) use pairs::{Sides, pairs};
use whatwhere_settings::Refuses;

use crate::{Error, Result};

/// A text with the name of where it stood.
pub(crate) struct Document {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Visits the documents of a file or folder in a fixed order; `field` names the text in tables.
pub(crate) fn documents(
    path: &Path,
    field: &str,
    visit: &mut dyn FnMut(Document) -> Result<()>,
) -> Result<()> {
    files(path, &mut |name, reader| text(name, name, reader, field, visit))
}

/// Opens every file under a path, in the order of their names; hidden ones are left out.
fn files(path: &Path, visit: &mut dyn FnMut(&str, &mut dyn Read) -> Result<()>) -> Result<()> {
    let about = fs::metadata(path).map_err(Error::file(path))?;
    if !about.is_dir() {
        let mut file = BufReader::new(fs::File::open(path).map_err(Error::file(path))?);
        return visit(&path.display().to_string(), &mut file);
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(Error::file(path))? {
        let entry = entry.map_err(Error::file(path))?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            entries.push(entry.path());
        }
    }
    if entries.is_empty() {
        return Err(Error::content(path.display().to_string(), "the folder has no files"));
    }
    entries.sort();
    entries.iter().try_for_each(|entry| files(entry, visit))
}

/// Reads documents by what `kind`, a file's name, says of it; peels one ending at a time.
fn text(
    name: &str,
    kind: &str,
    reader: &mut dyn Read,
    field: &str,
    visit: &mut dyn FnMut(Document) -> Result<()>,
) -> Result<()> {
    let lower = kind.to_ascii_lowercase();
    let peeled = |ending: &str| &kind[..kind.len() - ending.len()];
    if lower.ends_with(".gz") {
        return text(name, peeled(".gz"), &mut compressed::gzip(reader), field, visit);
    }
    if lower.ends_with(".zst") {
        return text(name, peeled(".zst"), &mut compressed::zstandard(reader), field, visit);
    }
    if lower.ends_with(".tgz") {
        return archive(name, &mut compressed::gzip(reader), field, visit);
    }
    if lower.ends_with(".tar") {
        return archive(name, reader, field, visit);
    }
    if lower.ends_with(".jsonl") || lower.ends_with(".tsv") {
        return lines(name, reader, &mut |number, line| {
            let at = format!("{name}, line {number}");
            let text = if lower.ends_with(".tsv") {
                column(&at, &line, field)?.to_string()
            } else {
                key(&at, &line, field)?
            };
            visit(Document { name: at, text })
        });
    }
    let text = whole(name, reader)?;
    visit(Document { name: name.to_string(), text })
}

fn archive(
    name: &str,
    reader: &mut dyn Read,
    field: &str,
    visit: &mut dyn FnMut(Document) -> Result<()>,
) -> Result<()> {
    let mut archive = tar::Archive::new(reader);
    for entry in archive.entries().map_err(Error::file(name))? {
        let mut entry = entry.map_err(Error::file(name))?;
        if entry.header().entry_type().is_file() {
            let path: PathBuf = entry.path().map_err(Error::file(name))?.into_owned();
            let inside = format!("{name}/{}", path.display());
            text(&inside, &inside, &mut entry, field, visit)?;
        }
    }
    Ok(())
}

/// Opens a file, compressed or not, but not packed.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Read>> {
    let file = BufReader::new(fs::File::open(path).map_err(Error::file(path))?);
    Ok(match path.extension().and_then(|ending| ending.to_str()) {
        Some("gz") => Box::new(compressed::gzip(file)),
        Some("zst") => Box::new(compressed::zstandard(file)),
        _ => Box::new(file),
    })
}

/// The whole text of a reader, without a byte order mark.
pub(crate) fn whole(name: &str, reader: &mut dyn Read) -> Result<String> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(Error::file(name))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        not_utf8(name, place, error.as_bytes()[place])
    })?;
    Ok(text.strip_prefix('\u{FEFF}').map(str::to_string).unwrap_or(text))
}

/// Visits the lines of a reader with their numbers from 1, without their ends; empty ones are left out.
fn lines(
    name: &str,
    reader: &mut dyn Read,
    visit: &mut dyn FnMut(usize, String) -> Result<()>,
) -> Result<()> {
    for (i, line) in BufReader::new(reader).split(b'\n').enumerate() {
        let line = decoded(name, i, line.map_err(Error::file(name))?)?;
        if !line.trim().is_empty() {
            visit(i + 1, line)?;
        }
    }
    Ok(())
}

/// One line as text, without `\r` and byte order mark.
fn decoded(name: &str, index: usize, mut line: Vec<u8>) -> Result<String> {
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    let line = String::from_utf8(line).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        not_utf8(&format!("{name}, line {}", index + 1), place, error.as_bytes()[place])
    })?;
    Ok(match line.strip_prefix('\u{FEFF}') {
        Some(rest) if index == 0 => rest.to_string(),
        _ => line,
    })
}

fn not_utf8(name: &str, place: usize, found: u8) -> Error {
    Error::content(
        name,
        format!("byte {place} is {found:#04x}, which is not UTF-8; convert it first"),
    )
}

/// A column of a line of tab-separated values, counted from 1.
pub(crate) fn column<'a>(at: &str, line: &'a str, field: &str) -> Result<&'a str> {
    let Some(number) = field.parse::<usize>().ok().filter(|&number| number > 0) else {
        let reason = "expected the number of a column, counted from 1, for a .tsv file";
        return Err(Error::setting("source.field", format!("{field:?}"), reason));
    };
    line.split('\t').nth(number - 1).ok_or_else(|| {
        let found = line.split('\t').count();
        Error::content(at, format!("has {found} columns, expected at least {number}"))
    })
}

/// The text at a key of a line of JSON.
pub(crate) fn key(at: &str, line: &str, field: &str) -> Result<String> {
    let value: serde_json::Value = serde_json::from_str(line)
        .map_err(|error| Error::content(at, format!("is not JSON: {error}")))?;
    match &value[field] {
        serde_json::Value::String(text) => Ok(text.clone()),
        _ => {
            let keys: Vec<&str> =
                value.as_object().into_iter().flatten().map(|(k, _)| k.as_str()).collect();
            let reason = format!("has no text at the key {field:?}; found the keys {keys:?}");
            Err(Error::content(at, reason))
        }
    }
}
