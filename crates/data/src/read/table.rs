//! Tables: a row for each document or pair, in `.csv` (commas and quotes), `.tsv` (tabs, no quotes), `.jsonl` and `.parquet`.
//!
//! A field is the number of a column, counted from 1, or its name; then the first row is the head and no data.

use std::io::Read;

use serde_json::Value;
use whatwhere_settings::Refuses;

use super::lines;
use crate::{Error, Result};

/// The wanted fields of one row, and where it stands.
pub(super) type Visit<'a, const N: usize> = &'a mut dyn FnMut(String, [String; N]) -> Result<()>;

/// What is wanted of each row.
pub(super) struct Wanted<'a, const N: usize> {
    /// Columns by number or name, or keys.
    pub(super) fields: [&'a str; N],
    /// The settings that name them.
    settings: [&'static str; N],
    /// Whether rows have to be equally long, so that no cell is torn, and may hold numbers and truths as words.
    pub(super) is_labeled: bool,
}

impl<'a, const N: usize> Wanted<'a, N> {
    /// Texts.
    pub(super) fn plain(fields: [&'a str; N], settings: [&'static str; N]) -> Self {
        Self { fields, settings, is_labeled: false }
    }

    /// Texts with a label.
    pub(super) fn labeled(fields: [&'a str; N], settings: [&'static str; N]) -> Self {
        Self { fields, settings, is_labeled: true }
    }
}

/// Where the wanted fields stand, and how many cells the first row has.
type Columns<const N: usize> = ([usize; N], usize);

/// Whether a file's name, without endings of compression, is that of a table.
pub(super) fn is_table(kind: &str) -> bool {
    [".csv", ".tsv", ".jsonl", ".parquet"].iter().any(|ending| kind.ends_with(ending))
}

/// Visits the wanted fields of every row; what is neither `.csv` nor `.jsonl` nor `.parquet` has tabs.
pub(super) fn table<const N: usize>(
    name: &str,
    kind: &str,
    reader: &mut dyn Read,
    wanted: &Wanted<N>,
    visit: Visit<N>,
) -> Result<()> {
    if kind.ends_with(".parquet") {
        return super::parquet::rows(name, reader, wanted, visit);
    }
    if kind.ends_with(".csv") {
        return commas(name, reader, wanted, visit);
    }
    let mut columns = None;
    lines(name, reader, &mut |number, line| {
        let at = format!("{name}, line {number}");
        if kind.ends_with(".jsonl") {
            let value: Value = serde_json::from_str(&line)
                .map_err(|error| Error::content(&at, format!("is not JSON: {error}")))?;
            let named: [_; N] = std::array::from_fn(|i| (wanted.settings[i], wanted.fields[i]));
            let found = each(named, |(setting, field)| {
                key(&at, &value, setting, field, wanted.is_labeled)
            })?;
            return visit(at, found);
        }
        let cells: Vec<&str> = line.split('\t').collect();
        row(&mut columns, at, &cells, wanted, visit)
    })
}

fn commas<const N: usize>(
    name: &str,
    reader: &mut dyn Read,
    wanted: &Wanted<N>,
    visit: Visit<N>,
) -> Result<()> {
    let text = super::whole(name, reader)?;
    let (mut columns, mut line) = (None, 1);
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let at = format!("{name}, line {line}");
        let (cells, after) = record(rest).ok_or_else(|| {
            Error::content(&at, "has a quoted cell that does not end; expected \"")
        })?;
        line += rest[..rest.len() - after.len()].matches('\n').count();
        rest = after;
        if cells.iter().any(|cell| !cell.trim().is_empty()) {
            let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            row(&mut columns, at, &cells, wanted, visit)?;
        }
    }
    Ok(())
}

/// The cells of the first record, and what follows it; nothing if a quote is not closed. RFC 4180.
fn record(text: &str) -> Option<(Vec<String>, &str)> {
    let (mut cells, mut rest) = (Vec::new(), text);
    loop {
        let mut cell = String::new();
        while let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"')?;
            cell.push_str(&quoted[..end]);
            rest = &quoted[end + 1..];
            if rest.starts_with('"') {
                cell.push('"'); // two of them are one, and the cell goes on
            }
        }
        let end = rest.find([',', '\n']).unwrap_or(rest.len());
        let (plain, after) = rest.split_at(end);
        cell.push_str(
            plain.strip_suffix('\r').filter(|_| !after.starts_with(',')).unwrap_or(plain),
        );
        cells.push(cell);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Some((cells, after.strip_prefix('\n').unwrap_or(after))),
        }
    }
}

