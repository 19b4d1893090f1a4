//! Many runs side by side, and pictures of what they learned.

mod error;

pub use error::Error;
