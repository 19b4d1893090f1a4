//! What a trained run is measured by, on data that was held out.

use serde::{Deserialize, Serialize};
use whatwhere_data::{Corpus, Split};
use whatwhere_training::{
    Evaluation, Run, Translation, bleu, classification::Classification, classification_of,
    evaluate, trainer,
};

use super::cell::Amount;
use crate::{Error, budget::tokens_per_step};

/// Tokens of a sample: enough for heads to show what they do.
const SAMPLE: usize = 256;

/// What is held out the longest.
pub(super) fn split(corpus: &Corpus) -> Split {
    if corpus.has(Split::Test) { Split::Test } else { Split::Valid }
}

/// The figures at the trained length, and where classes are told, which was told as which.
pub(super) fn of(
    run: &Run,
    corpus: &Corpus,
    split: Split,
    amount: Amount,
) -> Result<(Evaluation, Option<Classification>), Error> {
    let batches = trainer::batches(&run.settings, corpus, split)?;
    let each = tokens_per_step(&run.settings) / run.settings.training.accumulate;
    let limit = amount.tokens(corpus, split).map(|tokens| tokens.div_ceil(each as usize));
    if !corpus.classes().is_empty() {
        let found = classification_of(run.model(), &batches, limit, corpus.classes())?;
        return Ok((found.evaluation(), Some(found)));
    }
    Ok((evaluate(run.model(), &batches, limit, corpus.bytes_per_token(split))?, None))
}

/// The first held-out tokens as text.
pub(super) fn sample(run: &Run, corpus: &Corpus, split: Split) -> Result<String, Error> {
    let batches = trainer::batches(&run.settings, corpus, split)?;
    let Some(batch) = batches.evaluation(Some(1)).next().transpose()? else {
        return Ok(String::new());
    };
    let length = batch.lengths.first().map_or(0, |length| (*length).min(SAMPLE));
    Ok(run.tokenizer()?.decode(&batch.tokens[..length]))
}

/// BLEU of pairs whose sources have about as many words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BleuByWords {
    /// Words of the shortest source.
    pub least: usize,
    /// Words of the longest.
    pub most: usize,
    /// Pairs.
    pub pairs: usize,
    /// Their mean number of words.
    pub words: f64,
    /// BLEU of their translations together.
    pub bleu: f64,
}

/// BLEU of translations of all pairs, and of each quarter by length; nothing where there are none.
pub(super) fn bleu(
    run: &Run,
    corpus: &Corpus,
    split: Split,
) -> Result<Option<(f64, Vec<BleuByWords>)>, Error> {
    let Some(pairs) = corpus.pairs(split) else { return Ok(None) };
    let sources: Vec<&str> = pairs.iter().map(|pair| pair.source_text.as_str()).collect();
    let targets = run.translate(&sources, &Translation::default())?;
    let words: Vec<usize> = sources.iter().map(|text| text.split_whitespace().count()).collect();
    let of = |chosen: &[usize]| -> Result<f64, Error> {
        let references: Vec<Vec<&str>> =
            chosen.iter().map(|pair| vec![pairs[*pair].target_text.as_str()]).collect();
        let targets: Vec<&str> = chosen.iter().map(|pair| targets[*pair].as_str()).collect();
        Ok(bleu::Settings::default().corpus(&targets, &references)?.score)
    };
    let all: Vec<usize> = (0..pairs.len()).collect();
    let mut each = Vec::new();
    for (least, most) in quarters(&words) {
        let is_in = |pair: &usize| (least..=most).contains(&words[*pair]);
        let chosen: Vec<usize> = all.iter().copied().filter(is_in).collect();
        let count = chosen.len();
        let sum: usize = chosen.iter().map(|pair| words[*pair]).sum();
        let mean = sum as f64 / count as f64;
        each.push(BleuByWords { least, most, pairs: count, words: mean, bleu: of(&chosen)? });
    }
    Ok(Some((of(&all)?, each)))
}

/// The fewest and most words of each quarter of sentences; sentences of one length stay together, so that there may be fewer.
fn quarters(words: &[usize]) -> Vec<(usize, usize)> {
    let mut sorted = words.to_vec();
    sorted.sort_unstable();
    let Some(last) = sorted.last() else { return Vec::new() };
    let mut starts: Vec<usize> = (0..4).map(|part| sorted[sorted.len() * part / 4]).collect();
    starts.push(last + 1);
    starts.dedup();
    starts.windows(2).map(|pair| (pair[0], pair[1] - 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarters_keep_sentences_of_one_length_together() {
        assert_eq!(quarters(&[]), []);
        assert_eq!(quarters(&[5]), [(5, 5)]);
        assert_eq!(quarters(&[4, 1, 3, 2]), [(1, 1), (2, 2), (3, 3), (4, 4)]);
        assert_eq!(quarters(&[7, 7, 7, 7, 9, 12, 7, 7]), [(7, 8), (9, 12)]);
        let many: Vec<usize> = (0..100).map(|i| 1 + i % 20).collect();
        assert_eq!(quarters(&many), [(1, 5), (6, 10), (11, 15), (16, 20)]);
    }
}