/// Finds the columns in the first row, which is the head if a field is named, and visits all others.
fn row<const N: usize>(
    columns: &mut Option<Columns<N>>,
    at: String,
    cells: &[&str],
    wanted: &Wanted<N>,
    visit: Visit<N>,
) -> Result<()> {
    let (numbers, width) = match columns {
        Some(found) => *found,
        None => {
            let named: [_; N] = std::array::from_fn(|i| (wanted.settings[i], wanted.fields[i]));
            let numbers = each(named, |(setting, field)| column(setting, field, cells))?;
            *columns = Some((numbers, cells.len()));
            if wanted.fields.iter().any(|field| number(field).is_none()) {
                return Ok(());
            }
            (numbers, cells.len())
        }
    };
    if wanted.is_labeled && cells.len() != width {
        let found = cells.len();
        let reason =
            format!("has {found} columns, and the first row has {width}; expected as many");
        return Err(Error::content(&at, reason));
    }
    let cell = |at_field: usize| {
        let cell = cells.get(numbers[at_field]).map(|cell| cell.to_string());
        cell.ok_or_else(|| {
            let (found, expected) = (cells.len(), numbers[at_field] + 1);
            let (setting, field) = (wanted.settings[at_field], wanted.fields[at_field]);
            let reason = format!(
                "has {found} columns, expected at least {expected}, by data.{setting} = {field:?}; found {}",
                start_of(cells)
            );
            Error::content(&at, reason)
        })
    };
    let found = each(std::array::from_fn(|field| field), cell)?;
    visit(at, found)
}

/// The number of a column, counted from 1, where a field is one.
pub(super) fn number(field: &str) -> Option<usize> {
    field.parse().ok().filter(|&number| number > 0)
}

/// The index of a column, by number or by its name in the head.
fn column(setting: &'static str, field: &str, head: &[&str]) -> Result<usize> {
    let named = || head.iter().position(|name| name.trim() == field);
    number(field).map(|number| number - 1).or_else(named).ok_or_else(|| {
        let reason = format!(
            "expected the number of a column, counted from 1, or a name in the first row, which has {}",
            start_of(head)
        );
        Error::setting(setting, format!("{field:?}"), reason)
    })
}

/// What cells begin with.
fn start_of(cells: &[&str]) -> String {
    let cells: Vec<String> = cells.iter().map(|name| name.chars().take(20).collect()).collect();
    cells.join(", ")
}

/// The setting that names the field of labels.
pub(super) const LABEL: &str = "source.label_field";

/// The text at a key of a line of JSON; a number or a truth where it may be one.
fn key(
    at: &str,
    line: &Value,
    setting: &'static str,
    field: &str,
    is_labeled: bool,
) -> Result<String> {
    let what = if setting == LABEL { "label" } else { "text" };
    let reason = match line.get(field) {
        Some(Value::String(text)) => return Ok(text.clone()),
        Some(found @ (Value::Number(_) | Value::Bool(_))) if is_labeled => {
            return Ok(found.to_string());
        }
        None => {
            let keys: Vec<&str> =
                line.as_object().into_iter().flatten().map(|(k, _)| k.as_str()).collect();
            format!(
                "has no {what} at the key {field:?}; found the keys {keys:?}, one of which data.{setting} can name"
            )
        }
        Some(found) => {
            let found = match found {
                Value::Null => "null",
                Value::Bool(_) => "a truth",
                Value::Number(_) => "a number",
                Value::Array(_) => "a list",
                _ => "an object",
            };
            format!("has no {what} at the key {field:?}: found {found}, expected a string")
        }
    };
    Err(Error::content(at, reason))
}

/// Something of each field.
pub(super) fn each<T, U: Default + Clone, const N: usize>(
    fields: [T; N],
    mut find: impl FnMut(T) -> Result<U>,
) -> Result<[U; N]> {
    let mut found = std::array::from_fn(|_| U::default());
    for (slot, field) in found.iter_mut().zip(fields) {
        *slot = find(field)?;
    }
    Ok(found)
}
