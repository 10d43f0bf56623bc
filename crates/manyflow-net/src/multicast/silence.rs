//! When the groups of a silent session are left, and joined again.

use std::time::{Duration, Instant};

use super::REJOIN_PAUSE;

/// Silence after which groups are left and joined again.
const REJOIN_AFTER: Duration = Duration::from_secs(10);

/// The silence of a session whose groups are joined.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// Whether a datagram of the session has come since the last look.
    has_heard: bool,
    /// Time of the first look without a datagram since the last one.
    since: Option<Instant>,
    /// Time at which the groups were left.
    left_at: Option<Instant>,
}

impl Silence {
    /// Notes that a datagram of the session has come.
    pub(super) fn hear(&mut self) {
        self.has_heard = true;
    }

    /// Begins again with groups that have just been joined.
    pub(super) fn restart(&mut self) {
        *self = Silence::default();
    }

    /// Whether the groups are left at the moment.
    pub(super) fn is_left(&self) -> bool {
        self.left_at.is_some()
    }

    /// Returns true if the groups are to be left now, because nothing has come for
    /// [`REJOIN_AFTER`].
    pub(super) fn begins_rejoin(&mut self, now: Instant) -> bool {
        if self.is_left() {
            return false;
        }
        if std::mem::take(&mut self.has_heard) || self.since.is_none() {
            self.since = Some(now);
        }
        let is_over = self.since.is_some_and(|since| now - since >= REJOIN_AFTER);
        if is_over {
            self.left_at = Some(now);
        }
        is_over
    }

    /// Returns true if the groups that were left are to be joined now, [`REJOIN_PAUSE`] later.
    pub(super) fn ends_rejoin(&mut self, now: Instant) -> bool {
        let is_over = self.left_at.is_some_and(|at| now - at >= REJOIN_PAUSE);
        if is_over {
            self.restart();
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what happens at each second of a session that is heard at these seconds: `L` for
    /// leaving, `J` for joining.
    fn steps(heard: &[u64], seconds: u64) -> Vec<(u64, char)> {
        let start = Instant::now();
        let (mut silence, mut steps) = (Silence::default(), Vec::new());
        for second in 0..seconds {
            let now = start + Duration::from_secs(second);
            if heard.contains(&second) {
                silence.hear();
            }
            if silence.ends_rejoin(now) {
                steps.push((second, 'J'));
            }
            if silence.begins_rejoin(now) {
                steps.push((second, 'L'));
            }
        }
        steps
    }

    #[test]
    fn a_silent_session_is_left_for_three_seconds_after_ten() {
        let expected = [(10, 'L'), (13, 'J'), (23, 'L'), (26, 'J')];
        assert_eq!(steps(&[], 30), expected);
    }

    #[test]
    fn a_session_that_is_heard_in_time_stays_joined() {
        assert_eq!(steps(&[0, 9, 18, 27], 30), []);
        assert_eq!(steps(&[0, 5], 19), [(15, 'L'), (18, 'J')]);
    }
}
