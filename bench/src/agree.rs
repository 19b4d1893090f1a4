//! Whether two sides computed the same.

use anyhow::{Context, Result, bail};

use crate::ours::Results;

/// The largest difference that is rounding, relative to the root mean square of the tensor it is in.
/// Sums over some thousand keys in f32 leave about 1e-5; a learned table's gradient sums over all pairs, and torch's
/// gather adds them one by one, which leaves some 1e-4. A wrong term is of the order of 1.
pub(crate) const TOLERANCE: f64 = 1e-3;

/// What a difference is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Against {
    /// The root mean square of the tensor it is in.
    Tensor,
    /// That or the value itself, whichever is larger: results that are stored in bf16 are off by a share of each.
    Value,
}

/// The largest difference, relative to what it is held against, and the result it is in.
pub(crate) fn worst_difference(
    ours: &Results,
    theirs: &[(String, Vec<f32>)],
    against: Against,
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
        let difference = difference(ours, theirs, against);
        if difference > worst.1 {
            worst = (name, difference);
        }
    }
    Ok(worst)
}

fn difference(ours: &[f32], theirs: &[f32], against: Against) -> f64 {
    let squares: f64 = theirs.iter().map(|b| f64::from(*b).powi(2)).sum();
    let mean = (squares / theirs.len() as f64).sqrt();
    let mut largest: f64 = 0.0;
    for (a, b) in ours.iter().zip(theirs) {
        let (a, b) = (f64::from(*a), f64::from(*b));
        if !a.is_finite() || !b.is_finite() {
            return f64::INFINITY;
        }
        let scale = match against {
            Against::Tensor => mean,
            Against::Value => mean.max(b.abs()),
        };
        let off = (a - b).abs();
        largest = largest.max(if off == 0.0 { 0.0 } else { off / scale });
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_is_relative_to_the_root_mean_square() {
        assert_eq!(difference(&[3.0, -3.0], &[2.0, -2.0], Against::Tensor), 0.5);
    }

    #[test]
    fn the_difference_of_a_large_value_is_relative_to_it() {
        let theirs = [8.0, 0.0, 0.0, 0.0]; // a root mean square of 4
        assert_eq!(difference(&[9.0, 0.0, 0.0, 0.0], &theirs, Against::Value), 0.125);
        assert_eq!(difference(&[8.0, 1.0, 0.0, 0.0], &theirs, Against::Value), 0.25);
        assert_eq!(difference(&[9.0, 0.0, 0.0, 0.0], &theirs, Against::Tensor), 0.25);
    }

    #[test]
    fn not_a_number_never_agrees() {
        for (ours, theirs) in [([f32::NAN, 0.0], [1.0, 0.0]), ([1.0, 0.0], [f32::NAN, 0.0])] {
            assert!(difference(&ours, &theirs, Against::Value) > TOLERANCE);
        }
    }

    #[test]
    fn zeros_agree_with_zeros_alone() {
        assert_eq!(difference(&[0.0], &[0.0], Against::Tensor), 0.0);
        assert!(difference(&[1.0], &[0.0], Against::Tensor) > TOLERANCE);
    }

    #[test]
    fn the_worst_result_is_named() {
        let ours = vec![("out", vec![1.0]), ("d_q", vec![2.0])];
        let theirs = [("d_q".to_owned(), vec![1.0]), ("out".to_owned(), vec![1.0])];
        assert_eq!(worst_difference(&ours, &theirs, Against::Tensor).unwrap(), ("d_q", 1.0));
        assert!(worst_difference(&ours, &theirs[..1], Against::Tensor).is_err());
    }
}
