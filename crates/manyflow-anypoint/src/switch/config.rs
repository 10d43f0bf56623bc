//! What a switch is like.

use core::time::Duration;

use crate::ConfigError;

/// How feedback is scaled on its way through the transforms.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Scaling {
    /// Keeps the total of each round-trip time: a header's feedback is for one packet, and each
    /// path has its own number of packets in a round trip.
    #[default]
    PerPacket,
    /// Applies section III's formulas, which are for totals, to the feedback of packets: a member's
    /// feedback is divided by its receive ratio, the peer's by the number of members. What a path
    /// of half the frames wants is then done twice over.
    Paper,
}

/// The parameters of a switch.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchConfig {
    /// The frames over which receive ratios are counted, 1 to 65,536.
    pub histogram_frames: u32,
    /// How feedback is scaled.
    pub scaling: Scaling,
    /// A member fails if it leaves unanswered for this long what it should have answered; at least
    /// 1 ms.
    pub failure_timeout: Duration,
    /// A member is probed after this long without a packet from it; at least 1 ms.
    pub keep_alive: Duration,
    /// How many frames beyond a gap are held for each stream, at least 1; later frames are dropped.
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
                "the keep-alive time",
                "at least 1 ms",
                self.keep_alive >= Duration::from_millis(1),
            ),
            ("the held frames", "at least 1", self.held_frames_max >= 1),
        ])
    }
}
