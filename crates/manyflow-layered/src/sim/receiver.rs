//! A receiver: reports once a round, and chooses its groups once a selection interval (sections
//! III-A3 and III-C).

use core::time::Duration;
use std::collections::VecDeque;

use super::config::{Conduct, ConfigError, ReceiverConfig};
use crate::Event;
use crate::{Data, Feedback, GROUPS_MAX, Message};
use manyflow_core::time::Time;
use manyflow_core::{Action, Endpoint};
use manyflow_core::{Channel, Destination, Ecn, EndpointId, Packet};

/// Rounds after a change of the subscription in which a receiver does not report: what it sees is
/// still the old one's doing.
const SETTLING_ROUNDS: u32 = 2;

/// Rounds in which a decrease that a receiver has asked for comes: a later one was asked for by
/// others.
const OWN_DECREASE_ROUNDS: u32 = 3;

/// A receiver is congested over an interval where it is in this share of the rounds.
const PERSISTENT: f64 = 0.9;

/// A receiver of a session.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    /// n_g.
    groups: u8,
    session: u32,
    id: u32,
    parent: EndpointId,
    start: Time,
    stop: Option<Time>,
    /// Groups subscribed, from the bottom; 0 outside the session.
    subscribed: u8,
    /// The last request that was seen, and when: what is measured since then answers the next one.
    asked: Option<(u16, Time)>,
    received_bytes: u64,
    is_marked: bool,
    /// Rounds since it last reported congestion.
    calm_rounds: u32,
    /// The cumulative received rate, averaged, in bytes per second.
    rate: Option<f64>,
    interval: Interval,
    actions: VecDeque<Action<Message>>,
    events: VecDeque<Event>,
}

/// What was seen in a selection interval.
#[derive(Clone, Debug, Default)]
struct Interval {
    /// Rounds that are still to pass before it begins.
    settling: u32,
    since: Option<Time>,
    rounds: u32,
    congested: u32,
    /// The last rate of the top subscribed group.
    top_rate: Option<u32>,
    rose: bool,
    /// The rate fell, and not on this receiver's account.
    fell: bool,
}

impl Interval {
    /// After a change of the subscription.
    fn settling() -> Interval {
        Interval {
            settling: SETTLING_ROUNDS,
            ..Interval::default()
        }
    }

    fn on_top_rate(&mut self, rate: u32, is_own_doing: bool) {
        if let Some(last) = self.top_rate {
            self.rose |= rate > last;
            self.fell |= rate < last && !is_own_doing;
        }
        self.top_rate = Some(rate);
    }

    fn is_congested(&self) -> bool {
        f64::from(self.congested) >= PERSISTENT * f64::from(self.rounds)
    }
}

impl Receiver {
    /// A receiver of `session` with its `groups` groups, which reports to `parent` under the number
    /// `id`; it is a member from `start` until `stop`.
    ///
    /// # Errors
    /// Where a parameter is outside its range.
    pub fn new(
        config: ReceiverConfig,
        groups: u8,
        session: u32,
        id: u32,
        parent: EndpointId,
        start: Time,
        stop: Option<Time>,
    ) -> Result<Receiver, ConfigError> {
        config.check()?;
        Ok(Receiver {
            config,
            groups: groups.clamp(1, GROUPS_MAX),
            session,
            id,
            parent,
            start,
            stop,
            subscribed: 0,
            asked: None,
            received_bytes: 0,
            is_marked: false,
            calm_rounds: 0,
            rate: None,
            interval: Interval::default(),
            actions: VecDeque::new(),
            events: VecDeque::new(),
        })
    }

    /// Groups subscribed, from the bottom.
    pub fn subscribed(&self) -> u8 {
        self.subscribed
    }

    fn channel(&self, group: u8) -> Channel {
        Channel {
            session: self.session,
            number: group.into(),
        }
    }

    fn add_group(&mut self) {
        let channel = self.channel(self.subscribed);
        self.subscribed += 1;
        self.interval = Interval::settling();
        self.actions.push_back(Action::Join(channel));
        self.events.push_back(Event::Joined(channel));
    }

    fn drop_group(&mut self) {
        self.subscribed -= 1;
        let channel = self.channel(self.subscribed);
        self.interval = Interval::settling();
        self.actions.push_back(Action::Leave(channel));
        self.events.push_back(Event::Left(channel));
    }

