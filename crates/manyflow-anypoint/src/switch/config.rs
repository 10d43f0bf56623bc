//! Parameters of a switch.

use core::time::Duration;

use crate::ConfigError;

/// The scaling of feedback in the transforms.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scaling {
    /// Keeps the total of each round-trip time: a header's feedback is that of one packet, and each
    /// path has its own number of packets in a round trip.
    #[default]
    PerPacket,
    /// Applies the formulas of section III, which are for totals, to the feedback of single
    /// packets: a member's feedback is divided by its receive ratio, the peer's by the number of
    /// members. A path that carries half of the frames then gets twice the change that it asked
    /// for.
    Paper,
}

/// The parameters of a switch.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchConfig {
    /// The number of frames over which receive ratios are counted, 1 to 65,536.
    pub histogram_frames: u32,
    /// The scaling of feedback in the transforms.
    pub scaling: Scaling,
    /// Whether one CUBIC limits what all members send together while no XCP router answers between
    /// the switch and the peer. For members with [`Control::Auto`](crate::Control::Auto): those
    /// with [`Control::Xcp`](crate::Control::Xcp) would follow that limit as well.
    pub fallback: bool,
    /// The time after which a member fails that owes an answer and sends nothing; at least 1 ms.
    pub failure_timeout: Duration,
    /// The time after which a member is suspected that owes an answer and sends nothing, while
    /// others answer; at least 1 ms. The switch answers the retransmissions of its frames, so that
    /// the peer goes on sending to others until the member answers or fails. `None`: no member is
    /// suspected.
    pub suspect_timeout: Option<Duration>,
    /// The silence after which a member is probed; at least 1 ms.
    pub keep_alive: Duration,
    /// The time after which a member counts as stalled, at least 1 ms. Such a member is alive, but
    /// grants no credit for a frame, or does not acknowledge the frame that it waits for. It gets
    /// no new frames. After three times this time, the frames that it holds go to other members. A
    /// member that leaves has this time once to take its frames, and 12 times to finish its
    /// answers.
    pub stall_timeout: Duration,
    /// The length of the peer's longest frame in bytes. A member that grants less credit has no
    /// room for a frame.
    pub frame_bytes_max: u32,
    /// The number of frames beyond a gap that are held for each stream, at least 1. Later frames
    /// are dropped.
    pub held_frames_max: u32,
    /// Whether each frame of the peer is for one member that the policy finds, and for no other. A
    /// frame for which the policy returns no candidate is acknowledged and dropped, as are those
    /// that a failed member has not acknowledged. Frames wait for a stalled member. A single member
    /// is served like several.
    pub bound: bool,
}

impl Default for SwitchConfig {
    /// Returns ratios over 128 frames, no fallback, failure after 2 s, no suspicion, probes after
    /// 1 s, stalls after 10 s, frames of 1 KiB, 4096 held frames, and frames for any member.
    fn default() -> SwitchConfig {
        SwitchConfig {
            histogram_frames: 128,
            scaling: Scaling::default(),
            fallback: false,
            failure_timeout: Duration::from_secs(2),
            suspect_timeout: None,
            keep_alive: Duration::from_secs(1),
            stall_timeout: Duration::from_secs(10),
            frame_bytes_max: 1024,
            held_frames_max: 4096,
            bound: false,
        }
    }
}

impl SwitchConfig {
    /// Checks each parameter.
    ///
    /// # Errors
    /// If a parameter is outside its range.
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
                "the suspicion time-out",
                "at least 1 ms",
                self.suspect_timeout
                    .is_none_or(|timeout| timeout >= Duration::from_millis(1)),
            ),
            (
                "the keep-alive time",
                "at least 1 ms",
                self.keep_alive >= Duration::from_millis(1),
            ),
            (
                "the stall time-out",
                "at least 1 ms",
                self.stall_timeout >= Duration::from_millis(1),
            ),
            ("the held frames", "at least 1", self.held_frames_max >= 1),
        ])
    }
}
