//! The comparison that runs when nobody asks for another: positions on tiny Shakespeare, and on indirect indexing.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use whatwhere_files as files;
use whatwhere_random::Fingerprint;
use whatwhere_training::presets;

use crate::{Error, compare::Comparison, grid::Axis, report};

const TEXT: &str = presets::text("compare-text");
const INDEXING: &str = presets::text("compare-indexing");

/// Positions that are compared. The learned table is as long as the longest window.
const POSITIONS: [&str; 7] =
    ["none", "sinusoidal", r#"{kind="learned",length=4096}"#, "shaw", "rotary", "alibi", "polar"];

/// Tokens of held-out text read at each length.
const TOKENS: usize = 16_384;

/// A text read to 16 times the trained length, and a task of pure what-and-where.
pub fn comparisons(folder: &Path) -> Vec<Comparison> {
    let comparison = |title: &str, settings: &str, name: &str| Comparison {
        title: title.into(),
        settings: settings.into(),
        axes: vec![Axis {
            key: "model.attention.position".into(),
            values: POSITIONS.map(Into::into).to_vec(),
        }],
        tokens: TOKENS,
        baseline: Some("rotary".into()),
        folder: folder.join(name),
        ..Comparison::default()
    };
    vec![
        comparison("Positions on tiny Shakespeare", TEXT, "text"),
        comparison("Positions on indirect indexing", INDEXING, "indexing"),
    ]
}

/// The folder, or the first of `folder-2`, `folder-3`, … that does not hold the comparison of another program, with other
/// settings.
pub fn folder(folder: &Path) -> Result<PathBuf, Error> {
    let mut number = 1;
    let mut hash = Fingerprint::new();
    for text in [TEXT, INDEXING].into_iter().chain(POSITIONS) {
        hash.add(text.as_bytes());
    }
    let content = format!("{:016x}\n", hash.finish());
    loop {
        let mut path = folder.as_os_str().to_owned();
        if number > 1 {
            path.push(format!("-{number}"));
        }
        let path = PathBuf::from(path);
        let mark = path.join("content");
        match fs::read_to_string(&mark) {
            Ok(found) if found == content => return Ok(path),
            Ok(_) => number += 1,
            Err(_) => {
                report::make_folder(&path)?;
                files::replace(&mark, |writer| writer.write_all(content.as_bytes()))?;
                return Ok(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comparison_of_another_program_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let wanted = parent.path().join("standard");
        assert_eq!(folder(&wanted).unwrap(), wanted);
        assert_eq!(folder(&wanted).unwrap(), wanted);
        fs::write(wanted.join("content"), "another").unwrap();
        assert_eq!(folder(&wanted).unwrap(), parent.path().join("standard-2"));
    }

    #[test]
    fn every_cell_of_the_standard_comparison_composes() {
        for comparison in comparisons(Path::new("nowhere")) {
            for cell in comparison.cells().unwrap() {
                assert!(cell.settings.is_ok(), "{}: {:?}", cell.name, cell.settings);
            }
        }
    }
}
