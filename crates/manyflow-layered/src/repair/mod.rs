//! Repair of random losses over one hop, within the deadline of the stream.
//!
//! A child that misses packets asks its parent for them. The parent sends them again if it has sent
//! them before, at most 2 s ago: a packet that its own queue dropped was too much for the path and
//! stays lost. So each loss is repaired by the nearest relay that has the packet, and the paths
//! above carry it once. A relay that misses a packet asks its own parent; what it gets passes on to
//! all its children as any packet does, so requests of several children are merged.
//!
//! ```text
//!   parent                                                        child
//!   Hop -> SentPackets -> data, soundings ------------------------> Gaps
//!    ^          |                                                    |
//!    '- repairs ' <---- RepairRequest: next number, missing bits ----'
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `gaps.rs` | [`Gaps`], the child's side: which packets are missing, and when to ask |
//! | `sent.rs` | [`SentPackets`], the parent's side: the last packets, and which of them are lost |
//! | `request.rs` | [`GroupGaps`], the missing packets of one group, as a request carries them |
//!
//! # When a child asks
//!
//! - Two packets after a gap in the numbers of a group, so that packets which overtake each other
//!   cost nothing; at most four times between two soundings.
//! - At a sounding that counts more packets than have arrived: the last packets before a pause are
//!   lost, or a repair is. It asks again at the next sounding, because a request can be lost.
//!
//! No timer and no clock is needed, and a path without losses carries no request.
//!
//! # Which packets are lost
//!
//! A request says which packets of each group have arrived, and which sounding came last. A packet
//! is lost if a later packet of its group has arrived, or a sounding that was sent after it. A
//! repair is sent again only by the second rule.
//!
//! # Bounds
//!
//! - Repairs take at most a quarter of the bytes that are sent for the first time, and a burst of
//!   32 KiB. They wait in the queue of the hop, before other packets and the lowest group first,
//!   and are paced and counted as all packets are.
//! - A packet is sent again only while it can still be in time: the child states its latency.
//! - A parent keeps at most 1,024 packets and 2 MiB for each child. Children share the bytes.
//!
//! `docs/streaming.md` compares repair by retransmission with codes.

mod gaps;
mod request;
mod sent;

pub use gaps::{Arrival, Gaps};
pub use request::{GAP_GROUPS_MAX, GroupGaps, HORIZON};
pub use sent::{Place, SentPackets};
