//! What a comparison was asked to be: `comparison.json` beside its report, so that another does not take its place, and so
//! that all who work on it agree on what minutes are.

use std::{collections::BTreeMap, fs, io::Write, path::Path};

use serde::{Deserialize, Serialize};
use whatwhere_files as files;
use whatwhere_training::{RunSettings, interrupt::Interrupt, lock::Lock};

use crate::{
    Error,
    budget::Budget,
    compare::{Comparison, Corpora, Observer},
    report::make_folder,
    results::Results,
};

const FILE: &str = "comparison.json";
/// Held while that file is read, and written anew.
const LOCK: &str = ".comparison.lock";

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
    /// Whether translations are scored.
    #[serde(default)]
    pub bleu: bool,
    /// The cell that others are held against.
    pub baseline: Option<String>,
    /// Settings of all cells, TOML.
    pub settings: String,
    /// Updates of each cell, by its folder, that a budget in minutes became: measured once, by whoever came first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub updates: BTreeMap<String, u64>,
}

/// Takes a folder for a comparison, and fixes what its minutes are. The same comparison goes on in it, also with more
/// values, more seeds or other lengths; any other is left alone. Those that share it, or train runs by their numbers, must be
/// of one version. Whether the folder has locks that keep processes apart.
pub fn claim(
    comparison: &mut Comparison,
    one_version: bool,
    corpora: &mut Corpora,
    interrupt: &Interrupt,
    observer: &mut dyn Observer,
) -> Result<bool, Error> {
    let folder = comparison.folder.clone();
    let mut request = Request::of(comparison)?;
    request.before(&folder, one_version)?;
    make_folder(&folder)?;
    let lock = Lock::wait(&folder.join(LOCK))?;
    if comparison.share && !lock.is_held() {
        return Err(Error::NoLocks { folder });
    }
    loop {
        let before = request.before(&folder, one_version)?;
        comparison.updates = before.as_ref().map_or(BTreeMap::new(), |found| found.updates.clone());
        fix_minutes(comparison, corpora, interrupt, observer)?;
        request.updates = comparison.updates.clone();
        // Without locks another process may have been faster, and its file holds.
        if request.write(&folder, before.as_ref())? {
            return Ok(lock.is_held());
        }
    }
}

/// Looks at the folder of a comparison without taking it, for what was fixed there; whether a comparison has begun in it.
pub fn recall(comparison: &mut Comparison) -> Result<bool, Error> {
    let before = Request::of(comparison)?.before(&comparison.folder, false)?;
    let is_there = before.is_some();
    comparison.updates = before.map_or(BTreeMap::new(), |found| found.updates);
    Ok(is_there)
}

