//! The rate that the path to a receiver carries, as the receiver measures it (second edition).
//!
//! ```text
//!   pairs     two packets sent together arrive as far apart as the slowest link spaces them
//!   windows   bytes that arrive in two round-trip times, beside what the sender announces
//! ```
//!
//! Pairs show the rate of the slowest link, also while the receiver gets far less. Windows show
//! what arrives when more is sent than the path carries. Links that carry other traffic as well
//! mark or drop packets before the rate of pairs is reached; marks and windows limit the receiver
//! then.

use core::time::Duration;

use crate::{Data, GROUPS_MAX};
use manyflow_core::time::Time;

/// The share of the announced rate below which a window is overloaded.
const CARRIED_MIN: f64 = 0.85;

/// The share of the announced rate below which a group has to be left.
const KEPT_MIN: f64 = 0.75;

/// The smallest number of announced packets in a window: fewer are too coarse to compare.
const WINDOW_PACKETS: f64 = 12.0;

/// The duration of a window in round-trip times.
const WINDOW_RTTS: u32 = 2;

/// The smallest number of lost packets that make a window overloaded.
const LOST_MIN: u32 = 3;

/// The number of packets by which less arrives than is announced after which a window ends at once,
/// if this lasts for a round-trip time and even less arrives meanwhile: the path has become far
/// slower. Its queue fills, so losses show only when the packets before them have passed it.
/// The number was that of lost packets before. The time was chosen after the results of sim-3c had
/// been seen; other seeds confirm both (docs/history.md).
const SHORT_PACKETS: f64 = 12.0;

/// The rates of pairs in some time, in bytes per second.
#[derive(Copy, Clone, Debug, PartialEq)]
struct Range {
    lowest: f64,
    highest: f64,
}

impl Range {
    const NONE: Range = Range {
        lowest: f64::INFINITY,
        highest: 0.0,
    };

    fn add(&mut self, other: Range) {
        self.lowest = self.lowest.min(other.lowest);
        self.highest = self.highest.max(other.highest);
    }
}

/// The arrival of a packet.
#[derive(Copy, Clone, Debug)]
struct Arrival {
    bytes: f64,
    /// The packets that it shows to be lost.
    lost: u32,
    /// The rate of the pair that it completes, in bytes per second.
    pair: Option<f64>,
}

/// The arrivals since some time.
#[derive(Copy, Clone, Debug)]
struct Window {
    since: Time,
    bytes: f64,
    packets: u32,
    lost: u32,
    /// The lowest rate of a pair, in bytes per second.
    pair: f64,
    /// The lowest rate of the top group that was announced, in bytes per second.
    announced: f64,
}

impl Window {
    fn new(since: Time, announced: f64) -> Window {
        Window {
            since,
            bytes: 0.0,
            packets: 0,
            lost: 0,
            pair: f64::INFINITY,
            announced,
        }
    }

    fn add(&mut self, arrival: Arrival, announced: f64) {
        self.bytes += arrival.bytes;
        self.packets += 1;
        self.lost = self.lost.saturating_add(arrival.lost);
        self.pair = arrival.pair.unwrap_or(self.pair).min(self.pair);
        self.announced = self.announced.min(announced);
    }

    /// Returns the bytes that are missing at `now`, beside those that are announced.
    fn missing(&self, now: Time) -> f64 {
        self.announced * (now - self.since).as_secs_f64() - self.bytes
    }
}

/// The measurements of one receiver.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// The share of lost packets above which a window is overloaded.
    loss_max: f64,
    /// The last packet of the lowest group: its number and its arrival.
    last: Option<(u32, Time)>,
    /// The rates of pairs in the present and the previous selection interval.
    pairs: [Range; 2],
    /// The beginning of the present one.
    pairs_since: Time,
    /// The last announced cumulative rate of each group, in bytes per second; 0 if there is none.
    announced: [u32; GROUPS_MAX as usize + 1],
    /// The time until which arrivals say nothing: the subscription has just changed.
    settled: Time,
    window: Option<Window>,
    /// The part of the window since nothing was missing.
    shortage: Option<Window>,
    /// The received rate of the last window, if it was overloaded, in bytes per second.
    overloaded: Option<f64>,
    /// Whether a group has to be left for it.
    is_excessive: bool,
}

