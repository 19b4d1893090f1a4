//! Broken files: whatever the bytes, a reader refuses in words and does not panic.

use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

use crate::entries::READERS;

/// Broken files for each reader.
const CASES: u32 = 64;

#[test]
fn whole_files_are_read() {
    for reader in READERS {
        assert!((reader.entry)(&(reader.whole)()), "{}", reader.name);
    }
}

#[test]
fn broken_files_are_refused_without_a_panic() {
    let config =
        ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
    // Cuts, and bytes that are others: most of them in the header, where lengths and offsets stand.
    let near = 0usize..4096;
    let harm = (
        any::<Option<prop::sample::Index>>(),
        prop::collection::vec(
            (near, any::<prop::sample::Index>(), any::<bool>(), any::<u8>()),
            0..6,
        ),
    );
    for reader in READERS {
        let whole = (reader.whole)();
        let same = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let result = TestRunner::new_with_rng(config.clone(), same).run(&harm, |(cut, flips)| {
            let mut file = whole.clone();
            for (near, far, is_near, byte) in flips {
                let at = if is_near { near % file.len() } else { far.index(file.len()) };
                file[at] = byte;
            }
            if let Some(cut) = cut {
                file.truncate(cut.index(whole.len()));
            }
            (reader.entry)(&file);
            Ok(())
        });
        assert!(result.is_ok(), "{}: {}", reader.name, result.unwrap_err());
    }
}
