//! Settings that differ between the sequences of a batch.

use crate::{Error, attention::Shape, error::expect_len};

/// One entry shared by all sequences, or one for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PerBatch<T> {
    what: &'static str,
    entries: Vec<T>,
}

impl<T> PerBatch<T> {
    pub(super) fn new(what: &'static str, entries: Vec<T>) -> Result<Self, Error> {
        if entries.is_empty() { Err(Error::Zero { what }) } else { Ok(Self { what, entries }) }
    }

    /// One entry for all.
    pub(super) fn one(entry: T) -> Self {
        Self { what: "", entries: vec![entry] }
    }

    /// The entry of a sequence; none if there are several and the sequence is beyond the last.
    pub(super) fn get(&self, batch: usize) -> Option<&T> {
        match self.entries.as_slice() {
            [shared] => Some(shared),
            entries => entries.get(batch),
        }
    }

    pub(super) fn check(&self, shape: &Shape) -> Result<(), Error> {
        match self.entries.len() {
            1 => Ok(()),
            several => expect_len(self.what, several, shape.batch),
        }
    }
}
