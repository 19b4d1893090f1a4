//! Logits that others computed, in files that any framework writes.
//!
//! Safetensors: `input_ids` (or `ids`) of whole numbers `[batch, length]`, `logits` of f32, f16 or bf16 `[batch, length, vocabulary]`, and
//! for encoder-decoders `decoder_input_ids`, to which the logits then belong.
//! JSON: one object for each sequence on a line of its own, as `whatwhere logits --json` writes it, with the ids beside the
//! logits: `{"ids": [1, 2], "logits": [[…], […]]}`, for encoder-decoders with `"source": [3, 4]`. An object may also hold a
//! batch, lists of lists under the names of safetensors, and a file one object or a list of them.

use std::{
    fs::{self, File},
    io::Read,
    path::Path,
};

use serde::Deserialize;

use crate::{
    Error,
    error::Result,
    tensors::{Tensors, safetensors},
};

/// A sequence and its logits.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What an encoder-decoder reads.
    pub source: Option<Vec<u32>>,
    /// Tokens, of which every place has logits.
    pub ids: Vec<u32>,
    /// `[ids, vocabulary]`, row by row.
    pub logits: Vec<f32>,
}

#[derive(Deserialize)]
struct Line {
    #[serde(alias = "input_ids")]
    ids: Option<Rows<u32>>,
    source: Option<Rows<u32>>,
    #[serde(alias = "decoder_ids")]
    decoder_input_ids: Option<Rows<u32>>,
    logits: Rows<Vec<f32>>,
}

/// What one sequence has, or each of a batch.
#[derive(Deserialize)]
#[serde(untagged)]
enum Rows<T> {
    One(Vec<T>),
    Batch(Vec<Vec<T>>),
}

impl<T> Rows<T> {
    fn all(self) -> Vec<Vec<T>> {
        match self {
            Self::One(row) => vec![row],
            Self::Batch(rows) => rows,
        }
    }
}

impl Sample {
    /// Reads a file of safetensors or of JSON. `ids` are the sequences of a file that holds logits only, as the lines that
    /// `whatwhere logits` was given.
    pub fn read(path: &Path, ids: Option<&Path>) -> Result<Vec<Self>> {
        let mut start = [0; 9];
        let mut file = File::open(path).map_err(Error::file(path))?;
        let count = file.read(&mut start).map_err(Error::file(path))?;
        // A header of safetensors is JSON after its length, of which the last bytes are zeros.
        match count == 9 && start[8] == b'{' && start[4..8] == [0; 4] {
            true => tensors(path),
            false => lines(path, ids),
        }
    }
}

fn tensors(path: &Path) -> Result<Vec<Sample>> {
    let mut all = Tensors::default();
    safetensors::add(&mut all, path)?;
    let wrong = |name: &str, expected: &str| Error::tensor(name, "nothing of the kind", expected);
    if !all.entries.contains_key("logits") {
        return Err(wrong("logits", "logits [batch, length, vocabulary]"));
    }
    let logits = all.read("logits")?;
    let [batch, length, vocabulary] = logits.shape[..] else {
        let found = format!("shape {:?}", logits.shape);
        return Err(Error::tensor("logits", found, "[batch, length, vocabulary]"));
    };
    if length * vocabulary == 0 {
        let found = format!("shape {:?}", logits.shape);
        return Err(Error::tensor("logits", found, "at least one place and one token"));
    }
    let rows = |name: &str| -> Result<Option<Vec<Vec<u32>>>> {
        let Some((shape, ids)) = safetensors::whole_numbers(path, name)? else { return Ok(None) };
        let [rows, columns] = shape[..] else {
            return Err(Error::tensor(name, format!("shape {shape:?}"), "[batch, length]"));
        };
        if rows != batch || columns == 0 {
            let expected = format!("{batch} rows, as the logits have");
            return Err(Error::tensor(name, format!("shape {shape:?}"), expected));
        }
        Ok(Some(ids.chunks(columns).map(<[u32]>::to_vec).collect()))
    };
    let ids = match rows("input_ids")? {
        Some(ids) => Some(ids),
        None => rows("ids")?,
    };
    let ids = ids.ok_or_else(|| wrong("input_ids", "token ids [batch, length]"))?;
    let (sources, ids) = match rows("decoder_input_ids")? {
        Some(targets) => (Some(ids), targets),
        None => (None, ids),
    };
    if ids.iter().any(|row| row.len() != length) {
        let found = format!("{} ids in a row", ids[0].len());
        return Err(Error::tensor("logits", found, format!("{length}, as the logits have")));
    }
    let values = logits.values.chunks(length * vocabulary);
    Ok(ids
        .into_iter()
        .zip(values)
        .enumerate()
        .map(|(row, (ids, logits))| Sample {
            source: sources.as_ref().map(|sources| sources[row].clone()),
            ids,
            logits: logits.to_vec(),
        })
        .collect())
}

