//! Softmax attention on plain slices: fused forward, backward and decoding for every score, pattern and position.
//!
//! For one head, with query `i` at place `p`, key `j` at place `s`, and `distance = s − p`:
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
//! Every step is optional but compare, softmax and mix. [`Attention`] holds the choices; [`Attention::forward`] and
//! [`Attention::backward`] compute in O(length) memory, tile by tile, and no score outlives its tile. Decoding is
//! `forward` with the new queries, their place in [`Attention::first_query`], and all keys so far. [`Linear`] is the other
//! mixing, `φ(q)·φ(k)` instead of a softmax, with a state of constant size.
//!
//! # Where to start reading
//! [`mod@reference`] is the definition in f64 with stored scores. `forward.rs` and `backward/` are the same
//! formula in tiles, side by side; both get their scores from `scores.rs`. `tile.rs` cuts the work, `prepare.rs` forms
//! features, `simd/` holds the vector code and all `unsafe`.
//!
//! # Conventions
//! - Tensors are `[batch, heads, length, dim]`, contiguous ([`Shape`]). Grouped heads repeat-interleave: query head `h`
//!   reads key head `h / (heads / kv_heads)`.
//! - Causal alignment for unequal lengths is a choice: [`pattern::Causal`].
//! - A query that sees nothing gets zeros, the logarithmic sum −∞, and passes no gradient.
//! - NaN in a query spoils its own row; NaN in a key or value spoils the rows that see it, and may spoil rows that
//!   share a tile with it, because a weight of 0 times NaN is NaN. A score of +∞ gives NaN; −∞ hides the pair.
//! - Results are the same bits for any number of threads. They differ between instruction sets by rounding.
//!
//! # Example
//! ```
//! use whatwhere_kernels::{Attention, Bias, Inputs, Shape, alibi_slopes, pattern::Causal};
//!
//! let shape = Shape::square(1, 4, 128, 32); // batch, heads, length, head_dim
//! let q: Vec<f32> = (0..shape.q_len()).map(|i| (i as f32).sin()).collect();
//! let (k, v) = (q.clone(), q.clone());
//! let slopes = alibi_slopes(4);
//!
//! let mut attention = Attention::new(shape, &Causal { offset: 0 });
//! attention.biases.push(Bias::Slopes { slopes: &slopes });
//! let inputs = Inputs { q: &q, k: &k, v: &v };
//! let made = attention.forward(&inputs)?;
//! let gradients = attention.backward(&inputs, &made, &vec![1.0; shape.out_len()])?;
//! assert_eq!(gradients.q.len(), shape.q_len());
//! assert_eq!(gradients.biases[0].table.len(), 4); // the slopes learn, too
//! # Ok::<(), whatwhere_kernels::Error>(())
//! ```

mod activation;
mod adam;
mod angles;
mod attention;
mod backward;
mod bias;
mod dense;
mod dropout;
mod embedding;
mod error;
mod feature;
mod feed_forward;
mod forward;
mod head;
mod heads;
mod inspect;
mod learned;
mod light;
mod linear;
mod loss;
mod norm;
mod parallel;
pub mod pattern;
mod plan;
mod pool;
mod prepare;
pub mod reference;
mod score;
mod scores;
mod scratch;
mod shape;
mod simd;
mod tile;

pub use activation::{Bend, Gate};
pub use adam::{Adam, square_sum};
pub use attention::{Attended, Attention, BiasGradient, Dropout, Focus, Gradients, Inputs};
pub use bias::{Bias, Buckets, Relative, alibi_slopes};
pub use dense::{Dense, add_to};
pub use embedding::Embedding;
pub use error::Error;
pub use feature::{Angles, DELTA_RANGE, Feature, Kind, Layout, Magnitude};
pub use feed_forward::{FeedForward, FeedForwardGradients, Inner};
pub use heads::HeadLayout;
pub use inspect::{Inspection, Pool};
pub use light::Light;
pub use linear::{Linear, LinearAttended, LinearGradients, LinearState};
pub use loss::{CrossEntropy, Surprise};
pub use norm::Norm;
pub use parallel::awake;
pub use pool::Pooled;
pub use score::Score;
pub use shape::Shape;
pub use simd::Simd;
pub use tile::TILE;
