//! The number by which other daemons know that a daemon has started again.

use std::time::SystemTime;

use super::config::DaemonConfig;
use super::signatures::INCARNATION_EPOCH;

/// An [`incarnation`] below this one comes from a clock that is not set: the first second of 2026.
const CLOCK_MIN: u32 = 189_388_800;

/// Returns a number that is greater after a restart: seconds since 2020.
pub(super) fn incarnation() -> u32 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = now
        .unwrap_or_default()
        .as_secs()
        .saturating_sub(INCARNATION_EPOCH);
    (seconds as u32).max(1)
}

/// Adapts a daemon to a clock that is not set.
pub(super) fn check_clock(config: &mut DaemonConfig, incarnation: u32) {
    if incarnation < CLOCK_MIN {
        config.overlay.incarnation_ahead_max = u32::MAX;
        tracing::warn!(
            "the clock of this machine is before 2026, so this daemon cannot tell whether states \
             of other daemons are of the future: set the clock"
        );
    }
}
