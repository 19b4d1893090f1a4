//! Folders and archives of MIDI files, with the table that says which split a file belongs to, as MAESTRO has it.
//! Hawthorne et al. 2019, <https://arxiv.org/abs/1810.12247>.
//!
//! One broken file among many is named and left out; where none can be read, that is an error.

use std::{
    collections::{BTreeMap, HashMap},
    io::Read,
    path::Path,
};

use serde::Deserialize;

use super::{archive, compressed, files, table, zip};
use crate::{
    Error, Result, Watch, Work,
    corpus::Split,
    music::{LARGEST, performance},
};

/// A file's events.
pub(crate) struct Piece {
    /// Its path below the folder.
    pub(crate) name: String,
    /// What the table says.
    pub(crate) split: Option<Split>,
    pub(crate) tokens: Vec<u32>,
}

/// What a folder has.
#[derive(Default)]
pub(crate) struct Performances {
    pub(crate) pieces: Vec<Piece>,
    /// Files that are not read, each with the reason.
    pub(crate) left_out: Vec<String>,
    /// Whether a table says which split a piece belongs to.
    pub(crate) has_table: bool,
}

/// Reads every MIDI file of a file, folder or archive.
pub(crate) fn performances(path: &Path, watch: Watch) -> Result<Performances> {
    let mut count = 0;
    files(path, &mut |_, _| {
        count += 1;
        Ok(())
    })?;
    let mut found = Found::default();
    let mut done = 0;
    files(path, &mut |name, reader| {
        if watch(Work { what: "files", done, of: count }).is_break() {
            return Err(Error::Interrupted);
        }
        done += 1;
        found.file(name, name, reader)
    })?;
    found.sorted(path)
}

#[derive(Default)]
struct Found {
    pieces: Vec<(String, Vec<u32>)>,
    left_out: Vec<(String, String)>,
    /// Splits by the names of files, and the table that says so.
    splits: BTreeMap<String, (Split, String)>,
}

impl Found {
    /// Reads a file by what `kind`, its name, says of it; peels one ending at a time.
    fn file(&mut self, name: &str, kind: &str, reader: &mut dyn Read) -> Result<()> {
        let kind = kind.to_ascii_lowercase();
        if let Some((kind, mut reader)) = compressed::opened(&kind, reader) {
            return self.file(name, &kind, &mut reader);
        }
        let mut inside = |inner: &str, reader: &mut dyn Read| self.file(inner, inner, reader);
        if kind.ends_with(".tar") {
            return archive::tar(name, reader, &mut inside);
        }
        if kind.ends_with(".zip") {
            return zip::zip(name, reader, &mut inside);
        }
        if kind.ends_with(".mid") || kind.ends_with(".midi") {
            match piece(reader) {
                Ok(tokens) => self.pieces.push((name.into(), tokens)),
                Err(reason) => self.left_out.push((name.into(), reason)),
            }
            return Ok(());
        }
        match kind.rsplit_once('.') {
            Some((_, "csv")) => self.rows(name, &kind, reader),
            Some((_, "json")) => self.json(name, reader),
            _ => Ok(()),
        }
    }

    /// A table in `.csv`, where it has our columns.
    fn rows(&mut self, name: &str, kind: &str, reader: &mut dyn Read) -> Result<()> {
        let Some(text) = start_of(reader, name)? else { return Ok(()) };
        let head = text.lines().next().unwrap_or_default();
        if !COLUMNS.iter().all(|column| head.contains(column)) {
            return Ok(());
        }
        let wanted = table::Wanted::plain(COLUMNS, ["source.path"; COLUMNS.len()]);
        table::table(name, kind, &mut text.as_bytes(), &wanted, &mut |at, [file, split]| {
            self.says(&at, name, file, &split)
        })
    }

    /// A table in `.json`, column by column or row by row, where it has our columns.
    fn json(&mut self, name: &str, reader: &mut dyn Read) -> Result<()> {
        let Some(text) = start_of(reader, name)? else { return Ok(()) };
        let rows = match serde_json::from_str(&text) {
            Ok(Json::Columns { midi_filename, mut split }) => midi_filename
                .into_iter()
                .filter_map(|(row, midi_filename)| {
                    Some(Row { midi_filename, split: split.remove(&row)? })
                })
                .collect(),
            Ok(Json::Rows(rows)) => rows,
            Err(_) => return Ok(()),
        };
        rows.into_iter().try_for_each(|row| self.says(name, name, row.midi_filename, &row.split))
    }

