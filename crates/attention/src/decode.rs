//! Attention of new tokens to those in a cache.

use burn::tensor::Tensor;
use whatwhere_settings::Refuses;

use crate::{
    Attention, Cache, Error, Input, Path, layer::sizes, mixing::MixingLayer as _,
    projected::Project, recurrence::Gates,
};

/// The projections of a layer: its own, or int8 copies of them.
#[derive(Clone, Copy, Debug)]
pub struct AttentionLinears<'a, P> {
    /// Of the queries' tokens.
    pub query: &'a P,
    /// Of the keys' tokens.
    pub key: &'a P,
    /// Of the same.
    pub value: &'a P,
    /// Of what was mixed.
    pub output: &'a P,
}

impl Attention {
    /// [`Self::forward`] for the tokens after those in the cache: `input.first` is taken from it. With a memory, keys and
    /// values are made of it once and kept.
    pub fn decode(&self, input: Input, cache: &mut Cache) -> Result<Tensor<3>, Error> {
        self.decode_by(self.linears(), input, cache)
    }

    /// [`Self::decode`] with other projections, such as int8 copies of its own.
    pub fn decode_by<P: Project>(
        &self,
        linears: AttentionLinears<P>,
        input: Input,
        cache: &mut Cache,
    ) -> Result<Tensor<3>, Error> {
        self.check_decoded(&input, cache)?;
        let (way, x) = (input.way(), input.x.clone());
        let AttentionLinears { query, key, value, output } = linears;
        let (q, made) = match (&input.memory, &cache.kept) {
            (None, _) => {
                let [q, k, v] = P::project_all([query, key, value], x, way);
                (q, Some([k, v]))
            }
            (Some(_), Some(_)) => (query.project(x, way), None),
            (Some(memory), None) => {
                let made = P::project_all([key, value], memory.clone(), way);
                (query.project(x, way), Some(made))
            }
        };
        let mixed = self.decode_between(&input, q, made, cache)?;
        Ok(output.project(mixed, way))
    }

    /// [`Self::decode_by`] for several sequences, each after its own cache: `rows` are their new tokens one after the other,
    /// `[1, tokens, width]`, and each input holds its own of them. They are projected together and attend by themselves.
    pub fn decode_together_by<P: Project>(
        &self,
        linears: AttentionLinears<P>,
        rows: Tensor<3>,
        sequences: &mut [(Input, &mut Cache)],
    ) -> Result<Tensor<3>, Error> {
        for (input, cache) in sequences.iter() {
            self.check_decoded(input, cache)?;
            if input.memory.is_some() {
                let reason = "sequences of one memory are a batch; decode them as one input";
                return Err(Error::combination("memory", "several sequences", reason));
            }
        }
        let way = sequences.first().map_or(Path::Auto.into(), |(input, _)| input.way());
        let AttentionLinears { query, key, value, output } = linears;
        let made = P::project_all([query, key, value], rows, way);
        let mut first = 0;
        let mut mixed = Vec::with_capacity(sequences.len());
        for (input, cache) in sequences {
            let length = input.x.dims()[1];
            let [q, k, v] = made.each_ref().map(|made| made.clone().narrow(1, first, length));
            mixed.push(self.decode_between(input, q, Some([k, v]), cache)?);
            first += length;
        }
        Ok(output.project(Tensor::cat(mixed, 1), way))
    }

    /// Refuses what cannot be decoded.
    fn check_decoded(&self, input: &Input, cache: &Cache) -> Result<(), Error> {
        input.check(self.settings(), self.sizes())?;
        let causal = self.settings().pattern.is_causal();
        if input.memory.is_none() && !causal {
            let reason =
                "sees keys after the query, which a cache does not have yet; use a causal pattern";
            return Err(Error::setting("pattern", self.settings().pattern.name(), reason));
        }
        if input.past.is_some() {
            let reason = "the cache is the past; use one of them";
            return Err(Error::combination("past", "a cache", reason));
        }
        let read = cache.length() + input.x.dims()[1];
        let prefix = input.prefixes.iter().flatten().max().copied().unwrap_or(0);
        if input.memory.is_none() && prefix > read {
            let reason =
                format!("its tokens see each other; read it in one step, found {read} tokens");
            return Err(Error::setting("prefix", prefix, reason));
        }
        Ok(())
    }

    /// What stands between the projections of [`Self::decode`], from queries and, unless the cache holds those of a memory,
    /// keys and values, `[batch, length, channels]` each.
    fn decode_between(
        &self,
        input: &Input,
        q: Tensor<3>,
        made: Option<[Tensor<3>; 2]>,
        cache: &mut Cache,
    ) -> Result<Tensor<3>, Error> {
        cache.claim(self.settings())?;
        let q = self.as_queries(q);
        let made = made.map(|[k, v]| (self.as_keys(k), self.split(v, self.sizes().kv_heads)));
        let kept = match (made, &cache.kept) {
            (Some((k, v)), _) if input.memory.is_none() => {
                let first = cache.length();
                if self.mixing.keeps_state() {
                    cache.advance(k.dims()[2]);
                    let call = self.call(
                        &Input { key_lengths: None, ..input.clone() },
                        first,
                        first,
                        sizes(&q, &k),
                    )?;
                    let gates = self.mixing.gates(&input.x, input.way());
                    let mix = self.mixing_of(input, &call, &gates);
                    return Ok(self.join(self.mixing.step(mix, &mut cache.state, q, k, v)?));
                }
                // A prefix stays visible, however far.
                let reach = self.settings().pattern.reach().filter(|_| input.prefixes.is_none());
                let kept = cache.append(k, v, reach)?;
                let Some(tokens) = cache.with_tokens(input.tokens.as_deref(), kept.first) else {
                    return self.mix(input, first, q, kept, &Gates::default());
                };
                let input = Input { tokens: Some(tokens), ..input.clone() };
                return self.mix(&input, first, q, kept, &Gates::default());
            }
            (Some((k, v)), _) => cache.hold(k, v),
            (None, Some(kept)) => kept.clone(),
            (None, None) => {
                let reason = "neither keys and values nor a memory to make them of";
                return Err(Error::setting("own", "none", reason));
            }
        };
        self.mix(input, input.first, q, kept, &Gates::default())
    }
}
