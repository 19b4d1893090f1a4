//! Runs and comparisons on disk: what there is, how runs learn, and what comparisons found.
//!
//! Folders are named when the program starts; a question names what was found in them, and never a path.

use std::{
    fs,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use serde_json::json;
use whatwhere_training::{Folder, RunSettings, journal::Past};
use whatwhere_transformer::{Family, Site};

use super::{Answer, Parameters, Question};
use crate::Error;

/// What is looked through: deeper folders are not.
const DEPTH: usize = 4;

/// Runs or comparisons that are listed at the most.
const LISTED: usize = 1000;

/// Bytes of records that are read at once.
const RECORDS: u64 = 4 << 20;

/// What a comparison writes last.
const RESULTS: &str = "results.json";

/// Bytes of a comparison's results at the most.
const RESULTS_BYTES: u64 = 64 << 20;

/// Folders with runs and comparisons.
#[derive(Clone, Debug, Default)]
pub struct Folders {
    /// Each a run, a comparison, or a folder with some below it.
    pub roots: Vec<PathBuf>,
}

const QUESTIONS: [Question<Folders>; 3] =
    [("list", list), ("curve", curve), ("comparison", comparison)];

impl Folders {
    /// Answers `list`, what there is; `curve`, the losses of a run from a byte of its records on; `comparison`, results as
    /// they were saved.
    pub fn answer(&self, what: &str, parameters: &Parameters) -> Result<Answer, Error> {
        super::answer(&QUESTIONS, self, what, parameters)
    }

    /// Names and folders of what `is` there, in the order of names below each root.
    fn find(&self, is: fn(&Path) -> bool) -> Vec<(String, PathBuf)> {
        let mut found = Vec::new();
        for root in &self.roots {
            let name = root.file_name().map(|name| name.to_string_lossy().into_owned());
            let mut here = Vec::new();
            look_through(root, name.unwrap_or_else(|| ".".into()), is, DEPTH, &mut here);
            here.sort();
            found.extend(here);
        }
        found.truncate(LISTED);
        found
    }

    fn named(&self, parameters: &Parameters, is: fn(&Path) -> bool) -> Result<PathBuf, Error> {
        let name = parameters.needed("name")?;
        let found = self.find(is).into_iter().find(|(found, _)| found == name);
        found
            .map(|(_, path)| path)
            .ok_or_else(|| Error::Request(format!("nothing is called {name}; ask for the list")))
    }
}

fn look_through(
    folder: &Path,
    name: String,
    is: fn(&Path) -> bool,
    deeper: usize,
    found: &mut Vec<(String, PathBuf)>,
) {
    if found.len() >= LISTED {
        return;
    }
    if is(folder) {
        found.push((name.clone(), folder.into()));
    }
    let Some(deeper) = deeper.checked_sub(1) else { return };
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        // Links are not followed: they may lead in a circle.
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let own = entry.file_name().to_string_lossy().into_owned();
        if is_folder && !own.starts_with('.') {
            look_through(&entry.path(), format!("{name}/{own}"), is, deeper, found);
        }
    }
}

fn is_run(folder: &Path) -> bool {
    Folder::new(folder).has_run() && Folder::new(folder).metrics().is_file()
}

fn is_comparison(folder: &Path) -> bool {
    folder.join(RESULTS).is_file()
}

fn list(folders: &Folders, parameters: &Parameters) -> Result<Answer, Error> {
    parameters.known(&[])?;
    let run = |(name, path): (String, PathBuf)| {
        let folder = Folder::new(&path);
        let settings = fs::read_to_string(folder.config()).ok();
        let settings = settings.and_then(|text| RunSettings::read(&text, &[]).ok());
        let steps = settings.as_ref().map(|settings| settings.training.steps);
        let attention = settings.as_ref().and_then(|settings| {
            let is_encoder = settings.model.family == Family::Encoder;
            settings.model.attention(if is_encoder { Site::Encoder } else { Site::Decoder }, 0).ok()
        });
        let attention = attention.as_ref();
        let position = attention.map(|a| a.position.iter().map(|p| p.name()).collect::<Vec<_>>());
        json!({
            "name": name,
            "written": written(&folder.metrics()),
            "steps": steps,
            "position": position,
            "pattern": attention.map(|attention| attention.pattern.name()),
            "score": attention.map(|attention| attention.score.name()),
        })
    };
    let runs: Vec<_> = folders.find(is_run).into_iter().map(run).collect();
    let comparison = |(name, path): (String, PathBuf)| {
        let written = written(&path.join(RESULTS));
        json!({ "name": name, "written": written })
    };
    let comparisons: Vec<_> = folders.find(is_comparison).into_iter().map(comparison).collect();
    Ok(Answer::json(&json!({ "runs": runs, "comparisons": comparisons })))
}

