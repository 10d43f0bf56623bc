//! Wrappers that stop or change endpoints at given times, without the protocol's knowledge.

pub mod anypoint;
mod layered;
mod outage;
pub mod overlay;

pub use layered::{LayeredLiar, Lie};
pub use outage::Outage;

use core::convert::Infallible;

use manyflow_core::{Action, Channel, Endpoint, Packet, Time};

/// Ends an endpoint at a given time. The endpoint's last actions are still taken, and no calls
/// follow.
pub struct Until<E> {
    endpoint: E,
    stop: Time,
    /// The function that makes the endpoint end.
    end: fn(&mut E),
    ended: bool,
}

impl<E: Endpoint> Until<E> {
    /// Wraps `endpoint`, and calls `end` at the time `stop`.
    pub fn new(endpoint: E, stop: Time, end: fn(&mut E)) -> Until<E> {
        Until {
            endpoint,
            stop,
            end,
            ended: false,
        }
    }
}

impl<E: Endpoint> Endpoint for Until<E> {
    type Rx = E::Rx;
    type Tx = E::Tx;
    type Event = E::Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<E::Rx>) {
        if !self.ended {
            self.endpoint.handle_packet(now, packet);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.ended {
            return;
        }
        if now < self.stop {
            self.endpoint.handle_timeout(now);
        } else {
            (self.end)(&mut self.endpoint);
            self.ended = true;
        }
    }

    fn poll_action(&mut self, now: Time) -> Option<Action<E::Tx>> {
        self.endpoint.poll_action(now)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let own = (!self.ended).then_some(self.stop)?;
        Some(self.endpoint.poll_timeout().map_or(own, |due| due.min(own)))
    }

    fn poll_event(&mut self) -> Option<E::Event> {
        self.endpoint.poll_event()
    }
}

/// A time, and a function that changes the endpoint then.
pub type Deed<E> = (Time, fn(&mut E));

/// Changes an endpoint at given times. The endpoint continues after each change.
pub struct Fated<E> {
    endpoint: E,
    /// The changes, in descending order of time.
    fate: Vec<Deed<E>>,
}

impl<E: Endpoint> Fated<E> {
    /// Wraps `endpoint`.
    pub fn new(endpoint: E, mut fate: Vec<Deed<E>>) -> Fated<E> {
        fate.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
        Fated { endpoint, fate }
    }
}

impl<E: Endpoint> Endpoint for Fated<E> {
    type Rx = E::Rx;
    type Tx = E::Tx;
    type Event = E::Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<E::Rx>) {
        self.endpoint.handle_packet(now, packet);
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some((_, act)) = self.fate.pop_if(|(time, _)| *time <= now) {
            act(&mut self.endpoint);
        }
        self.endpoint.handle_timeout(now);
    }

    fn poll_action(&mut self, now: Time) -> Option<Action<E::Tx>> {
        self.endpoint.poll_action(now)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let own = self.fate.last().map(|(time, _)| *time);
        own.into_iter().chain(self.endpoint.poll_timeout()).min()
    }

    fn poll_event(&mut self) -> Option<E::Event> {
        self.endpoint.poll_event()
    }
}

/// Joins all channels of a session and never leaves them. It receives everything that the sender
/// sends.
pub struct Listener {
    session: u32,
    channels: u32,
    start: Time,
    joined: u32,
}

impl Listener {
    /// Joins the channels `0..channels` of `session` at the time `start`.
    pub fn new(session: u32, channels: u32, start: Time) -> Listener {
        Listener {
            session,
            channels,
            start,
            joined: 0,
        }
    }
}

impl Endpoint for Listener {
    type Rx = Infallible;
    type Tx = Infallible;
    type Event = Infallible;

    fn handle_packet(&mut self, _now: Time, _packet: &Packet<Infallible>) {}

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_action(&mut self, now: Time) -> Option<Action<Infallible>> {
        if now < self.start || self.joined == self.channels {
            return None;
        }
        let channel = Channel {
            session: self.session,
            number: self.joined as u16,
        };
        self.joined += 1;
        Some(Action::Join(channel))
    }

    fn poll_timeout(&self) -> Option<Time> {
        (self.joined < self.channels).then_some(self.start)
    }

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manyflow_core::time::seconds;

    #[test]
    fn a_listener_joins_every_channel_once() {
        let start = Time::ZERO + seconds(1.0);
        let mut listener = Listener::new(7, 3, start);
        assert_eq!(listener.poll_action(Time::ZERO), None);
        assert_eq!(listener.poll_timeout(), Some(start));
        let joined = std::iter::from_fn(|| listener.poll_action(start)).count();
        assert_eq!((joined, listener.poll_timeout()), (3, None));
    }

    #[test]
    fn changes_of_an_endpoint_happen_in_order_of_time() {
        let [first, second] = [1.0, 2.0].map(|s| Time::ZERO + seconds(s));
        let fewer: fn(&mut Listener) = |listener| listener.channels -= 1;
        let none: fn(&mut Listener) = |listener| listener.channels = 0;
        let listener = Listener::new(7, 3, second);
        let mut fated = Fated::new(listener, vec![(second, none), (first, fewer)]);
        assert_eq!(fated.poll_timeout(), Some(first));
        fated.handle_timeout(first);
        assert_eq!(
            (fated.endpoint.channels, fated.poll_timeout()),
            (2, Some(second))
        );
        fated.handle_timeout(second);
        assert_eq!((fated.endpoint.channels, fated.poll_timeout()), (0, None));
    }

    #[test]
    fn nothing_happens_after_the_end() {
        let stop = Time::ZERO + seconds(2.0);
        let mut until = Until::new(Listener::new(7, 3, Time::ZERO), stop, |_| {});
        assert_eq!(until.poll_timeout(), Some(Time::ZERO));
        until.handle_timeout(stop);
        assert_eq!(until.poll_timeout(), None);
    }
}
