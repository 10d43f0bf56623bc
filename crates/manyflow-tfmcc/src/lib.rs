//! TFMCC: TCP-friendly multicast congestion control. One source sends to many receivers at one
//! rate, that of the slowest.
//!
//! Source: Widmer and Handley, "TCP-Friendly Multicast Congestion Control (TFMCC): Protocol
//! Specification", RFC 4654. It builds on their paper "Extending Equation-Based Congestion Control
//! to Multicast Applications" (SIGCOMM 2001). The loss history is that of TFRC (RFC 5348 section
//! 5). Section numbers without a source refer to RFC 4654.
//!
//! Each [`Receiver`] measures its loss event rate and its round-trip time, and calculates the rate
//! of a TCP connection on its path. The [`Sender`] follows the lowest of these rates. The receiver
//! that has it, the current limiting receiver (CLR), reports once per round-trip time. The others
//! report in feedback rounds. Random timers, and the suppression rate in each data packet, keep
//! most of them silent:
//!
//! ```text
//!         data: i, ts_i, fb_nr, R_max, X_supp, echo of a report (r, tr_r', is_CLR)
//!       +---------------------------------------------------------------> all receivers
//!       |                                                                 measure p, R, X_recv
//!    Sender <-- the CLR: X_r once per round-trip time ------------------- X_r = TCP(R, p)
//!    sets X <-- the others: X_r, if the timer expires before X_supp < X_r
//! ```
//!
//! | file | what it holds | RFC 4654 |
//! |---|---|---|
//! | `config.rs` | parameters and their ranges | |
//! | `number.rs` | rates of 12 bits, times of 8 bits, timestamps | 2.2 |
//! | `header.rs`, `wire.rs` | data and feedback headers, and their bytes | 2.2 |
//! | `event.rs` | what both ends report to observers | |
//! | `sender/` | the sending rate, feedback rounds, answers to reports | 3 |
//! | `receiver/` | measurements, feedback timers, suppression | 4, 5 |
//!
//! # Example
//!
//! One minute of a session with one receiver, over links that lose 1 % of the packets. The loop
//! shows the whole contract: hand over packets and the time, drain actions and events, wait for the
//! next timeout.
//!
//! ```
//! use std::time::Duration;
//!
//! use manyflow_core::link::{Link, LinkConfig, LossModel};
//! use manyflow_core::{Action, ConfigError, Endpoint, EndpointId, Time};
//! use manyflow_tfmcc::{Receiver, ReceiverConfig, ReceiverId, Sender, SenderConfig};
//!
//! # fn main() -> Result<(), ConfigError> {
//! let (session, start) = (1, Time::ZERO);
//! let mut sender = Sender::new(SenderConfig::default(), session, start, None)?;
//! // The sender's endpoint, the receiver's number, and the seed of its feedback timers.
//! let (to, id, seed) = (EndpointId(0), ReceiverId(7), 42);
//! let config = ReceiverConfig::default();
//! let mut receiver = Receiver::new(config, session, id, to, seed, start, None)?;
//!
//! let way = LinkConfig {
//!     delay: Duration::from_millis(50),
//!     loss: LossModel::Bernoulli(0.01),
//!     ..LinkConfig::default()
//! };
//! let (mut down, mut up) = (Link::new(way.clone(), 1), Link::new(way, 2));
//!
//! let mut now = start;
//! while now < Time::from_secs_f64(60.0) {
//!     while let Some(packet) = down.pop_ready(now) {
//!         receiver.handle_packet(now, &packet);
//!     }
//!     while let Some(packet) = up.pop_ready(now) {
//!         sender.handle_packet(now, &packet);
//!     }
//!     receiver.handle_timeout(now);
//!     sender.handle_timeout(now);
//!     while let Some(action) = receiver.poll_action(now) {
//!         // A network would also handle `Action::Join`: this one has no other receiver.
//!         if let Action::Send(packet) = action {
//!             let bytes = packet.wire_bytes();
//!             let _ = up.push(now, packet, bytes);
//!         }
//!     }
//!     while let Some(Action::Send(packet)) = sender.poll_action(now) {
//!         let bytes = packet.wire_bytes();
//!         let _ = down.push(now, packet, bytes);
//!     }
//!     while receiver.poll_event().is_some() || sender.poll_event().is_some() {}
//!     let next = [
//!         receiver.poll_timeout(),
//!         sender.poll_timeout(),
//!         down.next_time(),
//!         up.next_time(),
//!     ];
//!     now = next.into_iter().flatten().min().unwrap_or(Time::MAX);
//! }
//! assert_eq!(sender.limiting_receiver(), Some(id));
//! // The TCP equation gives 112 packets of 1000 bytes per second.
//! let packets_per_s = sender.rate(now).packets_per_s(1000);
//! assert!((40.0..300.0).contains(&packets_per_s), "{packets_per_s}");
//! # Ok(())
//! # }
//! ```
//!
//! # Deviations and choices
//!
//! Where RFC 4654 is wrong or leaves room:
//!
//! - **The sign of D_r.** Section 4.3.3 writes it with the opposite sign, with which the difference
//!   of the two clocks would count twice instead of cancelling out.
//! - **Receivers that have not measured their round-trip time** use the R_max of the latest packet
//!   and count as not above it. With the R_max of their first packet, as section 4.1 has it,
//!   nothing could suppress them after R_max has fallen.
//! - **Fewer than n loss intervals.** The average is taken over those that exist, as RFC 5348
//!   section 5.4 has it. RFC 4654 does not say. In the average of its section 5.5, `W_tot` must
//!   accumulate.
//! - **New rounds.** In a packet with a higher sequence number, any other value of the round
//!   counter begins a round. So neither a wrap of the counter nor a long silence looks like an old
//!   round.
//! - **Timestamps** are 32 bits of microseconds, for exact round-trip times of a few milliseconds.
//!   The shortest round-trip time is 1 ms, as in the RFC. Longer ones than 10 s count as 10 s.
//! - **Feedback is unicast** to the sender, as in source-specific multicast. So a feedback round
//!   lasts six maximum round-trip times.
//! - **Increases are limited by time.** A CLR's report raises the rate by at most the fraction of
//!   its round-trip time that has passed since the last increase. In slowstart the sender never
//!   aims above twice its rate. Neither limit affects honest receivers; a flood of forged reports
//!   gains little.
//! - **A CLR that leaves** is dropped at its first report that says so. While the rate is held for
//!   its successor (section 3.3, case 3), a receiver with a rate below the successor's replaces it.
//! - **Silence** counts from the first report on. Without any receiver the rate stays at one packet
//!   per maximum round-trip time. At one packet per 8 s, the first report would take most of a
//!   minute.
//! - **R_max** does not change in a round without reports.
//! - **Late packets** that count as lost stay lost. Section 5.1 also allows to count them again.
//! - **Packet times.** Packets are never early: the delta of section 3.7 is 0.
//!
//! Not implemented: sender-based round-trip times (section 4.3.2), separate congestion control
//! messages (2.2), multicast feedback (3.4), slowstart after an idle time of the sender (3.6).
#![forbid(unsafe_code)]

mod config;
mod event;
mod header;
mod number;
mod receiver;
mod sender;
mod wire;

pub use config::{ROUND_RTTS, ReceiverConfig, SenderConfig};
pub use event::Event;
pub use header::{Data, Echo, Feedback, Message, ReceiverId};
pub use number::{RateCode, RttCode, Stamp};
pub use receiver::{Receiver, Status};
pub use sender::Sender;
pub use wire::{DATA_BYTES, Encoded, FEEDBACK_BYTES, WireError};

/// The one channel of a session.
fn channel(session: u32) -> manyflow_core::Channel {
    manyflow_core::Channel { session, number: 0 }
}
