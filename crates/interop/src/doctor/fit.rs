//! Numbers that can be any, such as a soft cap: the one that comes nearest is searched for.

use super::{Outcome, Patient, Sample, Tried, conventions, distance};

/// Numbers of the first look, at equal ratios.
const FIRST: usize = 16;
/// Steps of the golden section between the neighbours of the best of them.
const STEPS: usize = 40;

/// The best number of every convention that has one. `limits` are what counts as rounding, and the distance as it is.
pub(super) fn all(
    patient: &Patient,
    samples: &[Sample],
    want: &[Vec<f32>],
    [tolerance, now]: [f64; 2],
) -> Vec<Tried> {
    let mut out = Vec::new();
    for fit in conventions::fits(&patient.settings) {
        let far = |value: f64| -> Option<f64> {
            let settings = (fit.with)(value)?;
            let model = patient.model.with_settings(&settings).ok()?;
            let answers = Patient { settings, model }.answers(samples).ok()?;
            Some(distance(&answers, want))
        };
        let Some((value, distance)) = least(fit.range, far) else { continue };
        let outcome = match () {
            () if distance <= tolerance => Outcome::Agrees,
            () if distance < now => Outcome::Nearer,
            () => Outcome::Farther,
        };
        let change = format!("{} (searched for)", fit.change.replace("{}", &short(value)));
        out.push(Tried { convention: fit.convention.into(), change, distance, outcome });
    }
    out
}

/// Where a function of a number above 0 is least, and how little it is: the best of a few, then the golden section around it.
fn least([from, to]: [f64; 2], far: impl Fn(f64) -> Option<f64>) -> Option<(f64, f64)> {
    let step = (to / from).powf(1.0 / (FIRST - 1) as f64);
    let value = |index: f64| from * step.powf(index);
    let first: Vec<f64> =
        (0..FIRST).map(|index| far(value(index as f64))).collect::<Option<_>>()?;
    let best = (0..FIRST).min_by(|a, b| first[*a].total_cmp(&first[*b]))?;
    let golden = (5f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = (best as f64 - 1.0, best as f64 + 1.0);
    let mut found = (value(best as f64), first[best]);
    for _ in 0..STEPS {
        let (a, b) = (high - golden * (high - low), low + golden * (high - low));
        let (at_a, at_b) = (far(value(a))?, far(value(b))?);
        for (index, distance) in [(a, at_a), (b, at_b)] {
            if distance < found.1 {
                found = (value(index), distance);
            }
        }
        if at_a < at_b { high = b } else { low = a }
    }
    Some(found)
}

/// A number with four digits.
fn short(value: f64) -> String {
    let digits = 3 - value.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits);
    let rounded = (value * scale).round() / scale;
    if (1e-3..1e6).contains(&rounded) { rounded.to_string() } else { format!("{rounded:e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_a_valley_is_found() {
        for at in [0.7, 3.0, 5.0, 180.0] {
            let (value, _) = least([0.5, 200.0], |x| Some((x / at).ln().abs())).unwrap();
            assert!((value / at - 1.0).abs() < 1e-5, "{value}, expected {at}");
        }
        assert!(least([1.0, 2.0], |_| None).is_none());
        assert_eq!([short(2.99997), short(1e-12), short(10_000.3)], ["3", "1e-12", "10000"]);
    }
}
