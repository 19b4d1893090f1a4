//! Tasks over threads. Which thread runs a task never changes its result; only tasks write, each to its own slices.

use std::{
    cell::RefCell,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::scratch::Scratch;

thread_local! {
    /// Buffers of this thread. They keep their memory between calls: fresh pages would cost more than small tasks.
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

/// Runs `work` on every task with the current rayon pool, in order of the list as threads become free.
pub(crate) fn run<T: Send>(tasks: Vec<T>, work: impl Fn(T, &mut Scratch) + Sync) {
    let threads = rayon::current_num_threads().min(tasks.len());
    let tasks: Vec<Mutex<Option<T>>> = tasks.into_iter().map(|t| Mutex::new(Some(t))).collect();
    let next = AtomicUsize::new(0);
    let worker = || {
        SCRATCH.with(|scratch| {
            // A pattern's own function may call attention again on this thread; it then gets fresh buffers.
            let mut fresh = Scratch::default();
            let mut kept = scratch.try_borrow_mut();
            let scratch = kept.as_deref_mut().unwrap_or(&mut fresh);
            while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                let task = task.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
                if let Some(task) = task {
                    work(task, scratch);
                }
            }
        });
    };
    if threads <= 1 {
        worker();
    } else {
        rayon::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|_| worker());
            }
        });
    }
}

/// `sum[i] += part[i]`, shared out over threads.
pub(crate) fn add(sum: &mut [f32], part: &[f32]) {
    use rayon::prelude::*;
    const BLOCK: usize = 1 << 15; // 128 KiB, enough to be worth a task
    sum.par_chunks_mut(BLOCK).zip(part.par_chunks(BLOCK)).for_each(|(sum, part)| {
        sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    });
}
