//! Transformers for burn, over any attention: decoder, encoder and encoder-decoder, with cached generation.
//!
//! ```
//! use burn::tensor::Device;
//! use whatwhere_transformer::{Mode, ModelSettings, Sequences};
//!
//! let settings = ModelSettings::from_toml(
//!     "vocabulary = 65\nwidth = 32\nlayers = 2\nattention = { heads = 4, position = 'polar' }",
//! )?;
//! let device = Device::flex().autodiff();
//! let model = settings.build(7, &device)?;
//! let tokens = Sequences::from_rows(&[vec![1, 2, 3], vec![4, 5, 6]]);
//! let logits = model.forward(None, &tokens, Mode::default())?; // [batch, length, vocabulary]
//! assert_eq!(logits.dims(), [2, 3, 65]);
//! # Ok::<(), whatwhere_transformer::Error>(())
//! ```
//!
//! [`Model`] is the whole: embeddings, an encoder [`Stack`], a decoder [`Stack`] or both, and the output projection to logits. A
//! stack is made of [`Block`]s, a block of attention, perhaps attention to the encoder, and a [`FeedForward`], each with
//! its [`Norm`]; or its layers are recurrent ([`RecurrentModel`]). Which attention a layer has follows from [`ModelSettings::attention`]: one table for all, and what
//! stacks and layers have otherwise. [`generate`] generates, [`Model::parameters`] names what is learned.

mod block;
mod classifier;
mod decoder_state;
mod dropout;
mod error;
mod feed_forward;
pub mod fused;
pub mod generate;
mod heads;
mod init;
mod look;
mod model;
mod norm;
mod output;
mod parameters;
mod quantized;
mod recurrent;
mod sequences;
mod settings;
mod shapes;
mod stack;
mod state;
mod sublayer;
mod together;

pub use block::{Block, Cross};
pub use decoder_state::DecoderState;
pub use error::Error;
pub use feed_forward::FeedForward;
pub use heads::Head;
pub use look::AttentionInput;
pub use model::{Mode, Model, Segments};
pub use norm::Norm;
pub use output::{Output, OutputTransform};
pub use parameters::{MappedParameter, Parameter, ParameterPath, ParameterView, Role};
pub use quantized::quantized;
pub use recurrent::{
    RecurrentDecoder, RecurrentEncoder, RecurrentEncoderLayer, RecurrentLayer, RecurrentModel,
};
pub use sequences::{Memory, Sequences};
pub use settings::{
    Activation, Attends, Family, Init, ModelSettings, NormKind, NormPlace, Pooling, Recompute,
    Recurrent, ResidualKind, Site,
};
pub use stack::Stack;
pub use together::Step;
pub use whatwhere_kernels::layer::{Int8Values, QuantizedLinear};
