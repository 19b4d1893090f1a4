//! The shape of the house: what ARCHITECTURE.md calls invariants, as far as files can tell.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod markdown;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Each crate and those it may know.
const MAY_KNOW: [(&str, &[&str]); 13] = [
    ("random", &[]),
    ("files", &[]),
    ("settings", &[]),
    ("kernels", &["random", "settings"]),
    ("attention", &["kernels", "settings"]),
    ("transformer", &["attention", "kernels", "random", "settings"]),
    ("data", &["files", "random", "settings"]),
    ("training", &["attention", "data", "files", "kernels", "random", "settings", "transformer"]),
    (
        "lab",
        &["attention", "data", "files", "kernels", "random", "settings", "training", "transformer"],
    ),
    (
        "interop",
        &["attention", "data", "files", "kernels", "random", "settings", "training", "transformer"],
    ),
    (
        "server",
        &[
            "attention",
            "data",
            "files",
            "kernels",
            "lab",
            "random",
            "settings",
            "training",
            "transformer",
        ],
    ),
    ("web", &["kernels", "lab", "random", "training"]),
    (
        "cli",
        &[
            "attention",
            "data",
            "files",
            "interop",
            "lab",
            "server",
            "settings",
            "training",
            "transformer",
        ],
    ),
];

/// Where `unsafe` may stand, and the lint against it may be lifted.
const UNSAFE: [&str; 3] =
    ["crates/kernels/src/simd", "crates/attention/src/bridge", "crates/web/src/seam.rs"];

/// Lines of a file of source, its tests not counted.
const LONGEST: usize = 400;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All files with an ending below a folder, links and what is built left out.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_symlink() || name.starts_with('.') || name == "target" {
            continue;
        }
        match path.is_dir() {
            true => found.extend(files(&path, ending)),
            false if name.ends_with(ending) => found.push(path),
            false => {}
        }
    }
    found.sort();
    found
}

/// Every file of Rust in the `src` folders, by its path from the root.
fn sources() -> Vec<(String, String)> {
    let root = root();
    let all = ["crates", "bench"].iter().flat_map(|folder| files(&root.join(folder), ".rs"));
    let named = all.map(|path| {
        let name = path.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
        (name, fs::read_to_string(path).unwrap())
    });
    named.filter(|(name, _)| name.contains("/src/")).collect()
}

fn manifest(path: &str) -> toml::Table {
    fs::read_to_string(root().join(path)).unwrap().parse().unwrap()
}

#[test]
fn dependencies_only_point_down() {
    for (name, may_know) in MAY_KNOW {
        let manifest = manifest(&format!("crates/{name}/Cargo.toml"));
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
        let ours: BTreeSet<&str> = dependencies
            .into_iter()
            .flat_map(toml::Table::keys)
            .filter_map(|key| key.strip_prefix("whatwhere-"))
            .collect();
        let allowed: BTreeSet<&str> = may_know.iter().copied().collect();
        assert!(ours.is_subset(&allowed), "{name} knows {ours:?}, it may know {allowed:?}");
    }
}

/// Only these floors know the framework.
#[test]
fn settings_kernels_and_data_know_no_framework() {
    for name in ["files", "random", "settings", "kernels", "data"] {
        let manifest = fs::read_to_string(root().join(format!("crates/{name}/Cargo.toml")));
        assert!(!manifest.unwrap().contains("burn"), "{name} knows burn");
    }
}

#[test]
fn unsafe_stands_in_three_places() {
    let words = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe_code"];
    let mut places: BTreeSet<&str> = BTreeSet::new();
    for (name, text) in sources() {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let found = code.filter(|line| words.iter().any(|word| line.contains(word))).count();
        if found > 0 {
            let place = UNSAFE.iter().find(|place| name.starts_with(**place));
            assert!(place.is_some(), "{name} has unsafe code; it may stand in {UNSAFE:?}");
            places.extend(place.copied());
        }
    }
    assert_eq!(places.len(), UNSAFE.len(), "a place that needs no unsafe code any more");
}

/// ARCHITECTURE.md counts two files for an optimizer and three for a backend that trains.
#[test]
fn optimizers_and_devices_are_named_where_they_live() {
    let names_kind = |line: &&str| {
        let after = line.split("Optimizer::").nth(1).filter(|after| !after.starts_with("NAMES"));
        after.is_some_and(|after| after.starts_with(char::is_uppercase))
    };
    for (name, text) in sources() {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = || code.lines().filter(|line| !line.trim_start().starts_with("//"));
        if !name.starts_with("crates/training/src/optimizer/") {
            let named = lines().find(names_kind);
            assert_eq!(named, None, "{name} names an optimizer");
        }
        if name.starts_with("crates/training/src/") && !name.ends_with("/device.rs") {
            let named = lines().find(|line| line.contains("Device::") || line.contains("Flex"));
            assert_eq!(named, None, "{name} names a device");
        }
    }
}

