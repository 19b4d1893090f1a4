//! The attention layer: projections, and one call between them.

use std::sync::Arc;

use burn::{
    module::Module,
    nn::{Linear, LinearConfig},
    tensor::{Device, Tensor},
};
use whatwhere_kernels::attention::{
    Dropout, Shape,
    pattern::{self as kernels, Pattern as _},
};
use whatwhere_settings::Refuses;

use crate::{
    AttentionBias, AttentionLinears, AttentionSettings, Error, Input, Path, Projections,
    QkNormLayer,
    cache::Kept,
    call::{Call, Focus, flat, present, value},
    centers::CenterLayer,
    composed,
    fused::{self, Layout},
    heads::{Heads, Sizes},
    mixing::{Mix, MixingLayer as _, MixingModule},
    pattern::PatternContext,
    position::{PositionLayer, PositionModule},
    projected::Project,
    qk_norm::normed,
    recurrence::Gates,
    score::{ScoreLayer, ScoreModule},
    slot::{Owner, Slot},
};

/// Attention of queries made from `x` to keys and values made from `x` or from a memory.
#[derive(Module, Debug)]
pub struct Attention {
    /// `[width, heads · head_dim]`, unless queries are taken as they are.
    pub query: Option<Linear>,
    /// `[width, kv_heads · head_dim]`, unless keys are taken as they are.
    pub key: Option<Linear>,
    /// `[width, kv_heads · head_dim]`, unless values are taken as they are.
    pub value: Option<Linear>,
    /// `[heads · head_dim, width]`, unless what was mixed is given as it is.
    pub output: Option<Linear>,
    /// Norm of queries, if any.
    pub query_norm: Option<QkNormLayer>,
    /// Norm of keys, if any.
    pub key_norm: Option<QkNormLayer>,
    /// The score's parameters.
    pub score: ScoreModule,
    /// The pattern's parameters, if it follows content.
    pub pattern: Option<CenterLayer>,
    /// The encodings' parameters.
    pub position: Vec<PositionModule>,
    /// How weights are made, with the gates that it learns.
    pub mixing: MixingModule,
    #[module(skip)]
    settings: AttentionSettings,
    #[module(skip)]
    pub(crate) sizes: Heads,
}

impl AttentionSettings {
    /// Builds the layer with fresh parameters.
    pub fn build(&self, device: &Device) -> Result<Attention, Error> {
        self.check()?;
        let sizes = self.sizes()?;
        let Heads { width, heads, kv_heads, head_dim } = sizes;
        let linear = |from: usize, to: usize, has_bias: bool| {
            LinearConfig::new(from, to).with_bias(has_bias).init(device)
        };
        let inner =
            |heads: usize| linear(width, heads * head_dim, self.bias != AttentionBias::None);
        let norm = |heads: usize| QkNormLayer::new(self, heads, head_dim, device);
        let compares = self.projections != Projections::None;
        let mixes = self.projections == Projections::All;
        let position = self.position.iter().map(|position| position.build(&sizes, device));
        Ok(Attention {
            query: compares.then(|| inner(heads)),
            key: compares.then(|| inner(kv_heads)),
            value: mixes.then(|| inner(kv_heads)),
            output: mixes.then(|| linear(heads * head_dim, width, self.bias == AttentionBias::All)),
            query_norm: norm(heads),
            key_norm: norm(kv_heads),
            score: self.score.build(&sizes, device)?,
            pattern: self.pattern.deviation().map(|_| CenterLayer::new(&sizes, device)),
            position: position.collect::<Result<_, _>>()?,
            mixing: self.mixing.build(&sizes, device),
            settings: self.clone(),
            sizes,
        })
    }
}

impl Attention {
    /// The settings the layer was built from.
    pub fn settings(&self) -> &AttentionSettings {
        &self.settings
    }

