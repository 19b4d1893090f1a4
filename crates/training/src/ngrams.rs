//! What BLEU and chrF share: words, counted n-grams, and a check of what belongs together.

use std::{collections::HashMap, hash::Hash};

use crate::Error;

/// Who computed a score, for its signature.
pub(crate) const VERSION: &str = concat!("whatwhere-", env!("CARGO_PKG_VERSION"));

/// Words as Python's `str.split` finds them: it also splits at the four ASCII separators.
pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(is_space).filter(|word| !word.is_empty())
}

pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// How often each run of `order` items occurs.
pub(crate) fn count<T: Hash + Eq>(items: &[T], order: usize) -> HashMap<&[T], u64> {
    let mut counts = HashMap::new();
    for ngram in items.windows(order) {
        *counts.entry(ngram).or_insert(0) += 1;
    }
    counts
}

/// Refuses a corpus whose segments and references do not pair.
pub(crate) fn check<H, R>(hypotheses: &[H], references: &[Vec<R>]) -> Result<(), Error> {
    if hypotheses.is_empty() || hypotheses.len() != references.len() {
        let (hypotheses, references) = (hypotheses.len(), references.len());
        return Err(Error::Segments { hypotheses, references });
    }
    match references.iter().position(Vec::is_empty) {
        Some(segment) => Err(Error::Reference { segment: segment + 1 }),
        None => Ok(()),
    }
}

/// References per segment as signatures write it.
pub(crate) fn reference_count<R>(references: &[Vec<R>]) -> String {
    let count = references[0].len();
    if references.iter().all(|list| list.len() == count) { count.to_string() } else { "var".into() }
}
