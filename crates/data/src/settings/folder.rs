//! A folder in place of files: which of its files is which, by their names.

use std::path::{Path, PathBuf};

use super::{Chorales, Labeled, Pairs};
use crate::{Error, Result, read::uncompressed, task::ListOps};

impl Pairs {
    /// The files of a folder: `train.en` and `train.de`, or a table `train.tsv`, and the same with `val`, `valid` or `dev`
    /// and with `test`, compressed or not. Files of the same name as these settings' own are preferred, and of languages
    /// the endings of these.
    pub fn in_folder(&self, folder: &Path) -> Result<Self> {
        let names = names(folder)?;
        let fields = Self {
            source_field: self.source_field.clone(),
            target_field: self.target_field.clone(),
            ..Self::default()
        };
        let find = |split: &[&str], own: &Path, ending: &str| -> Option<PathBuf> {
            let own = own.file_name().map(|name| name.to_string_lossy().into_owned());
            let fits = |name: &&String| {
                let (stem, found) = parts(name);
                found == ending && stem.split(['.', '-', '_']).any(|word| split.contains(&word))
            };
            let own =
                names.iter().find(|name| own.as_ref() == Some(name)).filter(|name| fits(name));
            own.or_else(|| names.iter().find(fits)).map(|name| folder.join(name))
        };
        let empty = PathBuf::new();
        let own = |path: &Option<PathBuf>| path.clone().unwrap_or_else(|| empty.clone());
        let [from, to] = [&self.source, &self.target].map(|path| {
            parts(&path.file_name().unwrap_or_default().to_string_lossy()).1.to_owned()
        });
        if from != to
            && let Some(source) = find(TRAIN, &self.source, &from)
            && let Some(target) = find(TRAIN, &self.target, &to)
        {
            let both = |split: &[&str], source: &Option<PathBuf>, target: &Option<PathBuf>| {
                find(split, &own(source), &from).zip(find(split, &own(target), &to)).unzip()
            };
            let (valid_source, valid_target) = both(VALID, &self.valid_source, &self.valid_target);
            let (test_source, test_target) = both(TEST, &self.test_source, &self.test_target);
            return Ok(Self {
                source,
                target,
                valid_source,
                valid_target,
                test_source,
                test_target,
                ..fields
            });
        }
        let table = |split: &[&str]| TABLES.iter().find_map(|ending| find(split, &empty, ending));
        if let Some(source) = table(TRAIN) {
            return Ok(Self {
                source,
                valid_source: table(VALID),
                test_source: table(TEST),
                ..fields
            });
        }
        let pair = match from.is_empty() || to.is_empty() {
            true => "two such as train.en and train.de, which data.source.source and data.source.target name".into(),
            false => format!("train.{from} and train.{to}"),
        };
        Err(found(folder, &names, &format!("{pair}, or a table such as train.tsv")))
    }
}

impl Labeled {
    /// The parts of a folder: tables `train.tsv`, `valid.tsv` and `test.tsv`, compressed or not, or folders `train`, `valid`
    /// and `test`, by any name that says so; otherwise all that lies in it.
    pub fn in_folder(&self, folder: &Path) -> Result<Self> {
        let names = names(folder)?;
        let is_called =
            |stem: &str, split: &[&str]| stem.split(['.', '-', '_']).any(|w| split.contains(&w));
        let table = |split: &[&str]| {
            let fits = |name: &&String| {
                let (stem, ending) = parts(name);
                TABLES.contains(&ending) && is_called(stem, split)
            };
            names.iter().find(fits).map(|name| folder.join(name))
        };
        let part = |split: &[&str]| {
            let inner = split.iter().map(|name| folder.join(name)).find(|path| path.is_dir());
            table(split).or(inner)
        };
        Ok(match part(TRAIN) {
            Some(path) => Self { path, valid: part(VALID), test: part(TEST), ..self.clone() },
            None => Self { path: folder.into(), valid: None, test: None, ..self.clone() },
        })
    }
}

impl Chorales {
    /// The file of a folder: the one of the same name as these settings' own, or the only one in JSON.
    pub fn in_folder(&self, folder: &Path) -> Result<Self> {
        let names = names(folder)?;
        let own = self.path.file_name().map(|name| name.to_string_lossy().into_owned());
        let json: Vec<&String> = names.iter().filter(|name| parts(name).1 == "json").collect();
        let name = match (names.iter().find(|name| own.as_ref() == Some(name)), json.as_slice()) {
            (Some(name), _) => name,
            (None, [name]) => *name,
            _ => {
                return Err(found(
                    folder,
                    &names,
                    "one in JSON, such as Jsb16thSeparated.json; name it",
                ));
            }
        };
        Ok(Self { path: folder.join(name) })
    }
}

impl ListOps {
    /// The file of a folder that holds one table of values and expressions.
    pub fn in_folder(&self, folder: &Path) -> Result<Self> {
        let names = names(folder)?;
        let tables: Vec<&String> = names.iter().filter(|name| parts(name).1 == "tsv").collect();
        let [name] = tables[..] else {
            return Err(found(
                folder,
                &names,
                "one table of values and expressions, such as test.tsv; name it",
            ));
        };
        Ok(Self { path: Some(folder.join(name)), ..self.clone() })
    }
}

pub(crate) const TRAIN: &[&str] = &["train"];
pub(crate) const VALID: &[&str] = &["val", "valid", "validation", "dev"];
pub(crate) const TEST: &[&str] = &["test", "eval"];
const TABLES: [&str; 4] = ["tsv", "csv", "jsonl", "parquet"];

/// The files of a folder by name, hidden ones left out.
fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::file(folder))? {
        let entry = entry.map_err(Error::file(folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_file() && !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// A name without its compression, before and after the last dot.
fn parts(name: &str) -> (&str, &str) {
    let name = uncompressed(name);
    name.rsplit_once('.').unwrap_or((name, ""))
}

fn found(folder: &Path, names: &[String], expected: &str) -> Error {
    let found = match names {
        [] => "no files".into(),
        names => names.join(", "),
    };
    Error::content(folder.display().to_string(), format!("found {found}; expected {expected}"))
}
