//! BLEU: how many n-grams of a translation occur in its references, `bp · exp(mean log precision)`, n = 1 … 4.
//! Papineni et al. 2002, <https://aclanthology.org/P02-1040>; figures as sacreBLEU, Post 2018, <https://arxiv.org/abs/1804.08771>.
//!
//! ```
//! use whatwhere_training::bleu;
//!
//! let score = bleu::Settings::default()
//!     .corpus(&["The cat sat on the mat."], &[vec!["The cat sat on a mat."]])?;
//! assert_eq!(
//!     score.to_string(),
//!     "BLEU = 48.89 85.7/66.7/40.0/25.0 (BP = 1.000 ratio = 1.000 hyp_len = 7 ref_len = 7)"
//! );
//! # Ok::<(), whatwhere_training::Error>(())
//! ```

use std::{collections::HashMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    Error,
    ngrams::{self, words},
};

/// Longest n-grams counted, as everywhere BLEU is reported.
pub const ORDER: usize = 4;

/// What a BLEU figure depends on besides the texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// How lines become tokens; default `13a`.
    pub tokenizer: Tokenizer,
    /// Whether case is ignored; default false.
    pub lowercase: bool,
    /// What an order without a match counts; default `exp`.
    pub smoothing: Smoothing,
}

/// How a line becomes tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tokenizer {
    /// `13a`: the rules of mteval-v13a, which WMT uses. Splits off punctuation except inside numbers.
    #[default]
    #[serde(rename = "13a")]
    Mteval,
    /// `none`: at white space, for text that is tokenised already.
    #[serde(rename = "none")]
    Whitespace,
    /// `char`: every character that is not white space, for languages without spaces.
    #[serde(rename = "char")]
    Character,
}

/// What an n-gram order without a single match counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Smoothing {
    /// `exp`: the k-th such order counts 1 / 2^k matches.
    #[default]
    #[serde(rename = "exp")]
    Halving,
    /// `none`: nothing, which makes the score 0.
    #[serde(rename = "none")]
    Off,
}

/// A BLEU figure and what it is made of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// BLEU, 0 … 100.
    pub score: f64,
    /// Precision of each order, 0 … 100, smoothed.
    pub precisions: [f64; ORDER],
    /// N-grams found in a reference.
    pub matches: [u64; ORDER],
    /// N-grams of the hypotheses.
    pub totals: [u64; ORDER],
    /// Factor for being shorter than the references, 0 … 1.
    pub brevity_penalty: f64,
    /// Tokens of the hypotheses.
    pub length: u64,
    /// Tokens of the references closest in length.
    pub reference_length: u64,
    /// How the figure was made, in sacreBLEU's form.
    pub signature: String,
}

impl Settings {
    /// The score of all segments together; `references[i]` are the references of segment `i`.
    pub fn corpus<H: AsRef<str>, R: AsRef<str>>(
        &self,
        hypotheses: &[H],
        references: &[Vec<R>],
    ) -> Result<Score, Error> {
        self.score(hypotheses, references, false)
    }

    /// The score of one segment, over the orders it is long enough for.
    pub fn sentence<R: AsRef<str>>(
        &self,
        hypothesis: &str,
        references: &[R],
    ) -> Result<Score, Error> {
        let references = references.iter().map(AsRef::as_ref).collect::<Vec<&str>>();
        self.score(&[hypothesis], &[references], true)
    }

    fn score<H: AsRef<str>, R: AsRef<str>>(
        &self,
        hypotheses: &[H],
        references: &[Vec<R>],
        effective_order: bool,
    ) -> Result<Score, Error> {
        ngrams::check(hypotheses, references)?;
        let mut counts = Counts::default();
        for (hypothesis, references) in hypotheses.iter().zip(references) {
            let references: Vec<String> =
                references.iter().map(|line| self.tokenize(line.as_ref())).collect();
            counts.add(&self.tokenize(hypothesis.as_ref()), &references);
        }
        let signature = self.signature(&ngrams::reference_count(references), effective_order);
        Ok(counts.score(self.smoothing, effective_order, signature))
    }

