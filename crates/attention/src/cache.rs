//! The cache: what a layer remembers between calls, so that new tokens cost only themselves.
//!
//! Keys are kept as they were before any feature, because the kernels turn them while they compare: so a scaling that
//! follows the length stays right, and one cache serves every encoding. Keys are written into room that grows by half, so
//! that a token does not copy those before it. Under a pattern with a bounded reach the oldest keys are dropped and the
//! cache stays bounded. Linear mixing keeps sums instead of keys.

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

/// Keys and values, `[batch, kv_heads, room, head_dim]` each.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) keys: Tensor<4>,
    pub(crate) values: Tensor<4>,
    /// Keys that are there; the rest is room for more.
    pub(crate) count: usize,
    /// Place of the first key that is still kept.
    pub(crate) first: usize,
}

/// Room is a multiple of so many keys.
const STEP: usize = 64;

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
        self.kept.as_ref().map_or(0, |kept| kept.count)
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

    /// Holds these keys and values, to which nothing will be added.
    pub(crate) fn hold(&mut self, keys: Tensor<4>, values: Tensor<4>) -> Kept {
        let count = keys.dims()[2];
        let kept = Kept { keys, values, count, first: self.length };
        self.length += count;
        self.kept.insert(kept).clone()
    }

    /// Appends keys and values, and returns all that a query can see; one that sees `reach` keys, itself among them, needs
    /// no older ones.
    pub(crate) fn append(
        &mut self,
        k: Tensor<4>,
        v: Tensor<4>,
        reach: Option<usize>,
    ) -> Result<Kept, Error> {
        let added = k.dims()[2];
        let mut kept = match self.kept.take() {
            None => Kept { count: 0, first: self.length, keys: k.clone(), values: v.clone() },
            Some(kept) => {
                let (held, new) = (kept.keys.dims()[0], k.dims()[0]);
                if held != new {
                    let reason = format!("holds {held} sequences, the input has {new}");
                    self.kept = Some(kept);
                    return Err(Error::setting("cache", "in use", reason));
                }
                kept
            }
        };
        // The first new query stands at `length` and sees `reach` keys before it.
        let oldest = reach.map_or(0, |reach| self.length.saturating_sub(reach));
        kept.make_room(added, oldest.saturating_sub(kept.first));
        kept.write(k, v);
        self.length += added;
        self.kept = Some(kept.clone());
        Ok(kept)
    }
}

impl Kept {
    /// Room for more keys. If there is not enough, the oldest go, as many as nobody needs.
    fn make_room(&mut self, added: usize, unneeded: usize) {
        let [batch, heads, room, dim] = self.keys.dims();
        if self.count > 0 && self.count + added <= room {
            return;
        }
        let unneeded = unneeded.min(self.count);
        let (first, left) = (unneeded, self.count - unneeded);
        let room = (left + added + (left + added) / 2).next_multiple_of(STEP);
        let larger = |old: &Tensor<4>, width| {
            let new = Tensor::zeros([batch, heads, room, width], &old.device());
            if left == 0 {
                return new;
            }
            let old = old.clone().narrow(2, first, left);
            new.slice_assign([0..batch, 0..heads, 0..left, 0..width], old)
        };
        (self.keys, self.values) =
            (larger(&self.keys, dim), larger(&self.values, self.values.dims()[3]));
        (self.count, self.first) = (left, self.first + unneeded);
    }

    /// Writes keys and values behind those that are there.
    fn write(&mut self, k: Tensor<4>, v: Tensor<4>) {
        let ([batch, heads, added, dim], width) = (k.dims(), v.dims()[3]);
        let places = self.count..self.count + added;
        let put = |old: &mut Tensor<4>, new, width| {
            // The only owner, so that it is written in place.
            let owned = std::mem::replace(old, Tensor::zeros([1, 1, 1, 1], &old.device()));
            *old = owned.slice_assign([0..batch, 0..heads, places.clone(), 0..width], new);
        };
        put(&mut self.keys, k, dim);
        put(&mut self.values, v, width);
        self.count += added;
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
