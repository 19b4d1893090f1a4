//! BLEU and chrF against the figures of sacreBLEU, made by `bench/bleu.py`.
#![expect(clippy::unwrap_used, reason = "a test may stop at once")]

use proptest::prelude::*;
use serde::Deserialize;
use whatwhere_training::{bleu, chrf};

// Both sides sum a handful of f64; they differ by rounding only.
const ROUNDING: f64 = 1e-9;

#[derive(Deserialize)]
struct Fixture {
    sacrebleu: String,
    sentences: Vec<Sentence>,
    corpora: Vec<Corpus>,
}

#[derive(Deserialize)]
struct Sentence {
    hypothesis: String,
    references: Vec<String>,
    bleu: [f64; 2], // mixed case, lower case
    tokenizers: Tokenizers,
    chrf: [f64; 2], // chrF, chrF++
}

#[derive(Deserialize)]
struct Tokenizers {
    none: f64,
    char: f64,
}

#[derive(Deserialize)]
struct Corpus {
    name: String,
    first: usize,
    end: usize,
    references: Option<usize>,
    bleu: Vec<Bleu>,
    chrf: Vec<Chrf>,
}

#[derive(Deserialize)]
struct Bleu {
    tokenizer: bleu::Tokenizer,
    lowercase: bool,
    smoothing: bleu::Smoothing,
    score: f64,
    precisions: [f64; 4],
    matches: [u64; 4],
    totals: [u64; 4],
    brevity_penalty: f64,
    length: u64,
    reference_length: u64,
    signature: String,
    line: String,
}

#[derive(Deserialize)]
struct Chrf {
    word_order: usize,
    lowercase: bool,
    score: f64,
    signature: String,
    line: String,
}

fn fixture() -> Fixture {
    serde_json::from_str(include_str!("sacrebleu.json")).unwrap()
}

impl Fixture {
    fn texts(&self, corpus: &Corpus) -> (Vec<&str>, Vec<Vec<&str>>) {
        let sentences = &self.sentences[corpus.first..corpus.end];
        let references = |sentence: &'_ Sentence| -> usize {
            corpus.references.unwrap_or(sentence.references.len())
        };
        sentences
            .iter()
            .map(|s| {
                let cycle = s.references.iter().map(String::as_str).cycle();
                (s.hypothesis.as_str(), cycle.take(references(s)).collect::<Vec<_>>())
            })
            .unzip()
    }

    /// A signature of sacreBLEU as we write it: the same but for who computed it.
    fn signature(&self, theirs: &str) -> String {
        let version = concat!("version:whatwhere-", env!("CARGO_PKG_VERSION"));
        theirs.replace(&format!("version:{}", self.sacrebleu), version)
    }
}

#[track_caller]
fn assert_close(ours: f64, theirs: f64, what: &str) {
    assert!((ours - theirs).abs() <= ROUNDING, "{what}: {ours}, expected {theirs}");
}

#[test]
fn every_sentence_scores_as_with_sacrebleu() {
    use bleu::{Settings, Tokenizer};
    for Sentence { hypothesis, references, bleu, tokenizers, chrf } in fixture().sentences {
        let plain = Settings::default();
        let cases = [
            (plain, bleu[0]),
            (Settings { lowercase: true, ..plain }, bleu[1]),
            (Settings { tokenizer: Tokenizer::Whitespace, ..plain }, tokenizers.none),
            (Settings { tokenizer: Tokenizer::Character, ..plain }, tokenizers.char),
        ];
        for (settings, theirs) in cases {
            let ours = settings.sentence(&hypothesis, &references).unwrap();
            assert_close(ours.score, theirs, &format!("{settings:?} of {hypothesis:?}"));
        }
        for (settings, theirs) in
            [chrf::Settings::default(), chrf::Settings::plus_plus()].into_iter().zip(chrf)
        {
            let ours = settings.corpus(&[&hypothesis], std::slice::from_ref(&references)).unwrap();
            assert_close(ours.score, theirs, &format!("{} of {hypothesis:?}", ours.name));
        }
    }
}

