//! The constants of an XCP router.

use core::time::Duration;

/// The constants of an XCP router (Katabi, Handley and Rohrs 2002; draft-falk-xcp-spec).
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct XcpConfig {
    /// alpha: the share of the spare capacity that is granted in an interval.
    pub alpha: f64,
    /// beta: the share of the persistent queue that is taken back in an interval.
    pub beta: f64,
    /// gamma: the share of the traffic that is moved between the flows in an interval.
    pub gamma: f64,
    /// The control interval before any packet carries a round-trip time, 1 ms to 1 s.
    pub initial_interval: Duration,
}

impl Default for XcpConfig {
    /// Returns alpha = 0.4, beta = 0.226, gamma = 0.1 and an initial interval of 50 ms.
    fn default() -> XcpConfig {
        XcpConfig {
            alpha: 0.4,
            beta: 0.226,
            gamma: 0.1,
            initial_interval: Duration::from_millis(50),
        }
    }
}