    /// Its own projections.
    pub fn linears(&self) -> AttentionLinears<'_, Option<Linear>> {
        let Self { query, key, value, output, .. } = self;
        AttentionLinears { query, key, value, output }
    }

    /// `[batch, queries, width]`.
    pub fn forward(&self, input: Input) -> Result<Tensor<3>, Error> {
        self.forward_by(self.linears(), input)
    }

    /// [`Self::forward`] with other projections, such as int8 copies of its own.
    pub fn forward_by<P: Project>(
        &self,
        linears: AttentionLinears<P>,
        mut input: Input,
    ) -> Result<Tensor<3>, Error> {
        input.check(&self.settings, self.sizes)?;
        let AttentionLinears { query, key, value, output } = linears;
        let (way, own) = (input.way(), input.memory.is_none() && input.past.is_none());
        let (memory, first_key) = memory(&mut input);
        let gates = self.mixing.gates(&memory, way);
        let [q, k, v] = match own {
            true => P::project_all([query, key, value], memory, way),
            false => {
                let [k, v] = P::project_all([key, value], memory, way);
                [query.project(input.x.clone(), way), k, v]
            }
        };
        let (q, k) = (self.as_queries(q), self.as_keys(k));
        let v = self.split(v, self.sizes.kv_heads);
        let mixed = self.mix(&input, input.first, q, Kept::whole(k, v, first_key), &gates)?;
        Ok(output.project(mixed, way))
    }

    /// Everything between the projections, heads side by side again.
    pub(crate) fn mix(
        &self,
        input: &Input,
        first_query: usize,
        q: Tensor<4>,
        Kept { keys: k, values: v, count, first: first_key, .. }: Kept,
        gates: &Gates,
    ) -> Result<Tensor<3>, Error> {
        let sizes = Sizes { keys: count, ..sizes(&q, &k) };
        let mut call = self.call(input, first_query, first_key, sizes)?;
        self.add_key_terms(&mut call, input, &k);
        call.capacity = Some(k.dims()[2]);
        let mix = self.mixing_of(input, &call, gates);
        Ok(self.join(self.mixing.attend(mix, q, k, v)?))
    }

    /// What the layer's mixing needs of a call.
    pub(crate) fn mixing_of<'a>(
        &self,
        input: &'a Input,
        call: &'a Call,
        gates: &'a Gates,
    ) -> Mix<'a> {
        let causal = self.settings.pattern.is_causal();
        Mix { call, path: input.path, causal, key_lengths: input.key_lengths.as_deref(), gates }
    }

    /// `[batch, heads, queries, head_dim]`, ready to be compared.
    pub(crate) fn queries(&self, x: Tensor<3>, path: Path) -> Tensor<4> {
        self.as_queries(self.query.project(x, path))
    }

    pub(crate) fn as_queries(&self, projected: Tensor<3>) -> Tensor<4> {
        let q = normed(projected, self.query_norm.as_ref());
        self.score.queries(self.split(q, self.sizes.heads))
    }

    /// `[batch, kv_heads, keys, head_dim]`.
    pub(crate) fn keys(&self, memory: Tensor<3>, path: Path) -> Tensor<4> {
        self.as_keys(self.key.project(memory, path))
    }

    pub(crate) fn as_keys(&self, projected: Tensor<3>) -> Tensor<4> {
        self.split(normed(projected, self.key_norm.as_ref()), self.sizes.kv_heads)
    }

    /// `[batch, kv_heads, keys, head_dim]`.
    pub(crate) fn values(&self, memory: Tensor<3>, path: Path) -> Tensor<4> {
        self.split(self.value.project(memory, path), self.sizes.kv_heads)
    }

    /// The call between the projections: score, pattern and every encoding's terms.
    pub(crate) fn call(
        &self,
        input: &Input,
        first_query: usize,
        first_key: usize,
        sizes: Sizes,
    ) -> Result<Call, Error> {
        let (shape, keys) = (self.shape(sizes), sizes.keys);
        let padding = input.key_lengths.clone().map(kernels::KeyLengths::new).transpose()?;
        padding.as_ref().map_or(Ok(()), |padding| padding.check(&shape))?;
        let focus = self.pattern.as_ref().map(|pattern| {
            let there = |length: &usize| length.saturating_sub(first_key).min(keys);
            let counts = input.key_lengths.as_ref().map(|all| all.iter().map(there).collect());
            pattern.focus(input.x.clone(), first_key, &counts.unwrap_or_else(|| vec![keys]))
        });
        let documents = input.documents.as_deref();
        let centers = focus.as_ref().map(|focus| {
            let values = focus.to_data().try_to_vec::<f32>().expect("f32 as everywhere");
            (values, focus.dims())
        });
        let centers = centers.as_ref().map(|(values, sizes)| (values.as_slice(), *sizes));
        let tokens = input.tokens.as_deref().map(|tokens| (tokens, first_key));
        let heads = self.sizes.heads;
        let context = PatternContext { heads, documents, tokens, first_query, centers };
        let mut pattern = self.settings.pattern.build(&context)?;
        if let Some(prefixes) = &input.prefixes {
            let prefix = kernels::KeyLengths::new(prefixes.clone())?;
            prefix.check(&shape)?;
            pattern = Box::new(kernels::Or(pattern, prefix));
        }
        if let Some(padding) = padding {
            pattern = Box::new(kernels::And(pattern, padding));
        }
        if let Some(own) = &input.pattern {
            pattern = Box::new(kernels::And(pattern, own.clone()));
        }
        pattern.check(&shape)?;
        let terms = self.settings.call(shape, first_query, first_key)?;
        let position = input.position.as_deref().unwrap_or(&self.position);
        if position.len() < self.settings.position.len() {
            let reason = "the layer shares the first layer's encodings; hand them in";
            return Err(Error::setting("position", "none", reason));
        }
        let array = |slot: &Slot| match slot.owner? {
            Owner::Score => self.score.array(slot.array),
            Owner::Position(i) => position[i].array(slot.array, &terms),
        };
        let mut call = terms.map(Arc::<dyn kernels::Pattern>::from(pattern), |slot| {
            value(slot, array(slot).expect("a layer has what its settings name"), shape.heads)
        });
        call.precision = input.precision;
        let deviation = self.settings.pattern.deviation();
        call.focus = focus
            .zip(deviation)
            .map(|(centers, deviation)| Focus { centers: flat(centers), deviation });
        call.dropout = match input.seed {
            Some(seed) if self.settings.dropout > 0.0 => {
                Some(Dropout { rate: self.settings.dropout, seed })
            }
            _ => None,
        };
        for position in position {
            position.add_projected_terms(&mut call, self.key.as_ref())?;
        }
        Ok(call)
    }

    /// The terms of encodings that ask keys.
    pub(crate) fn add_key_terms(&self, call: &mut Call, input: &Input, k: &Tensor<4>) {
        for position in input.position.as_deref().unwrap_or(&self.position) {
            position.add_key_terms(call, k, self.query.as_ref());
        }
    }

    pub(crate) fn shape(&self, Sizes { batch, queries, keys }: Sizes) -> Shape {
        let Heads { heads, kv_heads, head_dim, .. } = self.sizes;
        Shape { batch, heads, kv_heads, queries, keys, head_dim, value_dim: head_dim }
    }

    /// A call to the own sequence for the kernels, and everything it learns.
    pub(crate) fn layout(&self, input: &Input, sizes: Sizes) -> Result<(Layout, Tensor<1>), Error> {
        input.check(&self.settings, self.sizes)?;
        let mut input = input.clone();
        let (_, first_key) = memory(&mut input);
        let call = self.call(&input, input.first, first_key, sizes)?;
        Ok(Layout::new(&call, &input.x.device()))
    }

    /// The resolved sizes.
    pub(crate) fn sizes(&self) -> Heads {
        self.sizes
    }

    /// `[batch, length, heads · head_dim]` to `[batch, heads, length, head_dim]`.
    pub(crate) fn split(&self, x: Tensor<3>, heads: usize) -> Tensor<4> {
        let [batch, length, _] = x.dims();
        x.reshape([batch, length, heads, self.sizes.head_dim]).swap_dims(1, 2)
    }

    /// The inverse of [`Self::split`].
    pub(crate) fn join(&self, x: Tensor<4>) -> Tensor<3> {
        let [batch, heads, length, head_dim] = x.dims();
        x.swap_dims(1, 2).reshape([batch, length, heads * head_dim])
    }
}