impl Path {
    pub(super) fn new(loss_max: f64) -> Path {
        Path {
            loss_max,
            last: None,
            pairs: [Range::NONE; 2],
            pairs_since: Time::ZERO,
            announced: [0; GROUPS_MAX as usize + 1],
            settled: Time::ZERO,
            window: None,
            shortage: None,
            overloaded: None,
            is_excessive: false,
        }
    }

    /// Forgets everything: the receiver has left the session, or its path was interrupted.
    pub(super) fn reset(&mut self) {
        *self = Path::new(self.loss_max);
    }

    /// Returns the lowest rate of pairs in the last selection interval, in bytes per second; `None`
    /// if there was no pair.
    pub(super) fn lowest(&self) -> Option<f64> {
        let lowest = self.pairs[0].lowest.min(self.pairs[1].lowest);
        lowest.is_finite().then_some(lowest)
    }

    /// Returns the highest rate of pairs in the last selection interval.
    pub(super) fn highest(&self) -> Option<f64> {
        let highest = self.pairs[0].highest.max(self.pairs[1].highest);
        (highest > 0.0).then_some(highest)
    }

    /// Returns the cumulative rate that was last announced for this number of groups, or 0 if none
    /// was.
    pub(super) fn announced(&self, groups: u8) -> f64 {
        let group = usize::from(groups).checked_sub(1);
        group.map_or(0.0, |group| self.announced[group].into())
    }

    /// Returns whether the last window was overloaded so much that a group has to be left for it.
    pub(super) fn is_excessive(&self) -> bool {
        self.is_excessive
    }

    /// Returns the received rate of the last window, if it was overloaded.
    pub(super) fn overloaded(&self) -> Option<f64> {
        self.overloaded
    }

    /// Begins again to compare arrivals, after `settling`: the subscription has changed.
    pub(super) fn on_change(&mut self, now: Time, settling: Duration) {
        (self.settled, self.window, self.overloaded) = (now + settling, None, None);
        self.shortage = None;
        self.is_excessive = false;
    }

    /// Handles a packet of a joined group, and this number of packets that were found to be lost.
    /// Returns whether a window has ended.
    pub(super) fn on_packet(
        &mut self,
        now: Time,
        data: &Data,
        bytes: u32,
        lost: u32,
        top: u8,
        interval: Duration,
    ) -> bool {
        self.announced[usize::from(data.group)] = data.rate;
        self.announced[usize::from(data.group) + 1] = data.next_rate;
        let pair = match data.group {
            0 => self.on_lowest(now, data, bytes, interval),
            _ => None,
        };
        let rtt = Duration::from_micros(data.rtt_us.into());
        let bytes = f64::from(bytes);
        self.on_arrival(now, Arrival { bytes, lost, pair }, top, rtt)
    }

    /// Handles a packet of the lowest group. Returns the rate of the pair that it completes.
    fn on_lowest(&mut self, now: Time, data: &Data, bytes: u32, interval: Duration) -> Option<f64> {
        if now - self.pairs_since >= interval {
            self.pairs = [Range::NONE, self.pairs[0]];
            self.pairs_since = now;
        }
        let before = self.last.replace((data.sequence, now));
        let (sequence, since) = before.filter(|_| data.is_pair)?;
        if sequence.wrapping_add(1) != data.sequence || now <= since {
            return None;
        }
        let rate = f64::from(bytes) / (now - since).as_secs_f64();
        self.pairs[0].add(Range {
            lowest: rate,
            highest: rate,
        });
        Some(rate)
    }

    fn on_arrival(&mut self, now: Time, arrival: Arrival, top: u8, rtt: Duration) -> bool {
        let announced = self.announced(top);
        if now < self.settled || announced == 0.0 {
            return false;
        }
        let begun = Window::new(now, announced);
        let window = self.window.get_or_insert(begun);
        window.add(arrival, announced);
        let span = (now - window.since).as_secs_f64();
        let is_whole = now - window.since >= WINDOW_RTTS * rtt
            && window.announced * span >= WINDOW_PACKETS * arrival.bytes;
        let shortage = self.shortage.get_or_insert(begun);
        shortage.add(arrival, announced);
        let missing = shortage.missing(now);
        let is_short = missing >= SHORT_PACKETS * arrival.bytes
            && missing > shortage.bytes
            && now - shortage.since >= rtt;
        let (seen, link) = match (is_short, is_whole) {
            // The link can have packets of groups that are being left, and of others' groups.
            (true, _) => (
                *shortage,
                Some(shortage.pair).filter(|pair| *pair < announced),
            ),
            (false, true) => (*window, None),
            (false, false) => {
                if missing <= 0.0 {
                    self.shortage = Some(begun);
                }
                return false;
            }
        };
        (self.window, self.shortage) = (Some(begun), Some(begun));
        self.judge(&seen, arrival.bytes, (now - seen.since).as_secs_f64());
        self.overloaded = self.overloaded.map(|rate| link.unwrap_or(rate));
        true
    }

