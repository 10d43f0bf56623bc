//! Sealing and opening a packet allocates no memory, once the buffers have reached their capacity.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use manyflow_files::session::{Opener, Sealer};
use manyflow_net::group_key::GroupKey;
use manyflow_object::lct::{Fields, Header};

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

/// Seals and opens one packet; writes it to `datagram`.
fn pass(sealer: &mut Sealer, opener: &mut Opener, datagram: &mut Vec<u8>) {
    datagram.clear();
    let fields = Fields {
        cci: &[7; 4],
        tsi: 1,
        toi: Some(2),
        close_session: false,
        close_object: false,
        codepoint: 6,
        extensions: &[],
    };
    fields.encode(datagram);
    datagram.resize(1_376, 9);
    sealer.seal(datagram);
    let (header, _) = Header::decode(datagram).unwrap();
    assert!(opener.open(datagram, &header).is_some());
}

fn allocations(seal: fn(&GroupKey) -> Sealer) -> u64 {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{}=\n", "A".repeat(43))).unwrap();
    let key = GroupKey::read(file.path()).unwrap();
    let mut sealer = seal(&key);
    let mut opener = Opener::new(&key, &sealer.protection());
    let mut datagram = Vec::new();
    pass(&mut sealer, &mut opener, &mut datagram);
    let before = ALLOCATIONS.get();
    assert!(before > 0, "no allocations are counted");
    (0..1_000).for_each(|_| pass(&mut sealer, &mut opener, &mut datagram));
    ALLOCATIONS.get() - before
}

#[test]
fn a_packet_with_a_mac_allocates_nothing() {
    assert_eq!(allocations(Sealer::authenticating), 0);
}

#[test]
fn an_encrypted_packet_allocates_nothing() {
    assert_eq!(allocations(Sealer::encrypting), 0);
}
