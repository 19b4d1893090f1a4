use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::Score;
use whatwhere_settings::Refuses;

use super::{Position, PositionSettings};
use crate::{
    Error,
    heads::Heads,
    slot::{Handed, Terms},
};

/// Disentangled: `q·k + q·(K R_distance) + k·(Q R_distance)`, vectors by distance through the projections of keys and queries, divided by √3.
/// He et al. 2021, <https://arxiv.org/abs/2006.03654>, with the buckets of DeBERTa-v2. `2·buckets·width` parameters; for encoders.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Disentangled {
    /// Entries of the table to each side: near distances each have one, far ones share them by their logarithm; 0 tells all
    /// distances below `length` apart. Default 32.
    pub buckets: usize,
    /// Distances from which on all look alike; default 128.
    pub length: usize,
    /// Whether the content of a query asks for distances; default true.
    pub content_to_position: bool,
    /// Whether distances ask for the content of a key; default true.
    pub position_to_content: bool,
    /// Whether vectors by distance go through the projections of keys and queries, instead of their own; default true.
    pub shared_projections: bool,
    /// Whether vectors by distance are normalized, as in DeBERTa-v3; default true.
    pub norm: bool,
    /// Added under the root of that norm; default 1e-7.
    pub epsilon: f64,
}

impl Default for Disentangled {
    fn default() -> Self {
        Self {
            buckets: 32,
            length: 128,
            content_to_position: true,
            position_to_content: true,
            shared_projections: true,
            norm: true,
            epsilon: 1e-7,
        }
    }
}

impl Disentangled {
    /// Terms beside the product of query and key.
    fn terms(&self) -> usize {
        usize::from(self.content_to_position) + usize::from(self.position_to_content)
    }

    /// Entries of the table to each side.
    fn span(&self) -> usize {
        if self.buckets == 0 { self.length } else { self.buckets }
    }

    /// The entry of a distance, `query − key`: near ones by themselves, far ones by their logarithm, in f32 as transformers has
    /// it.
    pub fn entry(&self, distance: isize) -> usize {
        let (span, middle) = (self.span() as isize, self.buckets as isize / 2);
        let far = distance.abs();
        let bucket = if self.buckets == 0 || far <= middle {
            distance
        } else {
            let share = (far as f32 / middle as f32).ln()
                / ((self.length as f64 - 1.0) / middle as f64).ln() as f32;
            let bucket = (share * (middle - 1) as f32).ceil() as isize + middle;
            bucket * distance.signum()
        };
        (bucket + span).clamp(0, 2 * span - 1) as usize
    }
}

impl PositionSettings for Disentangled {
    fn check(&self, _heads: &Heads) -> Result<(), Error> {
        if self.length < 1 || self.length > 1 << 20 {
            let reason = "expected at least 1 and at most 1048576";
            return Err(Error::setting("position.length", self.length, reason));
        }
        let (buckets, length) = (self.buckets, self.length);
        if buckets != 0 && (buckets < 4 || !buckets.is_multiple_of(2) || length < buckets / 2 + 2) {
            let reason = format!(
                "expected 0, or an even number from 4 on below twice the length, which is {length}"
            );
            return Err(Error::setting("position.buckets", buckets, reason));
        }
        if !self.content_to_position && !self.position_to_content {
            let reason =
                "with position_to_content = false nothing is left; use position = \"none\"";
            return Err(Error::setting("position.content_to_position", false, reason));
        }
        if !(self.epsilon >= 0.0 && self.epsilon.is_finite()) {
            return Err(Error::setting("position.epsilon", self.epsilon, "expected at least 0"));
        }
        Ok(())
    }

    fn is_relative(&self) -> bool {
        true
    }

    fn adds_to_scores(&self) -> bool {
        true
    }

    /// Its terms come with a layer's projections; the score that they join is divided here.
    fn add_terms(&self, call: &mut Terms) -> Result<(), Error> {
        if let Score::Dot { scale } | Score::Cosine { scale } = &mut call.score {
            *scale /= (1.0 + self.terms() as f32).sqrt();
        }
        Ok(())
    }

    fn with_arrays(&self, _handed: &Handed) -> Result<Option<Position>, Error> {
        let reason = "its vectors go through the projections of a layer, which arrays do not have; use a model";
        Err(Error::setting("position", "disentangled", reason))
    }

    fn asks_keys(&self) -> bool {
        self.position_to_content
    }

    fn projects(&self) -> bool {
        self.shared_projections
    }

    fn entries(&self) -> usize {
        2 * self.span()
    }

    fn reach(&self) -> Option<usize> {
        Some(self.length)
    }
}

