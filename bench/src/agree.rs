//! Whether two sides computed the same.

use anyhow::{Context, Result, bail};

use crate::ours::Results;

/// The largest difference that is rounding, relative to the root mean square of the tensor it is in.
/// Sums over some thousand keys in f32 leave about 1e-5; a learned table's gradient sums over all pairs, and torch's
/// gather adds them one by one, which leaves some 1e-4. A wrong term is of the order of 1.
pub(crate) const TOLERANCE: f64 = 1e-3;

/// The largest difference relative to the root mean square, and the result it is in.
pub(crate) fn worst_difference(
    ours: &Results,
    theirs: &[(String, Vec<f32>)],
) -> Result<(&'static str, f64)> {
    if ours.len() != theirs.len() {
        bail!("ours has {} results, the rival has {}", ours.len(), theirs.len());
    }
    let mut worst = ("out", 0.0);
    for (name, ours) in ours {
        let theirs = theirs.iter().find(|(other, _)| other == name);
        let (_, theirs) = theirs.with_context(|| format!("the rival has no {name}"))?;
        if ours.len() != theirs.len() {
            bail!("{name} has {} values, the rival's has {}", ours.len(), theirs.len());
        }
        let difference = difference(ours, theirs);
        if difference > worst.1 {
            worst = (name, difference);
        }
    }
    Ok(worst)
}

fn difference(ours: &[f32], theirs: &[f32]) -> f64 {
    let mut largest: f64 = 0.0;
    let mut squares = 0.0;
    for (a, b) in ours.iter().zip(theirs) {
        let (a, b) = (f64::from(*a), f64::from(*b));
        if !a.is_finite() || !b.is_finite() {
            return f64::INFINITY;
        }
        largest = largest.max((a - b).abs());
        squares += b * b;
    }
    let mean = (squares / theirs.len() as f64).sqrt();
    if largest == 0.0 { 0.0 } else { largest / mean }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_is_relative_to_the_root_mean_square() {
        assert_eq!(difference(&[3.0, -3.0], &[2.0, -2.0]), 0.5);
    }

    #[test]
    fn not_a_number_never_agrees() {
        for (ours, theirs) in [([f32::NAN, 0.0], [1.0, 0.0]), ([1.0, 0.0], [f32::NAN, 0.0])] {
            assert!(difference(&ours, &theirs) > TOLERANCE);
        }
    }

    #[test]
    fn zeros_agree_with_zeros_alone() {
        assert_eq!(difference(&[0.0], &[0.0]), 0.0);
        assert!(difference(&[1.0], &[0.0]) > TOLERANCE);
    }

    #[test]
    fn the_worst_result_is_named() {
        let ours = vec![("out", vec![1.0]), ("d_q", vec![2.0])];
        let theirs = [("d_q".to_owned(), vec![1.0]), ("out".to_owned(), vec![1.0])];
        assert_eq!(worst_difference(&ours, &theirs).unwrap(), ("d_q", 1.0));
        assert!(worst_difference(&ours, &theirs[..1]).is_err());
    }
}
