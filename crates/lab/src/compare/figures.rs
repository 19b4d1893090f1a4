//! What a trained run is measured by, on data that was held out.

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

/// BLEU of translations of all pairs; nothing where there are none.
pub(super) fn bleu(run: &Run, corpus: &Corpus, split: Split) -> Result<Option<f64>, Error> {
    let Some(pairs) = corpus.pairs(split) else { return Ok(None) };
    let sources: Vec<&str> = pairs.iter().map(|pair| pair.source_text.as_str()).collect();
    let references: Vec<Vec<&str>> =
        pairs.iter().map(|pair| vec![pair.target_text.as_str()]).collect();
    let targets = run.translate(&sources, &Translation::default())?;
    Ok(Some(bleu::Settings::default().corpus(&targets, &references)?.score))
}
