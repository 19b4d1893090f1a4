//! Files to documents: plain, compressed, packed, in folders, in lines of a table.
//!
//! [`documents`] visits one document at a time, so that a corpus need not fit in memory; a document must.
//! What a file is, its name says: `books.tar.zst` is unpacked, `reviews.jsonl.gz` is read line by line.

mod archive;
mod chorales;
mod compressed;
mod fasta;
mod labeled;
mod listops;
mod midi;
mod pairs;
mod parquet;
mod table;
mod zip;

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
};

pub(crate) use chorales::{Grids, HIGHEST, LOWEST, SILENCE, VOICES, chorales};
pub(crate) use compressed::zstandard;
pub(crate) use fasta::fasta;
pub(crate) use labeled::{LabeledText, LabeledTexts, labeled};
pub(crate) use listops::listops;
pub(crate) use midi::{Performances, Piece, performances};
pub(crate) use pairs::{Sides, pairs};

use crate::{Error, Result};

/// A text with the name of where it stood.
#[derive(Clone)]
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
    let wanted = table::Wanted::plain([field], ["source.field"]);
    unpacked(path, &mut |name, kind, reader| {
        if table::is_table(kind) {
            let mut row = |at, [text]: [String; 1]| visit(Document { name: at, text });
            return table::table(name, kind, reader, &wanted, &mut row);
        }
        let text = whole(name, reader)?;
        visit(Document { name: name.to_string(), text })
    })
}

/// Gets each file with its name, and with what the name says of its content: in lower case, without what was peeled off.
type VisitFile<'a> = &'a mut dyn FnMut(&str, &str, &mut dyn Read) -> Result<()>;

/// Opens every file under a path, those of archives one by one, as they are without compression.
fn unpacked(path: &Path, visit: VisitFile) -> Result<()> {
    files(path, &mut |name, reader| peeled(name, name, reader, visit))
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

/// Visits a file by what `kind`, its name, says of it; peels one ending at a time.
fn peeled(name: &str, kind: &str, reader: &mut dyn Read, visit: VisitFile) -> Result<()> {
    let kind = kind.to_ascii_lowercase();
    if let Some((kind, mut reader)) = compressed::opened(&kind, reader) {
        return peeled(name, &kind, &mut reader, visit);
    }
    let mut inside = |inner: &str, reader: &mut dyn Read| peeled(inner, inner, reader, visit);
    if kind.ends_with(".tar") {
        return archive::tar(name, reader, &mut inside);
    }
    if kind.ends_with(".zip") {
        return zip::zip(name, reader, &mut inside);
    }
    visit(name, &kind, reader)
}

/// Opens a file, compressed or not, but not packed; with its name as it would be without compression.
pub(crate) fn open(path: &Path) -> Result<(String, Box<dyn Read>)> {
    let mut reader: Box<dyn Read> =
        Box::new(BufReader::new(fs::File::open(path).map_err(Error::file(path))?));
    let mut kind = path.display().to_string().to_ascii_lowercase();
    while let Some(ending) = compressed::ending(&kind) {
        let length = kind.len() - ending.len();
        reader = compressed::reader(ending, reader);
        kind.truncate(length);
    }
    Ok((kind, reader))
}

/// A file's name without the endings of its compression.
pub(crate) fn uncompressed(name: &str) -> &str {
    match compressed::ending(&name.to_ascii_lowercase()) {
        Some(ending) => uncompressed(&name[..name.len() - ending.len()]),
        None => name,
    }
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
