//! Softmax attention on plain slices: fused forward, backward and decoding for every score, pattern and position.
//!
//! For one head, with query `i` at position `p`, key `j` at position `s`, and `distance = s − p`:
//!
//! ```text
//! features   fq = feature(q_i + u, p)          fk = feature(k_j, s)          rotary, polar, or none
//! compare    a  = scale · fq·fk   |   scale · fq·fk / (|fq| |fk|)   |   Σ_c w_c tanh(q_c + k_c)
//! soft cap   a  = cap · tanh(a / cap)
//! bias       a  = a + b[head, distance] + scale · (q_i + v)·r[distance] + dense[i, j]
//! hide       a  = −∞ unless pattern sees (p, s)
//! softmax    w_j = exp(a_j) / Σ exp(a)
//! dropout    w_j = w_j · mask_j / (1 − rate) · exp(−(s − center)² / 2σ²)
//! mix        out_i = Σ_j w_j (v_j + x[distance])
//! ```
//!
//! Every step is optional but compare, softmax and mix. [`attention::Call`] holds the choices; its `forward` and `backward`
//! compute in O(length) memory, tile by tile, and no score outlives its tile. Decoding is `forward` with the new queries,
//! their position in `first_query`, and all keys so far. [`linear_attention`] is the other mixing, `φ(q)·φ(k)` instead of a
//! softmax, with a state of constant size. [`layer`] is what a training step needs besides attention: linear layers (f32
//! and int8), norms, activations, embeddings, cross-entropy, Adam.
//!
//! # Where to start reading
//! [`attention::reference`] is the definition in f64 with stored scores. `attention/forward.rs` and `attention/backward/` are
//! the same formula in tiles, side by side; both get their scores from `scores.rs`. `tile.rs` cuts the work, `prepare.rs`
//! forms features, `simd/` holds the vector code and all `unsafe`.
//!
//! # Conventions
//! - Tensors are `[batch, heads, length, dim]`, contiguous ([`attention::Shape`]). Grouped heads repeat-interleave: query head `h`
//!   reads key head `h / (heads / kv_heads)`.
//! - Causal alignment for unequal lengths is a choice: [`attention::pattern::Causal`].
//! - A query that sees nothing gets zeros, the log-sum-exp −∞, and passes no gradient.
//! - NaN in a query spoils its own row; NaN in a key or value spoils the rows that see it, and may spoil rows that
//!   share a tile with it, because a weight of 0 times NaN is NaN. A score of +∞ gives NaN; −∞ hides the pair.
//! - Results are the same bits for any number of threads. They differ between instruction sets by rounding.
//!
//! # Example
//! ```
//! use whatwhere_kernels::attention::{
//!     Attention, Bias, Inputs, Shape, alibi_slopes, alibi_table, pattern::Causal,
//! };
//!
//! let shape = Shape::square(1, 4, 128, 32); // batch, heads, length, head_dim
//! let q: Vec<f32> = (0..shape.q_len()).map(|i| (i as f32).sin()).collect();
//! let (k, v) = (q.clone(), q.clone());
//! let alibi = alibi_table(&alibi_slopes(4), 127, 0); // [heads, distances −127 to 0]
//!
//! let mut attention = Attention::new(shape, &Causal { offset: 0 });
//! attention.biases.push(Bias::ByDistance { table: &alibi, left: 127, right: 0 });
//! let inputs = Inputs { q: &q, k: &k, v: &v };
//! let made = attention.forward(&inputs)?;
//! let gradients = attention.backward(&inputs, &made, &vec![1.0; shape.out_len()])?;
//! assert_eq!(gradients.q.len(), shape.q_len());
//! assert_eq!(gradients.learned.values()[0].len(), 4 * 128); // the table learns, too
//! # Ok::<(), whatwhere_kernels::Error>(())
//! ```

pub mod attention;
mod error;
pub mod layer;
pub mod linear_attention;
mod memory;
mod parallel;
mod precision;
mod simd;
#[cfg(test)]
mod testing;
mod tile;

pub use error::Error;
pub use memory::pool::Pooled;
pub use parallel::with_busy_pool;
pub use precision::Precision;
pub use simd::Simd;
pub use tile::TILE;

/// Up to this many rows at once, linear layers, embeddings and attention compute each row to the same bits as by itself.
/// Speculative decoding relies on it: tokens checked together are those that would have been chosen one by one.
pub const EXACT_ROWS: usize = 8;
