//! Which split a document belongs to: a choice by its content, so that equal documents stay together.

use std::{collections::HashMap, ops::Range};

use whatwhere_random::mix;

use crate::corpus::Split;

/// The shares kept for validation and test; 0 where a split has its own files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    pub(crate) valid: f64,
    pub(crate) test: f64,
}

/// Where a document's parts begin: training before the first place, validation before the second, the test after it.
pub(crate) type Cuts = [usize; 2];

/// The parts of a document that have something in them.
pub(crate) fn parts(cuts: Cuts, length: usize) -> impl Iterator<Item = (Split, Range<usize>)> {
    let [valid, test] = cuts;
    let all = [(Split::Train, 0..valid), (Split::Valid, valid..test), (Split::Test, test..length)];
    all.into_iter().filter(|(_, range)| !range.is_empty())
}

/// A document as a whole in one split.
pub(crate) fn whole(split: Split, length: usize) -> Cuts {
    match split {
        Split::Train => [length, length],
        Split::Valid => [0, length],
        Split::Test => [0, 0],
    }
}

/// The tail of a text is the test, what precedes that is for validation.
pub(crate) fn tail(text: &str, shares: Shares) -> Cuts {
    let cut = |share: f64| {
        let mut place = (text.len() as f64 * share) as usize;
        while !text.is_char_boundary(place) {
            place -= 1;
        }
        place
    };
    [cut(1.0 - shares.valid - shares.test), cut(1.0 - shares.test)]
}

const DOMINATES: f64 = 0.1; // Of all bytes: of ten and more that are alike, some can be held out whole.

/// The split of each document, given hash and size in bytes of each; none where its tail is to be held out.
///
/// Documents that dominate, being larger than a tenth of everything and than any share, are cut: what is held out would
/// otherwise be what little stands beside them, or far too much. The others stay whole, see [`by_document`].
pub(crate) fn by_size(documents: &[(u64, u64)], shares: Shares) -> Vec<Option<Split>> {
    let sizes = sizes(documents);
    let total: u64 = sizes.values().sum();
    let limit = DOMINATES.max(shares.valid).max(shares.test) * total as f64;
    let dominates = |hash: &u64| sizes[hash] as f64 > limit && shares.valid + shares.test > 0.0;
    let (large, rest): (Vec<_>, Vec<_>) = documents.iter().partition(|(hash, _)| dominates(hash));
    let splits = assign(&rest, shares, large.is_empty());
    let split = |hash: &u64| splits.get(hash).copied().unwrap_or(Split::Train);
    documents.iter().map(|(hash, _)| (!dominates(hash)).then(|| split(hash))).collect()
}

/// [`by_size`] for what cannot be cut: who would be cut is for training. Where nothing is held out then, as of a few texts
/// of one size, [`by_document`].
pub(crate) fn by_size_whole(documents: &[(u64, u64)], shares: Shares) -> Vec<Split> {
    let splits = by_size(documents, shares);
    let is_held =
        |split: Split| splits.iter().zip(documents).any(|(s, d)| *s == Some(split) && d.1 > 0);
    let is_short = (shares.valid > 0.0 && !is_held(Split::Valid))
        || (shares.test > 0.0 && !is_held(Split::Test));
    if is_short {
        return by_document(documents, shares);
    }
    splits.into_iter().map(|split| split.unwrap_or(Split::Train)).collect()
}

/// The split of each document, given hash and size of each.
///
/// Documents in an order given by their hashes go to a split as long as they fit its share of the sizes;
/// a split with a share gets at least the smallest, as long as one is left for training.
pub(crate) fn by_document(documents: &[(u64, u64)], shares: Shares) -> Vec<Split> {
    let splits = assign(documents, shares, true);
    documents.iter().map(|(hash, _)| splits.get(hash).copied().unwrap_or(Split::Train)).collect()
}

/// Documents with the same hash are one.
fn sizes(documents: &[(u64, u64)]) -> HashMap<u64, u64> {
    let mut sizes: HashMap<u64, u64> = HashMap::new();
    for &(hash, size) in documents {
        *sizes.entry(hash).or_default() += size;
    }
    sizes
}

