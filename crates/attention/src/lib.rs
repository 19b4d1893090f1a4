//! Attention for [burn](https://burn.dev): any score, pattern, head layout and position encoding, from one definition.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use whatwhere_attention::{AttentionSettings, Input};
//!
//! let settings = AttentionSettings::from_toml(
//!     "width = 64\nheads = 4\nposition = ['polar', { kind = 'alibi', heads = 0.5 }]\npattern = 'causal'",
//! )?;
//! let device = Device::flex().autodiff();
//! let layer = settings.build(&device)?;
//! let out = layer.forward(Input::new(Tensor::ones([2, 10, 64], &device)))?; // [batch, length, width]
//! let gradients = out.sum().backward();
//! # assert!(layer.query.as_ref().unwrap().weight.val().grad(&gradients).is_some());
//! # Ok::<(), whatwhere_attention::Error>(())
//! ```
//!
//! On burn's CPU backend the fused kernels of [`whatwhere_kernels`] compute both passes; on every other backend, or with
//! [`Path::Composed`], the same call is a composition of tensor operations. Tests hold the two against each other for
//! every combination, and for a handful of them on a GPU, too (feature `wgpu`, which adds over twenty minutes to a build).
//! [`combinations`] says what goes with what; the rest is refused when settings are read.
//!
//! # The choices
//! | setting | choices |
//! |---|---|
//! | `score` | `scaled_dot`, `dot`, `general`, `additive`, `cosine`; `soft_cap` on any |
//! | `pattern` | `full`, `causal`, `window`, `dilated`, `strided`, `fixed`, `random`, `global`, `prefix`, `document`, `predicted` (Luong's local-p), `and`, `or` |
//! | `position` | `none`, `sinusoidal`, `learned`, `shaw`, `transformer_xl`, `disentangled`, `rotary`, `polar`, `single_angle`, `alibi`, `t5`; one or a list |
//! | `mixing` | `softmax`, `linear` (feature maps elu + 1, relu, exp, softmax, identity), `retention`, `gated_linear`, `delta`, `gated_delta` |
//! | `heads`, `kv_heads` | equal: multi-head; 1 key head: multi-query; between: grouped |
//!
//! # What and where
//! - **`none`**: the score knows content only. Under a causal pattern a token still sees how many keys there are, which
//!   tells order a little. Without one, the layer is blind to order.
//! - **`sinusoidal`**: position is added to content before the layer, as waves of many lengths. Scores then mix what and
//!   where in all four products. It has no parameters, and unseen positions look new.
//! - **`learned`**: as sinusoidal, with a learned vector for each position. It fits the trained length best. Beyond its table
//!   there is nothing, and longer inputs are refused. On a `grid`, a vector for the row plus one for the column.
//! - **`shaw`**: the key is content plus a vector for its clipped distance, and so is the value. Where enters as `q·a`, what
//!   the query asks of a distance; with vectors on `queries`, also what a distance asks of the key. Beyond the clip, all
//!   distances look alike.
//! - **`transformer_xl`**: four terms keep what and where apart: content, what is asked of the distance, and a global bias
//!   for each. Distances are sinusoids, projected. It was made for segments that remember the one before ([`Input::past`]).
//! - **`disentangled`**: content asks for distances, and distances ask for content, each by a product of its own. Distances are
//!   learned vectors through the projections of keys and queries. Far ones share a vector.
//! - **`rotary`**: position rotates pairs of channels, so that a product depends on the distance. What and where share the phase:
//!   content decides at which distance a pair agrees best. It needs a [`Scaling`] beyond the trained length. On a `grid`, half of
//!   the pairs turn by the row and half by the column.
//! - **`polar`**: what is a magnitude, where a phase; neither can imitate the other. The score is a sum of magnitudes, each
//!   weighed by a cosine of the distance. Keys learn a phase δ; it holds far beyond the trained length. On a `grid`, half of
//!   the channels turn by the row and half by the column.
//! - **`single_angle`**: polar with one angle for all channels, as blog reviews have it. Where is then a single clock, and
//!   positions one period apart look the same. For comparison only.
//! - **`alibi`**: where is a penalty that grows with the distance, another slope for each head. What is left alone. Far keys
//!   fade out, so longer inputs do no harm and give little.
//! - **`t5`**: where is a learned number for each head and bucket of distances. What is left alone. Far distances share a
//!   bucket, which carries over to longer inputs.

mod axis;
#[cfg(feature = "burn")]
pub mod bridge;
#[cfg(feature = "burn")]
mod cache;
#[cfg(feature = "burn")]
pub mod call;
#[cfg(feature = "burn")]
mod centers;
mod combinations;
#[cfg(feature = "burn")]
mod composed;
#[cfg(feature = "burn")]
mod decode;
mod error;
#[cfg(feature = "burn")]
mod fused;
mod grid;
mod heads;
#[cfg(feature = "burn")]
mod input;
#[cfg(feature = "burn")]
mod key_terms;
#[cfg(feature = "burn")]
mod layer;
#[cfg(feature = "burn")]
mod look;
pub mod mixing;
pub mod position;
#[cfg(feature = "burn")]
pub mod projected;
mod qk_norm;
#[cfg(feature = "burn")]
mod recurrence;
#[cfg(feature = "burn")]
mod rotation;
mod scaling;
pub mod score;
mod settings;
pub mod slot;

#[cfg(feature = "burn")]
pub use cache::Cache;
#[cfg(feature = "burn")]
pub use centers::CenterLayer;
pub use combinations::combinations;
#[cfg(feature = "burn")]
pub use decode::AttentionLinears;
pub use error::Error;
pub use heads::{Heads, Sizes};
#[cfg(feature = "burn")]
pub use input::{Input, Path, Way};
#[cfg(feature = "burn")]
pub use layer::{Attention, attend};
#[cfg(feature = "burn")]
pub use look::CallView;
pub use mixing::Mixing;
pub use pattern::Pattern;
pub use position::Position;
#[cfg(feature = "burn")]
pub use qk_norm::QkNormLayer;
pub use qk_norm::{QkNorm, QkNormKind};
pub use scaling::Scaling;
pub use score::Score;
pub use settings::{AttentionBias, AttentionSettings, Projections};
#[doc(inline)]
pub use whatwhere_kernels::attention::pattern::settings as pattern;
