//! Tasks over threads. Which thread runs a task never changes its result; only tasks write, each to its own slices.

use std::{
    cell::RefCell,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::scratch::Scratch;

thread_local! {
    /// Buffers of this thread. They keep their memory between calls: fresh pages would cost more than small tasks.
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

/// Runs `work` on every task with the current rayon pool, in order of the list as threads become free.
///
/// A pattern's own function may call attention again. Such a call stays on its thread: if it waited for others, rayon
/// could give that thread another task of the outer call, which would wait for its turn above the task whose turn it is.
pub(crate) fn run<T: Send>(tasks: Vec<T>, work: impl Fn(T, &mut Scratch) + Sync) {
    let threads = rayon::current_num_threads().min(tasks.len());
    let tasks: Vec<Mutex<Option<T>>> = tasks.into_iter().map(|t| Mutex::new(Some(t))).collect();
    let next = AtomicUsize::new(0);
    let worker = |owns_call: bool| {
        SCRATCH.with(|scratch| {
            let mut fresh = Scratch::default();
            let mut kept = scratch.try_borrow_mut();
            if kept.is_err() && !owns_call {
                return; // Inside another task; whoever owns the call does the work.
            }
            let scratch = kept.as_deref_mut().unwrap_or(&mut fresh);
            while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                let task = task.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(task) = task {
                    work(task, scratch);
                }
            }
        });
    };
    let is_nested = SCRATCH.with(|scratch| scratch.try_borrow_mut().is_err());
    if threads <= 1 || is_nested {
        worker(true);
    } else {
        rayon::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|_| worker(false));
            }
            worker(true);
        });
    }
}

/// A slice that tasks add to in a fixed order, whichever thread is quicker.
pub(crate) struct InTurn<'a> {
    state: Mutex<Turn<'a>>,
    changed: Condvar,
}

struct Turn<'a> {
    next: usize,
    /// A task has panicked: its turn will never come to an end, and the call will fail anyway.
    abandoned: bool,
    slice: &'a mut [f32],
}

impl<'a> InTurn<'a> {
    pub(crate) fn new(slice: &'a mut [f32]) -> Self {
        let state = Mutex::new(Turn { next: 0, abandoned: false, slice });
        Self { state, changed: Condvar::new() }
    }

    /// Runs `work` once every turn before this one is over. Tasks must be started in the order of their turns.
    pub(crate) fn at(&self, turn: usize, work: impl FnOnce(&mut [f32])) {
        let mut state = self.lock();
        while state.next != turn && !state.abandoned {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if !state.abandoned {
            work(state.slice);
            state.next += 1;
            self.changed.notify_all();
        }
    }

    /// Lets nobody wait for a task that panics while it holds the guard.
    pub(crate) fn guard<'s>(slices: &'s [Self]) -> Guard<'s, 'a> {
        Guard(slices)
    }

    fn lock(&self) -> MutexGuard<'_, Turn<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Guard<'s, 'a>(&'s [InTurn<'a>]);

impl Drop for Guard<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for slice in self.0 {
                slice.lock().abandoned = true;
                slice.changed.notify_all();
            }
        }
    }
}
