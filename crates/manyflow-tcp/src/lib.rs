//! TCP as a baseline: senders with NewReno, SACK, CUBIC, BBR, DCTCP or Prague, and their receiver.
//!
//! Sources: RFC 5681 (congestion control), RFC 6298 (retransmission timer), RFC 6582 (NewReno), RFC
//! 2018 and RFC 6675 (SACK), RFC 3042 (limited transmit), RFC 9438 (CUBIC), RFC 3168 (ECN), RFC
//! 9293 (the receiver's window); RFC 8985 (RACK-TLP), RFC 6937 (PRR), RFC 9406 (HyStart++), RFC
//! 8257 (DCTCP), draft-ietf-ccwg-bbr, draft-briscoe-iccrg-prague-congestion-control. Like ns-2's
//! one-way TCP it counts in segments, has no handshake, and sends data in one direction only.
//!
//! A greedy connection's sender has all its data from the beginning, and its receiver takes
//! everything at once. A stream ([`Sender::of_stream`], [`Receiver::of_stream`]) connects two
//! applications: one offers segments as it has them, the other takes them as it can.
//!
//! ```text
//!          +--------- three duplicates, or three SACKed above the first -------> fast recovery --+
//!          |                                                                         |           |
//!         open <---------------------- all up to `recover` -------------------------+            | timer
//!          |  ^                                                                                  v
//!          |  +----------------------- all up to `recover` ------------------------------- after time-out
//!          +---------------------------------- timer --------------------------------------------^
//!
//!   open: slow start, congestion avoidance    fast recovery: the window stands    after time-out: slow start
//! ```
//!
//! One rule decides what is sent in each phase: while the pipe, the number of segments assumed to
//! be in the network, is below the window, send the first lost segment or else a new one. A SACK
//! sender knows from its scoreboard which segments have left the network; a NewReno sender counts
//! duplicate acknowledgements. That count replaces RFC 6582's inflation and deflation of the
//! window, and before recovery it is limited transmit.
//!
//! | file | what it holds | RFC |
//! |---|---|---|
//! | `config.rs` | the parameters of a connection | |
//! | `sender/` | the sender: phases, timer, ECN, the next segment | 5681, 6582, 6675, 3168 |
//! | `flight.rs` | the scoreboard and the pipe | 6675 section 4 |
//! | `window.rs` | cwnd and ssthresh | 5681 section 3.1; 9438 section 4 by `manyflow_core::cubic` |
//! | `control.rs` | the interface of controls in place of cwnd: those below, or one's own | |
//! | `delivery.rs` | records of segments in flight, samples of the delivery rate | draft-ietf-ccwg-bbr section 4.1 |
//! | `bbr.rs`, `bbr3/` | BBR, versions 1 and 3 | draft-ietf-ccwg-bbr |
//! | `aggregation.rs`, `filter.rs` | what both versions of BBR measure | |
//! | `dctcp.rs`, `prague.rs` | windows in proportion to the share of marks | 8257 |
//! | `rack.rs` | losses by time, probes of the flight's tail | 8985 |
//! | `prr.rs` | the flight during a recovery | 6937 |
//! | `hystart/` | the end of slow start by delay: HyStart++, and HyStart as in Linux | 9406 |
//! | `persist.rs` | the timer that probes a closed window | 9293 section 3.8.6.1 |
//! | `receiver.rs` | acknowledgements, delayed or not, and SACK blocks | 5681 section 4.2, 2018 |
//! | `wire.rs` | the header as bytes | 9293 section 3.1, 2018 section 3 |
//!
//! Deviations and choices, with their reasons:
//!
//! - Reno's window grows per acknowledgement, as in ns-2 and in the models of TCP's throughput, not
//!   per acknowledged byte (RFC 3465).
//! - One segment per round trip is timed, and none while losses are repaired (Karn's rule): there
//!   are no timestamps.
//! - The timer is restarted at a fast retransmission. RFC 6582 leaves it running, so a time-out of
//!   two round-trip times or less would expire in each recovery. After the first partial
//!   acknowledgement NewReno leaves it running (the Impatient variant, section 4), so several
//!   losses in one window end in a time-out.
//! - After a time-out a SACK sender keeps its scoreboard. RFC 2018 section 8 would clear it for
//!   receivers that discard segments they have reported, which ours never do.
//! - NextSeg's rules 3 and 4 (RFC 6675 section 4), which repeat segments that are not known to be
//!   lost, are left out. A loss among the last three segments of a transfer waits for the timer, as
//!   in ns-2.
//! - NewReno leaves recovery by option 1 of RFC 6582 section 3.2, step 3: without a burst, which
//!   ns-2 allows.
//! - A mark halves the congestion window, a loss the flight (RFC 3168 section 6.1.2, RFC 5681 Eq.
//!   (4)). A mark never reduces the window below two segments; RFC 3168 section 6.1.2 and RFC 9438
//!   section 4.6 would continue to one, and then to the timer.
//! - HyStart and HyStart++ (RFC 9438 section 4.10), RACK-TLP and PRR are choices, which variants
//!   before BBR do not have unless asked: the papers' figures stand on the TCP of their time.
//! - A receiver's window counts segments, and its end never moves back: acknowledgements that
//!   overtake each other cannot close it.
//! - The receiver of a greedy connection does not answer segments beyond its window; the receiver
//!   of a stream answers probes of a closed window.
//!
//! # Example
//!
//! A transfer of 20 segments, of which the network loses the fourth. The loop stands for a network
//! that takes 10 ms in each direction.
//!
//! ```
//! use core::time::Duration;
//! use manyflow_core::{Action, Endpoint, EndpointId, Time};
//! use manyflow_tcp::{Receiver, Sender, TcpConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = TcpConfig {
//!     transfer: Some(20),
//!     ..TcpConfig::default()
//! };
//! let mut sender = Sender::new(config.clone(), EndpointId(1), 1)?;
//! let mut receiver = Receiver::new(config, EndpointId(0))?;
//! let (mut now, mut sent) = (Time::ZERO, 0);
//! while !sender.is_finished() {
//!     sender.handle_timeout(now);
//!     let mut data = Vec::new();
//!     while let Some(Action::Send(packet)) = sender.poll_action(now) {
//!         sent += 1;
//!         if sent != 4 {
//!             data.push(packet);
//!         }
//!     }
//!     now += Duration::from_millis(10);
//!     let mut acks = Vec::new();
//!     for packet in data {
//!         receiver.handle_packet(now, &packet);
//!         while let Some(Action::Send(ack)) = receiver.poll_action(now) {
//!             acks.push(ack);
//!         }
//!     }
//!     now += Duration::from_millis(10);
//!     acks.iter().for_each(|ack| sender.handle_packet(now, ack));
//! }
//! assert_eq!(sender.counters().sent, 21);
//! assert_eq!(sender.counters().retransmitted, 1);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod aggregation;
mod bbr;
mod bbr3;
pub mod cbr;
mod config;
mod control;
mod counters;
mod dctcp;
mod delivery;
mod event;
mod filter;
mod flight;
mod hystart;
mod persist;
mod prague;
mod prr;
mod rack;
mod receiver;
mod sender;
mod window;
mod wire;

