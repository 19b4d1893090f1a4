//! What can be said about a call in numbers: what it shows, costs, learns, and how exact it is.

use std::time::{Duration, Instant};

use whatwhere_kernels::{
    Error,
    attention::{
        Attention, Bias, FeatureKind, Gradients, Output, Score, Shape,
        pattern::{Tile, visible_pairs},
        reference::{self, Values},
    },
};

use crate::choices::Call;

/// Best of at most this many runs, and no new run after this time.
const RUNS: usize = 5;
const PATIENCE: Duration = Duration::from_millis(400);

/// The share of all pairs of a query and a key that the pattern shows.
pub(crate) fn visible(attention: &Attention) -> f64 {
    let Shape { heads, queries, keys, .. } = attention.shape;
    let tile = |head| Tile { batch: 0, head, queries: 0..queries, keys: 0..keys };
    let pairs: u64 = (0..heads).map(|head| visible_pairs(attention.pattern, &tile(head))).sum();
    pairs as f64 / (heads * queries * keys) as f64
}

/// Seconds of the best forward and backward, into buffers that are reused as in training.
pub(crate) fn seconds(call: &Call) -> Result<f64, Error> {
    let Call { attention, inputs, d_out } = call;
    let Output { mut out, mut lse } = attention.forward(inputs)?;
    let mut gradients = Gradients::zeros(attention);
    let mut both = || -> Result<Duration, Error> {
        let start = Instant::now();
        attention.forward_into(inputs, &mut out, &mut lse)?;
        attention.backward_into(inputs, &out, &lse, d_out, &mut gradients)?;
        Ok(start.elapsed())
    };
    let start = Instant::now();
    let mut best = both()?;
    for _ in 1..RUNS {
        if start.elapsed() > PATIENCE {
            break;
        }
        best = best.min(both()?);
    }
    Ok(best.as_secs_f64())
}

/// How many numbers a model learns for this call besides the projections to queries, keys and values.
/// ALiBi's slopes are fixed, focus centers are predicted, and a relative table with a query bias
/// (Transformer-XL's) is a projection of fixed vectors.
pub(crate) fn learned(attention: &Attention) -> usize {
    let score = match attention.score {
        Score::Additive { weight } => weight.len(),
        Score::Dot { .. } | Score::Cosine { .. } => 0,
    };
    let feature = |kind: &FeatureKind| match kind {
        FeatureKind::Polar { delta, .. } => delta.map_or(0, <[f32]>::len),
        FeatureKind::Rotary { .. } => 0,
    };
    let bias = |bias: &Bias| match bias {
        Bias::Slopes { .. } => 0,
        Bias::Relative { query_bias: Some(v), .. } => v.len(),
        other => other.gradient_len(),
    };
    score
        + attention.query_bias.map_or(0, <[f32]>::len)
        + attention.features.iter().map(|f| feature(&f.kind)).sum::<usize>()
        + attention.biases.iter().map(bias).sum::<usize>()
        + attention.relative_values.map_or(0, |values| values.table.len())
}

/// The largest error of the output, and of any gradient.
pub(crate) fn errors(call: &Call) -> Result<(f64, f64), Error> {
    let Call { attention, inputs, d_out } = call;
    let made = attention.forward(inputs)?;
    let gradients = Values::from(&attention.backward(inputs, &made, d_out)?);
    let out: Vec<f64> = made.out.iter().copied().map(f64::from).collect();
    let true_gradients = reference::backward(attention, inputs, d_out)?;
    let pairs = gradients.slices().into_iter().zip(true_gradients.slices());
    let gradient_error =
        pairs.map(|((_, found), (_, truth))| error(found, truth)).fold(0.0, f64::max);
    Ok((error(&out, &reference::forward(attention, inputs)?.out), gradient_error))
}

/// The largest difference, relative to the largest true number or 1; infinite for what is not a number.
fn error(found: &[f64], truth: &[f64]) -> f64 {
    let size = truth.iter().fold(1f64, |size, x| size.max(x.abs()));
    let differences = found.iter().zip(truth).map(|(found, truth)| (found - truth).abs() / size);
    differences.map(|d| if d.is_nan() { f64::INFINITY } else { d }).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_counts_relative_to_large_numbers_and_never_hides() {
        assert_eq!(error(&[1.0, 3.0], &[1.0, 4.0]), 0.25);
        assert_eq!(error(&[0.25], &[0.0]), 0.25);
        assert_eq!(error(&[f64::NAN, 1.0], &[1.0, 1.0]), f64::INFINITY);
    }
}
