//! Broken files of every kind: whatever the bytes, a reader refuses in words and does not panic.

mod entries;

use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

use entries::READERS;

/// Broken files for each reader.
const CASES: u32 = 48;

/// What happens to a file that was whole.
#[derive(Clone, Debug)]
enum Harm {
    Cut(prop::sample::Index),
    Flip(Vec<(prop::sample::Index, u8)>),
    Insert(prop::sample::Index, Vec<u8>),
    Double(prop::sample::Index, prop::sample::Index),
    Replace(Vec<u8>),
}

fn harm() -> impl Strategy<Value = Harm> {
    let index = any::<prop::sample::Index>;
    let bytes = |most: usize| prop::collection::vec(any::<u8>(), 0..most);
    prop_oneof![
        index().prop_map(Harm::Cut),
        prop::collection::vec((index(), 1u8..), 1..8).prop_map(Harm::Flip),
        (index(), bytes(16)).prop_map(|(at, bytes)| Harm::Insert(at, bytes)),
        (index(), index()).prop_map(|(from, to)| Harm::Double(from, to)),
        bytes(200).prop_map(Harm::Replace),
    ]
}

fn harmed(mut file: Vec<u8>, harm: &Harm) -> Vec<u8> {
    match harm {
        Harm::Cut(at) => file.truncate(at.index(file.len())),
        Harm::Flip(flips) => {
            for (at, bits) in flips {
                let at = at.index(file.len());
                file[at] ^= bits;
            }
        }
        Harm::Insert(at, bytes) => {
            let at = at.index(file.len());
            file.splice(at..at, bytes.iter().copied());
        }
        Harm::Double(from, to) => {
            let (from, to) = (from.index(file.len()), to.index(file.len()));
            let part = file[from.min(to)..from.max(to)].to_vec();
            file.splice(from..from, part);
        }
        Harm::Replace(bytes) => file = bytes.clone(),
    }
    file
}

#[test]
fn whole_files_are_read() {
    for reader in READERS {
        assert!((reader.entry)(&(reader.whole)()), "{}", reader.name);
    }
}

#[test]
fn broken_files_of_every_kind_are_refused_without_a_panic() {
    let config =
        ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
    for reader in READERS {
        let whole = (reader.whole)();
        // The same files each time: a failure here is a change of ours. The fuzz targets look further.
        let same = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let result = TestRunner::new_with_rng(config.clone(), same).run(&harm(), |harm| {
            (reader.entry)(&harmed(whole.clone(), &harm));
            Ok(())
        });
        assert!(result.is_ok(), "{}: {}", reader.name, result.unwrap_err());
    }
}
