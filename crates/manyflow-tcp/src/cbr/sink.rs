//! The sink of datagrams, which counts those that arrive and detects losses by their numbers.

use core::convert::Infallible;
use manyflow_core::{Action, Endpoint};

use crate::cbr::{Datagram, Event};
use manyflow_core::time::Time;
use manyflow_core::{Channel, Packet};

/// Counts the datagrams that arrive. A multicast sink is a member of its channel from `start` to
/// `stop`.
#[derive(Debug)]
pub struct Sink {
    channel: Option<Channel>,
    membership: Membership,
    start: Time,
    stop: Option<Time>,
    /// The first number that arrived; `span` is the highest number since, relative to it, modulo
    /// 2^32.
    first: u32,
    span: u32,
    received: u64,
    event: Option<Event>,
}

/// The membership of a multicast sink in its channel.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Membership {
    Before,
    Joined,
    Left,
}

impl Sink {
    /// Creates the sink of a unicast source, or of the source that sends on `channel`. It counts
    /// from `start` to `stop`.
    pub fn new(channel: Option<Channel>, start: Time, stop: Option<Time>) -> Sink {
        Sink {
            channel,
            membership: Membership::Before,
            start,
            stop,
            first: 0,
            span: 0,
            received: 0,
            event: None,
        }
    }

    /// Returns the number of datagrams received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns how many numbers between the first and the highest did not arrive. A datagram that
    /// arrived twice hides one of them.
    pub fn lost(&self) -> u64 {
        let expected = if self.received > 0 {
            u64::from(self.span) + 1
        } else {
            0
        };
        expected.saturating_sub(self.received)
    }

    fn counts_at(&self, now: Time) -> bool {
        now >= self.start && self.stop.is_none_or(|stop| now < stop)
    }

    /// Returns when the sink joins or leaves next.
    fn next_change(&self) -> Option<Time> {
        self.channel?;
        match self.membership {
            Membership::Before => Some(self.start),
            Membership::Joined => self.stop,
            Membership::Left => None,
        }
    }
}

impl Endpoint for Sink {
    type Rx = Datagram;
    type Tx = Infallible;
    type Event = Event;

    #[inline]
    fn handle_packet(&mut self, now: Time, packet: &Packet<Datagram>) {
        let datagram = &packet.header;
        if !self.counts_at(now) {
            return;
        }
        if self.received == 0 {
            self.first = datagram.sequence;
        }
        self.received += 1;
        let ahead = datagram.sequence.wrapping_sub(self.first);
        // A number before the first one, which was overtaken on the way, is not ahead by almost
        // 2^32.
        if ahead.wrapping_sub(self.span) < 1 << 31 {
            self.span = ahead;
        }
    }

    #[inline]
    fn handle_timeout(&mut self, _now: Time) {}

    #[inline]
    fn poll_action(&mut self, now: Time) -> Option<Action<Infallible>> {
        self.next_change().filter(|change| now >= *change)?;
        let channel = self.channel?;
        let (membership, event, action) = match self.membership {
            Membership::Before => (
                Membership::Joined,
                Event::Joined(channel),
                Action::Join(channel),
            ),
            _ => (
                Membership::Left,
                Event::Left(channel),
                Action::Leave(channel),
            ),
        };
        (self.membership, self.event) = (membership, Some(event));
        Some(action)
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        self.next_change()
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        self.event.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cbr::Datagram;
    use manyflow_core::Destination;

    const CHANNEL: Channel = Channel {
        session: 1,
        number: 2,
    };

    fn at(s: u64) -> Time {
        Time::from_nanos(s * 1_000_000_000)
    }

    fn take(sink: &mut Sink, now: Time, numbers: impl IntoIterator<Item = u32>) {
        for sequence in numbers {
            let packet = Packet::new(Destination::Channel(CHANNEL), Datagram { sequence }, 100);
            sink.handle_packet(now, &packet);
        }
    }

    #[test]
    fn a_multicast_sink_counts_between_its_join_and_its_leave() {
        let mut sink = Sink::new(Some(CHANNEL), at(1), Some(at(3)));
        take(&mut sink, at(0), 0..10);
        assert_eq!(
            (sink.poll_timeout(), sink.poll_action(at(0))),
            (Some(at(1)), None)
        );
        assert_eq!(sink.poll_action(at(1)), Some(Action::Join(CHANNEL)));
        assert_eq!(sink.poll_event(), Some(Event::Joined(CHANNEL)));
        take(&mut sink, at(2), 50..60);
        assert_eq!(
            (sink.poll_timeout(), sink.poll_action(at(2))),
            (Some(at(3)), None)
        );
        assert_eq!(sink.poll_action(at(3)), Some(Action::Leave(CHANNEL)));
        assert_eq!(sink.poll_event(), Some(Event::Left(CHANNEL)));
        take(&mut sink, at(4), 60..70);
        assert_eq!((sink.poll_timeout(), sink.poll_action(at(9))), (None, None));
        assert_eq!((sink.received(), sink.lost()), (10, 0));
    }

    #[test]
    fn losses_are_told_from_the_numbers_in_whatever_order_and_across_the_wrap() {
        let mut sink = Sink::new(None, at(0), None);
        assert_eq!((sink.poll_action(at(0)), sink.poll_timeout()), (None, None));
        let base = u32::MAX - 3;
        take(
            &mut sink,
            at(2),
            [0, 1, 4, 3, 8, 7].map(|n| base.wrapping_add(n)),
        );
        assert_eq!((sink.received(), sink.lost()), (6, 3));
    }
}