/// The sizes of a call between these.
pub(crate) fn sizes(q: &Tensor<4>, k: &Tensor<4>) -> Sizes {
    let [batch, _, queries, _] = q.dims();
    Sizes { batch, queries, keys: k.dims()[2] }
}

/// What keys are made of, and the position of the first. Lengths of keys become the positions where padding starts.
pub(crate) fn memory(input: &mut Input) -> (Tensor<3>, usize) {
    let (memory, first_key) = match (&input.memory, &input.past) {
        (Some(memory), _) => (memory.clone(), 0),
        (None, None) => (input.x.clone(), input.first),
        (None, Some(past)) => {
            let all = Tensor::cat(vec![past.clone().detach(), input.x.clone()], 1);
            (all, input.first - past.dims()[1])
        }
    };
    for length in input.key_lengths.iter_mut().flatten() {
        *length = length.saturating_add(first_key);
    }
    (memory, first_key)
}

/// Computes a call, `[batch, heads, queries, head_dim]` from q, k, v of the same layout, by the given path. The way to
/// attention without a layer, for scores and encodings of one's own.
pub fn attend(
    call: &Call,
    path: Path,
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
) -> Result<Tensor<4>, Error> {
    let Shape { batch, heads, kv_heads, queries, keys, head_dim, value_dim } = call.shape;
    let capacity = call.capacity.unwrap_or(keys);
    for (what, found, expected) in [
        ("q", q.dims(), [batch, heads, queries, head_dim]),
        ("k", k.dims(), [batch, kv_heads, capacity, head_dim]),
        ("v", v.dims(), [batch, kv_heads, capacity, value_dim]),
    ] {
        if found != expected {
            let expected = format!("{expected:?}, as the call says");
            return Err(Error::Shape { what, found: found.to_vec(), expected });
        }
    }
    let fused = match path {
        Path::Composed => None,
        Path::Auto | Path::Fused => fused::attend(call, q.clone(), k.clone(), v.clone())?,
    };
    match fused {
        Some(out) => Ok(out),
        None if path == Path::Fused => {
            let reason = format!("needs the CPU backend, found {:?}", q.device());
            Err(Error::setting("path", "fused", reason))
        }
        None => {
            let (k, v) = present(call, k, v);
            Ok(composed::attend(call, q, k, v))
        }
    }
}