#[test]
fn every_corpus_has_sacrebleus_score_parts_and_signature() {
    let fixture = fixture();
    for corpus in &fixture.corpora {
        let (hypotheses, references) = fixture.texts(corpus);
        for theirs in &corpus.bleu {
            let Bleu { tokenizer, lowercase, smoothing, .. } = *theirs;
            let settings = bleu::Settings { tokenizer, lowercase, smoothing };
            let ours = settings.corpus(&hypotheses, &references).unwrap();
            let what = format!("{} {}", corpus.name, theirs.signature);
            assert_close(ours.score, theirs.score, &what);
            assert_close(ours.brevity_penalty, theirs.brevity_penalty, &what);
            for (ours, theirs) in ours.precisions.iter().zip(theirs.precisions) {
                assert_close(*ours, theirs, &what);
            }
            assert_eq!((ours.matches, ours.totals), (theirs.matches, theirs.totals), "{what}");
            assert_eq!(ours.length, theirs.length, "{what}");
            assert_eq!(ours.reference_length, theirs.reference_length, "{what}");
            assert_eq!(ours.signature, fixture.signature(&theirs.signature));
            assert_eq!(ours.to_string(), theirs.line);
        }
        for theirs in &corpus.chrf {
            let Chrf { word_order, lowercase, .. } = *theirs;
            let settings = chrf::Settings { word_order, lowercase, ..Default::default() };
            let ours = settings.corpus(&hypotheses, &references).unwrap();
            assert_close(ours.score, theirs.score, &format!("{} {}", corpus.name, theirs.line));
            assert_eq!(ours.signature, fixture.signature(&theirs.signature));
            assert_eq!(ours.to_string(), theirs.line);
        }
    }
}

fn line() -> impl Strategy<Value = String> {
    "[a-cA-C0-2.,\\-!' é한]{0,24}"
}

fn segments() -> impl Strategy<Value = Vec<(String, Vec<String>)>> {
    prop::collection::vec((line(), prop::collection::vec(line(), 1..4)), 1..8)
}

fn both(segments: &[(String, Vec<String>)]) -> (bleu::Score, chrf::Score) {
    let (hypotheses, references): (Vec<_>, Vec<_>) = segments.iter().cloned().unzip();
    (
        bleu::Settings::default().corpus(&hypotheses, &references).unwrap(),
        chrf::Settings::plus_plus().corpus(&hypotheses, &references).unwrap(),
    )
}

proptest! {
    #[test]
    fn scores_lie_between_0_and_100(segments in segments()) {
        let (bleu, chrf) = both(&segments);
        prop_assert!((0.0..=100.0 + ROUNDING).contains(&bleu.score), "{bleu}");
        prop_assert!((0.0..=100.0 + ROUNDING).contains(&chrf.score), "{chrf}");
        prop_assert!((0.0..=1.0).contains(&bleu.brevity_penalty), "{bleu}");
    }

    #[test]
    fn the_order_of_segments_does_not_matter(segments in segments()) {
        let reversed: Vec<_> = segments.iter().rev().cloned().collect();
        prop_assert_eq!(both(&segments), both(&reversed));
    }

    #[test]
    fn a_reference_more_never_loses_a_match(segments in segments(), extra in line()) {
        let mut more = segments.clone();
        more.iter_mut().for_each(|(_, references)| references.push(extra.clone()));
        for (few, many) in both(&segments).0.matches.iter().zip(both(&more).0.matches) {
            prop_assert!(many >= *few);
        }
    }

    #[test]
    fn a_text_against_itself_scores_100(words in prop::collection::vec("[a-z]{1,6}", 4..12)) {
        let text = words.join(" ");
        let (bleu, chrf) = both(&[(text.clone(), vec![text])]);
        prop_assert!((bleu.score - 100.0).abs() < ROUNDING, "{bleu}");
        prop_assert!((chrf.score - 100.0).abs() < ROUNDING, "{chrf}");
    }

    #[test]
    fn chrf_without_words_is_blind_to_white_space(text in line(), reference in line()) {
        let score = |text: &str| {
            chrf::Settings::default().corpus(&[text], &[vec![&reference]]).unwrap().score
        };
        prop_assert_eq!(score(&text), score(&text.replace(' ', "")));
    }
}
