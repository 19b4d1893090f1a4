//! Buffers that are used again: a training step asks for the same sizes as the one before it, and pages that the system
//! has to find and clear cost up to a quarter of a step (LOG.md).

use std::{
    borrow::Borrow,
    ops::{Deref, DerefMut},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Shorter buffers are left to the allocator, which has them at hand.
const LEAST: usize = 4096;
/// Free buffers that were not asked for during so many requests are given back. A step of a large model makes hundreds.
const STALE: u64 = 4096;

static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), requests: 0, lent: 0, most: 0 });

struct Pool {
    /// Sorted by length.
    free: Vec<Free>,
    requests: u64,
    /// Values on loan, and the most there ever were at once.
    lent: usize,
    most: usize,
}

impl Pool {
    /// A free buffer that fits.
    fn take(&mut self, length: usize) -> Option<Vec<f32>> {
        self.requests += 1;
        let at = self.free.partition_point(|free| free.values.len() < length);
        // An eighth too long is near enough: batches of sentences differ a little in length.
        let fits = self.free.get(at).is_some_and(|free| free.values.len() <= length + length / 8);
        fits.then(|| self.free.remove(at).values)
    }

    /// Gives back what nobody asks for: buffers that are stale, and the oldest beyond as much as was ever on loan. Batches
    /// of many lengths would leave buffers of each.
    fn shrink(&mut self) {
        let oldest = self.requests.saturating_sub(STALE);
        self.free.retain(|free| free.since >= oldest);
        let mut held: usize = self.free.iter().map(|free| free.values.len()).sum();
        while held > self.most
            && let Some((at, _)) = self.free.iter().enumerate().min_by_key(|(_, free)| free.since)
        {
            held -= self.free.remove(at).values.len();
        }
    }

    fn lend(&mut self, length: usize) {
        self.lent += length;
        self.most = self.most.max(self.lent);
    }
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
    pub fn uncleared(length: usize) -> Self {
        if length < LEAST {
            return Self { values: vec![0.0; length], length };
        }
        let mut pool = pool();
        if let Some(values) = pool.take(length) {
            pool.lend(values.len());
            return Self { values, length };
        }
        pool.lend(length);
        pool.shrink();
        drop(pool);
        Self { values: vec![0.0; length], length }
    }

    /// A buffer of zeros.
    pub fn zeros(length: usize) -> Self {
        let mut buffer = Self::uncleared(length);
        buffer.fill(0.0);
        buffer
    }

    /// A copy of these values.
    pub fn of(values: &[f32]) -> Self {
        let mut buffer = Self::uncleared(values.len());
        buffer.copy_from_slice(values);
        buffer
    }
}

impl From<Pooled> for Vec<f32> {
    /// Takes the buffer off the pool; a `Pooled` made of it goes back.
    fn from(mut buffer: Pooled) -> Self {
        let mut values = std::mem::take(&mut buffer.values);
        if values.len() >= LEAST {
            let mut pool = pool();
            pool.lent = pool.lent.saturating_sub(values.len());
        }
        values.truncate(buffer.length);
        values
    }
}

impl From<Vec<f32>> for Pooled {
    fn from(values: Vec<f32>) -> Self {
        let length = values.len();
        if length >= LEAST {
            pool().lend(length);
        }
        Self { values, length }
    }
}

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Deref for Pooled {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.values[..self.length]
    }
}

impl Borrow<[f32]> for Pooled {
    fn borrow(&self) -> &[f32] {
        self
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
        let mut pool = pool();
        pool.lent = pool.lent.saturating_sub(values.len());
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
        let mut first = Pooled::uncleared(length);
        first.fill(3.0);
        let address = first.as_ptr();
        drop(first);
        let second = Pooled::uncleared(length - 7);
        assert_eq!((second.as_ptr(), second.len()), (address, length - 7));
        assert!(second.iter().all(|value| *value == 3.0));
        drop(second);
        assert!(Pooled::zeros(length).iter().all(|value| *value == 0.0));
    }

    #[test]
    fn many_lengths_do_not_leave_buffers_of_each() {
        for length in (3_000_000..9_000_000).step_by(500_000) {
            drop(Pooled::uncleared(length));
        }
        // As a request that finds nothing leaves it, and one buffer that has come back since.
        let pool = pool();
        let held: usize = pool.free.iter().map(|free| free.values.len()).sum();
        assert!(held <= 2 * pool.most, "{held} values held, {} were lent at most", pool.most);
    }

    #[test]
    fn buffers_in_use_are_not_handed_out_twice() {
        let (a, b) = (Pooled::of(&[1.0; 5000]), Pooled::of(&[2.0; 5000]));
        assert_ne!(a.as_ptr(), b.as_ptr());
        assert!(a.iter().all(|value| *value == 1.0));
    }
}
