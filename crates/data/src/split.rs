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

/// The split of each document, given hash and size in bytes of each.
///
/// Documents in an order given by their hashes go to a split as long as they fit its share of the bytes;
/// a split with a share gets at least the smallest, as long as one is left for training.
pub(crate) fn by_document(documents: &[(u64, u64)], shares: Shares) -> Vec<Split> {
    let mut sizes: HashMap<u64, u64> = HashMap::new();
    for &(hash, size) in documents {
        *sizes.entry(hash).or_default() += size;
    }
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
        if let Some(smallest) = smallest.filter(|_| none && order.len() > 1) {
            splits.insert(order.remove(smallest).0, split);
        }
    }
    documents.iter().map(|(hash, _)| splits.get(hash).copied().unwrap_or(Split::Train)).collect()
}

/// The parts of a single text: its tail is the test, what precedes that is for validation.
pub(crate) fn by_tail(text: &str, shares: Shares) -> [(Split, Range<usize>); 3] {
    let cut = |share: f64| {
        let mut place = (text.len() as f64 * share) as usize;
        while !text.is_char_boundary(place) {
            place -= 1;
        }
        place
    };
    let (train, valid) = (cut(1.0 - shares.valid - shares.test), cut(1.0 - shares.test));
    [(Split::Train, 0..train), (Split::Valid, train..valid), (Split::Test, valid..text.len())]
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
        let parts = by_tail(text, TENTHS);
        let texts = parts.map(|(_, range)| &text[range]);
        assert_eq!(texts.concat(), text);
        assert_eq!(texts[2], "차");
    }
}