/// Turns minutes into updates for the cells that have none yet. One that cannot be timed will say so when it is trained.
fn fix_minutes(
    comparison: &mut Comparison,
    corpora: &mut Corpora,
    interrupt: &Interrupt,
    observer: &mut dyn Observer,
) -> Result<(), Error> {
    if !matches!(comparison.budget, Some(Budget::Minutes(_))) {
        return Ok(());
    }
    for cell in comparison.cells()? {
        let (Ok(settings), false) = (&cell.settings, comparison.updates.contains_key(&cell.folder))
        else {
            continue;
        };
        if interrupt.requested() {
            return Err(whatwhere_data::Error::Interrupted.into());
        }
        let Ok(corpus) = corpora.of_told(settings, interrupt, observer) else { continue };
        if let Ok(updates) = comparison.steps(&cell, settings, &corpus) {
            comparison.updates.insert(cell.folder.clone(), updates);
        }
    }
    Ok(())
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
            bleu: comparison.bleu,
            baseline: comparison.baseline.clone(),
            settings: settings.to_toml()?,
            updates: comparison.updates.clone(),
        })
    }

    /// The comparison of before that this one goes on with, if there was any; an error if it was another.
    fn before(&self, folder: &Path, one_version: bool) -> Result<Option<Self>, Error> {
        let taken = |holds: String| {
            let folder = folder.display();
            Err(Error::Taken(format!("{folder} holds {holds}; it would be replaced")))
        };
        match fs::read_to_string(folder.join(FILE)) {
            Ok(text) => {
                let Ok(before) = serde_json::from_str::<Self>(&text) else {
                    return taken(format!("a {FILE} that cannot be read"));
                };
                if let Some(what) = self.differs(&before) {
                    return taken(format!("another comparison, {what}"));
                }
                if one_version && before.version != self.version {
                    return Err(Error::Taken(format!(
                        "{} holds a comparison of whatwhere {}, found {}: runs of two versions may differ in their bits",
                        folder.display(),
                        before.version,
                        self.version
                    )));
                }
                Ok(Some(before))
            }
            Err(_) if folder.join("report.html").exists() => {
                taken(format!("a report, and no {FILE} that says of what"))
            }
            Err(_) => Ok(None),
        }
    }

    /// Writes the file, in place of that of before; not if there was none and is one now.
    fn write(&self, folder: &Path, before: Option<&Self>) -> Result<bool, Error> {
        let text = serde_json::to_string_pretty(self).map_err(|e| Error::Request(e.to_string()))?;
        let path = folder.join(FILE);
        match before {
            None => Ok(files::create(&path, |writer| writer.write_all(text.as_bytes()))?),
            // Processes that share it differ in how they were called.
            Some(before) if *self == Self { command: self.command.clone(), ..before.clone() } => {
                Ok(true)
            }
            Some(_) => {
                files::replace(&path, |writer| writer.write_all(text.as_bytes()))?;
                Ok(true)
            }
        }
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

    fn comparison(folder: &Path, axis: &str, budget: Option<&str>) -> Comparison {
        Comparison {
            axes: vec![Axis::parse(axis).unwrap()],
            budget: budget.map(|text| text.parse().unwrap()),
            folder: folder.into(),
            ..Comparison::default()
        }
    }

    fn take(
        mut comparison: Comparison,
        one_version: bool,
    ) -> Result<BTreeMap<String, u64>, String> {
        let (mut corpora, interrupt) = (Corpora::default(), Interrupt::default());
        claim(&mut comparison, one_version, &mut corpora, &interrupt, &mut ())
            .map(|_| comparison.updates)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn a_folder_is_kept_for_the_comparison_that_took_it() {
        let folder = tempfile::tempdir().unwrap();
        let of = |axis: &str, budget| comparison(folder.path(), axis, budget);
        let take = |comparison| take(comparison, false).map(|_| ());
        let first = of("position=rotary,polar", None);
        assert_eq!(take(first.clone()), Ok(()));
        assert_eq!(take(Comparison { seeds: 5, ..first.clone() }), Ok(()));
        assert_eq!(take(of("position=rotary,alibi,polar", None)), Ok(()));
        let lr = vec!["training.lr=0.002".into()];
        let lr = Comparison { changes: lr, ..of("position=rotary,alibi,polar", None) };
        for (other, expected) in [
            (of("position=rotary,polar", None), "over model.attention.position=rotary,alibi,polar"),
            (of("pattern=causal,window", None), "holds another comparison, over"),
            (of("position=rotary,alibi,polar", Some("steps=9")), "with its settings' updates"),
            (lr, "with other settings"),
        ] {
            let reason = take(other).unwrap_err();
            assert!(reason.contains(expected), "{reason}");
        }
        let old = tempfile::tempdir().unwrap();
        std::fs::write(old.path().join("report.html"), "").unwrap();
        let reason = take(comparison(old.path(), "position=rotary", None)).unwrap_err();
        assert!(reason.contains("holds a report"), "{reason}");
    }

    #[test]
    fn processes_of_two_versions_do_not_share() {
        let folder = tempfile::tempdir().unwrap();
        let of = || comparison(folder.path(), "position=rotary,polar", None);
        take(of(), true).unwrap();
        let path = folder.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        let other = text.replace(env!("CARGO_PKG_VERSION"), "0.0.1");
        assert_ne!(text, other);
        fs::write(&path, other).unwrap();
        let reason = take(of(), true).unwrap_err();
        assert!(reason.contains("holds a comparison of whatwhere 0.0.1"), "{reason}");
        take(of(), false).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn minutes_are_fixed_once_for_all_who_share() {
        let folder = tempfile::tempdir().unwrap();
        let small = ["width=16", "layers=1", "heads=2", "length=16", "batch=2"];
        let of = |axis: &str| Comparison {
            changes: small.map(Into::into).to_vec(),
            ..comparison(folder.path(), axis, Some("minutes=0.01"))
        };
        let first = take(of("position=rotary"), true).unwrap();
        assert!(first["rotary"] > 0, "{first:?}");
        // Whoever comes later, on whatever machine, takes the number of the file, and times only what is new.
        let path = folder.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        let fixed = format!("\"rotary\": {}", first["rotary"]);
        fs::write(&path, text.replace(&fixed, "\"rotary\": 4321")).unwrap();
        let later = take(of("position=rotary,alibi"), true).unwrap();
        assert_eq!((later["rotary"], later.len()), (4321, 2), "{later:?}");
        let mut found = of("position=rotary,alibi");
        assert!(recall(&mut found).unwrap());
        assert_eq!(found.updates, later);
    }
}
