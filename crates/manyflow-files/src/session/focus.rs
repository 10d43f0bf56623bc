//! Decides whether a sender sends nothing but what receivers have reported to need.

use std::time::Duration;

use manyflow_core::Time;
use manyflow_object::needs::Needs;

use crate::completion::Wanted;

/// The number of report windows in which receivers must come to need a quarter less.
const PATIENCE_WINDOWS: u32 = 5;

/// The needs of receivers over time.
#[derive(Debug, Default)]
pub(super) struct Focus {
    /// The symbols that receivers needed in all when they were last noted, and that time.
    noted: Option<(u64, Time)>,
}

impl Focus {
    /// Whether nothing else has to be sent. A receiver that is stuck or lies must not keep others
    /// from symbols that they need but have not reported. So the needs have to fall: by a quarter
    /// at a time, which a liar cannot do without end. More needs than before count nothing.
    pub(super) fn is_alone(&mut self, now: Time, wanted: &Wanted, window: Duration) -> bool {
        let symbols = wanted.needs.iter().map(Needs::symbols);
        let symbols = symbols.fold(0, u64::saturating_add);
        let (noted, at) = *self.noted.get_or_insert((symbols, now));
        if symbols <= noted / 4 * 3 {
            self.noted = Some((symbols, now));
            return wanted.is_complete;
        }
        wanted.is_complete && now - at <= window * PATIENCE_WINDOWS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_that_are_stuck_do_not_keep_the_others_from_the_rest() {
        let window = Duration::from_secs(2);
        let wanted = |symbols: u8, is_complete| Wanted {
            needs: vec![Needs::decode(&[1, 0, 1, symbols]).unwrap()],
            is_complete,
        };
        let mut focus = Focus::default();
        let mut at = |seconds, wanted| {
            let now = Time::ZERO + Duration::from_secs(seconds);
            focus.is_alone(now, &wanted, window)
        };
        assert!(!at(0, wanted(100, false)));
        assert!(at(1, wanted(100, true)) && at(10, wanted(90, true)));
        assert!(!at(11, wanted(90, true)) && !at(12, wanted(76, true)));
        assert!(at(13, wanted(75, true)) && at(23, wanted(60, true)));
        // A liar.
        for seconds in 24..100 {
            assert!(!at(seconds, wanted(60 + seconds as u8 % 2, true)));
        }
    }
}
