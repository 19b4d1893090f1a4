//! Attention of new tokens to those in a cache.

use burn::tensor::Tensor;

use crate::{
    Attention, Cache, Error, Input, Mixing, linear,
    projected::{project, project_all},
};

impl Attention {
    /// [`Self::forward`] for the tokens after those in the cache: `input.first` is taken from it. With a memory, keys and
    /// values are made of it once and kept.
    pub fn decode(&self, input: Input, cache: &mut Cache) -> Result<Tensor<3>, Error> {
        self.check(&input)?;
        let crosses = input.memory.is_some();
        let causal = self.settings().pattern.is_causal();
        if !crosses && !causal {
            let reason =
                "sees keys after the query, which a cache does not have yet; use a causal pattern";
            return Err(Error::setting("pattern", self.settings().pattern.name(), reason));
        }
        if input.past.is_some() {
            let reason = "the cache is the past; use one of them";
            return Err(Error::combination("past", "a cache", reason));
        }
        let path = input.path;
        let mixed = if crosses {
            let q = project(&self.query, input.x.clone(), path);
            self.decode_between(&input, q, None, cache)?
        } else {
            let all = [&self.query, &self.key, &self.value];
            let [q, k, v] = project_all(all, input.x.clone(), path);
            self.decode_between(&input, q, Some([k, v]), cache)?
        };
        Ok(project(&self.output, mixed, path))
    }

    /// What stands between the projections of [`Self::decode`], from queries and, unless there is a memory, keys and
    /// values, `[batch, length, channels]` each. For callers with projections of their own.
    pub fn decode_between(
        &self,
        input: &Input,
        q: Tensor<3>,
        own: Option<[Tensor<3>; 2]>,
        cache: &mut Cache,
    ) -> Result<Tensor<3>, Error> {
        cache.claim(self.settings())?;
        let q = self.as_queries(q);
        let kept = match (own, &cache.kept) {
            (Some([k, v]), _) => {
                let first = cache.length();
                let (k, v) = (self.as_keys(k), self.split(v, self.sizes().kv_heads));
                if matches!(self.settings().mixing, Mixing::Linear(_)) {
                    cache.advance(k.dims()[2]);
                    return Ok(self.join(linear::decode(&mut cache.state, q, k, v)));
                }
                let kept = cache.append(k, v, self.settings().pattern.reach())?;
                return self.mix(input, first, q, kept);
            }
            (None, Some(kept)) => kept.clone(),
            (None, None) => {
                let Some(memory) = &input.memory else {
                    let reason = "neither keys and values nor a memory to make them of";
                    return Err(Error::setting("own", "none", reason));
                };
                let k = self.keys(memory.clone(), input.path);
                cache.hold(k, self.values(memory.clone(), input.path))
            }
        };
        self.mix(input, input.first, q, kept)
    }
}