    /// The line's tokens with white space between them.
    fn tokenize(&self, line: &str) -> String {
        let lower = if self.lowercase { line.to_lowercase() } else { line.to_owned() };
        let line = lower.trim_end_matches(ngrams::is_space);
        match self.tokenizer {
            Tokenizer::Mteval => mteval(line),
            Tokenizer::Whitespace => line.to_owned(),
            Tokenizer::Character => line.chars().flat_map(|c| [c, ' ']).collect(),
        }
    }

    fn signature(&self, references: &str, effective_order: bool) -> String {
        let case = if self.lowercase { "lc" } else { "mixed" };
        let effective = if effective_order { "yes" } else { "no" };
        let tokenizer = match self.tokenizer {
            Tokenizer::Mteval => "13a",
            Tokenizer::Whitespace => "none",
            Tokenizer::Character => "char",
        };
        let smoothing = match self.smoothing {
            Smoothing::Halving => "exp",
            Smoothing::Off => "none",
        };
        let version = ngrams::VERSION;
        format!(
            "nrefs:{references}|case:{case}|eff:{effective}|tok:{tokenizer}|smooth:{smoothing}|version:{version}"
        )
    }
}

/// The rules of mteval-v13a, in its order; each sees what the one before has made.
fn mteval(line: &str) -> String {
    let mut line = line.replace("<skipped>", "").replace("-\n", "").replace('\n', " ");
    for (entity, plain) in [("&quot;", "\""), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")] {
        line = line.replace(entity, plain);
    }
    // A space at either end lets a stop there count as beside something that is no digit.
    let mut spaced = String::from(" ");
    for c in line.chars() {
        if c.is_ascii_punctuation() && !matches!(c, '\'' | ',' | '-' | '.') {
            spaced.extend([' ', c, ' ']);
        } else {
            spaced.push(c);
        }
    }
    spaced.push(' ');
    let is_digit = |c: char| c.is_ascii_digit();
    let is_stop = |c: char| matches!(c, '.' | ',');
    let line = split_pairs(&spaced, |a, b| !is_digit(a) && is_stop(b), |a, b| [a, ' ', b, ' ']);
    let line = split_pairs(&line, |a, b| is_stop(a) && !is_digit(b), |a, b| [' ', a, ' ', b]);
    split_pairs(&line, |a, b| is_digit(a) && b == '-', |a, b| [a, ' ', b, ' '])
}

/// Spaces out neighbours that match, from the left; a character is part of one pair at most.
fn split_pairs(
    line: &str,
    matches: impl Fn(char, char) -> bool,
    spaced: impl Fn(char, char) -> [char; 4],
) -> String {
    let mut out = String::with_capacity(2 * line.len());
    let mut rest = line.chars().peekable();
    while let Some(first) = rest.next() {
        match rest.next_if(|&second| matches(first, second)) {
            Some(second) => out.extend(spaced(first, second)),
            None => out.push(first),
        }
    }
    out
}

/// Sums over segments, from which the score follows.
#[derive(Default)]
struct Counts {
    matches: [u64; ORDER],
    totals: [u64; ORDER],
    length: u64,
    reference_length: u64,
}

impl Counts {
    fn add(&mut self, hypothesis: &str, references: &[String]) {
        let tokens: Vec<&str> = words(hypothesis).collect();
        let references: Vec<Vec<&str>> = references.iter().map(|r| words(r).collect()).collect();
        for order in 1..=ORDER {
            let mut allowed: HashMap<&[&str], u64> = HashMap::new();
            for reference in &references {
                for (ngram, count) in ngrams::count(reference, order) {
                    let most = allowed.entry(ngram).or_insert(0);
                    *most = count.max(*most);
                }
            }
            for (ngram, count) in ngrams::count(&tokens, order) {
                self.totals[order - 1] += count;
                self.matches[order - 1] += count.min(allowed.get(ngram).copied().unwrap_or(0));
            }
        }
        self.length += tokens.len() as u64;
        // The closest length; of two equally close, the shorter.
        let closest =
            references.iter().map(Vec::len).min_by_key(|&n| (n.abs_diff(tokens.len()), n));
        self.reference_length += closest.unwrap_or(0) as u64;
    }

