//! Features of one query or key by definition, and their gradient.

use crate::attention::{DELTA_RANGE, Feature, FeatureKind, Magnitude, reference::Reference};

/// Which of the two vectors is formed: δ belongs to keys alone.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Side {
    Query,
    Key,
}

impl Reference<'_, '_> {
    /// The vector that is compared for `x` at `position`: `x` with its channels turned,
    /// followed by the sine halves of its polar channels.
    pub(super) fn form(&self, head: usize, side: Side, position: usize, x: &[f64]) -> Vec<f64> {
        let mut formed = x.to_vec();
        for (i, feature) in self.attention.features.iter().enumerate() {
            for turn in self.turns(i, head, side, position) {
                match feature.kind {
                    FeatureKind::Rotary { .. } => {
                        let (a, b) = turn.channels;
                        formed[a] = x[a] * turn.cos - x[b] * turn.sin;
                        formed[b] = x[a] * turn.sin + x[b] * turn.cos;
                    }
                    FeatureKind::Polar { magnitude, .. } => {
                        let (c, _) = turn.channels;
                        formed[c] = size(magnitude, x[c]) * turn.cos;
                        formed.push(size(magnitude, x[c]) * turn.sin);
                    }
                }
            }
        }
        formed
    }

    /// The gradient of `x`; those of δ are added to `d_features`.
    pub(super) fn form_backward(
        &self,
        (head, side, position): (usize, Side, usize),
        x: &[f64],
        d_formed: &[f64],
        d_features: &mut [Feature<Vec<f64>>],
    ) -> Vec<f64> {
        let (d_first, mut d_sines) = d_formed.split_at(x.len());
        let mut d_x = d_first.to_vec();
        for (i, feature) in self.attention.features.iter().enumerate() {
            for turn in self.turns(i, head, side, position) {
                match feature.kind {
                    FeatureKind::Rotary { .. } => {
                        let (a, b) = turn.channels;
                        d_x[a] = d_first[a] * turn.cos + d_first[b] * turn.sin;
                        d_x[b] = d_first[b] * turn.cos - d_first[a] * turn.sin;
                    }
                    FeatureKind::Polar { magnitude, .. } => {
                        let (c, _) = turn.channels;
                        let (d_cos, d_sin) = (d_first[c], d_sines[0]);
                        d_sines = &d_sines[1..];
                        d_x[c] = (d_cos * turn.cos + d_sin * turn.sin) * slope(magnitude, x[c]);
                        if let Some(delta) = turn.delta
                            && let FeatureKind::Polar { delta: Some(d), .. } =
                                &mut d_features[i].kind
                        {
                            let d_angle = d_sin * turn.cos - d_cos * turn.sin;
                            d[delta] += size(magnitude, x[c]) * d_angle;
                        }
                    }
                }
            }
        }
        d_x
    }

    /// The turns of feature number `i` at a position, in the order of its frequencies; none in other heads.
    fn turns(&self, i: usize, head: usize, side: Side, position: usize) -> Vec<Turn> {
        let feature = &self.values.learned.features[i];
        let (start, width) = (feature.channels.start, feature.channels.len());
        if width == 0 || !feature.heads.contains(&head) {
            return Vec::new();
        }
        let (cos, sin) = feature.angles.at(position);
        let tables = cos.iter().copied().map(f64::from).zip(sin.iter().copied().map(f64::from));
        let turns = tables.enumerate().map(|(frequency, (cos, sin))| match feature.kind {
            FeatureKind::Rotary { layout } => {
                let (a, b) = layout.pair(frequency, width);
                Turn { channels: (start + a, start + b), cos, sin, delta: None }
            }
            FeatureKind::Polar { .. } => {
                let channels = (start + frequency, start + frequency);
                let index = head * width + frequency;
                match feature.delta() {
                    Some(delta) if side == Side::Key => {
                        Turn::shifted(channels, (cos, sin), delta[index], index)
                    }
                    _ => Turn { channels, cos, sin, delta: None },
                }
            }
        });
        turns.collect()
    }
}

/// By how much one pair of channels, or one polar channel, is turned.
struct Turn {
    channels: (usize, usize),
    cos: f64,
    sin: f64,
    /// Which δ is part of the angle and moves with it.
    delta: Option<usize>,
}

impl Turn {
    /// The turn by an angle's cosine and sine plus δ.
    fn shifted(channels: (usize, usize), (cos, sin): (f64, f64), delta: f64, index: usize) -> Self {
        // f32's −2π lies below f64's, and δ is given in f32: the paper's bound must count as inside.
        let (low, high) = (f64::from(DELTA_RANGE.0), f64::from(DELTA_RANGE.1));
        let (delta_sin, delta_cos) = delta.clamp(low, high).sin_cos();
        Self {
            channels,
            cos: cos * delta_cos - sin * delta_sin,
            sin: sin * delta_cos + cos * delta_sin,
            delta: (low..=high).contains(&delta).then_some(index),
        }
    }
}

fn size(magnitude: Magnitude, x: f64) -> f64 {
    match magnitude {
        Magnitude::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        Magnitude::Relu => x.max(0.0),
        Magnitude::Identity => x,
    }
}

/// The derivative of [`size`].
fn slope(magnitude: Magnitude, x: f64) -> f64 {
    match magnitude {
        Magnitude::Softplus => 1.0 / (1.0 + (-x).exp()),
        Magnitude::Relu if x > 0.0 => 1.0,
        Magnitude::Relu => 0.0,
        Magnitude::Identity => 1.0,
    }
}
