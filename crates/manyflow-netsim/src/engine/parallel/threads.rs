//! Threads that run the parts of a window.
//!
//! A window can take less time than it takes to wake a thread that sleeps. So a thread that waits
//! spins for a while, then yields, and sleeps only during a long wait.

use core::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope, Thread};

use manyflow_core::Header;

use super::Part;

/// The number of times that a thread checks in a loop, before it yields to others.
const SPINS: u32 = 1 << 12;
/// The number of times that it yields, before it sleeps.
const YIELDS: u32 = 1 << 8;

/// The threads of one call of `run_until`, at most one for each processor. Parts are dealt to them
/// in turn. The caller's thread is the first one.
pub(super) struct Crew<'a, H, E> {
    parts: &'a [Mutex<Part<H, E>>],
    threads: usize,
    /// The number of windows so far.
    round: AtomicU64,
    /// The number of threads that have not finished the window.
    running: AtomicUsize,
    is_over: AtomicBool,
    /// The caller's thread.
    caller: Thread,
    /// The payload of a panic.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// Ends the threads, also when the caller panics.
pub(super) struct Dismissal<'a, 'b, H, E> {
    crew: &'a Crew<'b, H, E>,
    threads: Vec<Thread>,
}

impl<H, E> Drop for Dismissal<'_, '_, H, E> {
    fn drop(&mut self) {
        self.crew.is_over.store(true, Ordering::Release);
        self.threads.iter().for_each(Thread::unpark);
    }
}

impl<'a, H: Header, E: Clone + Send> Crew<'a, H, E> {
    pub(super) fn new(parts: &'a [Mutex<Part<H, E>>]) -> Crew<'a, H, E> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Crew {
            parts,
            threads: parts.len().min(processors),
            round: AtomicU64::new(0),
            running: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            caller: thread::current(),
            panic: Mutex::new(None),
        }
    }

    /// Starts the threads besides the caller's.
    pub(super) fn start<'s, 'e>(&'s self, scope: &'s Scope<'s, 'e>) -> Dismissal<'s, 'a, H, E> {
        let rest = 1..self.threads;
        let spawned = rest.map(|place| scope.spawn(move || self.serve(place)).thread().clone());
        Dismissal {
            crew: self,
            threads: spawned.collect(),
        }
    }

    /// Runs the current window of all parts.
    pub(super) fn run(&self, dismissal: &Dismissal<'_, 'a, H, E>) {
        self.running.store(self.threads - 1, Ordering::Relaxed);
        self.round.fetch_add(1, Ordering::Release);
        dismissal.threads.iter().for_each(Thread::unpark);
        self.run_share(0);
        wait(|| self.running.load(Ordering::Acquire) == 0);
        let panic = self
            .panic
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }

    fn serve(&self, place: usize) {
        let mut done = 0;
        loop {
            wait(|| self.round.load(Ordering::Acquire) > done || self.is_over());
            if self.is_over() {
                return;
            }
            done += 1;
            let run = AssertUnwindSafe(|| self.run_share(place));
            if let Err(payload) = catch_unwind(run) {
                let mut panic = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
                *panic = Some(payload);
            }
            self.running.fetch_sub(1, Ordering::Release);
            self.caller.unpark();
        }
    }

    /// Runs the parts of one thread.
    fn run_share(&self, place: usize) {
        let share = self.parts.iter().skip(place).step_by(self.threads);
        share.for_each(|part| lock(part).run());
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

/// Locks a part. A part whose thread panicked is never used again.
pub(super) fn lock<H, E>(part: &Mutex<Part<H, E>>) -> MutexGuard<'_, Part<H, E>> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until a condition holds. Another thread makes it hold, and wakes this one.
fn wait(holds: impl Fn() -> bool) {
    for _ in 0..SPINS {
        if holds() {
            return;
        }
        core::hint::spin_loop();
    }
    for _ in 0..YIELDS {
        if holds() {
            return;
        }
        thread::yield_now();
    }
    while !holds() {
        thread::park();
    }
}