    fn score(self, smoothing: Smoothing, effective_order: bool, signature: String) -> Score {
        let Self { matches, totals, length, reference_length } = self;
        let brevity_penalty = match length {
            _ if length >= reference_length => 1.0,
            0 => 0.0,
            _ => (1.0 - reference_length as f64 / length as f64).exp(),
        };
        let precisions = precisions(&matches, &totals, smoothing);
        let orders = match effective_order {
            true => totals.iter().take_while(|&&total| total > 0).count(),
            false => ORDER,
        };
        let counted = &precisions[..orders];
        let score = if counted.is_empty() || counted.contains(&0.0) {
            0.0
        } else {
            let logs: f64 = counted.iter().map(|precision| precision.ln()).sum();
            brevity_penalty * (logs / orders as f64).exp()
        };
        Score {
            score,
            precisions,
            matches,
            totals,
            brevity_penalty,
            length,
            reference_length,
            signature,
        }
    }
}

/// Precisions in percent. Without any match there is nothing to smooth.
fn precisions(matches: &[u64; ORDER], totals: &[u64; ORDER], smoothing: Smoothing) -> [f64; ORDER] {
    let mut precisions = [0.0; ORDER];
    if matches.iter().all(|&count| count == 0) {
        return precisions;
    }
    let mut share = 1.0;
    for order in 0..ORDER {
        let (found, total) = (matches[order], totals[order] as f64);
        if total == 0.0 {
            break;
        }
        precisions[order] = if found > 0 {
            100.0 * found as f64 / total
        } else if smoothing == Smoothing::Halving {
            share *= 2.0;
            100.0 / (share * total)
        } else {
            0.0
        };
    }
    precisions
}

/// As sacreBLEU prints it.
impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let precisions = self.precisions.map(|precision| format!("{precision:.1}")).join("/");
        let ratio = match self.reference_length {
            0 => 0.0,
            length => self.length as f64 / length as f64,
        };
        write!(
            f,
            "BLEU = {:.2} {precisions} (BP = {:.3} ratio = {ratio:.3} hyp_len = {} ref_len = {})",
            self.score, self.brevity_penalty, self.length, self.reference_length
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(line: &str) -> String {
        words(&mteval(line)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn stops_are_split_off_except_inside_numbers() {
        assert_eq!(tokens("It cost 1,234.56, didn't it?"), "It cost 1,234.56 , didn't it ?");
        assert_eq!(tokens("on 3.-5. May"), "on 3 . -5 . May");
        assert_eq!(tokens("pages 10-12 of well-known"), "pages 10 - 12 of well-known");
        assert_eq!(tokens("..."), ". . .");
    }

    #[test]
    fn entities_are_read_and_broken_words_joined() {
        assert_eq!(tokens("a &amp; b &lt;i&gt; &quot;c&quot;"), "a & b < i > \" c \"");
        assert_eq!(tokens("hyphen-\nated and\nnext<skipped>"), "hyphenated and next");
    }

    #[test]
    fn settings_have_the_names_of_the_signature() {
        let settings: Settings = toml::from_str("tokenizer = 'char'\nsmoothing = 'none'").unwrap();
        let score = settings.corpus(&["ab"], &[vec!["ab"]]).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            score.signature,
            format!("nrefs:1|case:mixed|eff:no|tok:char|smooth:none|version:whatwhere-{version}")
        );
    }

    #[test]
    fn texts_that_do_not_pair_are_refused() {
        let settings = Settings::default();
        let message = settings.corpus(&["a", "b"], &[vec!["a"]]).unwrap_err().to_string();
        assert!(message.starts_with("2 segments with 1 lists of references"), "{message}");
        let message = settings.corpus(&["a"], &[Vec::<&str>::new()]).unwrap_err().to_string();
        assert_eq!(message, "segment 1 has no reference, expected at least 1");
    }
}
