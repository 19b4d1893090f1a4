//! Tasks over threads. Which thread runs a task never changes its result; only tasks write, each to its own slices.

use std::{
    cell::RefCell,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::memory::scratch::Scratch;

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

/// How long a thread without work keeps looking for it.
const PATIENCE: Duration = Duration::from_millis(10);

/// Runs work that asks for all threads many times on one of the pool's threads, and keeps the others spinning meanwhile:
/// asked from outside or asleep, a thread takes longer to wake than a small task takes to run.
pub fn with_busy_pool<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let done = AtomicBool::new(false);
    rayon::scope(|scope| {
        let _done = Done(&done);
        let owner = rayon::current_thread_index();
        for _ in 1..rayon::current_num_threads() {
            let done = &done;
            scope.spawn(move |_| watch(done, owner));
        }
        work()
    })
}

/// Ends a watch, also when the work panics.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Looks for work until all is done. A thread may come here while it waits for something that the work itself waits for,
/// so a watch ends when there has been nothing to do for a while.
fn watch(done: &AtomicBool, owner: Option<usize>) {
    if rayon::current_thread_index() == owner {
        return;
    }
    let mut idle = Instant::now();
    while !done.load(Ordering::Acquire) {
        if rayon::yield_now() == Some(rayon::Yield::Executed) {
            idle = Instant::now();
        } else if idle.elapsed() > PATIENCE {
            return;
        } else {
            std::hint::spin_loop();
        }
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
