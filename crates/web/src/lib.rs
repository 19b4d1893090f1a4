//! The page in a browser alone: what a server would answer, answered by the same functions inside the page.
//!
//! [`Page`] is the public thing: it holds runs that came as bytes and the texts they have read, and answers a question, a line
//! of JSON with bytes behind it, by [`whatwhere_lab::view`]. `seam.rs` is what JavaScript calls, on WASM only: four functions
//! of plain numbers, so that nothing has to be generated beside the module.

mod page;
#[cfg(target_arch = "wasm32")]
mod seam;

pub use page::{Error, Page};
