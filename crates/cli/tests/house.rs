//! The shape of the house: dependencies only point down.

use std::{collections::BTreeSet, fs, path::Path};

/// Each crate and those it may know.
const MAY_KNOW: [(&str, &[&str]); 7] = [
    ("kernels", &[]),
    ("attention", &["kernels"]),
    ("transformer", &["attention", "kernels"]),
    ("data", &[]),
    ("training", &["attention", "data", "transformer"]),
    ("lab", &["attention", "data", "kernels", "training", "transformer"]),
    ("cli", &["attention", "data", "lab", "training", "transformer"]),
];

#[test]
fn dependencies_only_point_down() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (name, may_know) in MAY_KNOW {
        let manifest = fs::read_to_string(crates.join(name).join("Cargo.toml"));
        let manifest: toml::Table = manifest.expect("a manifest").parse().expect("TOML");
        let dependencies = manifest["dependencies"].as_table().expect("a table");
        let ours: BTreeSet<&str> =
            dependencies.keys().filter_map(|key| key.strip_prefix("whatwhere-")).collect();
        let allowed: BTreeSet<&str> = may_know.iter().copied().collect();
        assert!(ours.is_subset(&allowed), "{name} knows {ours:?}, it may know {allowed:?}");
    }
}

/// Only these floors know the framework.
#[test]
fn kernels_and_data_know_no_framework() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in ["kernels", "data"] {
        let manifest = fs::read_to_string(crates.join(name).join("Cargo.toml"));
        assert!(!manifest.expect("a manifest").contains("burn"), "{name} knows burn");
    }
}
