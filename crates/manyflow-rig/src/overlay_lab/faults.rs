//! The faults that a run has made, and the times for which they separated two daemons.

use std::time::Duration;

/// The time within which daemons connect again after a fault. They pause for up to 2 s between two
/// attempts.
const RECONNECT: Duration = Duration::from_secs(4);
/// The time without a path from which on members may miss messages. The members of a daemon that
/// cannot be reached count for 10 s.
const LONG: Duration = Duration::from_secs(9);

/// A part of the network that can fail.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A link, by its number.
    Link(usize),
    /// A daemon, by its number.
    Daemon(usize),
}

#[derive(Copy, Clone, Debug)]
struct Outage {
    part: Part,
    from: Duration,
    /// When the fault was repaired, if it was.
    until: Option<Duration>,
}

impl Outage {
    /// Returns whether the part may be out of order.
    fn covers(&self, at: Duration) -> bool {
        self.from <= at && self.until.is_none_or(|until| at < until + RECONNECT)
    }
}

/// The links of a network, and all faults until now.
#[derive(Clone, Debug)]
pub struct Faults {
    links: Vec<[usize; 2]>,
    outages: Vec<Outage>,
}

impl Faults {
    /// Begins without faults. Links are pairs of daemons.
    pub fn new(links: Vec<[usize; 2]>) -> Faults {
        Faults {
            links,
            outages: Vec::new(),
        }
    }

    /// Records that a part fails, unless it has failed already.
    pub fn begin(&mut self, part: Part, now: Duration) {
        if !self.is_out(part) {
            self.outages.push(Outage {
                part,
                from: now,
                until: None,
            });
        }
    }

    /// Records that a part is repaired.
    pub fn end(&mut self, part: Part, now: Duration) {
        let open = |outage: &&mut Outage| outage.part == part && outage.until.is_none();
        if let Some(outage) = self.outages.iter_mut().find(open) {
            outage.until = Some(now);
        }
    }

    /// Returns whether a part has failed and is not repaired.
    pub fn is_out(&self, part: Part) -> bool {
        let mut outages = self.outages.iter();
        outages.any(|outage| outage.part == part && outage.until.is_none())
    }

    /// Returns when a daemon first failed after `begin`.
    pub fn first_crash(&self, daemon: usize, begin: Duration) -> Option<Duration> {
        let crashes = self.outages.iter();
        let crashes = crashes.filter(|outage| outage.part == Part::Daemon(daemon));
        crashes
            .map(|outage| outage.from)
            .filter(|from| *from >= begin)
            .min()
    }

    /// Returns whether two daemons were without a path between `begin` and `end` for at least
    /// `LONG`, so that members of one may miss messages of the other.
    pub fn may_miss(&self, ends: [usize; 2], begin: Duration, end: Duration) -> bool {
        if ends[0] == ends[1] {
            return false;
        }
        let changes = self.outages.iter().flat_map(|outage| {
            let until = outage.until.map(|until| until + RECONNECT);
            [Some(outage.from), until]
        });
        let mut changes: Vec<_> = changes.flatten().filter(|at| *at < end).collect();
        changes.push(begin);
        changes.sort_unstable();
        let mut since = None;
        for at in changes {
            match self.is_path(ends, at) {
                true => {
                    if since.take().is_some_and(|since| at >= since + LONG) && at > begin {
                        return true;
                    }
                }
                false => {
                    since.get_or_insert(at);
                }
            }
        }
        since.is_some_and(|since| end >= since + LONG)
    }

    fn is_path(&self, [from, to]: [usize; 2], at: Duration) -> bool {
        let is_out = |part: Part| {
            let mut outages = self.outages.iter();
            outages.any(|outage| outage.part == part && outage.covers(at))
        };
        if is_out(Part::Daemon(from)) || is_out(Part::Daemon(to)) {
            return false;
        }
        let mut reached = vec![from];
        let mut place = 0;
        while let Some(&here) = reached.get(place) {
            place += 1;
            for (link, ends) in self.links.iter().enumerate() {
                let Some(end) = ends.iter().position(|end| *end == here) else {
                    continue;
                };
                let next = ends[1 - end];
                if !reached.contains(&next)
                    && !is_out(Part::Link(link))
                    && !is_out(Part::Daemon(next))
                {
                    reached.push(next);
                }
            }
        }
        reached.contains(&to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A triangle whose first link is out of order from 10 s to 40 s.
    fn triangle() -> Faults {
        let mut faults = Faults::new(vec![[0, 1], [1, 2], [2, 0]]);
        faults.begin(Part::Link(0), s(10));
        faults.end(Part::Link(0), s(40));
        faults
    }

    #[test]
    fn messages_may_be_missed_only_without_any_path() {
        let mut faults = triangle();
        assert!(!faults.may_miss([0, 1], s(0), s(60)));
        faults.begin(Part::Daemon(2), s(20));
        faults.end(Part::Daemon(2), s(22));
        assert!(!faults.may_miss([0, 1], s(0), s(60)), "6 s without a path");
        faults.begin(Part::Link(1), s(24));
        faults.end(Part::Link(1), s(30));
        assert!(faults.may_miss([0, 1], s(0), s(60)));
        assert!(!faults.may_miss([0, 1], s(0), s(25)), "not yet");
        assert!(!faults.may_miss([0, 1], s(35), s(60)), "no longer");
        assert!(!faults.may_miss([0, 2], s(0), s(60)), "the third link");
    }

    #[test]
    fn a_fault_that_is_not_repaired_counts_until_the_end() {
        let mut faults = Faults::new(vec![[0, 1]]);
        faults.begin(Part::Daemon(1), s(10));
        faults.begin(Part::Daemon(1), s(12));
        assert_eq!(faults.first_crash(1, s(5)), Some(s(10)));
        assert_eq!(faults.first_crash(1, s(11)), None);
        assert!(faults.may_miss([0, 1], s(0), s(19)));
        assert!(!faults.may_miss([0, 1], s(0), s(18)));
    }
}
