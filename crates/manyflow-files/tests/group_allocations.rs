//! Sealing and opening a packet allocates no memory, once the buffers have reached their capacity.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use manyflow_files::session::{GroupOpener, GroupSealer};
use manyflow_net::group_key::GroupKey;
use manyflow_object::lct::{Fields, Header};
use manyflow_testing::allocations::{CountingAllocator, allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Seals and opens one packet; writes it to `datagram`.
fn pass(sealer: &mut GroupSealer, opener: &mut GroupOpener, datagram: &mut Vec<u8>) {
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

fn allocations_of(seal: fn(&GroupKey) -> GroupSealer) -> u64 {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{}=\n", "A".repeat(43))).unwrap();
    let key = GroupKey::read(file.path()).unwrap();
    let mut sealer = seal(&key);
    let mut opener = GroupOpener::new(&key, &sealer.protection());
    let mut datagram = Vec::new();
    pass(&mut sealer, &mut opener, &mut datagram);
    let before = allocations();
    assert!(before > 0, "no allocations are counted");
    (0..1_000).for_each(|_| pass(&mut sealer, &mut opener, &mut datagram));
    allocations() - before
}

#[test]
fn a_packet_with_a_mac_allocates_nothing() {
    assert_eq!(allocations_of(GroupSealer::authenticating), 0);
}

#[test]
fn an_encrypted_packet_allocates_nothing() {
    assert_eq!(allocations_of(GroupSealer::encrypting), 0);
}
