//! The cache: what a layer remembers between calls, so that new tokens cost only themselves.
//!
//! Keys are kept as they were before any feature, because the kernels turn them while they compare: so a scaling that
//! follows the length stays right, and one cache serves every encoding. Under a pattern with a bounded reach the oldest
//! keys are dropped and the cache stays bounded. Linear mixing keeps sums instead of keys.

use burn::tensor::{Int, Tensor};

use crate::{AttentionSettings, Error, linear::State};

/// What one layer remembers.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    /// Settings of the layer that filled it.
    owner: Option<AttentionSettings>,
    pub(crate) kept: Option<Kept>,
    /// The sums of linear mixing, instead of keys.
    pub(crate) state: Option<State>,
    /// Places seen so far.
    length: usize,
}

/// Keys and values, `[batch, kv_heads, keys, head_dim]` each.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) keys: Tensor<4>,
    pub(crate) values: Tensor<4>,
    /// Place of the first key that is still kept.
    pub(crate) first: usize,
}

impl Cache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Places seen so far; the next token stands here.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Keys held at the moment.
    pub fn keys(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.keys.dims()[2])
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes sequences in a new order, some perhaps several times: `order[i]` is the old index of new sequence `i`.
    /// Beam search calls it after each step.
    pub fn reorder(&mut self, order: &[usize]) -> Result<(), Error> {
        let held = self.kept.as_ref().map(|kept| &kept.keys);
        let held = held.or(self.state.as_ref().map(|state| &state.sums));
        let Some(held) = held else { return Ok(()) };
        let batch = held.dims()[0];
        if let Some(beyond) = order.iter().find(|index| **index >= batch) {
            let reason = format!("the cache holds {batch} sequences");
            return Err(Error::setting("order", beyond, reason));
        }
        let order: Vec<i64> = order.iter().map(|index| *index as i64).collect();
        let order = Tensor::<1, Int>::from_ints(order.as_slice(), &held.device());
        let take = |tensor: &mut Tensor<4>| *tensor = tensor.clone().select(0, order.clone());
        if let Some(kept) = &mut self.kept {
            take(&mut kept.keys);
            take(&mut kept.values);
        }
        if let Some(state) = &mut self.state {
            take(&mut state.sums);
            take(&mut state.total);
        }
        Ok(())
    }

    /// Refuses a cache that a layer with other settings has filled.
    pub(crate) fn claim(&mut self, settings: &AttentionSettings) -> Result<(), Error> {
        match &self.owner {
            None => self.owner = Some(settings.clone()),
            Some(owner) if owner == settings => {}
            Some(owner) => {
                let differs = difference(owner, settings);
                let reason =
                    format!("was filled by a layer with another {differs}; clear it first");
                return Err(Error::setting("cache", "in use", reason));
            }
        }
        Ok(())
    }

    /// Counts tokens that left no keys.
    pub(crate) fn advance(&mut self, tokens: usize) {
        self.length += tokens;
    }

    /// Appends keys and values, and returns all of them.
    pub(crate) fn append(&mut self, k: Tensor<4>, v: Tensor<4>) -> Result<Kept, Error> {
        let added = k.dims()[2];
        let kept = match self.kept.take() {
            None => Kept { keys: k, values: v, first: self.length },
            Some(kept) => {
                let (held, new) = (kept.keys.dims()[0], k.dims()[0]);
                if held != new {
                    let reason = format!("holds {held} sequences, the input has {new}");
                    self.kept = Some(kept);
                    return Err(Error::setting("cache", "in use", reason));
                }
                Kept {
                    keys: Tensor::cat(vec![kept.keys, k], 2),
                    values: Tensor::cat(vec![kept.values, v], 2),
                    first: kept.first,
                }
            }
        };
        self.length += added;
        self.kept = Some(kept.clone());
        Ok(kept)
    }

    /// Drops the keys that no later query can see.
    pub(crate) fn shorten(&mut self, reach: Option<usize>) {
        let (Some(reach), Some(kept)) = (reach, &mut self.kept) else { return };
        let held = kept.keys.dims()[2];
        // The next query stands at `length` and sees `reach` keys before it.
        let oldest = self.length.saturating_sub(reach);
        let drop = oldest.saturating_sub(kept.first).min(held);
        if drop > 0 {
            kept.keys = kept.keys.clone().narrow(2, drop, held - drop);
            kept.values = kept.values.clone().narrow(2, drop, held - drop);
            kept.first += drop;
        }
    }
}

/// The first setting in which two layers differ.
fn difference(a: &AttentionSettings, b: &AttentionSettings) -> &'static str {
    [
        ("width", a.width != b.width),
        ("heads", a.heads != b.heads || a.kv_heads != b.kv_heads || a.head_dim != b.head_dim),
        ("score", a.score != b.score),
        ("pattern", a.pattern != b.pattern),
        ("position", a.position != b.position),
        ("mixing", a.mixing != b.mixing),
    ]
    .iter()
    .find(|(_, differs)| *differs)
    .map_or("setting", |(name, _)| name)
}
