//! The times of announcements (RFC 2974 section 3.1).

use std::net::IpAddr;
use std::time::Duration;

use manyflow_core::Time;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::TIMEOUT_MIN;

/// The bandwidth of all announcements of a scope together, in bits per second.
const LIMIT_BITS_PER_S: f64 = 4_000.0;
/// The least interval of regular announcements.
pub const INTERVAL_MIN: Duration = Duration::from_secs(300);
/// The maximum number of other announcements that count. More would be a flood, which lengthens
/// the interval only up to here: to 48 minutes with announcements of 1,400 bytes.
const OTHERS_MAX: usize = 1_024;

/// The times at which a session is announced.
///
/// All announcers of a scope share 4,000 bit/s: each announces at random times, at intervals of
/// 300 s or of the time that all announcements take at that rate. A session that begins would be
/// unknown to many for an interval, so its first gap is the time that its own announcement takes at
/// the limit, two seconds for 1,000 bytes, and each further gap is twice as long, until the
/// interval is reached. Receivers that start later wait for an interval.
#[derive(Debug)]
pub struct Schedule {
    /// The length of the session's own announcement.
    bytes: usize,
    others: Vec<Other>,
    last: Option<Time>,
    /// The gap before the next announcement, if it is below the interval.
    gap_s: f64,
    /// The next gap as a multiple of its mean: 2/3 to 4/3.
    spread: f64,
    random: StdRng,
}

/// The announcement of another session.
#[derive(Debug)]
struct Other {
    origin: IpAddr,
    hash: u16,
    bytes: usize,
    heard: Time,
}

impl Schedule {
    /// Starts to announce a session by packets of this length, of at least a byte, at once.
    pub fn new(bytes: usize, seed: [u8; 32]) -> Schedule {
        debug_assert!(bytes > 0, "an announcement has a header");
        Schedule {
            bytes,
            others: Vec::new(),
            last: None,
            gap_s: bytes as f64 * 8.0 / LIMIT_BITS_PER_S,
            spread: 1.0,
            random: StdRng::from_seed(seed),
        }
    }

    /// Counts an announcement of another session, which shares the bandwidth.
    pub fn handle_announcement(&mut self, now: Time, origin: IpAddr, hash: u16, bytes: usize) {
        let mut others = self.others.iter_mut();
        if let Some(known) = others.find(|known| (known.origin, known.hash) == (origin, hash)) {
            (known.bytes, known.heard) = (bytes, now);
            return;
        }
        self.others.retain(|other| now - other.heard < TIMEOUT_MIN);
        if self.others.len() < OTHERS_MAX {
            self.others.push(Other {
                origin,
                hash,
                bytes,
                heard: now,
            });
        }
    }

    /// Whether the session is to be announced now. The caller then sends the announcement.
    pub fn handle_timeout(&mut self, now: Time) -> bool {
        if now < self.poll_timeout() {
            return false;
        }
        if self.last.is_some() {
            self.gap_s = (self.gap_s * 2.0).min(self.interval_s());
        }
        self.last = Some(now);
        self.spread = self.random.random_range(2.0 / 3.0..4.0 / 3.0);
        debug_assert!(self.poll_timeout() > now, "announcements are apart");
        true
    }

    /// Returns the time of the next announcement, which others can postpone.
    pub fn poll_timeout(&self) -> Time {
        let gap_s = self.gap_s.min(self.interval_s()) * self.spread;
        self.last
            .map_or(Time::ZERO, |last| last + Duration::from_secs_f64(gap_s))
    }

    /// The interval of regular announcements, before it is spread.
    fn interval_s(&self) -> f64 {
        let others: usize = self.others.iter().map(|other| other.bytes).sum();
        let shared = (self.bytes + others) as f64 * 8.0 / LIMIT_BITS_PER_S;
        shared.max(INTERVAL_MIN.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times of the announcements in the first `until` seconds of simulated time.
    fn times(schedule: &mut Schedule, until: f64) -> Vec<f64> {
        let mut times = Vec::new();
        loop {
            let now = schedule.poll_timeout();
            if now.as_secs_f64() > until {
                return times;
            }
            assert!(schedule.handle_timeout(now) && !schedule.handle_timeout(now));
            times.push(now.as_secs_f64());
        }
    }

    #[test]
    fn a_session_is_announced_at_once_then_with_growing_gaps_then_every_five_minutes() {
        for seed in 0..50 {
            let mut schedule = Schedule::new(1_000, [seed; 32]);
            let times = times(&mut schedule, 50_000.0);
            let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert_eq!(times[0], 0.0);
            let mut mean: f64 = 2.0;
            for gap in &gaps {
                let range = mean * 2.0 / 3.0 - 1e-6..mean * 4.0 / 3.0 + 1e-6;
                assert!(range.contains(gap), "{gap} s instead of {mean} s");
                mean = (mean * 2.0).min(300.0);
            }
            // Section 3.1: below the limit, on average.
            let rate = times.len() as f64 * 8_000.0 / 50_000.0;
            assert!(rate < LIMIT_BITS_PER_S, "{rate} bit/s");
        }
    }

    #[test]
    fn announcers_share_the_bandwidth() {
        let mut schedule = Schedule::new(1_000, [3; 32]);
        // A thousand announcements of 1,000 bytes take 2,000 s at 4,000 bit/s.
        for number in 0..999u16 {
            let origin = IpAddr::from([10, 0, (number >> 8) as u8, number as u8]);
            for _ in 0..2 {
                schedule.handle_announcement(Time::ZERO, origin, number, 1_000);
            }
        }
        assert_eq!(schedule.interval_s(), 2_000.0);
        // They are forgotten after an hour, when another one comes.
        let later = Time::ZERO + TIMEOUT_MIN;
        schedule.handle_announcement(later, IpAddr::from([10, 1, 1, 1]), 7, 1_000);
        assert_eq!(schedule.interval_s(), INTERVAL_MIN.as_secs_f64());
    }

    #[test]
    fn a_flood_of_announcements_does_not_silence_a_session() {
        let mut schedule = Schedule::new(1_000, [4; 32]);
        for number in 0..100_000u32 {
            let origin = IpAddr::from(number.to_be_bytes());
            schedule.handle_announcement(Time::ZERO, origin, 1, 1_400);
        }
        let times = times(&mut schedule, 86_400.0);
        assert!(times.len() > 24, "{} times in a day", times.len());
    }
}
