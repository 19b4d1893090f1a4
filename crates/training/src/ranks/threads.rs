//! Ranks as threads of one process, for tests: what several ranks do can be seen without a library that connects processes.

use std::{
    sync::{Arc, Barrier, Mutex, PoisonError},
    thread,
};

use super::Ranks;
use crate::Error;

/// A row of letters for each sender.
type Letters = Vec<Vec<Vec<u8>>>;

#[derive(Clone, Debug)]
struct Thread {
    rank: usize,
    letters: Arc<Mutex<Letters>>,
    barrier: Arc<Barrier>,
}

/// What each of so many ranks makes of the same work.
///
/// # Panics
/// If a rank does.
pub fn each<T: Send>(size: usize, work: impl Fn(&dyn Ranks) -> T + Sync) -> Vec<T> {
    each_shared(size, |ranks| work(&*ranks))
}

/// [`each`] with ranks that can be kept.
///
/// # Panics
/// If a rank does.
pub fn each_shared<T: Send>(size: usize, work: impl Fn(Arc<dyn Ranks>) -> T + Sync) -> Vec<T> {
    let letters = Arc::new(Mutex::new(vec![vec![Vec::new(); size]; size]));
    let barrier = Arc::new(Barrier::new(size));
    thread::scope(|scope| {
        let start = |rank| {
            let own = Thread { rank, letters: letters.clone(), barrier: barrier.clone() };
            let work = &work;
            scope.spawn(move || work(Arc::new(own)))
        };
        let all: Vec<_> = (0..size).map(start).collect();
        all.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}

impl Ranks for Thread {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn all_to_all(
        &self,
        mut send: &[u8],
        sent: &[usize],
        mut receive: &mut [u8],
        received: &[usize],
    ) -> Result<(), Error> {
        for (to, count) in sent.iter().enumerate() {
            let (letter, rest) = send.split_at(*count);
            self.letters.lock().unwrap_or_else(PoisonError::into_inner)[self.rank][to] =
                letter.to_vec();
            send = rest;
        }
        self.barrier.wait();
        for (from, count) in received.iter().enumerate() {
            let (letter, rest) = receive.split_at_mut(*count);
            letter.copy_from_slice(
                &self.letters.lock().unwrap_or_else(PoisonError::into_inner)[from][self.rank],
            );
            receive = rest;
        }
        self.barrier.wait();
        Ok(())
    }

    fn all_gather(&self, own: &[u8], all: &mut [u8], counts: &[usize]) -> Result<(), Error> {
        let size = self.size();
        self.all_to_all(&own.repeat(size), &vec![own.len(); size], all, counts)
    }

    fn broadcast(&self, data: &mut [u8]) -> Result<(), Error> {
        let (size, length) = (self.size(), data.len());
        let is_root = self.rank == 0;
        let send = if is_root { data.repeat(size) } else { Vec::new() };
        let mut received = vec![0; size];
        received[0] = length;
        let sent = vec![if is_root { length } else { 0 }; size];
        self.all_to_all(&send, &sent, data, &received)
    }

    fn abort(&self, code: i32) -> ! {
        panic!("rank {} ended all with {code}", self.rank)
    }
}
