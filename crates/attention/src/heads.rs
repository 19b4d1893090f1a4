//! The sizes of a layer that its choices need to know.

use std::ops::Range;

use crate::Error;

/// Sizes of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Width of the model.
    pub width: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
}

/// Sizes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Sequences.
    pub batch: usize,
    /// Queries per sequence.
    pub queries: usize,
    /// Keys per sequence.
    pub keys: usize,
}

/// The first `share` of `count` things, rounded to the nearest whole number.
pub(crate) fn share_of(share: f64, count: usize) -> Range<usize> {
    0..(share * count as f64).round() as usize
}

/// Refuses a share outside (0, 1].
pub(crate) fn check_share(setting: &'static str, share: f64) -> Result<(), Error> {
    if share > 0.0 && share <= 1.0 {
        Ok(())
    } else {
        Err(Error::setting(setting, share, "a share is above 0 and at most 1"))
    }
}