/// When a file was written last, in milliseconds since 1970: what has the same has not changed.
fn written(file: &Path) -> Option<u64> {
    let written = fs::metadata(file).and_then(|about| about.modified()).ok()?;
    Some(written.duration_since(UNIX_EPOCH).ok()?.as_millis() as u64)
}

fn curve(folders: &Folders, parameters: &Parameters) -> Result<Answer, Error> {
    parameters.known(&["name", "from"])?;
    let from = parameters.value_or("from", 0u64)?;
    let folder = Folder::new(folders.named(parameters, is_run)?);
    let (past, next) = Past::read_from(&folder.metrics(), from, RECORDS)?;
    let points: Vec<_> = past.iter().map(|past| (past.step, past.loss, past.valid)).collect();
    Ok(Answer::json(&json!({ "points": points, "next": next })))
}

fn comparison(folders: &Folders, parameters: &Parameters) -> Result<Answer, Error> {
    parameters.known(&["name"])?;
    let path = folders.named(parameters, is_comparison)?.join(RESULTS);
    let unreadable = |found: &dyn std::fmt::Display| {
        Error::Request(format!("{RESULTS} could not be read: {found}"))
    };
    let size = fs::metadata(&path).map_err(|e| unreadable(&e))?.len();
    if size > RESULTS_BYTES {
        return Err(unreadable(&format!("found {size} bytes, expected at most {RESULTS_BYTES}")));
    }
    let bytes = fs::read(&path).map_err(|e| unreadable(&e))?;
    Ok(Answer { content_type: "application/json", bytes })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn value(answer: Answer) -> serde_json::Value {
        serde_json::from_slice(&answer.bytes).unwrap()
    }

    #[test]
    fn runs_are_listed_and_followed_and_nothing_else_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("runs/rotary/seed-0");
        fs::create_dir_all(&run).unwrap();
        fs::write(run.join("config.toml"), "").unwrap();
        fs::write(run.join("metrics.jsonl"), "{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"lo")
            .unwrap();
        fs::write(folder.path().join("results.json"), "[]").unwrap();
        let folders = Folders { roots: vec![folder.path().into()] };
        let listed = value(folders.answer("list", &Parameters::default()).unwrap());
        let name = listed["runs"][0]["name"].as_str().unwrap().to_owned();
        assert!(name.ends_with("/runs/rotary/seed-0"), "{name}");
        assert_eq!(listed["runs"].as_array().unwrap().len(), 1);
        let ask = |from: &str| {
            let asked = Parameters::new([("name", name.as_str()), ("from", from)]);
            value(folders.answer("curve", &asked).unwrap())
        };
        let first = ask("0");
        assert_eq!(first["points"], json!([[1, 2.5, null]]));
        // The rest of a line that was being written comes with the next answer.
        let mut file = fs::File::options().append(true).open(run.join("metrics.jsonl")).unwrap();
        file.write_all(b"ss\":2.0}\n").unwrap();
        let next = ask(&first["next"].to_string());
        assert_eq!(next["points"], json!([[2, 2.0, null]]));
        assert_eq!(ask(&next["next"].to_string())["points"], json!([]));
        let refused = |name: &str| {
            let asked = Parameters::new([("name", name)]);
            folders.answer("curve", &asked).unwrap_err().to_string()
        };
        assert!(refused("../../etc").contains("nothing is called ../../etc"));
        let comparison = listed["comparisons"][0]["name"].as_str().unwrap();
        let asked = Parameters::new([("name", comparison)]);
        assert_eq!(folders.answer("comparison", &asked).unwrap().bytes, b"[]");
    }

    #[test]
    fn what_begins_later_is_listed_and_what_is_written_anew_shows() {
        let folder = tempfile::tempdir().unwrap();
        let folders = Folders { roots: vec![folder.path().into()] };
        let list = || value(folders.answer("list", &Parameters::default()).unwrap());
        assert_eq!(list(), json!({ "runs": [], "comparisons": [] }));
        let run = folder.path().join("later");
        fs::create_dir_all(&run).unwrap();
        fs::write(run.join("config.toml"), "").unwrap();
        fs::write(run.join("metrics.jsonl"), "").unwrap();
        let results = folder.path().join(RESULTS);
        fs::write(&results, "[]").unwrap();
        let first = list();
        assert!(first["runs"][0]["written"].is_u64(), "{first}");
        assert_eq!(list(), first);
        let file = fs::File::options().append(true).open(&results).unwrap();
        file.set_modified(UNIX_EPOCH + std::time::Duration::from_millis(1234)).unwrap();
        let second = list();
        assert_eq!(second["comparisons"][0]["written"], 1234);
        assert_eq!(second["runs"], first["runs"]);
    }
}
