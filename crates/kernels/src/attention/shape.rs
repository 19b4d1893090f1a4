//! The sizes of one attention call, and the layout of its tensors.

use std::ops::Range;

use crate::Error;

/// Sizes of one call. Tensors are contiguous: `q [batch, heads, queries, head_dim]`,
/// `k [batch, kv_heads, keys, head_dim]`, `v [batch, kv_heads, keys, value_dim]`,
/// `out [batch, heads, queries, value_dim]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Independent sequences.
    pub batch: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`. Query head `h` reads key head `h / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Queries per sequence.
    pub queries: usize,
    /// Keys per sequence.
    pub keys: usize,
    /// Width of a query and of a key.
    pub head_dim: usize,
    /// Width of a value; may differ from `head_dim`.
    pub value_dim: usize,
}

impl Shape {
    /// Self-attention: as many keys as queries, values as wide as keys, one key head per query head.
    pub fn square(batch: usize, heads: usize, length: usize, head_dim: usize) -> Self {
        Self {
            batch,
            heads,
            kv_heads: heads,
            queries: length,
            keys: length,
            head_dim,
            value_dim: head_dim,
        }
    }

    /// Query heads that share one key head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// The key head that query head `head` reads.
    pub fn kv_head(&self, head: usize) -> usize {
        head / self.group()
    }

    /// Length of `q`.
    pub fn q_len(&self) -> usize {
        self.batch * self.heads * self.queries * self.head_dim
    }

    /// Length of `k`.
    pub fn k_len(&self) -> usize {
        self.batch * self.kv_heads * self.keys * self.head_dim
    }

    /// Length of `v`.
    pub fn v_len(&self) -> usize {
        self.batch * self.kv_heads * self.keys * self.value_dim
    }

    /// Length of `out`.
    pub fn out_len(&self) -> usize {
        self.batch * self.heads * self.queries * self.value_dim
    }

    /// Number of score rows, the length of `lse`.
    pub fn rows(&self) -> usize {
        self.batch * self.heads * self.queries
    }

    /// Where head `head` of sequence `batch` lies in `q`.
    pub fn q_head(&self, batch: usize, head: usize) -> Range<usize> {
        block(batch * self.heads + head, self.queries * self.head_dim)
    }

    /// Where key head `kv_head` of sequence `batch` lies in `k`.
    pub fn k_head(&self, batch: usize, kv_head: usize) -> Range<usize> {
        block(batch * self.kv_heads + kv_head, self.keys * self.head_dim)
    }

    /// Where key head `kv_head` of sequence `batch` lies in `v`.
    pub fn v_head(&self, batch: usize, kv_head: usize) -> Range<usize> {
        block(batch * self.kv_heads + kv_head, self.keys * self.value_dim)
    }

    /// Where head `head` of sequence `batch` lies in `out`.
    pub fn out_head(&self, batch: usize, head: usize) -> Range<usize> {
        block(batch * self.heads + head, self.queries * self.value_dim)
    }

    /// Where head `head` of sequence `batch` lies in `lse`.
    pub fn row_head(&self, batch: usize, head: usize) -> Range<usize> {
        block(batch * self.heads + head, self.queries)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let sizes = [
            ("batch", self.batch),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("value_dim", self.value_dim),
        ];
        for (what, size) in sizes {
            if size == 0 {
                return Err(Error::Zero { what });
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(Error::Heads { heads: self.heads, kv_heads: self.kv_heads });
        }
        let product = |sizes: &[usize]| sizes.iter().try_fold(1usize, |a, &b| a.checked_mul(b));
        // A length of 0 must not hide that the other sizes overflow on their own.
        let fits = |heads: usize, length: usize, dim: usize| {
            product(&[self.batch, heads, length.max(1), dim, size_of::<f32>()])
                .is_some_and(|bytes| bytes <= isize::MAX as usize)
        };
        let widest = self.head_dim.max(self.value_dim);
        let fits = fits(self.heads, self.queries, widest) && fits(self.kv_heads, self.keys, widest);
        if fits { Ok(()) } else { Err(Error::TooLarge) }
    }
}

fn block(index: usize, len: usize) -> Range<usize> {
    index * len..(index + 1) * len
}
