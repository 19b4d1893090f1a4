//! Work that takes its time says how far it is, and can be ended.

use std::ops::ControlFlow;

/// How far something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// What is counted.
    pub what: &'static str,
    /// How many so far.
    pub done: u64,
    /// How many in all, at the most.
    pub of: u64,
}

/// Who hears it; a break ends the work with [`crate::Error::Interrupted`].
pub type Watch<'a> = &'a mut dyn FnMut(Work) -> ControlFlow<()>;
