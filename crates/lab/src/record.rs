//! What a comparison was asked to be: `comparison.json` beside its report, so that another does not take its place.

use std::{fs, io::Write, path::Path};

use serde::{Deserialize, Serialize};
use whatwhere_files as files;
use whatwhere_training::RunSettings;

use crate::{Error, budget::Budget, compare::Comparison, report::make_folder, results::Results};

const FILE: &str = "comparison.json";

/// A setting and its values.
type Values = (String, Vec<String>);

/// A comparison as it was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// What it is called.
    pub title: String,
    /// The command that asked for it, if one did.
    pub command: Option<String>,
    /// The version of this program.
    pub version: String,
    /// What cells differ in: keys and values.
    pub axes: Vec<(String, Vec<String>)>,
    /// Runs of each cell.
    pub seeds: u64,
    /// What each may spend; the settings' own updates if absent.
    pub budget: Option<Budget>,
    /// How settings are searched for.
    pub search: Option<String>,
    /// Lengths to read without training.
    pub lengths: Option<Vec<usize>>,
    /// Tokens read at each.
    pub tokens: usize,
    /// The cell that others are held against.
    pub baseline: Option<String>,
    /// Settings of all cells, TOML.
    pub settings: String,
}

impl Request {
    /// Of a comparison.
    pub fn of(comparison: &Comparison) -> Result<Self, Error> {
        let settings = RunSettings::read(&comparison.settings, &comparison.changes)?;
        let axes = comparison.axes.iter().map(|axis| (axis.key.clone(), axis.values.clone()));
        Ok(Self {
            title: comparison.title.clone(),
            command: comparison.command.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            axes: axes.collect(),
            seeds: comparison.seeds,
            budget: comparison.budget,
            search: comparison.search.as_ref().map(ToString::to_string),
            lengths: comparison.lengths.clone(),
            tokens: comparison.tokens,
            baseline: comparison.baseline.clone(),
            settings: settings.to_toml()?,
        })
    }

    /// Takes a folder for this comparison. The same comparison goes on in it, also with more values, more seeds or other
    /// lengths; any other is left alone.
    pub fn claim(&self, folder: &Path) -> Result<(), Error> {
        let path = folder.join(FILE);
        let taken = |holds: String| {
            let folder = folder.display();
            Err(Error::Request(format!("{folder} holds {holds}; it would be replaced")))
        };
        match fs::read_to_string(&path) {
            Ok(text) => match serde_json::from_str::<Self>(&text) {
                Ok(before) => match self.differs(&before) {
                    None => {}
                    Some(what) => return taken(format!("another comparison, {what}")),
                },
                Err(_) => return taken(format!("a {FILE} that cannot be read")),
            },
            Err(_) if folder.join("report.html").exists() => {
                return taken(format!("a report, and no {FILE} that says of what"));
            }
            Err(_) => {}
        }
        make_folder(folder)?;
        let text = serde_json::to_string_pretty(self).map_err(|e| Error::Request(e.to_string()))?;
        Ok(files::replace(&path, |writer| writer.write_all(text.as_bytes()))?)
    }

    /// What another comparison has otherwise, in words; nothing if this one goes on with it.
    fn differs(&self, before: &Self) -> Option<String> {
        let said = |axes: &[Values]| {
            let each = axes.iter().map(|(key, values)| format!("{key}={}", values.join(",")));
            each.collect::<Vec<_>>().join(" ")
        };
        let keeps = |(before, now): (&Values, &Values)| {
            before.0 == now.0 && before.1.iter().all(|value| now.1.contains(value))
        };
        let same_axes =
            self.axes.len() == before.axes.len() && before.axes.iter().zip(&self.axes).all(keeps);
        if !same_axes {
            return Some(match before.axes.is_empty() {
                true => "of one cell".into(),
                false => format!("over {}", said(&before.axes)),
            });
        }
        if self.budget != before.budget {
            let budget = before.budget.map(|budget| budget.to_string());
            return Some(format!(
                "with {}",
                budget.unwrap_or_else(|| "its settings' updates".into())
            ));
        }
        if self.search != before.search {
            let search = before.search.clone();
            return Some(
                search.map_or("without a search".into(), |search| format!("with {search}")),
            );
        }
        let read = |text: &str| RunSettings::read(text, &[]).ok();
        (read(&self.settings) != read(&before.settings)).then(|| "with other settings".into())
    }
}

/// Whether a folder has a report that says more than these results: runs of theirs failed that were there before.
pub fn says_more(folder: &Path, results: &[Results]) -> bool {
    let runs = |results: &[Results]| -> usize {
        results.iter().flat_map(|part| &part.cells).map(|cell| cell.runs().len()).sum()
    };
    let before = fs::read_to_string(folder.join("results.json")).ok();
    let before: Option<Vec<Results>> = before.and_then(|text| serde_json::from_str(&text).ok());
    before.is_some_and(|before| runs(&before) > runs(results))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Axis;

    fn request(axis: &str, budget: Option<&str>) -> Request {
        let comparison = Comparison {
            axes: vec![Axis::parse(axis).unwrap()],
            budget: budget.map(|text| text.parse().unwrap()),
            ..Comparison::default()
        };
        Request::of(&comparison).unwrap()
    }

    #[test]
    fn a_folder_is_kept_for_the_comparison_that_took_it() {
        let folder = tempfile::tempdir().unwrap();
        let claim = |request: Request| request.claim(folder.path()).map_err(|e| e.to_string());
        let first = request("position=rotary,polar", None);
        assert_eq!(claim(first.clone()), Ok(()));
        assert_eq!(claim(Request { seeds: 5, ..first.clone() }), Ok(()));
        assert_eq!(claim(request("position=rotary,alibi,polar", None)), Ok(()));
        for (other, expected) in [
            (
                request("position=rotary,polar", None),
                "over model.attention.position=rotary,alibi,polar",
            ),
            (request("pattern=causal,window", None), "holds another comparison, over"),
            (request("position=rotary,alibi,polar", Some("steps=9")), "with its settings' updates"),
        ] {
            let reason = claim(other).unwrap_err();
            assert!(reason.contains(expected), "{reason}");
        }
        let lr = Request {
            settings: first.settings.replace("lr = 0.001", "lr = 0.002"),
            ..request("position=rotary,alibi,polar", None)
        };
        assert!(claim(lr).unwrap_err().contains("with other settings"));
        let old = tempfile::tempdir().unwrap();
        std::fs::write(old.path().join("report.html"), "").unwrap();
        assert!(first.claim(old.path()).unwrap_err().to_string().contains("holds a report"));
    }
}
