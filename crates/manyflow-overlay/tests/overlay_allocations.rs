//! Forwarding a message allocates no memory, once queues have reached their capacity.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod overlay_line;
#[allow(dead_code, reason = "other tests use the rest")]
mod world;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use manyflow_overlay::LinkKind;
use manyflow_tcp::TcpConfig;
use overlay_line::Line;

/// Counts this thread's allocations.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[allow(
    unsafe_code,
    reason = "an allocator is unsafe by its contract; this one only counts"
)]
// SAFETY: all operations are left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(links: LinkKind) -> u64 {
    let mut line = Line::new(&links);
    (0..20_000).for_each(|_| line.message());
    let (before, read) = (ALLOCATIONS.get(), line.read());
    assert!(before > 0, "no allocations are counted");
    (0..10_000).for_each(|_| line.message());
    let read = line.read() - read;
    assert_eq!(read, 10_000, "not all messages arrived");
    ALLOCATIONS.get() - before
}

#[test]
fn a_message_over_streams_allocates_nothing() {
    assert_eq!(allocations(LinkKind::Streams(TcpConfig::default())), 0);
}

#[test]
fn a_message_over_datagrams_allocates_nothing() {
    assert_eq!(allocations(LinkKind::Datagrams), 0);
}
