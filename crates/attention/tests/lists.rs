//! The folders, the lists and the docs name the same choices.

#![expect(clippy::unwrap_used, reason = "a test may stop at once")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use whatwhere_attention::{Mixing, Pattern, Position, Score, combinations};

fn folder(name: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name);
    fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|name| name != "mod")
        .collect()
}

#[test]
fn every_file_is_listed_and_every_choice_is_a_file_and_in_the_docs() {
    let docs =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    for (name, listed) in [
        ("score", Score::NAMES),
        ("pattern", Pattern::NAMES),
        ("position", Position::NAMES),
        ("mixing", Mixing::NAMES),
    ] {
        assert_eq!(folder(name), listed.iter().map(|s| s.to_string()).collect(), "{name}");
        for choice in listed {
            assert!(docs.contains(&format!("`{choice}`")), "{name} {choice} is not in the docs");
        }
    }
    for choice in Position::NAMES {
        assert!(docs.contains(&format!("**`{choice}`**")), "{choice} has no what and where");
    }
}

/// Who may name an encoding outside `position/`, and why. Everyone else would have to change for a new one, and
/// CONTRIBUTING.md promises that two files are enough.
const NAMED: [(&str, &[&str], &str); 4] = [
    ("settings.rs", &["Rotary"], "the default"),
    ("call.rs", &["Rotary", "Polar"], "kinds of feature, which several encodings share"),
    ("composed.rs", &["Rotary", "Polar"], "computes the kinds of feature"),
    ("fused.rs", &["Rotary", "Polar"], "hands the kinds of feature to the kernels"),
];

#[test]
fn nothing_outside_its_folder_names_an_encoding() {
    // Debug writes an enum's variant first, which is the encoding's type.
    let name = |position: &Position| {
        let written = format!("{position:?}");
        written.split('(').next().unwrap().to_owned()
    };
    let encodings: Vec<String> = Position::all().iter().map(name).collect();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeSet::new();
    for file in sources(&src) {
        let within = file.strip_prefix(&src).unwrap();
        if within.starts_with("position") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let lines = code.lines().map(|line| line.split("//").next().unwrap());
        let words = lines.flat_map(|line| line.split(|c: char| !c.is_alphanumeric()));
        let owner = |word: &str| {
            let encoding = word.strip_suffix("Layer").unwrap_or(word);
            encodings.iter().find(|name| *name == encoding).cloned()
        };
        let within = within.to_string_lossy().replace('\\', "/");
        found.extend(words.filter_map(owner).map(|encoding| (within.clone(), encoding)));
    }
    let allowed = NAMED
        .iter()
        .flat_map(|(file, names, _)| names.iter().map(|name| (file.to_string(), name.to_string())));
    assert_eq!(found, allowed.collect(), "the encodings named outside position/");
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

#[test]
fn the_table_of_combinations_is_the_one_checked_in() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("COMBINATIONS.md");
    let written = fs::read_to_string(&path).unwrap_or_default();
    let made = combinations();
    if std::env::var_os("WHATWHERE_WRITE").is_some() {
        fs::write(&path, &made).unwrap();
    } else {
        assert_eq!(
            written, made,
            "write it again: WHATWHERE_WRITE=1 cargo test -p whatwhere-attention --test lists"
        );
    }
}
