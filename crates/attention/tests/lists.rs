//! The folders, the lists and the docs name the same choices.

#![expect(clippy::unwrap_used, reason = "a test may stop at once")]

use std::{collections::BTreeSet, fs, path::Path};

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
