//! The longest datagram that a path carries: packetization layer path MTU discovery (RFC 8899).
//!
//! A path begins with [`BASE_BYTES`], which any path of IPv6 carries. While an end has longer
//! datagrams, it probes for a longer size: [`ETHERNET_BYTES`] first, because most paths are
//! Ethernet, then by halves among the [`SIZES`] of usual links. A path that carries Ethernet's size
//! is probed for jumbo frames, which interfaces that do not have them refuse at once. A probe is a
//! datagram of its own, so its loss costs no data.
//!
//! Routers may stop carrying a size without a message (a black hole). A retransmission of a long
//! datagram makes the end probe the present size. Until that probe is answered in time the end
//! sends [`BASE_BYTES`] at most, and after [`ATTEMPTS`] it searches again from there.
//!
//! | RFC 8899 | here |
//! |---|---|
//! | `BASE_PLPMTU`, section 5.1.2 | [`BASE_BYTES`]; where they do not pass, the smallest of [`SIZES`] |
//! | `MAX_PROBES`, section 5.1.2 | [`ATTEMPTS`] |
//! | `PROBE_TIMER`, section 5.1.1 | [`PROBE_INTERVAL`]; the first probe of a black hole counts as late after half of it |
//! | `PMTU_RAISE_TIMER`, section 5.1.1 | [`RAISE_INTERVAL`] |
//! | `CONFIRMATION_TIMER`, section 5.1.1 | none: retransmissions start a confirmation |
//!
//! There are no timers: the size matters only when a long datagram is sent, and each such datagram
//! calls [`handle_long`](PathMtu::handle_long).

use core::time::Duration;

use manyflow_core::time::Time;

/// Sizes of datagrams in bytes, without the headers of IP and UDP, ascending: those that fill links
/// with an MTU of 576, 1280, 1420, 1450, 1460, 1500 and 9000 bytes, with IPv4 and IPv6. Loopback
/// interfaces carry the last one, too.
pub const SIZES: [u16; 11] = [
    548, 1200, 1232, 1252, 1372, 1392, 1402, 1422, 1432, 1440, 8952,
];
/// The longest size of Ethernet without jumbo frames.
pub const ETHERNET_BYTES: u16 = SIZES[ETHERNET];
/// The longest size, that of jumbo frames.
pub const JUMBO_BYTES: u16 = SIZES[SIZES.len() - 1];
/// The size that is used before a longer one is acknowledged.
pub const BASE_BYTES: u16 = SIZES[BASE];
/// Probes of one size in a row without an answer, after which the size counts as too long.
pub const ATTEMPTS: u32 = 3;
/// The time after which a probe is repeated.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// The time after which a size that was too long is tried again.
pub const RAISE_INTERVAL: Duration = Duration::from_secs(600);
/// The time for which an answered probe shows that the path carries its size.
const CONFIRMED: Duration = Duration::from_millis(200);

/// The place of the base in [`SIZES`].
const BASE: usize = 1;
/// The place of [`ETHERNET_BYTES`] in [`SIZES`].
const ETHERNET: usize = 9;

/// A datagram that asks whether the path carries its size.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PathProbe {
    /// The number that the answer repeats.
    pub id: u32,
    /// The size of the whole datagram in bytes, without the headers of IP and UDP.
    pub bytes: u16,
}

/// The state of the search on one path.
#[derive(Clone, Debug)]
pub struct PathMtu {
    /// The place of the longest size that may be used.
    place: usize,
    /// The place of the smallest size that does not pass; the number of sizes if none is known.
    too_long: usize,
    /// When sizes that did not pass are tried again.
    raise_at: Time,
    probe: Option<Outstanding>,
    /// The probe of the present size is late: only the base is used.
    is_suspect: bool,
    /// The present size passed at this time.
    confirmed_at: Option<Time>,
    next_id: u32,
}

/// A probe that was sent and not answered.
#[derive(Copy, Clone, Debug)]
struct Outstanding {
    place: usize,
    id: u32,
    attempts: u32,
    /// When the probe is late.
    late_at: Time,
}

impl Default for PathMtu {
    fn default() -> PathMtu {
        PathMtu {
            place: BASE,
            too_long: SIZES.len(),
            raise_at: Time::MAX,
            probe: None,
            is_suspect: false,
            confirmed_at: None,
            next_id: 0,
        }
    }
}

