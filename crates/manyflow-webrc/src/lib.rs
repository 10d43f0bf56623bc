//! WEBRC: Wave and Equation Based Rate Control. One sender, and many receivers, each at the rate of
//! its own path.
//!
//! Sources: Luby, Goyal, Skaria, Horn, "Wave and Equation Based Rate Control Using Multicast Round
//! Trip Time" (SIGCOMM 2002), called the paper here, and RFC 3738, which has the details that the
//! paper omits.
//!
//! The [`Sender`] divides time into slots of TSD seconds, and sends on a base channel and T wave
//! channels. A wave starts at a high rate that falls by the factor P per slot. A new wave starts in
//! each slot:
//!
//! ```text
//!   rate
//!    |\    \    \    \    wave N-1
//!    | \    \    \    \   ...
//!    |  '.   '.   '.   '. wave 1
//!    |    '-._ '-._ '-._  wave 0    base: BCR, falling to P BCR within each slot
//!    +----+----+----+----+----> time slots
//! ```
//!
//! A [`Receiver`] raises its rate by joining the next wave earlier in its descent than the last
//! one. It lowers its rate by not joining, since the rate of the joined waves falls by itself. So
//! leaves may be slow.
//!
//! ```text
//!   base joined --first packet--> start-up --loss, RTT rise, maximum or shortfall--> normal
//!                                                                --silence--> ended
//! ```
//!
//! At the end of each epoch, a receiver joins the next wave if its rate then remains within its
//! target. The target is the rate of a TCP with the loss event rate and the round-trip time that
//! the receiver measures. The round-trip time is multicast: from a join to the first packet of its
//! wave.
//!
//! | file | what it holds | RFC 3738 | paper |
//! |---|---|---|---|
//! | `config.rs` | session parameters, N, Q, T, L | 3.1.1 | Table 1, Eq. (3) |
//! | `wave.rs` | a wave's shape, the times of its packets | 3.1.2 | Fig. 1 |
//! | `sender.rs` | the sender | 3.1.2 | 3 |
//! | `receiver/` | the receiver, its epochs and its decision to join | 3.2 | 3.1-3.3, Table 2 |
//! | `loss.rs`, `rtt.rs` | LOSSP and ARTT | 3.2.2.1, 3.2.2.2 | appendix |
//! | `schedule.rs` | the time of each sequence number | 3.1.2 | Fig. 1 |
//! | `trains.rs` | packet trains, an option | | |
//! | `sequence.rs`, `missing.rs` | losses told from sequence numbers | 3.2.3.4 | 3 |
//! | `wire.rs` | the CCI field | 5 | |
//!
//! Deviations and choices, with their reasons:
//!
//! - The shape of a wave's first two slots is derived in `wave.rs`, because the report that RFC
//!   3738 cites for it is lost.
//! - The join time-out of section 3.2.3.7 is at least three packet spacings of the wave. On a path
//!   with a much shorter round trip, the RFC's value can expire before the first packet can arrive.
//! - A packet is refused if its time slot index or its sequence number is ahead of the clock
//!   (`receiver/timeline.rs`). A time slot begins only when its first packet is due. So a forged
//!   packet does not change the rate control's state.
//! - A gap in the sequence numbers counts as loss after three more packets on any channel, or at
//!   the end of the next epoch.
//! - Four options are neither in the RFC nor in the paper, and off by default: `capacity_check`,
//!   `delay_check`, `rtt_rule` and `equation_factor`. `docs/choices.md` and
//!   `docs/history.md` in the repository have their effects. [`ReceiverConfig::live`] turns the
//!   first three on.
//! - The session option `packet_trains` is neither in the RFC nor in the paper, and off by default:
//!   the base channel is sent in trains, from which receivers learn the capacity of their path
//!   (`trains.rs`, `receiver/jump.rs`).
//! - A sender can lower the top of a running session ([`Sender::lower_top`]): new waves are silent
//!   in their first slots. Receivers know nothing of it but that joins bring no packets. It can
//!   raise the top again ([`Sender::raise_top`]).
//! - Neither text has ECN. Packets can carry ECT(0) or ECT(1) ([`SessionConfig::ecn`]), and
//!   `receiver/marks.rs` has the receiver's response to marks.
//! - The rates of an epoch are computed from its real duration, since a live timer is never exact.
//!
//! # Example
//!
//! A receiver on a path that loses nothing: it joins wave after wave. The loop stands for a network
//! that takes no time, and forwards only the channels that the receiver has joined.
//!
//! ```
//! use std::collections::BTreeSet;
//! use std::sync::Arc;
//!
//! use manyflow_core::{Action, Destination, Endpoint, Time};
//! use manyflow_webrc::{Receiver, ReceiverConfig, Sender, Session, SessionConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let session = Session::new(SessionConfig::wan("2 Mbit/s".parse()?))?;
//! let mut sender = Sender::new(session.clone(), 0, Time::ZERO);
//! let config = Arc::new(ReceiverConfig::default());
//! let mut receiver = Receiver::new(Arc::new(session), config, 0, Time::ZERO)?;
//! let mut joined = BTreeSet::new();
//! let next = |sender: &Sender, receiver: &Receiver| {
//!     [sender.poll_timeout(), receiver.poll_timeout()].into_iter().flatten().min()
//! };
//! while let Some(now) = next(&sender, &receiver).filter(|now| now.as_secs_f64() < 60.0) {
//!     sender.handle_timeout(now);
//!     while let Some(Action::Send(packet)) = sender.poll_action(now) {
//!         if matches!(packet.destination, Destination::Channel(c) if joined.contains(&c)) {
//!             receiver.handle_packet(now, &packet);
//!         }
//!     }
//!     receiver.handle_timeout(now);
//!     while let Some(action) = receiver.poll_action(now) {
//!         match action {
//!             Action::Join(channel) => joined.insert(channel),
//!             Action::Leave(channel) => joined.remove(&channel),
//!             Action::Send(never) => match never.header {},
//!         };
//!     }
//!     while receiver.poll_event().is_some() {}
//! }
//! assert!(joined.len() > 1, "the base channel and at least one wave");
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod config;
mod event;
mod loss;
mod missing;
mod receiver;
mod rtt;
mod schedule;
mod sender;
mod sequence;
mod trains;
mod wave;
mod wire;

pub use config::{Session, SessionConfig, SessionError};
pub use event::{EndReason, Event, SlowStartEnd};
pub use loss::{LossConfig, LossFilter};
pub use manyflow_core::ConfigError;
pub use receiver::{Parameter, Receiver, ReceiverConfig, Refusals, Status, TargetRule, Weights};
pub use rtt::RttRule;
pub use sender::Sender;
pub use wave::Wave;
pub use wire::{Cci, CciFormat};
