//! chrF: F-score of character n-grams, recall weighed `beta`² times; chrF++ adds words and pairs of words.
//! Popović 2015, <https://aclanthology.org/W15-3049>, and 2017, <https://aclanthology.org/W17-4770>; figures as sacreBLEU.
//!
//! ```
//! use whatwhere_training::chrf;
//!
//! let score = chrf::Settings::plus_plus()
//!     .corpus(&["The cat sat on the mat."], &[vec!["The cat sat on a mat."]])?;
//! assert_eq!(score.to_string(), "chrF2++ = 72.66");
//! # Ok::<(), whatwhere_training::Error>(())
//! ```

use std::{fmt, hash::Hash};

use serde::{Deserialize, Serialize};

use crate::{
    Error,
    ngrams::{self, words},
};

/// What a chrF figure depends on besides the texts. White space never counts as a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Longest character n-grams; default 6.
    pub char_order: usize,
    /// Longest word n-grams, 0 for chrF and 2 for chrF++; default 0.
    pub word_order: usize,
    /// Weight of recall over precision; default 2.
    pub beta: u32,
    /// Whether case is ignored; default false.
    pub lowercase: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { char_order: 6, word_order: 0, beta: 2, lowercase: false }
    }
}

/// A chrF figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// chrF, 0 … 100.
    pub score: f64,
    /// Name with its variant, such as `chrF2++`.
    pub name: String,
    /// How the figure was made, in sacreBLEU's form.
    pub signature: String,
}

impl Settings {
    /// chrF++: characters up to 6 and words up to 2.
    pub fn plus_plus() -> Self {
        Self { word_order: 2, ..Self::default() }
    }

    /// The score of all segments together; `references[i]` are the references of segment `i`, of which the best counts.
    pub fn corpus<H: AsRef<str>, R: AsRef<str>>(
        &self,
        hypotheses: &[H],
        references: &[Vec<R>],
    ) -> Result<Score, Error> {
        ngrams::check(hypotheses, references)?;
        let mut sums = vec![Counts::default(); self.char_order + self.word_order];
        for (hypothesis, references) in hypotheses.iter().zip(references) {
            for (sum, counts) in sums.iter_mut().zip(self.best(hypothesis.as_ref(), references)) {
                sum.hypothesis += counts.hypothesis;
                sum.reference += counts.reference;
                sum.matches += counts.matches;
            }
        }
        let Self { char_order, word_order, beta, lowercase } = self;
        let (references, version) = (ngrams::reference_count(references), ngrams::VERSION);
        let case = if *lowercase { "lc" } else { "mixed" };
        Ok(Score {
            score: self.f_score(&sums),
            name: format!("chrF{beta}{}", "+".repeat(*word_order)),
            signature: format!(
                "nrefs:{references}|case:{case}|eff:yes|nc:{char_order}|nw:{word_order}|space:no|version:{version}"
            ),
        })
    }

    /// Counts against the reference with the highest score, the first of equals.
    fn best<R: AsRef<str>>(&self, hypothesis: &str, references: &[R]) -> Vec<Counts> {
        let hypothesis = Text::new(hypothesis, self.lowercase);
        let mut best = (Vec::new(), -1.0);
        for reference in references {
            let counts = self.compare(&hypothesis, &Text::new(reference.as_ref(), self.lowercase));
            let score = self.f_score(&counts);
            if score > best.1 {
                best = (counts, score);
            }
        }
        best.0
    }

    fn compare(&self, hypothesis: &Text, reference: &Text) -> Vec<Counts> {
        let characters = (1..=self.char_order)
            .map(|order| Counts::new(&hypothesis.characters, &reference.characters, order));
        let words = (1..=self.word_order)
            .map(|order| Counts::new(&hypothesis.words, &reference.words, order));
        characters.chain(words).collect()
    }

    /// F of the mean precision and mean recall, over the orders both sides are long enough for.
    fn f_score(&self, counts: &[Counts]) -> f64 {
        let (mut precision, mut recall, mut orders) = (0.0, 0.0, 0.0);
        for order in counts.iter().filter(|order| order.hypothesis > 0 && order.reference > 0) {
            precision += order.matches as f64 / order.hypothesis as f64;
            recall += order.matches as f64 / order.reference as f64;
            orders += 1.0;
        }
        if precision + recall == 0.0 {
            return 0.0;
        }
        let (precision, recall) = (precision / orders, recall / orders);
        let factor = f64::from(self.beta).powi(2);
        100.0 * (1.0 + factor) * precision * recall / (factor * precision + recall)
    }
}

/// A segment as n-grams are taken from it.
struct Text {
    characters: Vec<char>,
    words: Vec<String>,
}

impl Text {
    fn new(line: &str, lowercase: bool) -> Self {
        let lower = if lowercase { line.to_lowercase() } else { line.to_owned() };
        let characters = lower.chars().filter(|&c| !ngrams::is_space(c)).collect();
        Self { characters, words: words(&lower).flat_map(split_punctuation).collect() }
    }
}

/// One mark is split off a word, at its end rather than its start, as the metric's author does it.
fn split_punctuation(word: &str) -> Vec<String> {
    let is_mark = |c: char| c.is_ascii_punctuation();
    let mut inner = word.chars();
    let (first, last) = (inner.next(), inner.next_back());
    match (first, last) {
        (Some(_), Some(last)) if is_mark(last) => {
            vec![word[..word.len() - last.len_utf8()].into(), last.into()]
        }
        (Some(first), Some(_)) if is_mark(first) => {
            vec![first.into(), word[first.len_utf8()..].into()]
        }
        _ => vec![word.into()],
    }
}

/// N-grams of one order.
#[derive(Clone, Copy, Default)]
struct Counts {
    hypothesis: u64,
    reference: u64,
    matches: u64,
}

impl Counts {
    fn new<T: Hash + Eq>(hypothesis: &[T], reference: &[T], order: usize) -> Self {
        let total = |items: &[T]| (items.len() + 1).saturating_sub(order) as u64;
        let allowed = ngrams::count(reference, order);
        let matches = ngrams::count(hypothesis, order)
            .iter()
            .map(|(ngram, count)| *count.min(allowed.get(ngram).unwrap_or(&0)))
            .sum();
        // An order the reference is too short for does not count against the hypothesis.
        let counted = if allowed.is_empty() { 0 } else { total(hypothesis) };
        Self { hypothesis: counted, reference: total(reference), matches }
    }
}

/// As sacreBLEU prints it.
impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} = {:.2}", self.name, self.score)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mark_is_split_off_a_word() {
        assert_eq!(split_punctuation("(hi)"), ["(hi", ")"]);
        assert_eq!(split_punctuation("\"hi"), ["\"", "hi"]);
        assert_eq!(split_punctuation("안녕!"), ["안녕", "!"]);
        assert_eq!(split_punctuation("?"), ["?"]);
    }

    #[test]
    fn signatures_name_the_variant() {
        let score = Settings::plus_plus().corpus(&["a b"], &[vec!["a b", "a"]]).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(score.name, "chrF2++");
        assert_eq!(
            score.signature,
            format!("nrefs:2|case:mixed|eff:yes|nc:6|nw:2|space:no|version:whatwhere-{version}")
        );
    }
}
