//! The tokens of a text, how much each surprised the model, and what else it thought of.

use serde_json::json;
use whatwhere_data::Tokenizer;
use whatwhere_transformer::{Family, Sequences, Site};

use super::{Answer, Packed, Parameters, View};
use crate::Error;

/// Positions whose surprise is computed at once.
pub(super) const TOGETHER: usize = 4096;

/// Rows of logits that are held at once.
const ROWS: usize = 128;

/// Blanked copies of a text that an encoder reads at once.
const COPIES: usize = 8;

/// Tokens named for a position at the most.
const NAMED: usize = 200;

/// Width of the classes of log-probability in which all other tokens are counted, in nats.
const CLASS: f64 = 0.25;

/// The tokens that were read, as text and by their ids; of a source, too.
pub(super) fn tokens(view: &View, parameters: &Parameters) -> Result<Answer, Error> {
    parameters.known(&[])?;
    let reading = view.reading();
    let tokenizer = reading.run().tokenizer()?;
    let texts = |tokens: &[u32]| tokens.iter().map(|t| tokenizer.token(*t)).collect::<Vec<_>>();
    let tokens = reading.queries(Site::Decoder);
    let source = match reading.run().model().family() {
        Family::EncoderDecoder => texts(reading.keys(Site::Cross)),
        _ => Vec::new(),
    };
    let special: Vec<usize> =
        (0..tokens.len()).filter(|at| tokenizer.is_special(tokens[*at])).collect();
    Ok(Answer::json(&json!({
        "tokens": texts(tokens),
        "ids": tokens,
        "special": special,
        "source": source,
        "blank": tokenizer.mask().is_some(),
    })))
}

/// The surprise of tokens in nats, −ln of the probability they were given: by those before them or, in an encoder, by all
/// others. Not a number where there is none: of the first, or of a token that is no text.
pub(super) fn surprise(view: &View, parameters: &Parameters) -> Result<Answer, Error> {
    parameters.known(&["from", "to"])?;
    let tokens = view.reading().queries(Site::Decoder);
    let from = parameters.index("from", 0..tokens.len())?;
    let last = (from + TOGETHER).min(tokens.len());
    let to = parameters.index("to", from + 1..last + 1)?;
    let mut surprise = vec![f32::NAN; to - from];
    let told = told(view, from..to)?;
    each(view, &told, |at, row| {
        surprise[at - from] = -(row[tokens[at] as usize] as f64 - log_sum(row)) as f32;
    })?;
    let mut packed = Packed::default();
    packed.add_f32("surprise", surprise);
    Ok(packed.answer())
}

/// What a model says of a position: the likeliest tokens, and how many others there are of each log-probability, from which
/// any temperature's distribution follows. `at` may be one beyond the last token of a decoder: what comes next.
pub(super) fn next(view: &View, parameters: &Parameters) -> Result<Answer, Error> {
    parameters.known(&["at", "count"])?;
    let reading = view.reading();
    let tokens = reading.queries(Site::Decoder);
    let is_encoder = reading.run().model().family() == Family::Encoder;
    let range = if is_encoder { 0..tokens.len() } else { 1..tokens.len() + 1 };
    let at = parameters.index("at", range)?;
    let count = parameters.index_or("count", 1..NAMED + 1, 40)?;
    let tokenizer = reading.run().tokenizer()?;
    let mut answer = None;
    each(view, &[at], |_, row| {
        answer = Some(distribution(row, tokenizer, tokens.get(at).copied(), count));
    })?;
    let found = answer.expect("a row for a position");
    Ok(Answer::json(&found))
}

fn distribution(
    row: &[f32],
    tokenizer: &Tokenizer,
    actual: Option<u32>,
    count: usize,
) -> serde_json::Value {
    let sum = log_sum(row);
    let log = |token: u32| f64::from(row[token as usize]) - sum;
    let mut order: Vec<u32> = (0..row.len() as u32).collect();
    order.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]));
    let (named, others) = order.split_at(count.min(order.len()));
    let mut classes: Vec<(f64, usize)> = Vec::new();
    let mut class = None;
    for value in others.iter().map(|token| log(*token)).filter(|value| value.is_finite()) {
        let own = (value / CLASS).floor();
        match classes.last_mut().filter(|_| class == Some(own)) {
            Some((sum, count)) => (*sum += value, *count += 1),
            None => (classes.push((value, 1)), class = Some(own)),
        };
    }
    let others: Vec<_> =
        classes.into_iter().map(|(sum, count)| (sum / count as f64, count)).collect();
    let told =
        |token: u32| json!({ "id": token, "text": tokenizer.token(token), "log": log(token) });
    let actual = actual.map(|token| {
        let better = row.iter().filter(|value| **value > row[token as usize]).count();
        json!({ "id": token, "text": tokenizer.token(token), "log": log(token), "rank": better + 1 })
    });
    json!({
        "top": named.iter().map(|token| told(*token)).collect::<Vec<_>>(),
        "others": others,
        "actual": actual,
    })
}

/// The positions of a range that are told something of.
fn told(view: &View, range: std::ops::Range<usize>) -> Result<Vec<usize>, Error> {
    let reading = view.reading();
    let tokens = reading.queries(Site::Decoder);
    let tokenizer = reading.run().tokenizer()?;
    Ok(match reading.run().model().family() {
        Family::Encoder => range.filter(|at| !tokenizer.is_special(tokens[*at])).collect(),
        _ => range.filter(|at| *at > 0).collect(),
    })
}

/// Calls `each(position, logits)` for positions, a few rows at a time: the logits that the position's token was told by, of
/// the token before it or, in an encoder, of a blank in its place.
fn each(view: &View, at: &[usize], mut each: impl FnMut(usize, &[f32])) -> Result<(), Error> {
    let reading = view.reading();
    let model = reading.run().model();
    if model.settings().classes > 0 {
        let reason = "a model that tells classes says nothing of tokens";
        return Err(Error::Request(reason.into()));
    }
    let mut give = |at: &[usize], states| {
        let logits = model.logits(states);
        let vocabulary = logits.dims()[2];
        let values: Vec<f32> = logits.into_data().try_into_vec().expect("f32 as everywhere");
        for (at, row) in at.iter().zip(values.chunks_exact(vocabulary)) {
            each(*at, row);
        }
    };
    if model.family() != Family::Encoder {
        for at in at.chunk_by(|a, b| a + 1 == *b).flat_map(|run| run.chunks(ROWS)) {
            give(at, reading.states().clone().narrow(1, at[0] - 1, at.len()));
        }
        return Ok(());
    }
    let Some(mask) = reading.run().tokenizer()?.mask() else {
        return Err(Error::Request("the tokenizer has no token for a blank".into()));
    };
    let tokens = reading.queries(Site::Encoder);
    for at in at.chunks(COPIES) {
        let blanked = |at: &usize| {
            let mut copy = tokens.to_vec();
            copy[*at] = mask;
            copy
        };
        let copies: Vec<Vec<u32>> = at.iter().map(blanked).collect();
        let (_, states) = model.look(None, &Sequences::from_rows(&copies), reading.first())?;
        for (copy, at) in at.iter().enumerate() {
            let state = states.clone().narrow(0, copy, 1).narrow(1, *at, 1);
            give(&[*at], state);
        }
    }
    Ok(())
}

/// The logarithm of the sum of the exponentials.
fn log_sum(row: &[f32]) -> f64 {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|value| f64::from(value - most).exp()).sum();
    f64::from(most) + sum.ln()
}