    fn says(&mut self, at: &str, table: &str, file: String, split: &str) -> Result<()> {
        let split = match split {
            "train" => Split::Train,
            "validation" | "valid" | "val" | "dev" => Split::Valid,
            "test" | "eval" => Split::Test,
            other => {
                let reason =
                    format!("found the split {other:?}, expected train, validation or test");
                return Err(Error::content(at, reason));
            }
        };
        self.splits.insert(file, (split, table.into()));
        Ok(())
    }

    /// Everything by name, and each piece in its split.
    fn sorted(self, path: &Path) -> Result<Performances> {
        let folder = path.display().to_string();
        let below = |name: &str| {
            let inside = name.strip_prefix(&folder).map(|name| name.trim_start_matches('/'));
            inside.filter(|name| !name.is_empty()).unwrap_or(name).to_string()
        };
        let Self { mut pieces, left_out, splits } = self;
        let mut left_out: Vec<String> =
            left_out.iter().map(|(name, reason)| format!("{}: {reason}", below(name))).collect();
        if pieces.is_empty() {
            let reason = match left_out.as_slice() {
                [] => "has no .mid or .midi files".into(),
                [only] => format!("has no MIDI file that can be read: {only}"),
                [first, ..] => format!(
                    "none of its {} MIDI files can be read; the first is {first}",
                    left_out.len()
                ),
            };
            return Err(Error::content(folder, reason));
        }
        pieces.sort();
        let mut unseen: HashMap<&str, &str> =
            splits.iter().map(|(file, (_, table))| (file.as_str(), table.as_str())).collect();
        let pieces = pieces
            .into_iter()
            .map(|(name, tokens)| {
                let listed = endings(&name).find_map(|name| splits.get_key_value(name));
                if let Some((file, _)) = listed {
                    unseen.remove(file.as_str());
                }
                let split = listed.map(|(_, (split, _))| *split);
                Piece { name: below(&name), split, tokens }
            })
            .collect();
        let named = |file: &str| left_out.iter().any(|said| said.starts_with(file));
        let mut missing: Vec<String> = unseen
            .into_iter()
            .filter(|(file, _)| !named(file))
            .map(|(file, table)| format!("{file}: is in {} and not there", below(table)))
            .collect();
        missing.sort();
        left_out.extend(missing);
        Ok(Performances { pieces, left_out, has_table: !splits.is_empty() })
    }
}

const COLUMNS: [&str; 2] = ["midi_filename", "split"];
const LARGEST_TABLE: u64 = 16 << 20; // MAESTRO's has a sixtieth of it

#[derive(Deserialize)]
#[serde(untagged)]
enum Json {
    Columns { midi_filename: BTreeMap<String, String>, split: BTreeMap<String, String> },
    Rows(Vec<Row>),
}

#[derive(Deserialize)]
struct Row {
    midi_filename: String,
    split: String,
}

/// The events of a file; or in words why there are none.
fn piece(reader: &mut dyn Read) -> Result<Vec<u32>, String> {
    let mut bytes = Vec::new();
    let read = reader.take(LARGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!("is larger than {} MiB", LARGEST >> 20));
    }
    performance(&bytes)
}

/// The text of what may be a table; nothing if it is too large or no text.
fn start_of(reader: &mut dyn Read, name: &str) -> Result<Option<String>> {
    let mut bytes = Vec::new();
    reader.take(LARGEST_TABLE + 1).read_to_end(&mut bytes).map_err(Error::file(name))?;
    let fits = bytes.len() as u64 <= LARGEST_TABLE;
    Ok(Some(bytes).filter(|_| fits).and_then(|bytes| String::from_utf8(bytes).ok()))
}

/// A path without its first parts: `2018/a.midi`, then `a.midi`.
fn endings(name: &str) -> impl Iterator<Item = &str> {
    let after = name.char_indices().filter(|(_, c)| matches!(c, '/' | '\\')).map(|(at, _)| at + 1);
    std::iter::once(0).chain(after).map(|at| &name[at..])
}
