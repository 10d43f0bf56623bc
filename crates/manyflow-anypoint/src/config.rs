//! Parameters of a connection.

use core::time::Duration;
pub use manyflow_core::ConfigError;

/// The rule by which the congestion window changes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// The window follows the feedback of XCP's routers (section IV).
    #[default]
    Xcp,
    /// The window follows losses, as in TCP Reno: the paper's ACP-Reno (section V).
    Reno,
    /// The window follows the feedback of XCP's routers where they answer, and CUBIC elsewhere.
    /// Each acknowledgement says whether a router has answered.
    Auto,
}

/// The way in which a receiver protects its buffer.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FlowControl {
    /// The receiver grants credit for the bytes that fit its buffer.
    Credit,
    /// The receiver steers the sender's rate by XCP's feedback (section IV-A). Needs
    /// [`Control::Xcp`] or [`Control::Auto`], but no XCP router.
    Soft(SoftConfig),
}

/// The parameters of soft flow control (section IV-A).
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct SoftConfig {
    /// incrthresh: the target grows while the buffer is filled below this share, 0 to 1.
    pub increase_below: f64,
    /// decrthresh: the target falls while the buffer is filled above this share, 0 to 1.
    pub decrease_above: f64,
    /// gamma: the share by which the target falls, 0 to 1.
    pub decrease: f64,
    /// Growth of the target in one round-trip time, in frames of maximum length.
    pub step_frames: u32,
    /// Whether to measure the drain rate and follow it, keeping a reserve queue between the two
    /// thresholds, instead of probing for it as the paper does. If set, `decrease` and
    /// `step_frames` have no effect.
    pub follow_drain: bool,
}

impl Default for SoftConfig {
    /// Returns the paper's values, 1/3, 1/2, 0.1 and two segments, except that the drain rate is
    /// followed.
    fn default() -> SoftConfig {
        SoftConfig {
            increase_below: 1.0 / 3.0,
            decrease_above: 1.0 / 2.0,
            decrease: 0.1,
            step_frames: 2,
            follow_drain: true,
        }
    }
}

/// The parameters of one end of a connection.
#[derive(Clone, Debug, PartialEq)]
pub struct AcpConfig {
    /// The rule by which the congestion window changes.
    pub control: Control,
    /// The way in which the receive buffer is protected.
    pub flow: FlowControl,
    /// The longest frame in bytes, 1 to 65,000.
    pub frame_bytes_max: u32,
    /// Size of the send buffer: queued plus unacknowledged bytes of frames; at least one frame.
    pub send_buffer: u32,
    /// Size of the receive buffer: bytes of frames that have arrived and were not read; at least
    /// one frame.
    pub receive_buffer: u32,
    /// The initial window in frames of maximum length, 1 to 1000; in those of Ethernet if they can
    /// be longer, because paths are not known to carry these yet.
    pub initial_window: u32,
    /// The lower bound of the retransmission time-out, 1 ms to 60 s.
    pub minimum_rto: Duration,
    /// The silence after which the other end is probed; at least 1 ms.
    pub keep_alive: Duration,
    /// The connection fails after this many Opens or Probes in a row without an answer; at least 1.
    pub attempts: u32,
}

impl Default for AcpConfig {
    /// Returns XCP with soft flow control, frames of 1 KB and buffers of 200 KB, as in section VI
    /// of the paper.
    fn default() -> AcpConfig {
        AcpConfig {
            control: Control::Xcp,
            flow: FlowControl::Soft(SoftConfig::default()),
            frame_bytes_max: 1024,
            send_buffer: 200 * 1024,
            receive_buffer: 200 * 1024,
            initial_window: 2,
            minimum_rto: Duration::from_millis(200),
            keep_alive: Duration::from_secs(10),
            attempts: 8,
        }
    }
}

impl AcpConfig {
    /// Checks each parameter.
    ///
    /// # Errors
    /// If a parameter is outside its range, or soft flow control is combined with Reno.
    pub fn check(&self) -> Result<(), ConfigError> {
        let share = |value: f64| (0.0..=1.0).contains(&value);
        let soft = match self.flow {
            FlowControl::Credit => None,
            FlowControl::Soft(soft) => Some(soft),
        };
        let limits = Duration::from_millis(1)..=Duration::from_secs(60);
        let checks = [
            (
                "the longest frame",
                "1 to 65,000 bytes",
                (1..=65_000).contains(&self.frame_bytes_max),
            ),
            (
                "the send buffer",
                "at least one frame, and below 2 GB",
                (self.frame_bytes_max..1 << 31).contains(&self.send_buffer),
            ),
            (
                "the receive buffer",
                "at least one frame, and below 2 GB",
                (self.frame_bytes_max..1 << 31).contains(&self.receive_buffer),
            ),
            (
                "the initial window",
                "1 to 1000 frames",
                (1..=1000).contains(&self.initial_window),
            ),
            (
                "the minimum retransmission time-out",
                "1 ms to 60 s",
                limits.contains(&self.minimum_rto),
            ),
            (
                "the keep-alive time",
                "at least 1 ms",
                self.keep_alive >= *limits.start(),
            ),
            ("the attempts", "at least 1", self.attempts >= 1),
            (
                "flow control",
                "by credit where the window follows Reno",
                soft.is_none() || self.control != Control::Reno,
            ),
            (
                "soft flow control's thresholds and decrease",
                "0 to 1, increase-below not above decrease-above",
                soft.is_none_or(|soft| {
                    let shares = [soft.increase_below, soft.decrease_above, soft.decrease];
                    shares.into_iter().all(share) && soft.increase_below <= soft.decrease_above
                }),
            ),
        ];
        ConfigError::first_of(checks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_outside_its_range_is_refused_by_name() {
        let config = AcpConfig {
            control: Control::Reno,
            ..AcpConfig::default()
        };
        let error = config.check().unwrap_err().to_string();
        assert!(
            error.starts_with("flow control must be by credit"),
            "{error}"
        );
        assert_eq!(AcpConfig::default().check(), Ok(()));
    }
}
