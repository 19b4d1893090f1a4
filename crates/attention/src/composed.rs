//! The same call as a composition of tensor operations: for every backend without kernels of ours, and as a witness for
//! the fused path. Scores are stored, so memory grows with queries × keys.

use burn::tensor::{
    Bool, Device, Int, Tensor, TensorData,
    activation::{relu, softplus},
    ops::IndexingUpdateOp,
};
use whatwhere_kernels::attention::{DELTA_RANGE, Layout, Magnitude, pattern::Pair};

use crate::call::{Bias, Call, Feature, FeatureKind, Focus, Relative, Score};

/// Stands for −∞ in hidden scores: finite, because not every backend computes with infinities.
const HIDDEN: f32 = -1e30;

/// `out [batch, heads, queries, value_dim]` from q, k, v of the same layout.
pub(crate) fn attend(call: &Call, q: Tensor<4>, k: Tensor<4>, v: Tensor<4>) -> Tensor<4> {
    let [batch, heads, queries, _] = q.dims();
    if queries == 0 || k.dims()[2] == 0 {
        // burn does not broadcast to sizes of 0.
        return Tensor::zeros([batch, heads, queries, v.dims()[3]], &q.device());
    }
    let (k, v) = (repeat_heads(k, heads), repeat_heads(v, heads));
    let grid = Grid::new(call, &q, &k);
    let mut scores = compare(call, &grid, q.clone(), k);
    if let Some(cap) = call.soft_cap {
        scores = (scores / cap).tanh() * cap;
    }
    for bias in &call.biases {
        scores = scores + grid.bias(bias, &q);
    }
    let visible = grid.visible(call);
    let hidden = visible.clone().bool_not().expand(scores.dims());
    let mut weights = softmax(scores.mask_fill(hidden, HIDDEN), visible.float());
    if let Some(focus) = &call.focus {
        weights = weights * grid.focus(focus);
    }
    if let Some(factors) = grid.dropout(call) {
        weights = weights * factors;
    }
    let out = weights.clone().matmul(v);
    match &call.relative_values {
        None => out,
        Some(relative) => out + grid.mix_relative(relative, weights),
    }
}

/// Which pairs of a call are visible, `[batch, heads, queries, keys]`.
pub(crate) fn visible(call: &Call, q: &Tensor<4>, k: &Tensor<4>) -> Tensor<4, Bool> {
    Grid::new(call, q, k).visible(call)
}

/// Queries or keys from position `first` on, with what the features of a call make of them.
pub(crate) fn turned(call: &Call, x: Tensor<4>, first: usize, is_key: bool) -> Tensor<4> {
    let grid = Grid::new(call, &x, &x);
    grid.features(call, x, first, is_key)
}

/// Each key head once for every query head that reads it.
pub(crate) fn repeat_heads(x: Tensor<4>, heads: usize) -> Tensor<4> {
    let [batch, kv_heads, length, dim] = x.dims();
    if kv_heads == heads {
        return x;
    }
    x.unsqueeze_dim::<5>(2).repeat_dim(2, heads / kv_heads).reshape([batch, heads, length, dim])
}

/// Softmax over the visible scores; a row that sees nothing gets zeros.
fn softmax(scores: Tensor<4>, visible: Tensor<4>) -> Tensor<4> {
    let top = scores.clone().detach().max_dim(3);
    let powers = (scores - top).exp() * visible;
    let sum = powers.clone().sum_dim(3);
    let nothing = sum.clone().equal_elem(0.0);
    powers / sum.mask_fill(nothing, 1.0)
}

fn compare(call: &Call, grid: &Grid, q: Tensor<4>, k: Tensor<4>) -> Tensor<4> {
    let q = match &call.query_bias {
        None => q,
        Some(bias) => q + grid.per_head(bias),
    };
    if let Score::Additive { weight } = &call.score {
        let weight = grid.per_head(weight).unsqueeze_dim::<5>(2); // [1, heads, 1, 1, dim]
        let sum = q.unsqueeze_dim::<5>(3) + k.unsqueeze_dim::<5>(2);
        return (sum.tanh() * weight).sum_dim(4).squeeze_dim::<4>(4);
    }
    let q = grid.features(call, q, call.first_query, false);
    let k = grid.features(call, k, call.first_key, true);
    match call.score {
        Score::Cosine { scale } => unit(q).matmul(unit(k).transpose()) * scale,
        Score::Dot { scale } => q.matmul(k.transpose()) * scale,
        Score::Additive { .. } => unreachable!("returned above"),
    }
}

/// Rows of length 1; zero rows stay zero and pass no gradient.
fn unit(x: Tensor<4>) -> Tensor<4> {
    let square = x.clone().powi_scalar(2).sum_dim(3);
    let zero = square.clone().equal_elem(0.0);
    let inverse = square.mask_fill(zero.clone(), 1.0).sqrt().recip().mask_fill(zero, 0.0);
    x * inverse
}

/// The sizes of a call and its grid of positions.
struct Grid {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    first_query: usize,
    first_key: usize,
    device: Device,
}

