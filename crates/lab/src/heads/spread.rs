//! What the spread of a head's scores comes from.

use serde::Serialize;
use whatwhere_transformer::AttentionInput;

use crate::{
    Error,
    show::{self, Kind, Reading},
};

/// Tokens over which shares are taken at the most: the terms of every pair are held several times.
pub const LONGEST_SPREAD: usize = 256;

/// What the spread of scores over the visible keys of a query comes from. The three add up to 1; one is below 0 where it
/// works against the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shares {
    /// From what the tokens are.
    pub content: f64,
    /// From where they stand.
    pub position: f64,
    /// From both together.
    pub interaction: f64,
}

/// The shares of every head of one attention: the covariance of each kind of term with the score, by the score's variance.
pub(super) fn shares(
    reading: &Reading,
    seen: &AttentionInput,
) -> Result<Vec<Option<Shares>>, Error> {
    let (terms, note) = show::terms(reading, seen)?;
    let heads = reading.attention(seen).settings().heads;
    if note.is_some() {
        return Ok(vec![None; heads]);
    }
    let keys = reading.keys(seen.site).len();
    let pairs = reading.queries(seen.site).len() * keys;
    let share = |head: usize| {
        let own = head * pairs..(head + 1) * pairs;
        let (mut with, mut variance) = ([0.0; 3], 0.0);
        for row in own.step_by(keys.max(1)) {
            let scores = &terms.scores[row..row + keys];
            let visible: Vec<usize> = (0..keys).filter(|key| scores[*key].is_finite()).collect();
            let centered = |values: &[f64]| -> Vec<f64> {
                let seen = visible.iter().map(|key| values[*key]);
                let mean = seen.clone().sum::<f64>() / visible.len().max(1) as f64;
                seen.map(|value| value - mean).collect()
            };
            let scores = centered(scores);
            variance += scores.iter().map(|score| score * score).sum::<f64>();
            for term in &terms.terms {
                let values = centered(&term.values[row..row + keys]);
                let kind = Kind::ALL.iter().position(|kind| *kind == term.kind);
                let kind = kind.expect("all kinds are listed");
                with[kind] += values.iter().zip(&scores).map(|(v, s)| v * s).sum::<f64>();
            }
        }
        let [content, position, interaction] = with.map(|with| with / variance);
        (variance > 0.0).then_some(Shares { content, position, interaction })
    };
    Ok((0..heads).map(share).collect())
}
