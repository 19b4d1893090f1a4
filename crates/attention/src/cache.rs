//! The cache: what a layer remembers between calls, so that new tokens cost only themselves.
//!
//! Keys are kept as they were before any feature, because the kernels turn them while they compare: so a scaling that
//! follows the length stays right, and one cache serves every encoding. Keys are written into space that grows by half, so
//! that a token does not copy those before it. Under a pattern with a bounded reach the oldest keys are dropped and the
//! cache stays bounded. Linear mixing keeps sums instead of keys.

use burn::tensor::{Int, Tensor};
use rayon::prelude::*;
use whatwhere_kernels::{Pooled, TILE};
use whatwhere_settings::Refuses;

use crate::{
    AttentionSettings, Error,
    bridge::{Operand, untracked},
    mixing::State,
};

/// What one layer remembers.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    /// Settings of the layer that filled it.
    owner: Option<AttentionSettings>,
    pub(crate) kept: Option<Kept>,
    /// The sums of linear mixing, instead of keys.
    pub(crate) state: Option<State>,
    /// The tokens of each sequence so far, for a pattern that shows tokens of a kind.
    tokens: Vec<Vec<u32>>,
    /// Positions seen so far.
    length: usize,
}

/// Keys and values, `[batch, kv_heads, capacity, head_dim]` each.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) keys: Tensor<4>,
    pub(crate) values: Tensor<4>,
    /// Keys that are present; the rest is capacity for more.
    pub(crate) count: usize,
    /// Position of the first key that is still kept.
    pub(crate) first: usize,
    /// The cache can go back to this length: queries there see keys that are still kept.
    least: usize,
}

/// Room is a multiple of so many keys.
const STEP: usize = 64;
/// As many tokens can be taken back under a pattern with a bounded reach, whose older keys are gone.
const BACK: usize = 64;