/// Hashes of what is not for training; `at_least_one` holds out the smallest where no document fits a share.
fn assign(documents: &[(u64, u64)], shares: Shares, at_least_one: bool) -> HashMap<u64, Split> {
    let sizes = sizes(documents);
    let total: u64 = sizes.values().sum();
    let mut order: Vec<(u64, u64)> = sizes.into_iter().collect();
    order.sort_unstable_by_key(|&(hash, _)| (mix(hash), hash));
    let mut splits: HashMap<u64, Split> = HashMap::new();
    for (split, share) in [(Split::Valid, shares.valid), (Split::Test, shares.test)] {
        if share == 0.0 {
            continue;
        }
        let mut room = (share * total as f64).round() as u64;
        let mut none = true;
        order.retain(|&(hash, size)| {
            let fits = size <= room;
            if fits {
                room -= size;
                none = false;
                splits.insert(hash, split);
            }
            !fits
        });
        let smallest = (0..order.len()).min_by_key(|&i| order[i].1);
        let needed = none && at_least_one && order.len() > 1;
        if let Some(smallest) = smallest.filter(|_| needed) {
            splits.insert(order.remove(smallest).0, split);
        }
    }
    splits
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTHS: Shares = Shares { valid: 0.1, test: 0.1 };

    #[test]
    fn equal_documents_share_a_split() {
        let documents: Vec<(u64, u64)> = (0..1000).map(|i| (i % 50, 10)).collect();
        let splits = by_document(&documents, TENTHS);
        for (i, split) in splits.iter().enumerate() {
            assert_eq!(*split, splits[i % 50]);
        }
        assert_eq!(splits.iter().filter(|&&s| s == Split::Valid).count(), 100);
        assert_eq!(splits.iter().filter(|&&s| s == Split::Test).count(), 100);
    }

    #[test]
    fn training_keeps_a_document_and_the_others_get_one_if_they_can() {
        let count = |n: u64, split| {
            let documents: Vec<(u64, u64)> = (0..n).map(|i| (i, 100 + i)).collect();
            by_document(&documents, TENTHS).into_iter().filter(|&s| s == split).count()
        };
        assert_eq!([1, 2, 3].map(|n| count(n, Split::Train)), [1, 1, 1]);
        assert_eq!([1, 2, 3].map(|n| count(n, Split::Valid)), [0, 1, 1]);
        assert_eq!([1, 2, 3].map(|n| count(n, Split::Test)), [0, 0, 1]);
    }

    #[test]
    fn a_further_document_moves_no_other_of_the_same_size() {
        let documents: Vec<(u64, u64)> = (0..101).map(|i| (i * 7919, 10)).collect();
        let (before, after) =
            (by_document(&documents[..100], TENTHS), by_document(&documents, TENTHS));
        let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        assert!(moved <= 2, "{moved} moved");
    }

    #[test]
    fn the_tail_is_cut_between_characters() {
        let text = "가나다라마바사아자차";
        let texts: Vec<&str> =
            parts(tail(text, TENTHS), text.len()).map(|(_, range)| &text[range]).collect();
        assert_eq!(texts.concat(), text);
        assert_eq!(texts[2], "차");
    }

    #[test]
    fn a_document_that_dominates_is_cut_and_what_stands_beside_it_is_for_training() {
        for beside in [1, 20, 200] {
            let mut documents = vec![(7, 1_100_000)];
            documents.extend((0..beside).map(|i| (100 + i, 500)));
            let splits = by_size(&documents, Shares { valid: 0.1, test: 0.0 });
            assert_eq!(splits[0], None);
            let held: u64 = splits
                .iter()
                .zip(&documents)
                .filter(|(s, _)| **s == Some(Split::Valid))
                .map(|(_, d)| d.1)
                .sum();
            assert!(held <= beside * 500 / 10, "{held} bytes of what stands beside it");
        }
    }

    #[test]
    fn few_large_documents_are_all_cut_and_many_stay_whole() {
        let cut = |count: u64, shares| {
            let documents: Vec<(u64, u64)> = (0..count).map(|i| (i, 1000)).collect();
            by_size(&documents, shares).iter().filter(|split| split.is_none()).count()
        };
        assert_eq!([1, 3, 9].map(|count| cut(count, TENTHS)), [1, 3, 9]);
        assert_eq!([10, 100, 1000].map(|count| cut(count, TENTHS)), [0, 0, 0]);
        assert_eq!(cut(500, Shares { valid: 0.001, test: 0.0 }), 0, "however small the share");
        assert_eq!(cut(3, Shares { valid: 0.0, test: 0.0 }), 0, "nothing is held out");
    }
}