pub use config::{ConfigError, LossDetection, Recovery, SlowStart, TcpConfig, Variant};
pub use control::{Control, Delivery, Lost, Moment};
pub use counters::Counters;
pub use event::Event;
pub use receiver::Receiver;
pub use sender::Sender;
pub use wire::EncodedHeader;

use manyflow_core::Header;

/// The bytes of the headers of IPv4 and TCP, without options.
pub const HEADER_BYTES: u32 = 40;

/// The bytes of the longest SACK option: three blocks, and two bytes that align it (RFC 2018
/// section 3).
const MAX_OPTION_BYTES: u32 = 28;

/// A segment's header. Sequence numbers count segments of the connection's maximum size.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The segment's number; 0 in an acknowledgement.
    pub sequence: u32,
    /// The next number that the receiver expects.
    pub acknowledgement: u32,
    /// The number of segments from `acknowledgement` on that the receiver has room for;
    /// [`Segment::UNLIMITED`] if it takes everything at once.
    pub window: u16,
    /// The received blocks above `acknowledgement`, the newest first: the first number and the one
    /// after the last, which are equal in an unused block (RFC 2018).
    pub sack: [(u32, u32); 3],
    /// The receiver's report of marks. With RFC 3168 (section 6.1), it is the flag ECE: 1 after a
    /// marked packet, until the sender has reduced its window. A connection that counts marks has
    /// the number of marked packets here, modulo 256; the field of RFC 9768 is modulo 8.
    pub ecn_echo: u8,
    /// CWR: the sender has reduced its window.
    pub window_reduced: bool,
}

impl Default for Segment {
    fn default() -> Segment {
        Segment {
            sequence: 0,
            acknowledgement: 0,
            window: Segment::UNLIMITED,
            sack: [(0, 0); 3],
            ecn_echo: 0,
            window_reduced: false,
        }
    }
}

impl Segment {
    /// The window of a receiver that takes every segment at once.
    pub const UNLIMITED: u16 = u16::MAX;

    /// Returns the header's bytes on a link: IPv4, TCP, and the SACK option if there are blocks
    /// (RFC 2018 section 3).
    pub fn wire_bytes(&self) -> u32 {
        match self.blocks().count() as u32 {
            0 => HEADER_BYTES,
            blocks => HEADER_BYTES + 4 + 8 * blocks,
        }
    }

    /// Returns a segment with data.
    fn data(sequence: u32) -> Segment {
        Segment {
            sequence,
            ..Segment::default()
        }
    }

    /// Returns the SACK blocks that are used.
    fn blocks(&self) -> impl Iterator<Item = (u32, u32)> {
        self.sack.into_iter().take_while(|block| block.0 < block.1)
    }
}

impl Header for Segment {
    #[inline]
    fn wire_bytes(&self) -> u32 {
        Segment::wire_bytes(self)
    }
}
