//! An endpoint that crashes and starts again.

use manyflow_core::{Action, Endpoint, Packet, Time};

/// Crashes an endpoint at one time and starts it again at another. It forgets everything when it
/// crashes. In between it receives nothing, does nothing and has no timers.
pub struct Outage<E> {
    endpoint: E,
    /// Takes the endpoint's place when it crashes.
    fresh: Option<E>,
    from: Time,
    until: Time,
}

impl<E: Endpoint> Outage<E> {
    /// Wraps `endpoint`. `fresh` is the same endpoint in its initial state.
    pub fn new(endpoint: E, fresh: E, from: Time, until: Time) -> Outage<E> {
        Outage {
            endpoint,
            fresh: Some(fresh),
            from,
            until,
        }
    }

    /// Returns whether the endpoint is down at `now`. Replaces it when it has crashed.
    fn is_down(&mut self, now: Time) -> bool {
        if now >= self.from
            && let Some(fresh) = self.fresh.take()
        {
            self.endpoint = fresh;
        }
        (self.from..self.until).contains(&now)
    }
}

impl<E: Endpoint> Endpoint for Outage<E> {
    type Rx = E::Rx;
    type Tx = E::Tx;
    type Event = E::Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<E::Rx>) {
        if !self.is_down(now) {
            self.endpoint.handle_packet(now, packet);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if !self.is_down(now) {
            self.endpoint.handle_timeout(now);
        }
    }

    fn poll_action(&mut self, now: Time) -> Option<Action<E::Tx>> {
        if self.is_down(now) {
            return None;
        }
        self.endpoint.poll_action(now)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let due = self.endpoint.poll_timeout()?;
        // A timer that would expire during the outage belongs to a state that is lost by then.
        let is_lost = self.fresh.is_some() && due >= self.from;
        let due = if is_lost { self.until } else { due };
        Some(match (self.from..self.until).contains(&due) {
            true => self.until,
            false => due,
        })
    }

    fn poll_event(&mut self) -> Option<E::Event> {
        self.endpoint.poll_event()
    }
}

#[cfg(test)]
mod tests {
    use core::convert::Infallible;

    use manyflow_core::time::seconds;

    use super::*;

    /// Counts its timeouts; it has one each second.
    struct Ticker {
        next: Time,
        ticks: u32,
    }

    impl Endpoint for Ticker {
        type Rx = Infallible;
        type Tx = Infallible;
        type Event = Infallible;

        fn handle_packet(&mut self, _now: Time, _packet: &Packet<Infallible>) {}

        fn handle_timeout(&mut self, now: Time) {
            self.ticks += 1;
            self.next = now + seconds(1.0);
        }

        fn poll_action(&mut self, _now: Time) -> Option<Action<Infallible>> {
            None
        }

        fn poll_timeout(&self) -> Option<Time> {
            Some(self.next)
        }

        fn poll_event(&mut self) -> Option<Infallible> {
            None
        }
    }

    #[test]
    fn an_endpoint_forgets_everything_in_an_outage_and_has_no_timers() {
        let at = |s: f64| Time::ZERO + seconds(s);
        let ticker = || Ticker {
            next: at(1.0),
            ticks: 0,
        };
        let mut outage = Outage::new(ticker(), ticker(), at(2.5), at(5.0));
        let mut times = Vec::new();
        for _ in 0..4 {
            let due = outage.poll_timeout().unwrap();
            times.push(due.as_secs_f64());
            outage.handle_timeout(due);
        }
        assert_eq!(times, [1.0, 2.0, 5.0, 6.0]);
        assert_eq!(outage.endpoint.ticks, 2);
    }
}
