//! A pattern from a function of a pair, `sees = f(batch, head, query, key)`.
//! The `mask_mod` of FlexAttention, Dong et al. 2024, <https://arxiv.org/abs/2412.05496>. For trying ideas:
//! no tile is skipped and every pair is asked, so a pattern that stays deserves its own file.

use super::{Pair, Pattern};

/// A pattern defined by a function; made by [`from_fn`].
#[derive(Clone, Copy, Debug)]
pub struct Function<F>(F);

/// The pattern whose pairs are those for which `sees` is true.
pub fn from_fn<F: Fn(Pair) -> bool + Send + Sync>(sees: F) -> Function<F> {
    Function(sees)
}

impl<F: Fn(Pair) -> bool + Send + Sync> Pattern for Function<F> {
    fn sees(&self, pair: Pair) -> bool {
        self.0(pair)
    }
}