fn lines(path: &Path, beside: Option<&Path>) -> Result<Vec<Sample>> {
    let text = fs::read_to_string(path).map_err(Error::file(path))?;
    let beside = match beside {
        None => Vec::new(),
        Some(path) => sequences(path)?,
    };
    let mut out = Vec::new();
    for (index, line) in objects(path, &text)?.into_iter().enumerate() {
        let at = index + 1;
        let (source, ids) = match (line.ids, line.decoder_input_ids, beside.get(index)) {
            (Some(source), Some(ids), _) => (Some(source.all()), ids.all()),
            (Some(ids), None, _) => (line.source.map(Rows::all), ids.all()),
            (None, _, Some((source, ids))) => {
                (source.clone().map(|source| vec![source]), vec![ids.clone()])
            }
            (None, _, None) => {
                let found =
                    "found no ids beside the logits; name the file with their lines (--ids)";
                return Err(Error::content(path, format!("sequence {at}: {found}")));
            }
        };
        let logits = line.logits.all();
        let sources = source.as_ref().map_or(ids.len(), Vec::len);
        if logits.len() != ids.len() || sources != ids.len() {
            let (ids, logits) = (ids.len(), logits.len());
            let found =
                format!("found {ids} lists of ids, {sources} sources and logits of {logits}");
            return Err(Error::content(path, format!("object {at}: {found}, expected as many")));
        }
        for (row, (ids, logits)) in ids.into_iter().zip(logits).enumerate() {
            let source = source.as_ref().map(|sources| sources[row].clone());
            out.push(Sample { source, ids, logits: logits.into_iter().flatten().collect() });
        }
    }
    Ok(out)
}

/// The objects of a file: one a line, one alone, or a list.
fn objects(path: &Path, text: &str) -> Result<Vec<Line>> {
    if let Ok(one) = serde_json::from_str::<Line>(text) {
        return Ok(vec![one]);
    }
    if let Ok(all) = serde_json::from_str::<Vec<Line>>(text) {
        return Ok(all);
    }
    let lines = text.lines().filter(|line| !line.trim().is_empty()).enumerate();
    let read = |(index, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|e| {
            let expected =
                r#"expected safetensors, or lines of {"ids": [1, 2], "logits": [[…], […]]}"#;
            let at = index + 1;
            Error::content(path, format!("sequence {at}: found no such object ({e}); {expected}"))
        })
    };
    lines.map(read).collect()
}

/// Ids that a model reads, after those of a source if it has one.
type Ids = (Option<Vec<u32>>, Vec<u32>);

/// Lines of ids, `1 2 3` or `source ids|target ids`.
fn sequences(path: &Path) -> Result<Vec<Ids>> {
    let text = fs::read_to_string(path).map_err(Error::file(path))?;
    let ids = |text: &str| -> Result<Vec<u32>> {
        let id = |word: &str| {
            let found = format!("found {word:?}, expected token ids such as 1 2 3");
            word.parse().map_err(|_| Error::content(path, found))
        };
        text.split_whitespace().map(id).collect()
    };
    let line = |line: &str| {
        Ok(match line.split_once('|') {
            None => (None, ids(line)?),
            Some((source, target)) => (Some(ids(source)?), ids(target)?),
        })
    };
    text.lines().filter(|text| !text.trim().is_empty()).map(line).collect()
}
