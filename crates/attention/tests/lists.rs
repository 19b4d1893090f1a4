//! The folders, the lists and the docs name the same choices.

#![expect(clippy::unwrap_used, reason = "a test may stop at once")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use whatwhere_attention::{Mixing, Pattern, Position, Score, combinations};

/// The files of a folder that hold a choice: all but its list; of the kernels' patterns those that have settings.
fn folder(path: &Path) -> BTreeSet<String> {
    let all = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let has_settings =
        |file: &PathBuf| fs::read_to_string(file).unwrap().contains("mod settings {");
    let is_choice = |file: &PathBuf| !path.ends_with("pattern") || has_settings(file);
    let name = |path: PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
    all.filter(is_choice).map(name).filter(|name| name != "mod").collect()
}

/// The folder of an axis.
fn home(axis: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    match axis {
        "pattern" => here.join("../kernels/src/attention/pattern"),
        _ => here.join("src").join(axis),
    }
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
        assert_eq!(folder(&home(name)), listed.iter().map(|s| s.to_string()).collect(), "{name}");
        for choice in listed {
            assert!(docs.contains(&format!("`{choice}`")), "{name} {choice} is not in the docs");
        }
    }
    for choice in Position::NAMES {
        assert!(docs.contains(&format!("**`{choice}`**")), "{choice} has no what and where");
    }
}

/// How an encoding may be named outside `position/`, and why. Whatever else names one would have to change for a new one,
/// and CONTRIBUTING.md promises that two files are enough.
const USES: [(&str, &str); 4] = [
    ("position::Rotary", "brings in the default"),
    ("Rotary::default()", "the default"),
    ("Rotary {", "a kind of feature, which several encodings may share"),
    ("Polar {", "a kind of feature"),
];

#[test]
fn nothing_outside_its_folder_names_an_encoding() {
    let encodings = variants(&Position::all());
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (file, line) in code(&src).into_iter().filter(|(file, _)| !file.starts_with("position/")) {
        let mut words = line.split(|c: char| !c.is_alphanumeric());
        let is_named = words.any(|word| {
            let encoding = word.strip_suffix("Layer").unwrap_or(word);
            encodings.iter().any(|name| name == encoding)
        });
        let is_allowed = USES.iter().any(|(form, _)| line.contains(form));
        assert!(!is_named || is_allowed, "{file} names an encoding: {line}");
    }
}

/// How a pattern may be named outside the kernels' `pattern/`, and why.
const PATTERN_USES: [(&str, &str); 8] = [
    ("pattern::", "brings in one of these"),
    ("Causal::default()", "the default of a layer, and what makes a decoder's pattern causal"),
    ("And {", "joins two patterns"),
    ("Or {", "joins two patterns"),
    ("kernels::And(", "joins two patterns"),
    ("kernels::Or(", "joins two patterns"),
    ("Causal::upper_left()", "what a drawing is measured by"),
    ("Full", "what a drawing is measured by, and how much of a tile is seen"),
];

/// A pattern is a file of the kernels and a line in its list; whatever else named it would have to change for a new one.
#[test]
fn nothing_outside_its_folder_names_a_pattern() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let patterns = variants(&Pattern::all());
    let scanned = [
        "kernels",
        "attention",
        "transformer",
        "training",
        "lab",
        "server",
        "web",
        "cli",
        "interop",
    ];
    for name in scanned {
        for (file, line) in code(&crates.join(name).join("src")) {
            // Other lists have the same names: the objective `prefix`, the unit `Window`, the generator `Random`.
            let others = ["Objective::", "Unit::", "Random", "Self::"];
            let is_other = others.iter().any(|o| line.contains(o)) || line.trim() == "Window,";
            // A graph for others says every choice in their operators.
            let is_graph = name == "interop" && file.starts_with("onnx/");
            if file.starts_with("attention/pattern/") || is_other || is_graph {
                continue;
            }
            let mut words = line.split(|c: char| !c.is_alphanumeric());
            let is_named = words.any(|word| patterns.iter().any(|pattern| pattern == word));
            let is_allowed = PATTERN_USES.iter().any(|(form, _)| line.contains(form));
            assert!(!is_named || is_allowed, "{name}: {file} names a pattern: {line}");
        }
    }
}

/// Files that know a kind of score; with its vectors and two lists they are the eight that ARCHITECTURE.md counts.
const SCORE_FILES: [&str; 5] = [
    "attention/src/composed.rs",
    "attention/src/score/additive.rs",
    "kernels/src/attention/pairwise.rs",
    "kernels/src/attention/reference/score.rs",
    "kernels/src/attention/score.rs",
];

#[test]
fn a_kind_of_score_is_known_to_few_files() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    let scanned = [
        "kernels",
        "attention",
        "transformer",
        "training",
        "lab",
        "server",
        "web",
        "cli",
        "python",
    ];
    for name in scanned {
        for (file, line) in code(&crates.join(name).join("src")) {
            let names = ["Score::Additive", "Self::Additive", "Additive {"];
            if names.iter().any(|form| line.contains(form)) && !file.starts_with("simd/") {
                found.insert(format!("{name}/src/{file}"));
            }
        }
    }
    assert_eq!(found, SCORE_FILES.map(String::from).into());
}

/// Nobody asks which choice it is, neither by its variant nor by its name: what one needs to know, the choice answers.
/// Only `interop` asks, which says every choice in the words of others.
#[test]
fn nobody_asks_which_choice_it_is() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let axes = [
        ("Score", variants(&Score::all()), Score::NAMES),
        ("Pattern", variants(&Pattern::all()), Pattern::NAMES),
        ("Position", variants(&Position::all()), Position::NAMES),
        ("Mixing", variants(&Mixing::all()), Mixing::NAMES),
    ];
    let mut forms = Vec::new();
    for (axis, variants, names) in axes {
        forms.extend(variants.iter().map(|variant| format!("{axis}::{variant}(")));
        for name in names {
            forms.extend(["==", "!="].map(|sign| format!("name() {sign} \"{name}\"")));
            forms.extend(["==", "!="].map(|sign| format!("kind {sign} \"{name}\"")));
        }
    }
    for name in ["attention", "transformer", "training", "lab", "server", "web", "cli", "python"] {
        let lines = code(&crates.join(name).join("src"));
        assert!(lines.len() > 100, "{name} has no sources");
        for (file, line) in lines {
            let asks = forms.iter().find(|form| line.contains(form.as_str()));
            assert_eq!(asks, None, "{name}: {file}: {line}");
        }
    }
}

/// Debug writes an enum's variant first, which is the type of the choice.
fn variants<T: std::fmt::Debug>(all: &[T]) -> Vec<String> {
    let name = |choice: &T| format!("{choice:?}").split('(').next().unwrap().to_owned();
    all.iter().map(name).collect()
}

/// The lines of a folder's sources, without comments and tests, each with its file.
fn code(src: &Path) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for file in sources(src) {
        let within = file.strip_prefix(src).unwrap().to_string_lossy().replace('\\', "/");
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let code = text.split("#[cfg(test)]").next().unwrap();
        let code = code.split("#[cfg(all(test").next().unwrap();
        let plain = |line: &str| (within.clone(), line.split("//").next().unwrap().to_owned());
        lines.extend(code.lines().map(plain));
    }
    lines
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