#[test]
fn files_stay_short_enough_to_read() {
    for (name, text) in sources() {
        let is_test = name.ends_with("tests.rs") || name.contains("/tests/");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = code.lines().count();
        assert!(is_test || lines <= LONGEST, "{name} has {lines} lines without tests");
    }
}

/// The page's sources follow the same rule; its bundle is made.
#[test]
fn the_pages_files_stay_short_enough_to_read() {
    let page = root().join("crates/lab/page/src");
    for path in files(&page, ".ts").into_iter().chain(files(&page, ".css")) {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= LONGEST, "{} has {lines} lines", path.display());
    }
}

/// A package holds what its sources include: `cargo package` copies a crate's own folder and nothing else.
#[test]
fn nothing_is_included_from_outside_its_package() {
    for (name, text) in sources() {
        // Not published as crates: the benches, and the Python package, whose wheels are built in the repository.
        if !name.starts_with("crates/") || name.starts_with("crates/python/") {
            continue;
        }
        let depth = name.split('/').count() - 3; // folders between the file and its package
        for line in text.lines().filter(|line| line.contains("include") || line.contains("#[path"))
        {
            let mut ups = 0;
            while line.contains(&"../".repeat(ups + 1)) {
                ups += 1;
            }
            assert!(ups <= depth, "{name} leaves its package: {}", line.trim());
        }
    }
}

#[test]
fn every_place_that_names_the_version_names_the_same() {
    let version = manifest("Cargo.toml")["workspace"]["package"]["version"].clone();
    let version = version.as_str().unwrap();
    let python = manifest("crates/python/Cargo.toml");
    assert_eq!(python["package"]["version"].as_str(), Some(version));
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    assert!(read("CITATION.cff").contains(&format!("\nversion: {version}\n")));
    assert!(read("CHANGELOG.md").contains(&format!("\n## [{version}]")));
    for (key, value) in manifest("Cargo.toml")["workspace"]["dependencies"].as_table().unwrap() {
        if key.starts_with("whatwhere-") {
            assert_eq!(value["version"].as_str(), Some(version), "{key}");
        }
    }
}

/// What is published says what it is, and has its own README and licences.
#[test]
fn every_package_says_what_it_is() {
    for (name, _) in MAY_KNOW {
        let folder = root().join("crates").join(name);
        let manifest = manifest(&format!("crates/{name}/Cargo.toml"));
        for key in ["description", "readme", "keywords", "categories", "license", "rust-version"] {
            assert!(manifest["package"].get(key).is_some(), "{name} has no {key}");
        }
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(folder.join(file).exists(), "{name} has no {file}");
        }
    }
}

/// WHATWHERE_WRITE=1 breaks the lines. Of the generated reference a line is a setting.
#[test]
fn markdown_has_one_sentence_per_line() {
    let by_hand = |path: &PathBuf| !path.ends_with("docs/settings.md");
    for path in files(&root(), ".md").into_iter().filter(by_hand) {
        let text = fs::read_to_string(&path).unwrap();
        let right = markdown::one_sentence_per_line(&text);
        if std::env::var_os("WHATWHERE_WRITE").is_some() && right != text {
            fs::write(&path, &right).unwrap();
        }
        let text = fs::read_to_string(&path).unwrap();
        let wrong = text.lines().zip(right.lines()).find(|(found, right)| found != right);
        assert!(wrong.is_none(), "{}: {:?}", path.display(), wrong.unwrap_or_default().0);
    }
}

/// Links to other sites are theirs to keep; those within the repository lead to a file or a folder of it.
#[test]
fn every_link_of_markdown_leads_somewhere() {
    let mut count = 0;
    for path in files(&root(), ".md") {
        let text = fs::read_to_string(&path).unwrap();
        let folder = path.parent().unwrap();
        for link in markdown::links(&text).filter(|link| !link.contains("://")) {
            let file = link.split('#').next().unwrap();
            let leads = file.is_empty() || folder.join(file).exists();
            assert!(leads, "{} links to {link}, which is not there", path.display());
            count += 1;
        }
    }
    assert!(count > 50, "only {count} links were found");
}