impl Cache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Positions seen so far; the next token stands here.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Keys held at the moment.
    pub fn keys(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.count)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Forgets the last tokens, which can then be replaced by others. Sums cannot be undone, so a cache of linear mixing
    /// refuses; one that drops old keys can forget 64 at least.
    pub fn rollback(&mut self, tokens: usize) -> Result<(), Error> {
        let Some(kept) = self.kept.as_mut().filter(|kept| tokens <= kept.count) else {
            if tokens == 0 {
                return Ok(());
            }
            let reason = format!("the cache holds the keys of {} tokens", self.keys());
            return Err(Error::setting("tokens", tokens, reason));
        };
        if self.length - tokens < kept.least {
            let most = self.length - kept.least;
            let reason = format!("older keys are gone; {most} at most can be taken back");
            return Err(Error::setting("tokens", tokens, reason));
        }
        kept.count -= tokens;
        self.length -= tokens;
        self.tokens.iter_mut().for_each(|ids| ids.truncate(self.length));
        Ok(())
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
        if order.iter().copied().eq(0..batch) {
            return Ok(());
        }
        if !self.tokens.is_empty() {
            self.tokens = order.iter().map(|index| self.tokens[*index].clone()).collect();
        }
        if let Some(Kept { keys, values, count, .. }) = &mut self.kept {
            for tensor in [keys, values] {
                *tensor = reordered(tensor, order, *count);
            }
        }
        if let Some(State { sums, total }) = &mut self.state {
            for tensor in std::iter::once(sums).chain(total) {
                let rows = tensor.dims()[2];
                *tensor = reordered(tensor, order, rows);
            }
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

    /// Remembers the tokens that were appended last, and returns those of all keys from `first` on; nothing where the call
    /// does not say them.
    pub(crate) fn with_tokens(
        &mut self,
        new: Option<&[Vec<u32>]>,
        first: usize,
    ) -> Option<Vec<Vec<u32>>> {
        let new = new?;
        self.tokens.resize(new.len(), Vec::new());
        for (all, new) in self.tokens.iter_mut().zip(new) {
            all.extend(new);
        }
        Some(self.tokens.iter().map(|all| all[first.min(all.len())..].to_vec()).collect())
    }

    /// Holds the keys and values of a memory, to which nothing will be added.
    pub(crate) fn hold(&mut self, keys: Tensor<4>, values: Tensor<4>) -> Kept {
        self.length += keys.dims()[2];
        self.kept.insert(Kept::whole(keys, values, 0)).clone()
    }

    /// Appends keys and values, and returns all that a query can see; one that sees `reach` keys, itself among them, needs
    /// no older ones.
    pub(crate) fn append(
        &mut self,
        k: Tensor<4>,
        v: Tensor<4>,
        reach: Option<usize>,
    ) -> Result<Kept, Error> {
        let (held, new) = (self.kept.as_ref().map(|kept| kept.keys.dims()[0]), k.dims()[0]);
        if let Some(held) = held.filter(|held| *held != new) {
            let reason = format!("holds {held} sequences, the input has {new}");
            return Err(Error::setting("cache", "in use", reason));
        }
        let added = k.dims()[2];
        // The cache is the only owner meanwhile, so that keys are written in place.
        let kept = match self.kept.take() {
            Some(kept) if kept.count + added <= kept.keys.dims()[2] => kept,
            Some(kept) => kept.moved(self.length, reach, added),
            None => Kept::empty(&k, &v, self.length),
        };
        self.length += added;
        Ok(self.kept.insert(kept.with(k, v)).clone())
    }
}

impl Kept {
    /// Keys and values without capacity for more.
    pub(crate) fn whole(keys: Tensor<4>, values: Tensor<4>, first: usize) -> Self {
        let count = keys.dims()[2];
        Self { keys, values, count, first, least: 0 }
    }

    /// Room for these keys and values and some more, the first of them at `first`.
    fn empty(k: &Tensor<4>, v: &Tensor<4>, first: usize) -> Self {
        let capacity = capacity_for(k.dims()[2]);
        Self {
            keys: with_capacity(k, capacity),
            values: with_capacity(v, capacity),
            count: 0,
            first,
            least: first,
        }
    }

    /// The keys that queries at `length` and a little before can see, with capacity for more.
    fn moved(self, length: usize, reach: Option<usize>, added: usize) -> Self {
        let oldest = reach.map_or(0, |reach| length.saturating_sub(reach + BACK));
        // Whole tiles of the kernels: which keys are summed together does not depend on when others were dropped.
        let gone = oldest.saturating_sub(self.first).min(self.count) / TILE * TILE;
        let count = self.count - gone;
        let capacity = capacity_for(count + added);
        let take = |old: Tensor<4>| {
            write(with_capacity(&old, capacity), 0, old.slice_dim(2, gone..gone + count))
        };
        let (keys, values) = (take(self.keys), take(self.values));
        let least = if gone > 0 { length - BACK } else { self.least };
        Self { keys, values, count, first: self.first + gone, least }
    }

    /// These and more, for which there is capacity.
    fn with(self, k: Tensor<4>, v: Tensor<4>) -> Self {
        let count = self.count + k.dims()[2];
        let (keys, values) = (write(self.keys, self.count, k), write(self.values, self.count, v));
        Self { keys, values, count, ..self }
    }
}

/// Room for so many keys and half as many more.
fn capacity_for(keys: usize) -> usize {
    (keys + keys / 2).next_multiple_of(STEP)
}

/// Zeros like these keys, but so many of them.
fn with_capacity(keys: &Tensor<4>, capacity: usize) -> Tensor<4> {
    let [batch, heads, _, width] = keys.dims();
    Tensor::zeros([batch, heads, capacity, width], &keys.device())
}

/// Sequences in a new order, of each head the first `count` rows; what the others hold does not matter.
fn reordered(tensor: &Tensor<4>, order: &[usize], count: usize) -> Tensor<4> {
    let [_, heads, capacity, width] = tensor.dims();
    if let Some(old) = Operand::new(tensor.clone()) {
        let size = heads * capacity * width;
        let mut made = Pooled::uncleared(order.len() * size);
        made.par_chunks_mut(size.max(1)).zip(order).for_each(|(to, index)| {
            let from = &old.values()[index * size..][..size];
            let heads = to.chunks_mut(capacity * width).zip(from.chunks(capacity * width));
            for (to, from) in heads {
                to[..count * width].copy_from_slice(&from[..count * width]);
            }
        });
        return untracked(made, [order.len(), heads, capacity, width]);
    }
    let order: Vec<i64> = order.iter().map(|index| *index as i64).collect();
    let order = Tensor::<1, Int>::from_ints(order.as_slice(), &tensor.device());
    tensor.clone().select(0, order)
}

/// Writes keys at `first` and after.
fn write(to: Tensor<4>, first: usize, keys: Tensor<4>) -> Tensor<4> {
    let [batch, heads, count, width] = keys.dims();
    if count == 0 {
        return to;
    }
    to.slice_assign([0..batch, 0..heads, first..first + count, 0..width], keys)
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
