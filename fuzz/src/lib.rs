//! Fuzz targets for every reader of files; the entries are those of the tests of `whatwhere-training`.
//!
//! `cargo +nightly fuzz run archive` in this folder; `.ci/fuzz` runs each for a few seconds.

#[path = "../../crates/training/tests/readers/entries.rs"]
mod entries;

/// Reads bytes as a file of one kind.
pub fn read(name: &str, bytes: &[u8]) {
    let reader = entries::READERS.iter().find(|reader| reader.name == name);
    let reader = reader.expect("a target for each reader");
    // Starts the corpus: a file that is whole.
    if bytes.is_empty() {
        (reader.entry)(&(reader.whole)());
    }
    (reader.entry)(bytes);
}