impl PathMtu {
    /// Returns the length in bytes of the longest datagram to send now.
    pub fn limit(&self) -> u16 {
        debug_assert!(self.place < self.too_long.max(1));
        match self.is_suspect {
            true => SIZES[self.place.min(BASE)],
            false => SIZES[self.place],
        }
    }

    /// Handles a datagram of `length` bytes that is to be sent at `now`, at least as long as the
    /// [`limit`](PathMtu::limit). `is_repeated`: it is a retransmission. Returns a probe to send
    /// before it.
    pub fn handle_long(
        &mut self,
        now: Time,
        length: usize,
        is_repeated: bool,
    ) -> Option<PathProbe> {
        if now >= self.raise_at {
            self.raise_at = Time::MAX;
            self.too_long = SIZES.len();
        }
        let is_fresh = self.confirmed_at.is_some_and(|at| now < at + CONFIRMED);
        let may_be_black_hole =
            is_repeated && !is_fresh && length > usize::from(SIZES[0]) && self.place > 0;
        match self.probe {
            // The base may be what does not pass.
            Some(probe)
                if may_be_black_hole && probe.place > self.place && self.confirmed_at.is_none() => {
            }
            // The search for jumbo frames may take seconds, in which a black hole would be unseen.
            Some(probe) if may_be_black_hole && probe.place > self.place.max(ETHERNET) => {
                self.exclude(now, probe.place);
            }
            Some(probe) => return self.repeat(now, probe),
            None => {}
        }
        if may_be_black_hole {
            return Some(self.send(now, self.place, 1, PROBE_INTERVAL / 2));
        }
        let next = self.next_place()?;
        Some(self.send(now, next, 1, PROBE_INTERVAL))
    }

    /// Returns the next size of the search; `None` if it has ended.
    fn next_place(&self) -> Option<usize> {
        match self.too_long - self.place {
            ..=1 => None,
            _ if self.place < ETHERNET && self.too_long > ETHERNET => Some(ETHERNET),
            _ if self.too_long == SIZES.len() => Some(self.too_long - 1),
            _ => Some(self.place.midpoint(self.too_long)),
        }
    }

    fn send(&mut self, now: Time, place: usize, attempts: u32, patience: Duration) -> PathProbe {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        self.probe = Some(Outstanding {
            place,
            id,
            attempts,
            late_at: now + patience,
        });
        PathProbe {
            id,
            bytes: SIZES[place],
        }
    }

    /// Repeats a probe that is late, or gives up its size.
    fn repeat(&mut self, now: Time, probe: Outstanding) -> Option<PathProbe> {
        if now < probe.late_at {
            return None;
        }
        self.is_suspect |= probe.place == self.place;
        if probe.attempts < ATTEMPTS {
            return Some(self.send(now, probe.place, probe.attempts + 1, PROBE_INTERVAL));
        }
        self.exclude(now, probe.place);
        let next = self.next_place()?;
        Some(self.send(now, next, 1, PROBE_INTERVAL))
    }

    /// Notes that the size at this place does not pass.
    fn exclude(&mut self, now: Time, place: usize) {
        // The smallest size is used even so: there is none below it.
        self.too_long = self.too_long.min(place.max(1));
        self.raise_at = now + RAISE_INTERVAL;
        if self.place >= self.too_long {
            self.place = if self.too_long > BASE { BASE } else { 0 };
            self.confirmed_at = None;
        }
        self.is_suspect = false;
        self.probe = None;
    }

    /// Handles the answer to a probe: the other end has received `bytes`. Answers to other probes
    /// are ignored.
    pub fn handle_answer(&mut self, now: Time, id: u32, bytes: u16) {
        let Some(probe) = self.probe else { return };
        if probe.id != id || SIZES[probe.place] != bytes {
            return;
        }
        self.probe = None;
        if probe.place >= self.place {
            self.place = probe.place;
            self.confirmed_at = Some(now);
            self.is_suspect = false;
        }
    }

    /// Handles a datagram of `length` bytes that this host cannot send, because it is longer than
    /// the MTU of the interface. Returns true if the MTU was not known to be this small.
    pub fn handle_too_long(&mut self, now: Time, length: usize) -> bool {
        let place = SIZES.partition_point(|size| usize::from(*size) < length);
        let is_news = place < self.too_long;
        if is_news {
            self.exclude(now, place);
        }
        is_news
    }
}

#[cfg(test)]
mod tests;