impl Grid {
    fn new(call: &Call, q: &Tensor<4>, k: &Tensor<4>) -> Self {
        let [batch, heads, queries, _] = q.dims();
        let (first_query, first_key) = (call.first_query, call.first_key);
        Self {
            batch,
            heads,
            queries,
            keys: k.dims()[2],
            first_query,
            first_key,
            device: q.device(),
        }
    }

    /// `value(distance)` for every pair, `[queries, keys]` in row-major order.
    fn by_distance<T>(&self, value: impl Fn(isize) -> T) -> Vec<T> {
        let query = |i: usize| (self.first_query + i) as isize;
        let key = |j: usize| (self.first_key + j) as isize;
        (0..self.queries)
            .flat_map(|i| (0..self.keys).map(move |j| (i, j)))
            .map(|(i, j)| value(key(j) - query(i)))
            .collect()
    }

    fn features(&self, call: &Call, x: Tensor<4>, first: usize, is_key: bool) -> Tensor<4> {
        call.features.iter().filter(|f| !f.channels.is_empty()).fold(x, |x, feature| {
            let [.., width] = x.dims();
            let own = x.clone().narrow(1, feature.heads.start, feature.heads.len());
            let turned = self.feature(feature, own, first, is_key);
            let wider = turned.dims()[3] - width;
            let pad = |x: Tensor<4>| {
                let [batch, heads, length, _] = x.dims();
                let zeros = Tensor::zeros([batch, heads, length, wider], &self.device);
                if wider == 0 { x } else { Tensor::cat(vec![x, zeros], 3) }
            };
            let rest = self.heads - feature.heads.end;
            let mut parts = Vec::new();
            if feature.heads.start > 0 {
                parts.push(pad(x.clone().narrow(1, 0, feature.heads.start)));
            }
            parts.push(turned);
            if rest > 0 {
                parts.push(pad(x.narrow(1, feature.heads.end, rest)));
            }
            Tensor::cat(parts, 1)
        })
    }

    /// The feature on heads that have it: channels in place, sine parts appended.
    fn feature(&self, feature: &Feature, x: Tensor<4>, first: usize, is_key: bool) -> Tensor<4> {
        let [batch, heads, length, width] = x.dims();
        let channels = feature.channels.clone();
        let (cos, sin) = self.angles(feature, first, length);
        let own = x.clone().narrow(3, channels.start, channels.len());
        let (own, sines) = match &feature.kind {
            FeatureKind::Rotary { layout } => (rotate(own, cos, sin, *layout), None),
            FeatureKind::Polar { magnitude, delta } => {
                let size = match magnitude {
                    Magnitude::Softplus => softplus(own, 1.0),
                    Magnitude::Relu => relu(own),
                    Magnitude::Identity => own,
                };
                let (cos, sin) = match delta {
                    Some(delta) if is_key => {
                        let all = self.per_head(delta); // [1, heads, 1, channels]
                        let phase = clamp(all.narrow(1, feature.heads.start, heads));
                        let (c, d) = (phase.clone().cos(), phase.sin());
                        (cos.clone() * c.clone() - sin.clone() * d.clone(), sin * c + cos * d)
                    }
                    _ => (cos, sin),
                };
                (size.clone() * cos, Some(size * sin))
            }
        };
        let mut parts = Vec::new();
        if channels.start > 0 {
            parts.push(x.clone().narrow(3, 0, channels.start));
        }
        parts.push(own.reshape([batch, heads, length, channels.len()]));
        if channels.end < width {
            parts.push(x.narrow(3, channels.end, width - channels.end));
        }
        parts.extend(sines);
        Tensor::cat(parts, 3)
    }

    /// Cosines and sines, `[1, 1, length, frequencies]`.
    fn angles(&self, feature: &Feature, first: usize, length: usize) -> (Tensor<4>, Tensor<4>) {
        let rows: Vec<_> =
            (first..first + length).map(|position| feature.angles.at(position)).collect();
        let shape = [1, 1, length, feature.angles.frequencies().len()];
        let table =
            |values: Vec<f32>| Tensor::<4>::from_data(TensorData::new(values, shape), &self.device);
        let cos = rows.iter().flat_map(|(cos, _)| *cos).copied().collect();
        let sin = rows.iter().flat_map(|(_, sin)| *sin).copied().collect();
        (table(cos), table(sin))
    }

    /// A row for each head, `[1, heads, 1, width]`.
    fn per_head(&self, rows: &Tensor<1>) -> Tensor<4> {
        rows.clone().reshape([1, self.heads as isize, 1, -1])
    }

    /// The term of one bias, broadcastable to `[batch, heads, queries, keys]`.
    fn bias(&self, bias: &Bias, q: &Tensor<4>) -> Tensor<4> {
        match bias {
            Bias::ByDistance { table, left, right } => {
                let entries = self.entries(*left, *right);
                let len = entries.len();
                let entries =
                    Tensor::<1, Int>::from_data(TensorData::new(entries, [len]), &self.device);
                let table = table.clone().reshape([self.heads, left + 1 + right]);
                table.select(1, entries).reshape([1, self.heads, self.queries, self.keys])
            }
            Bias::Relative { vectors, query_bias, scale } => {
                let q = match query_bias {
                    None => q.clone(),
                    Some(v) => q.clone() + self.per_head(v),
                };
                let terms = q.matmul(self.table(vectors).transpose()) * *scale;
                terms.gather(3, self.entries_of(vectors))
            }
            Bias::Dense { values, shape, .. } => values.clone().reshape(*shape),
        }
    }

