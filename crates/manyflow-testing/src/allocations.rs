//! An allocator that counts, for tests that a path allocates no memory.
//!
//! ```
//! use manyflow_testing::allocations::{CountingAllocator, allocations};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! let before = allocations();
//! let text = String::from("text");
//! assert_eq!(allocations() - before, 1, "{text}");
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which counts the allocations of each thread. A test program that counts
/// declares it as its `#[global_allocator]`.
#[derive(Debug)]
pub struct CountingAllocator;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of this thread's allocations so far: 0 if the program has another allocator.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

#[allow(
    unsafe_code,
    reason = "an allocator is unsafe by its contract; this one only counts"
)]
// SAFETY: all operations are left to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
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
