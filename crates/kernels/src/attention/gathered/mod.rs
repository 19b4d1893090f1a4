//! Sparse patterns: tiles of queries that see alike, each with just the keys they see.
//!
//! A pattern says its [parts](super::pattern::Pattern::parts). What lies together is computed as everything else; what does
//! not is gathered afterwards: queries in the order of the part, the keys of each tile copied together (`layout.rs`), and
//! then the same steps on the same tiles. The softmax goes on from the output and log-sum-exp of what came before, so the
//! parts need no order of their own. Start reading at `forward.rs`.

mod backward;
mod biases;
mod entries;
mod forward;
mod layers;
mod layout;

pub use layers::Arrangement;

pub(crate) use entries::Entries;
pub(crate) use forward::forward;
pub(crate) use layers::Layers;
pub(crate) use layout::Shown;