    /// Where every pair's distance lies in a table, `[queries, keys]` in row-major order.
    fn entries(&self, left: usize, right: usize) -> Vec<i64> {
        let (left, right) = (left as isize, right as isize);
        self.by_distance(|d| (d.max(-left).min(right) + left) as i64)
    }

    /// The row of a relative table for every pair, `[batch, heads, queries, keys]`.
    fn entries_of(&self, vectors: &Relative) -> Tensor<4, Int> {
        let entries = self.entries(vectors.left, vectors.right);
        let entries = TensorData::new(entries, [1, 1, self.queries, self.keys]);
        Tensor::<4, Int>::from_data(entries, &self.device).expand(self.shape())
    }

    /// A relative table, `[1, heads or 1, distances, width]`.
    fn table(&self, vectors: &Relative) -> Tensor<4> {
        let tables = if vectors.per_head { self.heads } else { 1 };
        vectors.table.clone().reshape([1, tables as isize, vectors.count() as isize, -1])
    }

    /// Weights summed by clipped distance, times the table.
    fn mix_relative(&self, vectors: &Relative, weights: Tensor<4>) -> Tensor<4> {
        let shape = [self.batch, self.heads, self.queries, vectors.count()];
        let sums = Tensor::zeros(shape, &self.device).scatter(
            3,
            self.entries_of(vectors),
            weights,
            IndexingUpdateOp::Add,
        );
        sums.matmul(self.table(vectors))
    }

    /// Which pairs are visible, `[batch, heads, queries, keys]`.
    fn visible(&self, call: &Call) -> Tensor<4, Bool> {
        let mut visible = Vec::with_capacity(self.batch * self.heads * self.queries * self.keys);
        self.each_pair(|pair| visible.push(call.pattern.sees(pair)));
        self.grid_of(TensorData::new(visible, self.shape()))
    }

    fn dropout(&self, call: &Call) -> Option<Tensor<4>> {
        let dropout = call.dropout?;
        let mut factors = Vec::with_capacity(self.shape().iter().product());
        self.each_pair(|pair| factors.push(dropout.factor(pair)));
        Some(Tensor::from_data(TensorData::new(factors, self.shape()), &self.device))
    }

    fn focus(&self, focus: &Focus) -> Tensor<4> {
        let positions: Vec<f32> = (0..self.keys).map(|j| (self.first_key + j) as f32).collect();
        let positions = TensorData::new(positions, [1, 1, 1, self.keys]);
        let positions = Tensor::<4>::from_data(positions, &self.device);
        let centers = focus.centers.clone().reshape([self.batch, self.heads, self.queries, 1]);
        let far = (positions - centers) / focus.deviation;
        (far.powi_scalar(2) * -0.5).exp()
    }

    fn shape(&self) -> [usize; 4] {
        [self.batch, self.heads, self.queries, self.keys]
    }

    fn grid_of(&self, data: TensorData) -> Tensor<4, Bool> {
        Tensor::from_data(data, &self.device)
    }

    fn each_pair(&self, mut visit: impl FnMut(Pair)) {
        for batch in 0..self.batch {
            for head in 0..self.heads {
                for query in self.first_query..self.first_query + self.queries {
                    for key in self.first_key..self.first_key + self.keys {
                        visit(Pair { batch, head, query, key });
                    }
                }
            }
        }
    }
}

/// Rotates pairs of channels.
fn rotate(x: Tensor<4>, cos: Tensor<4>, sin: Tensor<4>, layout: Layout) -> Tensor<4> {
    let [batch, heads, length, width] = x.dims();
    let half = width / 2;
    let parts = match layout {
        Layout::HalfSplit => [x.clone().narrow(3, 0, half), x.narrow(3, half, half)],
        Layout::Interleaved => {
            let pairs = x.reshape([batch, heads, length, half, 2]);
            [0, 1].map(|i| pairs.clone().narrow(4, i, 1).squeeze_dim::<4>(4))
        }
    };
    let [a, b] = parts;
    let turned = [a.clone() * cos.clone() - b.clone() * sin.clone(), a * sin + b * cos];
    match layout {
        Layout::HalfSplit => Tensor::cat(turned.into(), 3),
        Layout::Interleaved => {
            Tensor::stack::<5>(turned.into(), 4).reshape([batch, heads, length, width])
        }
    }
}

/// δ clamped to its range; the gradient passes inside it, bounds included.
fn clamp(delta: Tensor<4>) -> Tensor<4> {
    let (low, high) = DELTA_RANGE;
    let (below, above) = (delta.clone().lower_elem(low), delta.clone().greater_elem(high));
    delta.mask_fill(below, low).mask_fill(above, high)
}
