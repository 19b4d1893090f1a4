//! What is told of a token: its log-probability, and those of the likeliest ones, all from one computation.

/// A token with its log-probability.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Probability {
    pub(crate) token: u32,
    /// Absent for the first token of a prompt, which nothing predicts.
    pub(crate) log: Option<f64>,
    /// The likeliest tokens, best first, the lower of equal ones first.
    pub(crate) top: Vec<(u32, f64)>,
}

impl Probability {
    /// The first token of a prompt.
    pub(super) fn of_first(token: u32) -> Self {
        Self { token, log: None, top: Vec::new() }
    }

    /// Of a token that follows these logits, beside the likeliest `count`.
    pub(super) fn new(logits: &[f32], token: u32, count: usize) -> Self {
        let peak = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - peak).exp()).sum();
        let total = peak + sum.ln();
        // One expression for all, so that the likeliest token has the same number on both sides.
        let log = |token: u32| f64::from(logits[token as usize]) - total;
        let top = best(logits, count).into_iter().map(|token| (token, log(token))).collect();
        Self { token, log: Some(log(token)), top }
    }
}

/// The tokens with the largest logits, best first, the lower of equal ones first.
fn best(logits: &[f32], count: usize) -> Vec<u32> {
    let count = count.min(logits.len());
    let mut best: Vec<u32> = Vec::with_capacity(count + 1);
    for (token, logit) in logits.iter().enumerate() {
        let worst = best.last().filter(|_| best.len() == count);
        if count == 0
            || worst.is_some_and(|worst| logit.total_cmp(&logits[*worst as usize]).is_le())
        {
            continue;
        }
        let at = best.partition_point(|other| logits[*other as usize].total_cmp(logit).is_ge());
        best.insert(at, token as u32);
        best.truncate(count);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_token_has_one_number() {
        let logits: Vec<f32> = (0..50).map(|i| (i * 7919 % 23) as f32 / 3.0).collect();
        for count in 0..5 {
            let told = Probability::new(&logits, 17, count);
            assert_eq!(told.top.len(), count);
            let mut sorted: Vec<u32> = (0..50).collect();
            sorted.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
            let tokens: Vec<u32> = told.top.iter().map(|(token, _)| *token).collect();
            assert_eq!(tokens, sorted[..count]);
        }
        let best = Probability::new(&logits, best(&logits, 1)[0], 3);
        assert_eq!(best.log, Some(best.top[0].1));
        let all = Probability::new(&logits, 0, 50);
        let sum: f64 = all.top.iter().map(|(_, log)| log.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }
}