#[cfg(feature = "burn")]
pub use layer::DisentangledLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{
        module::{Module, Param},
        nn::{Initializer, Linear, LinearConfig},
        tensor::{Device, Int, Tensor},
    };

    use super::Disentangled;
    use crate::{
        Error,
        call::{Bias, Call, Relative, flat},
        heads::Heads,
        key_terms::add_key_terms,
        position::PositionLayer,
    };

    /// Vectors by distance at work.
    #[derive(Module, Debug)]
    pub struct DisentangledLayer {
        /// `[2 · entries to each side, width]`, from the farthest key to the right to the farthest to the left.
        pub table: Param<Tensor<2>>,
        /// Of the norm, `[width]`.
        pub gain: Option<Param<Tensor<1>>>,
        /// Of the norm, `[width]`.
        pub bias: Option<Param<Tensor<1>>>,
        /// Projections of the vectors, `[width, heads · head_dim]` each, if not the layer's own: to what queries ask for, and to
        /// what asks for keys.
        pub projections: Vec<Linear>,
        #[module(skip)]
        settings: Disentangled,
        #[module(skip)]
        heads: Heads,
    }

    impl DisentangledLayer {
        pub(crate) fn new(settings: &Disentangled, heads: &Heads, device: &Device) -> Self {
            let normal = Initializer::Normal { mean: 0.0, std: 0.02 };
            let width = heads.width;
            let own = match settings.shared_projections {
                true => 0,
                false => settings.terms(),
            };
            let linear = |_| LinearConfig::new(width, heads.heads * heads.head_dim).init(device);
            let by_channel = |value: Tensor<1>| settings.norm.then(|| Param::from_tensor(value));
            Self {
                table: normal.init([2 * settings.span(), width], device),
                gain: by_channel(Tensor::ones([width], device)),
                bias: by_channel(Tensor::zeros([width], device)),
                projections: (0..own).map(linear).collect(),
                settings: *settings,
                heads: *heads,
            }
        }

        /// The table, normalized if it is.
        fn vectors(&self) -> Tensor<2> {
            let table = self.table.val();
            let (Some(gain), Some(bias)) = (&self.gain, &self.bias) else { return table };
            let centered = table.clone() - table.mean_dim(1);
            let variance = centered.clone().square().mean_dim(1);
            let normed = centered / (variance + self.settings.epsilon).sqrt();
            normed * gain.val().unsqueeze() + bias.val().unsqueeze()
        }

        /// The table through a projection, by the distance key − query, for every query head:
        /// `[heads, left + 1 + right, head_dim]`.
        fn projected(&self, linear: &Linear, [left, right]: [usize; 2]) -> Tensor<3> {
            let Heads { heads, head_dim, .. } = self.heads;
            let (first, last) = (-(left as isize), right as isize);
            let entries: Vec<i32> =
                (first..=last).map(|distance| self.settings.entry(-distance) as i32).collect();
            let (table, count) = (linear.forward(self.vectors()), entries.len());
            let entries = Tensor::<1, Int>::from_data(entries.as_slice(), &table.device());
            let own = table.dims()[1] / head_dim;
            let table = table.select(0, entries).reshape([count, own, head_dim]).swap_dims(0, 1);
            // A key head once for every query head that reads it.
            let table = table.unsqueeze_dim::<4>(1).repeat_dim(1, heads / own);
            table.reshape([heads, count, head_dim])
        }

        /// Distances of a call that are told apart, to the left and to the right.
        fn reach(&self, call: &Call) -> [usize; 2] {
            let (left, right) = call.reach();
            [left.min(self.settings.length), right.min(self.settings.length)]
        }
    }

    impl PositionLayer for DisentangledLayer {
        fn add_projected_terms(&self, call: &mut Call, key: Option<&Linear>) -> Result<(), Error> {
            if self.settings.content_to_position {
                let [left, right] = self.reach(call);
                let key = self.projections.first().or(key).expect("settings ask for one");
                let table = flat(self.projected(key, [left, right]));
                let vectors = Relative { table, per_head: true, left, right };
                let scale = call.score.scale();
                call.biases.push(Bias::Relative { vectors, query_bias: None, scale });
            }
            Ok(())
        }

        fn add_key_terms(&self, call: &mut Call, k: &Tensor<4>, query: Option<&Linear>) {
            if !self.settings.position_to_content {
                return;
            }
            let reach = self.reach(call);
            let query = self.projections.last().or(query).expect("settings ask for one");
            add_key_terms(call, k, self.projected(query, reach), reach);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `make_log_bucket_position(d, 8, 16)` of transformers, for d from 0 to 17, and the same with the other sign.
    #[test]
    fn far_distances_share_entries_by_their_logarithm() {
        let settings = Disentangled { buckets: 8, length: 16, ..Default::default() };
        let buckets = [0, 1, 2, 3, 4, 5, 5, 6, 6, 6, 7, 7, 7, 7, 7, 7, 8, 8];
        for (distance, bucket) in buckets.into_iter().enumerate() {
            let distance = distance as isize;
            let entry = |bucket: isize| (bucket + 8).clamp(0, 15) as usize;
            assert_eq!(settings.entry(distance), entry(bucket), "{distance}");
            assert_eq!(settings.entry(-distance), entry(-bucket), "{}", -distance);
        }
        let plain = Disentangled { buckets: 0, length: 4, ..Default::default() };
        let entries: Vec<usize> = (-6..=6).map(|d| plain.entry(d)).collect();
        assert_eq!(entries, [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7]);
    }

    /// DeBERTa's formula pair by pair, in f64.
    #[cfg(feature = "burn")]
    #[test]
    fn weights_are_those_of_the_formula() {
        use burn::{
            module::Param,
            nn::Linear,
            tensor::{Device, Distribution, Tensor},
        };

        use crate::{AttentionSettings, Input, position::PositionModule};

        fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
            tensor.into_data().try_to_vec::<f32>().unwrap().into_iter().map(f64::from).collect()
        }
        /// Rows of `width` channels through a projection with its bias.
        fn project(rows: &[f64], linear: &Linear) -> Vec<Vec<f64>> {
            let [from, to] = linear.weight.val().dims();
            let weight = numbers(linear.weight.val());
            let bias = numbers(linear.bias.as_ref().unwrap().val());
            let each = |row: &[f64]| -> Vec<f64> {
                let sum = |t: usize| (0..from).map(|f| row[f] * weight[f * to + t]).sum::<f64>();
                (0..to).map(|t| bias[t] + sum(t)).collect()
            };
            rows.chunks(from).map(each).collect()
        }
        let device = Device::flex();
        let text = |shared: bool| {
            format!(
                "width = 8\nheads = 2\nbias = 'all'\npattern = 'full'\nposition = {{ kind = 'disentangled', \
                 buckets = 4, length = 6, shared_projections = {shared}, norm = {shared} }}"
            )
        };
        for shared in [true, false] {
            let settings = AttentionSettings::from_toml(&text(shared)).unwrap();
            let mut layer = settings.build(&device).unwrap();
            let PositionModule::Disentangled(own) = &mut layer.position[0] else { unreachable!() };
            let spread = Distribution::Normal(0.0, 1.0);
            own.table = Param::from_tensor(Tensor::random([8, 8], spread, &device));
            let table = numbers(own.table.val());
            let table: Vec<f64> = match shared {
                false => table,
                true => table
                    .chunks(8)
                    .flat_map(|row| {
                        let mean = row.iter().sum::<f64>() / 8.0;
                        let square = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 8.0;
                        row.iter().map(move |v| (v - mean) / (square + 1e-7).sqrt())
                    })
                    .collect(),
            };
            let [to_key, to_query] = match own.projections.as_slice() {
                [key, query] => [key.clone(), query.clone()],
                _ => [&layer.key, &layer.query].map(|linear| linear.clone().unwrap()),
            };
            let (asked, asking) = (project(&table, &to_key), project(&table, &to_query));
            let x = Tensor::<3>::random([1, 12, 8], spread, &device);
            let rows = numbers(x.clone());
            let [q, k] = [&layer.query, &layer.key].map(|l| project(&rows, l.as_ref().unwrap()));
            let found = numbers(layer.weights(Input::new(x)).unwrap());
            let entry = Disentangled { buckets: 4, length: 6, ..Default::default() };
            for head in 0..2 {
                let channels = head * 4..head * 4 + 4;
                let dot =
                    |a: &[f64], b: &[f64]| -> f64 { channels.clone().map(|c| a[c] * b[c]).sum() };
                for i in 0..12 {
                    let scores: Vec<f64> = (0..12)
                        .map(|j| {
                            let at = entry.entry(i as isize - j as isize);
                            let sum = dot(&q[i], &k[j]) + dot(&q[i], &asked[at]);
                            (sum + dot(&k[j], &asking[at])) / (4.0f64 * 3.0).sqrt()
                        })
                        .collect();
                    let sum: f64 = scores.iter().map(|score| score.exp()).sum();
                    for (j, score) in scores.iter().enumerate() {
                        let off = (found[(head * 12 + i) * 12 + j] - score.exp() / sum).abs();
                        assert!(off < 1e-5, "{shared} {head} {i} {j}: {off}");
                    }
                }
            }
        }
    }
}