    fn leave(&mut self) {
        while self.subscribed > 0 {
            self.drop_group();
        }
        (self.asked, self.rate) = (None, None);
    }

    fn on_data(&mut self, now: Time, data: &Data, bytes: u32, is_marked: bool) {
        self.received_bytes += u64::from(bytes);
        self.is_marked |= is_marked;
        if data.group + 1 == self.subscribed {
            let is_own_doing = self.calm_rounds < OWN_DECREASE_ROUNDS;
            self.interval.on_top_rate(data.rate, is_own_doing);
        }
        let is_new = match self.asked {
            None => data.request != 0,
            Some((last, _)) => (data.request.wrapping_sub(last) as i16) > 0,
        };
        if is_new {
            self.on_request(now, data);
        }
    }

    /// A round is over where the next request comes.
    fn on_request(&mut self, now: Time, data: &Data) {
        let before = self.asked.replace((data.request, now));
        let bytes = core::mem::take(&mut self.received_bytes);
        let is_marked = core::mem::take(&mut self.is_marked);
        let Some((_, since)) = before.filter(|(_, since)| now > *since) else {
            // Nothing has been measured over a whole round yet.
            return;
        };
        let measured = bytes as f64 / (now - since).as_secs_f64();
        let rate = self.rate.map_or(measured, |rate| {
            rate + self.config.rate_weight * (measured - rate)
        });
        self.rate = Some(rate);
        if self.interval.settling > 0 {
            self.interval.settling -= 1;
            return;
        }
        self.report(data.request, is_marked, rate);
        self.interval.rounds += 1;
        let is_congested = is_marked && self.config.conduct != Conduct::NeverCongested;
        self.interval.congested += u32::from(is_congested);
        self.calm_rounds = if is_congested {
            0
        } else {
            self.calm_rounds.saturating_add(1)
        };
        self.select(now, Duration::from_micros(data.rtt_us.into()));
    }

    /// Reports what it saw in the round, or what it says that it saw.
    fn report(&mut self, request: u16, is_marked: bool, rate: f64) {
        let (is_congested, rate) = match self.config.conduct {
            Conduct::Honest => (is_marked, rate),
            Conduct::AlwaysCongested => (true, rate),
            Conduct::NeverCongested => (false, rate),
            Conduct::RateTimes(factor) => (is_marked, rate * factor),
        };
        let rate = rate as u32;
        let feedback = Feedback {
            source: self.id,
            session: self.session,
            group: self.subscribed - 1,
            more: false,
            request,
            reports: 1,
            congested: is_congested.into(),
            minimum: rate,
            maximum: rate,
            population: 1,
            hold_us: 0,
            rtt_us: 0,
        };
        self.actions.push_back(Action::Send(Packet::new(
            Destination::Endpoint(self.parent),
            Message::Feedback(feedback),
            0,
        )));
    }

    /// Selective participation, at the end of a selection interval.
    fn select(&mut self, now: Time, rtt: Duration) {
        let since = *self.interval.since.get_or_insert(now);
        if now - since < self.config.selection_rtts * rtt {
            return;
        }
        let seen = core::mem::take(&mut self.interval);
        self.interval.top_rate = seen.top_rate;
        self.interval.since = Some(now);
        if seen.congested == 0 && seen.fell && self.subscribed < self.groups {
            self.add_group();
        } else if seen.is_congested() && seen.rose && self.subscribed > 1 {
            self.drop_group();
        }
    }
}

impl Endpoint for Receiver {
    type Rx = Message;
    type Tx = Message;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Message>) {
        let Message::Data(data) = &packet.header else {
            return;
        };
        // What comes of a group that was just left is no longer ours to count.
        if data.group < self.subscribed {
            let is_marked = packet.ecn == Ecn::Marked;
            self.on_data(now, data, packet.wire_bytes(), is_marked);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.stop.is_some_and(|stop| stop <= now) {
            self.leave();
            self.start = Time::MAX;
        } else if self.subscribed == 0 && self.start <= now {
            self.add_group();
        }
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Message>> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self.subscribed {
            0 => self
                .stop
                .is_none_or(|stop| self.start < stop)
                .then_some(self.start),
            _ => self.stop,
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
