//! The measurements of a receiver over time.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

/// The ticks that are kept: ten minutes.
const TICKS_MAX: usize = 2_400;
/// The delivered units that are kept: three seconds, so that the same unit is kept for receivers of
/// different latencies.
const RECENT_MAX: usize = 30;

/// Counts of a receiver since its start, at one moment.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Tick {
    /// The time since the start of the stage.
    pub at: Duration,
    /// Bytes of the prefixes of delivered units.
    pub useful: u64,
    /// Bytes that have crossed the link to the receiver, with the headers of IP and UDP.
    pub link_bytes: u64,
    /// Packets that the queue of the link dropped.
    pub link_drops: u64,
    /// Packets received.
    pub packets: u64,
    /// Packets lost, by the sequence numbers of joined groups.
    pub lost: u64,
    /// Units delivered.
    pub units: u64,
    /// Units of which no first byte arrived in time.
    pub missing: u64,
    /// Number of joined groups.
    pub groups: u8,
    /// Time from the fastest packet of a unit to the unit's delivery.
    pub latency: Duration,
}

/// The difference of two ticks.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Span {
    /// Duration in seconds.
    pub seconds: f64,
    /// The difference of the counts. Groups and latency are those at the end.
    pub counts: Tick,
}

impl Span {
    fn between(from: &Tick, to: &Tick) -> Span {
        let counts = Tick {
            useful: to.useful.saturating_sub(from.useful),
            link_bytes: to.link_bytes.saturating_sub(from.link_bytes),
            link_drops: to.link_drops.saturating_sub(from.link_drops),
            packets: to.packets.saturating_sub(from.packets),
            lost: to.lost.saturating_sub(from.lost),
            units: to.units.saturating_sub(from.units),
            missing: to.missing.saturating_sub(from.missing),
            ..*to
        };
        Span {
            seconds: (to.at - from.at).as_secs_f64(),
            counts,
        }
    }

    /// Returns the rate of useful bytes in bits per second.
    pub fn useful_bits_per_s(&self) -> f64 {
        self.counts.useful as f64 * 8.0 / self.seconds.max(1e-3)
    }

    /// Returns the rate on the link in bits per second.
    pub fn link_bits_per_s(&self) -> f64 {
        self.counts.link_bytes as f64 * 8.0 / self.seconds.max(1e-3)
    }

    /// Returns the share of packets that were lost.
    pub fn loss(&self) -> f64 {
        let sent = self.counts.packets + self.counts.lost;
        self.counts.lost as f64 / sent.max(1) as f64
    }

    /// Returns the share of units of which no first byte arrived in time.
    pub fn missing(&self) -> f64 {
        let units = self.counts.units + self.counts.missing;
        self.counts.missing as f64 / units.max(1) as f64
    }
}

/// The ticks of a receiver, and its last units.
#[derive(Debug, Default)]
pub(super) struct History {
    ticks: VecDeque<Tick>,
    /// The numbers and the prefixes of the last units.
    pub recent: VecDeque<(u32, Bytes)>,
    /// Prefixes that are not the beginning of a unit.
    pub wrong: u64,
    /// When the last unit was delivered, since the start of the stage.
    pub last_unit: Option<Duration>,
    /// The longest time between two deliveries since the last call of `take_gap`.
    gap: Duration,
}

impl History {
    pub(super) fn push(&mut self, tick: Tick) {
        if self.ticks.len() == TICKS_MAX {
            self.ticks.pop_front();
        }
        self.ticks.push_back(tick);
    }

    /// Returns the last tick.
    pub(super) fn last(&self) -> Tick {
        self.ticks.back().copied().unwrap_or_default()
    }

    /// Notes a delivered unit.
    pub(super) fn note_unit(&mut self, at: Duration, number: u32, prefix: Bytes, is_right: bool) {
        self.wrong += u64::from(!is_right);
        if let Some(last) = self.last_unit.replace(at) {
            self.gap = self.gap.max(at - last);
        }
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((number, prefix));
    }

    /// Returns the longest time without a delivery since the last call.
    pub(super) fn take_gap(&mut self, now: Duration) -> Duration {
        let since = self.last_unit.map_or(Duration::ZERO, |last| now - last);
        std::mem::take(&mut self.gap).max(since)
    }

    /// Returns the measurements between two times; `None` if there are not two ticks in it.
    pub(super) fn span(&self, from: Duration, to: Duration) -> Option<Span> {
        let first = self.ticks.iter().find(|tick| tick.at >= from)?;
        let last = self.ticks.iter().rev().find(|tick| tick.at <= to)?;
        (first.at < last.at).then(|| Span::between(first, last))
    }

    /// Returns the end of the first span of the given length, begun at `from` or later, that meets
    /// a condition.
    pub(super) fn first(
        &self,
        from: Duration,
        length: Duration,
        condition: impl Fn(&Span) -> bool,
    ) -> Option<Duration> {
        let begins = self.ticks.iter().filter(|tick| tick.at >= from);
        for begin in begins {
            let mut ends = self.ticks.iter();
            let end = ends.find(|tick| tick.at >= begin.at + length)?;
            if condition(&Span::between(begin, end)) {
                return Some(end.at);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> History {
        let mut history = History::default();
        for place in 0..40 {
            history.push(Tick {
                at: Duration::from_millis(250 * place),
                useful: if place < 20 { 0 } else { 1_000 * (place - 20) },
                units: place,
                ..Tick::default()
            });
        }
        history
    }

    #[test]
    fn a_span_is_the_difference_of_its_ends() {
        let span = history().span(Duration::from_secs(6), Duration::from_secs(8));
        let span = span.unwrap();
        assert_eq!(span.seconds, 2.0);
        assert_eq!((span.counts.useful, span.counts.units), (8_000, 8));
        assert_eq!(span.useful_bits_per_s(), 32_000.0);
    }

    #[test]
    fn the_first_span_that_meets_a_condition_is_found() {
        let second = Duration::from_secs(1);
        let found = history().first(second, second, |span| span.useful_bits_per_s() >= 32_000.0);
        assert_eq!(found, Some(Duration::from_secs(6)));
        assert_eq!(history().first(second, second, |_| false), None);
    }

    #[test]
    fn the_gap_between_units_includes_the_present_one() {
        let mut history = History::default();
        let ms = Duration::from_millis;
        for at in [100, 200, 700, 800] {
            history.note_unit(ms(at), 1, Bytes::new(), true);
        }
        assert_eq!(history.take_gap(ms(900)), ms(500));
        assert_eq!(history.take_gap(ms(1_900)), ms(1_100));
    }
}
