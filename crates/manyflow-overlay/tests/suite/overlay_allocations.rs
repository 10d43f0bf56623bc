//! Forwarding a message allocates no memory, once queues have reached their capacity.

use manyflow_overlay::LinkKind;
use manyflow_tcp::TcpConfig;
use manyflow_testing::allocations::allocations;

use crate::overlay_line::Line;

fn allocations_of(links: LinkKind) -> u64 {
    let mut line = Line::new(&links);
    (0..20_000).for_each(|_| line.message());
    let (before, read) = (allocations(), line.read());
    assert!(before > 0, "no allocations are counted");
    (0..10_000).for_each(|_| line.message());
    let read = line.read() - read;
    assert_eq!(read, 10_000, "not all messages arrived");
    allocations() - before
}

#[test]
fn a_message_over_streams_allocates_nothing() {
    assert_eq!(allocations_of(LinkKind::Streams(TcpConfig::default())), 0);
}

#[test]
fn a_message_over_datagrams_allocates_nothing() {
    assert_eq!(allocations_of(LinkKind::Datagrams), 0);
}
