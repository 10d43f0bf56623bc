//! The switch: one connection between a peer and the members of an ensemble (sections III and IV).
//!
//! ```text
//!             peer's numbers            members' numbers
//!   Data 7 --> [ policy: member 2 ] --> Data 3 to member 2      inbound.rs
//!   Ack  5 <-- [ all below 5 are  ] <-- Ack 4 from member 2
//!   Data 9 <-- [ next number      ] <-- Data 6 from member 0    outbound.rs
//!   Ack 10 --> [ whose was it?    ] --> Ack 7 to member 0
//! ```
//!
//! Frames go on in the order in which their sender numbered them, as a member's stream must keep it: what arrives beyond
//! a gap is held until the gap is filled. The sender hears of the gap at once; but only the receiver's own acknowledgement
//! takes a frame from the sender's buffer, so that a switch which fails loses nothing silently.

mod endpoint;
mod policy;

use core::time::Duration;

pub use endpoint::{Change, MemberChange, SwitchEndpoint};
pub use policy::{Candidate, HashOfKey, KeyRule, LeastOutstanding, Policy, RoundRobin, Weighted};

use super::config::ConfigError;

/// A member of an ensemble, numbered in the order of joining.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u16);

/// One side of the switch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Leg {
    /// The end that sees the ensemble as one host.
    Peer,
    /// A member.
    Member(MemberId),
}

/// How feedback is scaled on its way through the transforms.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Scaling {
    /// As the paper writes it: a member's feedback is divided by its receive ratio, the peer's by the number of members.
    #[default]
    Paper,
    /// The same totals for each round-trip time, as a header's feedback is for one packet, and each leg has packets of its own number.
    PerPacket,
}

/// The parameters of a switch.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchConfig {
    /// The frames over which receive ratios are counted, at least 1.
    pub histogram_frames: u32,
    /// How feedback is scaled.
    pub scaling: Scaling,
    /// A member that has not answered for so long what it should have answered has failed; at least 1 ms.
    pub failure_timeout: Duration,
    /// After this long without a packet from a member it is probed; at least 1 ms.
    pub keep_alive: Duration,
    /// Frames beyond a gap that are held for each leg, at least 1; what is beyond is dropped.
    pub held_frames_max: u32,
}

impl Default for SwitchConfig {
    /// Ratios over 128 frames, failure after 2 s, probes after 1 s, 4096 frames held.
    fn default() -> SwitchConfig {
        SwitchConfig {
            histogram_frames: 128,
            scaling: Scaling::default(),
            failure_timeout: Duration::from_secs(2),
            keep_alive: Duration::from_secs(1),
            held_frames_max: 4096,
        }
    }
}

impl SwitchConfig {
    /// # Errors
    /// Where a parameter is outside its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        ConfigError::first_of([
            (
                "the histogram",
                "1 to 65,536 frames",
                (1..=65_536).contains(&self.histogram_frames),
            ),
            (
                "the failure time-out",
                "at least 1 ms",
                self.failure_timeout >= Duration::from_millis(1),
            ),
            (
                "the keep-alive time",
                "at least 1 ms",
                self.keep_alive >= Duration::from_millis(1),
            ),
            ("the held frames", "at least 1", self.held_frames_max >= 1),
        ])
    }
}
