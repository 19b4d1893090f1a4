//! What a training step needs besides attention: linear layers in f32 and int8, activations, norms, recurrences,
//! embeddings, the cross-entropy over a vocabulary without holding its logits, and Adam's update. Every layer has its own backward pass.

mod activation;
mod adam;
mod cross_entropy;
mod embedding;
mod feed_forward;
mod heads;
mod linear;
mod norm;
mod quantized;
mod recurrence;

pub use activation::{Activation, Gated};
pub use adam::{Adam, square_sum};
pub use cross_entropy::{CrossEntropy, LossSum, OutputGradients, OutputWeights};
pub use embedding::Embedding;
pub use feed_forward::{FeedForward, FeedForwardGradients, Hidden};
pub use heads::HeadLayout;
pub use linear::{Linear, add_to};
pub use norm::Norm;
pub use quantized::{Int8Values, QuantizedLinear, bf16_bits, bf16_value, f16_bits, f16_value};
pub use recurrence::{Cell, Recurrence, RecurrenceGradients, Steps};