    /// Ends a window of `span` seconds.
    fn judge(&mut self, seen: &Window, bytes: f64, span: f64) {
        let rate = seen.bytes / span;
        let all = f64::from(seen.packets) + f64::from(seen.lost);
        let is_lossy = seen.lost >= LOST_MIN && f64::from(seen.lost) > self.loss_max * all;
        // A packet more or less is no shortfall.
        let expected = seen.announced * span - bytes;
        let is_late = seen.bytes < CARRIED_MIN * expected;
        self.overloaded = (is_lossy || is_late).then_some(rate);
        self.is_excessive = is_lossy || seen.bytes < KEPT_MIN * expected;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(800);

    /// A packet of the lowest group, which announces 125 kB/s.
    fn data(sequence: u32, is_pair: bool) -> Data {
        Data {
            group: 0,
            sequence,
            request: 1,
            is_for_group: false,
            rate: 125_000,
            rtt_us: 40_000,
            next_rate: 250_000,
            is_pair,
        }
    }

    /// Passes packets of 1000 bytes to a path, in pairs; each takes `spacing` microseconds.
    fn receive(path: &mut Path, packets: u32, spacing: u64) {
        for n in 0..packets {
            let now = Time::ZERO + Duration::from_micros(u64::from(n) * spacing);
            path.on_packet(now, &data(n, n % 2 == 1), 1000, 0, 1, INTERVAL);
        }
    }

    #[test]
    fn pairs_show_the_rate_of_the_slowest_link() {
        let mut path = Path::new(0.1);
        assert_eq!((path.lowest(), path.highest()), (None, None));
        receive(&mut path, 20, 8000);
        assert_eq!(
            (path.lowest(), path.highest()),
            (Some(125_000.0), Some(125_000.0))
        );
        assert_eq!(
            (path.announced(1), path.announced(2)),
            (125_000.0, 250_000.0)
        );
        assert_eq!(path.overloaded(), None);
    }

    #[test]
    fn a_path_that_carries_less_than_is_announced_is_overloaded() {
        let mut path = Path::new(0.1);
        receive(&mut path, 40, 16_000);
        let rate = path.overloaded().unwrap();
        assert!((60_000.0..70_000.0).contains(&rate), "{rate}");
        path.on_change(Time::ZERO + Duration::from_secs(1), Duration::ZERO);
        assert_eq!(path.overloaded(), None);
    }

    /// Passes packets of 1000 bytes to a path, announced with one in each 0.8 ms: ten in time, and
    /// then one each `spacing` microseconds. Returns after how many of these a window has ended,
    /// before the 80 ms of a whole one.
    fn slow_down(path: &mut Path, spacing: u64, is_pair: bool) -> Option<u64> {
        let mut arrive = |n: u32, micros: u64, is_pair| {
            let data = Data {
                rate: 1_250_000,
                ..data(n, is_pair)
            };
            let now = Time::ZERO + Duration::from_micros(micros);
            path.on_packet(now, &data, 1000, 0, 1, INTERVAL)
        };
        for n in 0..10 {
            assert!(!arrive(n, 700 * u64::from(n), false));
        }
        (1..40).find(|n| arrive(9 + *n as u32, 6300 + spacing * n, is_pair))
    }

    /// The queue of the slower link fills, so no packet is known to be lost yet.
    #[test]
    fn a_window_of_which_most_is_missing_ends_at_once() {
        let mut path = Path::new(0.1);
        assert_eq!(slow_down(&mut path, 6400, false), Some(7), "40 ms");
        assert!(path.is_excessive());
        assert_eq!(path.overloaded().map(f64::round), Some(156_250.0));
        let mut path = Path::new(0.1);
        assert_eq!(slow_down(&mut path, 1500, false), None, "more than half");
    }

    #[test]
    fn a_pair_in_the_shortage_shows_what_the_slower_link_carries() {
        let mut path = Path::new(0.1);
        assert_eq!(slow_down(&mut path, 7400, true), Some(6));
        assert_eq!(path.overloaded().map(f64::round), Some(135_135.0));
    }
}
