//! Pairs of lines: two parallel files, or one table (`.csv`, `.tsv`, `.txt` with tabs, `.jsonl`).

use std::path::Path;

use super::{
    decoded, open,
    table::{self, Wanted},
};
use crate::{Error, Result};

/// The two sides of a pair.
pub(crate) type Sides = (String, String);

/// Reads pairs from two files, or from one with two fields. Pairs with an empty side are left out.
pub(crate) fn pairs(source: &Path, target: &Path, fields: (&str, &str)) -> Result<Vec<Sides>> {
    let mut pairs = if source == target || target.as_os_str().is_empty() {
        rows(source, fields)?
    } else {
        parallel(source, target)?
    };
    pairs.retain(|(source, target)| !source.is_empty() && !target.is_empty());
    if pairs.is_empty() {
        return Err(Error::content(source.display().to_string(), "has no pairs of lines"));
    }
    Ok(pairs)
}

fn rows(path: &Path, (source, target): (&str, &str)) -> Result<Vec<Sides>> {
    let name = path.display().to_string();
    let (kind, mut reader) = open(path)?;
    let mut pairs = Vec::new();
    let settings = ["source.source_field", "source.target_field"];
    let wanted = Wanted::plain([source, target], settings);
    table::table(&name, &kind, &mut reader, &wanted, &mut |_, [from, to]| {
        pairs.push((from.trim().to_string(), to.trim().to_string()));
        Ok(())
    })?;
    Ok(pairs)
}

fn parallel(source: &Path, target: &Path) -> Result<Vec<Sides>> {
    let (from, to) = (all_lines(source)?, all_lines(target)?);
    if from.len() != to.len() {
        let reason = format!(
            "has {} lines, and {} has {}; expected line by line the same sentences",
            from.len(),
            target.display(),
            to.len()
        );
        return Err(Error::content(source.display().to_string(), reason));
    }
    Ok(from.into_iter().zip(to).collect())
}

/// Every line, empty ones too, so that the two sides stay aligned.
fn all_lines(path: &Path) -> Result<Vec<String>> {
    use std::io::BufRead;
    let name = path.display().to_string();
    std::io::BufReader::new(open(path)?.1)
        .split(b'\n')
        .enumerate()
        .map(|(i, line)| {
            let line = decoded(&name, i, line.map_err(Error::file(path))?)?;
            Ok(line.trim().to_string())
        })
        .collect()
}
