//! Buffers that are used again: a training step asks for the same sizes as the one before it, and pages that the system
//! has to find and clear cost up to a quarter of a step (LOG.md).

use std::{
    ops::{Deref, DerefMut},
    sync::{Mutex, PoisonError},
};

/// Shorter buffers are left to the allocator, which has them at hand.
const LEAST: usize = 4096;
/// Free buffers that were not asked for during so many requests are given back. A step of a large model makes hundreds.
const STALE: u64 = 4096;

static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), requests: 0 });

struct Pool {
    /// Sorted by length.
    free: Vec<Free>,
    requests: u64,
}

struct Free {
    values: Vec<f32>,
    /// Requests when it was returned.
    since: u64,
}

/// A buffer on loan: values of one length, which go back when it is dropped.
#[derive(Debug, Default)]
pub struct Pooled {
    /// At least `length`; all have been written before.
    values: Vec<f32>,
    length: usize,
}

impl Pooled {
    /// A buffer whose values are whatever they were.
    pub fn any(length: usize) -> Self {
        if length < LEAST {
            return Self { values: vec![0.0; length], length };
        }
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        pool.requests += 1;
        let at = pool.free.partition_point(|free| free.values.len() < length);
        // An eighth too long is near enough: batches of sentences differ a little in length.
        if pool.free.get(at).is_some_and(|free| free.values.len() <= length + length / 8) {
            return Self { values: pool.free.remove(at).values, length };
        }
        let oldest = pool.requests.saturating_sub(STALE);
        pool.free.retain(|free| free.since >= oldest);
        drop(pool);
        Self { values: vec![0.0; length], length }
    }

    /// A buffer of zeros.
    pub fn zeros(length: usize) -> Self {
        let mut buffer = Self::any(length);
        buffer.fill(0.0);
        buffer
    }

    /// A copy of these values.
    pub fn of(values: &[f32]) -> Self {
        let mut buffer = Self::any(values.len());
        buffer.copy_from_slice(values);
        buffer
    }
}

impl From<Pooled> for Vec<f32> {
    /// Takes the buffer off the pool; a `Pooled` made of it goes back.
    fn from(mut buffer: Pooled) -> Self {
        let mut values = std::mem::take(&mut buffer.values);
        values.truncate(buffer.length);
        values
    }
}

impl From<Vec<f32>> for Pooled {
    fn from(values: Vec<f32>) -> Self {
        let length = values.len();
        Self { values, length }
    }
}

impl Deref for Pooled {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.values[..self.length]
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.values[..self.length]
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if self.values.len() < LEAST {
            return;
        }
        let values = std::mem::take(&mut self.values);
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        let at = pool.free.partition_point(|free| free.values.len() < values.len());
        let since = pool.requests;
        pool.free.insert(at, Free { values, since });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_returned_buffer_serves_the_next_of_its_length() {
        // A length that no other test asks for.
        let length = 1_234_567;
        let mut first = Pooled::any(length);
        first.fill(3.0);
        let address = first.as_ptr();
        drop(first);
        let second = Pooled::any(length - 7);
        assert_eq!((second.as_ptr(), second.len()), (address, length - 7));
        assert!(second.iter().all(|value| *value == 3.0));
        drop(second);
        assert!(Pooled::zeros(length).iter().all(|value| *value == 0.0));
    }

    #[test]
    fn buffers_in_use_are_not_handed_out_twice() {
        let (a, b) = (Pooled::of(&[1.0; 5000]), Pooled::of(&[2.0; 5000]));
        assert_ne!(a.as_ptr(), b.as_ptr());
        assert!(a.iter().all(|value| *value == 1.0));
    }
}
