//! What a layer is called with.

use std::sync::Arc;

use burn::tensor::Tensor;
use whatwhere_kernels::{Precision, attention::pattern as kernels};
use whatwhere_settings::Refuses as _;

use crate::{AttentionSettings, Error, heads::Heads, position::PositionModule};

/// What a layer is called with.
#[derive(Clone)]
pub struct Input {
    /// `[batch, queries, width]`.
    pub x: Tensor<3>,
    /// Keys and values are made of this, `[batch, keys, width]`; of `x` if absent.
    pub memory: Option<Tensor<3>>,
    /// Transformer-XL's segment memory: what stood before `x` in this layer, `[batch, positions, width]`. Its keys and values
    /// come before those of `x`, and no gradient reaches it. For [`forward`](crate::Attention::forward); a cache has its own past.
    pub past: Option<Tensor<3>>,
    /// Position of the first query; its own key stands there, too, unless there is a memory, whose keys start at 0.
    pub first: usize,
    /// Number of keys that are not padding, one for each sequence: of the memory, or of past and `x` together, or since
    /// the cache was empty.
    pub key_lengths: Option<Vec<usize>>,
    /// Where documents start, one list for all sequences or one for each.
    pub documents: Option<Vec<Vec<usize>>>,
    /// The tokens that keys are made of, `x` in decoding, by their ids, one list for each sequence: for patterns that show
    /// tokens of a kind.
    pub tokens: Option<Vec<Vec<u32>>>,
    /// How many keys at the start are seen by every query, whatever the layer's pattern, one number for each sequence: the
    /// prefix of a prefix language model, given as a whole.
    pub prefixes: Option<Vec<usize>>,
    /// A pattern of the caller's, seen through in addition to the layer's own.
    pub pattern: Option<Arc<dyn kernels::Pattern>>,
    /// Seed of dropout; without one nothing is dropped.
    pub seed: Option<u64>,
    /// Encodings in place of the layer's own, where several layers share one's.
    pub position: Option<Arc<[PositionModule]>>,
    /// Which path to take.
    pub path: Path,
    /// What the kernels' products are computed in; the composed path has the framework's.
    pub precision: Precision,
}

/// How a layer computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Path {
    /// Fused where there are kernels for the backend, composed elsewhere.
    #[default]
    Auto,
    /// The kernels, or an error on a backend they do not serve.
    Fused,
    /// Tensor operations of the framework.
    Composed,
}

/// How products are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// By which path.
    pub path: Path,
    /// In which precision, if the kernels compute them.
    pub precision: Precision,
}

impl From<Path> for Way {
    /// In f32.
    fn from(path: Path) -> Self {
        Self { path, precision: Precision::F32 }
    }
}

impl Input {
    /// Self-attention from position 0.
    pub fn new(x: Tensor<3>) -> Self {
        Self {
            x,
            memory: None,
            past: None,
            first: 0,
            key_lengths: None,
            documents: None,
            tokens: None,
            prefixes: None,
            pattern: None,
            seed: None,
            position: None,
            path: Path::Auto,
            precision: Precision::F32,
        }
    }

    pub(crate) fn way(&self) -> Way {
        Way { path: self.path, precision: self.precision }
    }

    /// Refuses what a layer of these settings and sizes cannot be called with.
    pub(crate) fn check(&self, settings: &AttentionSettings, sizes: Heads) -> Result<(), Error> {
        let [batch, _, width] = self.x.dims();
        let expected = |what, found: &Tensor<3>, right: bool, expected: String| {
            let found = found.dims().to_vec();
            if right { Ok(()) } else { Err(Error::Shape { what, found, expected }) }
        };
        let own = [
            (self.pattern.is_some(), "a pattern of the caller's"),
            (self.prefixes.is_some(), "a prefix"),
        ];
        if !settings.mixing.has_scores()
            && let Some((_, what)) = own.into_iter().find(|(is_given, _)| *is_given)
        {
            let reason = "its state sums all keys, or all up to the query";
            return Err(Error::combination(settings.mixing.name(), what, reason));
        }
        if settings.mixing.is_causal() && self.memory.is_some() {
            let reason = "its state is carried from token to token, and a memory's tokens are not those of x";
            return Err(Error::combination(settings.mixing.name(), "a memory", reason));
        }
        // burn 0.22.1's matrix product reads out of bounds for a batch of 0.
        let right = width == sizes.width && batch > 0;
        let want = format!("[1 or more, length, {}]", sizes.width);
        expected("x", &self.x, right, want)?;
        if let Some(memory) = &self.memory {
            let [sequences, _, width] = memory.dims();
            let right = width == sizes.width && sequences == batch;
            let want = format!("[{batch}, length, {}]", sizes.width);
            expected("memory", memory, right, want)?;
        }
        if let Some(past) = &self.past {
            if self.memory.is_some() {
                let reason = "a past stands before x, and keys are made of the memory instead";
                return Err(Error::combination("past", "a memory", reason));
            }
            let [sequences, positions, width] = past.dims();
            let right = width == sizes.width && sequences == batch;
            expected("past", past, right, format!("[{batch}, positions, {}]", sizes.width))?;
            if positions > self.first {
                let reason = format!("the past has {positions} positions before it");
                return Err(Error::setting("first", self.first, reason));
            }
        }
        Ok(())
    }
}
