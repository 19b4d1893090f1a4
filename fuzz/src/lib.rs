//! Fuzz targets for every reader of files; the entries are those of the tests of `whatwhere-training` and `whatwhere-interop`.
//!
//! `cargo +nightly fuzz run archive` in this folder; `.ci/fuzz` runs each for a few seconds.

#[path = "../../crates/training/tests/readers/entries.rs"]
mod entries;
#[path = "../../crates/interop/tests/imported/entries.rs"]
mod imports;

/// Reads bytes as a file of one kind.
pub fn read(name: &str, bytes: &[u8]) {
    let of_runs = entries::READERS.iter().map(|reader| (reader.name, reader.entry, reader.whole));
    let of_models = imports::READERS.iter().map(|reader| (reader.name, reader.entry, reader.whole));
    let reader = of_runs.chain(of_models).find(|(reader, ..)| *reader == name);
    let (_, entry, whole) = reader.expect("a target for each reader");
    // Starts the corpus: a file that is whole.
    if bytes.is_empty() {
        entry(&whole());
    }
    entry(bytes);
}
