//! A hop: one link from a parent to a child in a tree of relays.
//!
//! SIM's routers mark the packets of the top subscribed group when their queue grows, and drop
//! packets when it is full. Where no router does so, a relay paces its packets to each child below
//! the rate of the path, so that the queue is in the relay and can be treated as the paper says.
//!
//! ```text
//!   parent                                                           child
//!   push -> [ queue: RED marks, drops from the top ] -> pace(rate) -> data, soundings -> HopEnd
//!   rate, RTT, losses <------------------------------------------------ echoes, reports
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `link.rs` | [`Hop`], the parent's end |
//! | `end.rs` | [`HopEnd`], the child's end |
//! | `queue.rs` | the queue, which all sessions of a child share |
//! | `soundings.rs` | RTT, losses and the delivered rate, by soundings and echoes |
//! | `control.rs` | the control of a rate that the hop finds |
//! | `noise.rs` | the losses that the path has at any rate |
//! | `wire.rs`, `seal.rs` | the messages between both ends, and their MAC |
//!
//! # Queue
//!
//! RED works on the average queue as in section III-A1 of SIM's paper, with priority marking: only
//! packets of the top subscribed group of each session are marked. A full queue drops from the top:
//! the packet of the highest rank in it gives way to a packet of a lower rank, so that the lowest
//! group survives. Packets without a group, such as those of a file session, share the queue, are
//! never marked, and are dropped only when the queue is full.
//!
//! # Soundings
//!
//! About once per round-trip time the parent sends a [`Sounding`] in order with the data. It
//! carries the number of packets and bytes sent before it. The child answers at once with an
//! [`Echo`] that carries the numbers received. No clocks are compared, and data packets need no
//! numbers:
//!
//! - The RTT is the time from a sounding to its echo.
//! - Losses are the growth of the difference between both counts. Up to two packets may have been
//!   overtaken by the sounding; they count only if they are still missing at the next echo.
//! - The delivered rate is the growth of the child's count between two echoes.
//!
//! A child that lies in its echoes changes only the rate of its own hop.
//!
//! # Found rates
//!
//! - **Startup**: the rate doubles in each RTT, up to twice the delivered rate, until a queue
//!   builds (the RTT exceeds its minimum by a quarter, within 2 and 10 ms) or a sixth of the
//!   packets is lost. The hop to a new child begins with the rate of the groups that the child has
//!   joined. Packets are not marked: a queue before a rate that is below that of the path is no
//!   congestion.
//! - **Drain**: 0.9 times the delivered rate, until the queue has drained. So a hop that is alone
//!   on its link yields to its own queue before the link drops packets, as Copa does (Arun and
//!   Balakrishnan, NSDI 2018). A hop that uses less than 40 % of its rate falls to 0.9 times that
//!   rate instead, because the queue is not its own.
//! - **Grow**: 0.98 times the delivered rate at first, then more by 0.5 % in each RTT, and
//!   increasingly more while there is no queue. Near a rate at which packets were lost without a
//!   queue, a tenth of that.
//! - **Random losses**: losses without a queue, while the rate is not used or is well below one at
//!   which packets were lost, are those of the path: a radio link, for example. As long as no
//!   larger share is lost, losses without a queue do not slow the hop down. Other losses do, and
//!   more so if TCP would be slower at the share that they add.
//! - **Compete**: if the queue does not drain in one and a half times the time that the hop alone
//!   would need, or has not become shorter by half of what it should after four RTTs, other senders
//!   fill it. The hop then keeps a window, nearly as Reno does (RFC 5681): 0.7 packets more per RTT
//!   (0.5 with a window below eight), 0.6 of it after a loss, at least two packets. It returns to
//!   growing when the queue is short for eight RTTs in a row, or when it drains in a test after a
//!   loss, at most every 10 s.
//! - A rate that the application does not use does not grow, unless the hop competes: then it
//!   grows to TCP's rate at the present share of loss events, and at most to eight times the rate
//!   in use; a loss does not lower it below that. After an idle time its distance from the initial
//!   rate halves every 10 s. Without echoes the rate halves every four RTTs, and at most every 500
//!   ms. A child that never answers, such as a gateway of other software, gets the minimum rate;
//!   give such a hop its rate.
//!
//! Beside TCP the share is between 1:2 and 2:1 on links whose queue is one bandwidth-delay product,
//! if that is at least six packets (printed by the module `tcp` of this crate's tests). Known
//! limits: on links with shorter queues, a Reno sender leaves the queue empty so often that the hop
//! takes itself for alone and gets less; on links of two or three packets, TCP lives by its timer
//! and gets less; beside CUBIC with a long queue at 10 Mbit/s and 50 ms, the hop gets less than
//! half of CUBIC's rate, because its window grows as Reno's does.
//! The test `stream_beside_tcp` of `manyflow-streams` has a stream over four hops, each beside two
//! TCPs.
//!
//! # Messages
//!
//! Messages share the UDP port with AMT (`wire.rs`). With a key, each message carries a MAC.
//! Reports carry the random number of the hop, which an off-path sender does not know, and the
//! number of the last sounding with a counter, so that replayed reports are refused. The numbers of
//! soundings last for more than a year. A child answers the soundings of any hop, and counts for
//! all of them together, so that a forged sounding takes nothing from its parent.

mod config;
mod control;
mod end;
mod link;
mod noise;
mod queue;
mod seal;
mod soundings;
mod state;
#[cfg(test)]
mod tests_queue;
#[cfg(test)]
mod tests_wire;
mod wire;

pub use config::{HopConfig, HopRate};
pub use end::HopEnd;
pub use link::{Hop, HopCounters, Transmit};
pub use seal::{Direction, HopKey};
pub use state::HopState;
pub use wire::{
    Echo, FEEDBACKS_MAX, Feedbacks, HopMessage, HopWireError, RepairGaps, Sounding, Stamp,
    is_hop_message,
};
