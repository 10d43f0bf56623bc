//! A receiver: reports once in each round, and chooses its groups once in each selection interval
//! (sections III-A3 and III-C).

use core::time::Duration;
use std::collections::VecDeque;

use super::arrivals::Arrivals;
use super::config::{ConfigError, Edition, ReceiverConfig};
use super::interval::Interval;
use super::measured::Measured;
use super::overload::Overload;
use super::trials::Trials;
use crate::{Data, Feedback, GROUPS_MAX, Message};
use crate::{Event, Membership, Reason};
use manyflow_core::time::Time;
use manyflow_core::{Action, Endpoint};
use manyflow_core::{Channel, Destination, Ecn, EndpointId, Packet};

/// The number of rounds without reports after a group was left: the queue of the old subscription
/// drains.
const SETTLING_ROUNDS_DOWN: u32 = 2;

/// The number of rounds without reports after a group was added: the measurements of the first
/// belong to both subscriptions. A receiver that enters the session has no old measurements.
const SETTLING_ROUNDS_UP: u32 = 1;

/// The number of rounds after a report of congestion in which a decrease counts as its effect. A
/// later decrease was caused by others.
const OWN_DECREASE_ROUNDS: u32 = 3;

/// The minimum duration of an interruption, in round-trip times of the session, and the minimum
/// number of packets that should have arrived meanwhile. A round is two round-trip times long.
const INTERRUPTION_RTTS: u32 = 2;
const INTERRUPTION_PACKETS: f64 = 8.0;

/// The time without a request, in round-trip times and beyond, after which the top group does not
/// arrive. A round lasts four of them while answers are missing, and packets can be rare.
const UNHEARD_RTTS: u32 = 8;
const UNHEARD_MIN: Duration = Duration::from_secs(1);

/// A receiver of a session.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    /// n_g: the number of groups in the session.
    groups: u8,
    session: u32,
    id: u32,
    parent: EndpointId,
    start: Time,
    stop: Option<Time>,
    /// The number of groups that the receiver joins when it enters the session.
    first: u8,
    /// The number of subscribed groups, from the lowest; 0 outside the session.
    subscribed: u8,
    /// The arrivals of each subscribed group.
    arrivals: Vec<Arrivals>,
    /// The last request, and its time. Measurements since that time answer the next request.
    asked: Option<(u16, Time)>,
    /// When the top group was joined or the one above it was left, or an interruption ended.
    changed: Time,
    /// Whether the last packet was one whose request is for the receivers with one top group.
    is_asked_by_group: bool,
    /// The time of the last packet, and the last round-trip time that this receiver was given. The
    /// sender takes an interruption for a longer round-trip time.
    heard: Option<(Time, Duration)>,
    /// The length of the longest packet so far: packets that carry little are shorter.
    packet_bytes: u32,
    received_bytes: u64,
    /// The packets that arrived in the round, and those that are missing.
    received_packets: u32,
    lost_packets: u32,
    is_marked: bool,
    overload: Overload,
    trials: Trials,
    /// The measurements of the second edition; `None` with the paper's rules.
    measured: Option<Box<Measured>>,
    /// The number of rounds since the receiver was last congested.
    calm_rounds: u32,
    /// The cumulative received rate, averaged, in bytes per second.
    rate: Option<f64>,
    interval: Interval,
    actions: VecDeque<Action<Message>>,
    events: VecDeque<Event>,
}

impl Receiver {
    /// Creates a receiver, which reports to `parent` with the number `id`.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(
        config: ReceiverConfig,
        membership: Membership,
        id: u32,
        parent: EndpointId,
    ) -> Result<Receiver, ConfigError> {
        config.check()?;
        let Membership {
            session,
            groups,
            start,
            stop,
        } = membership;
        Ok(Receiver {
            groups: groups.clamp(1, GROUPS_MAX),
            session,
            id,
            parent,
            start,
            stop,
            first: 1,
            subscribed: 0,
            arrivals: Vec::new(),
            asked: None,
            changed: Time::ZERO,
            is_asked_by_group: false,
            heard: None,
            packet_bytes: 0,
            received_bytes: 0,
            received_packets: 0,
            lost_packets: 0,
            is_marked: false,
            overload: Overload::new(),
            trials: Trials::new(&config),
            measured: (config.edition == Edition::Second).then(|| Box::new(Measured::new(&config))),
            // A receiver that has never been congested has caused no decrease.
            calm_rounds: u32::MAX,
            rate: None,
            interval: Interval::default(),
            actions: VecDeque::new(),
            events: VecDeque::new(),
            config,
        })
    }

    /// Sets the number of groups that the receiver joins when it enters the session: 1, as in the
    /// paper, to all. With more than 1, studies begin in the middle of a session.
    pub fn begin_with(&mut self, groups: u8) {
        self.first = groups.clamp(1, self.groups);
    }

    /// Returns the number of subscribed groups, from the lowest.
    pub fn subscribed(&self) -> u8 {
        self.subscribed
    }

    fn channel(&self, group: u8) -> Channel {
        Channel {
            session: self.session,
            number: group.into(),
        }
    }

    fn add_group(&mut self, now: Time, reason: Reason) {
        let channel = self.channel(self.subscribed);
        self.subscribed += 1;
        self.arrivals.push(Arrivals::default());
        debug_assert!(self.subscribed <= self.groups, "there is no such group");
        self.on_change(now, true);
        self.interval = Interval::settling(match self.subscribed {
            1 => 0,
            _ => SETTLING_ROUNDS_UP,
        });
        self.begin_requests(now);
        self.actions.push_back(Action::Join(channel));
        self.events.push_back(Event::Joined(channel));
        self.explain(reason);
    }

    /// Reports the reason for the present groups, by an event.
    fn explain(&mut self, reason: Reason) {
        let groups = self.subscribed;
        self.events.push_back(Event::Changed { groups, reason });
    }

    fn on_change(&mut self, now: Time, is_up: bool) {
        let rtt = self.heard.map_or(Duration::ZERO, |(_, rtt)| rtt);
        if let Some(measured) = &mut self.measured {
            measured.on_change(now, rtt, is_up);
        }
    }

    fn drop_group(&mut self, now: Time, reason: Reason) {
        self.report_lost(Arrivals::take_missing);
        self.subscribed -= 1;
        self.arrivals.pop();
        self.on_change(now, false);
        let channel = self.channel(self.subscribed);
        self.interval = Interval::settling(SETTLING_ROUNDS_DOWN);
        self.begin_requests(now);
        self.actions.push_back(Action::Leave(channel));
        self.events.push_back(Event::Left(channel));
        self.explain(reason);
    }

    /// Begins with the requests of another group, if each group has its own: the first one ends no
    /// round of this receiver, which takes the place of a settling round.
    fn begin_requests(&mut self, now: Time) {
        self.changed = now;
        self.overload.on_change();
        if self.is_asked_by_group {
            self.asked = None;
            self.interval.settling = self.interval.settling.saturating_sub(1);
        }
    }

    fn leave(&mut self, now: Time) {
        while self.subscribed > 0 {
            self.drop_group(now, Reason::Stopped);
        }
        let asked = self.asked.take();
        (self.rate, self.heard) = (None, None);
        let Some(measured) = &mut self.measured else {
            return;
        };
        **measured = Measured::new(&self.config);
        if let Some((request, _)) = asked {
            // Nobody has to wait for further reports.
            self.send(Feedback {
                reports: 0,
                population: 0,
                ..self.feedback(request, false, 0)
            });
        }
    }

    /// Begins again after an interruption: a router, relay or this host was stopped, which is no
    /// congestion. The receiver keeps its groups. Nothing measured before counts, because a rate
    /// that includes the interruption would lower the group's rate for everyone.
    fn resume_after_interruption(&mut self, now: Time, data: &Data, bytes: u32) {
        self.packet_bytes = self.packet_bytes.max(bytes);
        let stated = Duration::from_micros(data.rtt_us.into());
        let given = match self.heard {
            Some((_, rtt)) if !self.is_asked_by(data) => rtt,
            _ => stated,
        };
        let Some((last, rtt)) = self.heard.replace((now, given)) else {
            return;
        };
        let awaited_bytes = f64::from(data.rate) * (now - last).as_secs_f64();
        if now - last < INTERRUPTION_RTTS * rtt
            || awaited_bytes < INTERRUPTION_PACKETS * f64::from(self.packet_bytes)
        {
            return;
        }
        self.arrivals.fill(Arrivals::default());
        (self.asked, self.rate, self.changed) = (None, None, now);
        (self.received_bytes, self.is_marked) = (0, false);
        (self.received_packets, self.lost_packets) = (0, 0);
        self.calm_rounds = 0;
        self.interval = Interval::settling(SETTLING_ROUNDS_UP);
        self.trials.on_interruption();
        if let Some(measured) = &mut self.measured {
            measured.on_interruption();
        }
    }

    /// Returns whether the request of a packet is for this receiver, too.
    fn is_asked_by(&self, data: &Data) -> bool {
        !data.is_for_group || data.group + 1 == self.subscribed
    }

    /// Reports the packets that are lost since the last report, by an event.
    fn report_lost(&mut self, take: fn(&mut Arrivals) -> u32) {
        let missing = self.arrivals.iter_mut().map(take);
        let lost = missing.fold(0, u32::saturating_add);
        self.lost_packets = self.lost_packets.saturating_add(lost);
        if lost > 0 {
            self.events.push_back(Event::Lost(lost));
        }
    }

    fn on_data(&mut self, now: Time, data: &Data, bytes: u32, is_marked: bool) {
        debug_assert_eq!(self.arrivals.len(), usize::from(self.subscribed));
        self.is_asked_by_group = data.is_for_group;
        self.resume_after_interruption(now, data, bytes);
        let arrivals = &mut self.arrivals[usize::from(data.group)];
        let missing = arrivals.missing();
        arrivals.on_packet(data.sequence);
        let lost = arrivals.missing().saturating_sub(missing);
        let keep = self.overloaded(now, data, bytes, lost);
        self.received_bytes += u64::from(bytes);
        self.received_packets += 1;
        self.is_marked |= is_marked;
        if data.group + 1 == self.subscribed {
            let is_own_doing = self.calm_rounds < OWN_DECREASE_ROUNDS;
            self.interval.on_top_rate(data.rate, is_own_doing);
        }
        let is_new = match self.asked {
            None => data.request != 0,
            Some((last, _)) => (data.request.wrapping_sub(last) as i16) > 0,
        };
        if is_new && self.is_asked_by(data) {
            self.on_request(now, data);
        } else {
            self.leave_unheard(now);
        }
        self.measure(now, data, bytes, lost, is_marked);
        if let Some(keep) = keep {
            self.leave_overloaded(now, keep);
        }
    }

    /// Leaves groups at once if the path has suddenly become far slower, unless the top group is a
    /// trial: the rates of a session that has just started pass those of links for some rounds.
    ///
    /// This exception, and that of the interval which begins with a full queue, were chosen after
    /// seeds 0 to 59 of the simulated streams had been seen (`docs/history.md`).
    fn leave_overloaded(&mut self, now: Time, keep: u8) {
        if let Some((_, rtt)) = self.heard
            && keep < self.subscribed
            && !self.trials.is_trial()
        {
            self.fail(now, self.config.selection_rtts * rtt, keep, Reason::Lost);
            self.interval.is_draining = true;
        }
    }

    /// Returns the number of groups to keep of those that the path has just shown not to carry, if
    /// each group has requests of its own.
    fn overloaded(&mut self, now: Time, data: &Data, bytes: u32, lost: u32) -> Option<u8> {
        let (_, rtt) = self.heard.filter(|_| data.is_for_group)?;
        let groups = self.subscribed;
        self.overload.on_packet(now, data, bytes, lost, groups, rtt)
    }

    /// Drops the top group if it has requests of its own, and packets of lower groups arrive but no
    /// such request. The reason is a full queue, which drops packets of the top group first.
    fn leave_unheard(&mut self, now: Time) {
        let Some((_, rtt)) = self.heard.filter(|_| self.is_asked_by_group) else {
            return;
        };
        let since = self.asked.map_or(self.changed, |(_, asked)| asked);
        if self.subscribed > 1 && now - since > UNHEARD_MIN + UNHEARD_RTTS * rtt {
            let interval = self.config.selection_rtts * rtt;
            self.fail(now, interval, self.subscribed - 1, Reason::Unheard);
        }
    }

    /// Measures the path, and leaves groups at once that it does not carry (second edition).
    fn measure(&mut self, now: Time, data: &Data, bytes: u32, lost: u32, is_marked: bool) {
        let Some(measured) = &mut self.measured else {
            return;
        };
        let interval = self.config.selection_rtts * Duration::from_micros(data.rtt_us.into());
        let groups = self.subscribed;
        if is_marked {
            measured.on_mark(now);
        }
        let left = measured.on_packet(now, data, bytes, lost, groups, interval);
        let early = measured.take_early(left.map_or(groups, |(keep, _)| keep));
        if let Some((keep, reason)) = left {
            self.fail(now, interval, keep, reason);
        } else if !measured.has_reported && measured.is_known() && data.request != 0 {
            let rate = measured.carried(now, groups, interval);
            self.report(data.request, is_marked, rate);
        }
        if let Some(rate) = early {
            self.send(Feedback {
                reports: 0,
                ..self.feedback(data.request, false, rate as u32)
            });
        }
    }

    /// Returns the rate that the path carries, as measured (second edition), in bytes per second.
    fn carried(&self, now: Time, interval: Duration) -> Option<f64> {
        let measured = self.measured.as_ref()?;
        Some(measured.carried(now, self.subscribed, interval))
    }

    fn is_known(&self) -> bool {
        let measured = self.measured.as_ref();
        measured.is_some_and(|measured| measured.is_known())
    }

    /// Ends a round, which happens when the next request arrives.
    fn on_request(&mut self, now: Time, data: &Data) {
        let interval = self.config.selection_rtts * Duration::from_micros(data.rtt_us.into());
        self.report_lost(match self.config.repaired {
            true => Arrivals::take_unrepaired,
            false => Arrivals::take_missing,
        });
        let before = self.asked.replace((data.request, now));
        if let Some(measured) = &mut self.measured {
            measured.on_round();
        }
        let bytes = core::mem::take(&mut self.received_bytes);
        let is_marked = core::mem::take(&mut self.is_marked);
        let received = core::mem::take(&mut self.received_packets);
        let lost = core::mem::take(&mut self.lost_packets);
        let Some((_, since)) = before.filter(|(_, since)| now > *since) else {
            // No measurement covers a whole round yet, but pairs may have shown the path's rate.
            if let Some(carried) = self.carried(now, interval).filter(|_| self.is_known()) {
                self.report(data.request, is_marked, carried);
            }
            return;
        };
        let measured = bytes as f64 / (now - since).as_secs_f64();
        let rate = self.rate.map_or(measured, |rate| {
            rate + self.config.rate_weight * (measured - rate)
        });
        self.rate = Some(rate);
        if data.is_for_group {
            let rounds = f64::from(data.rtt_us) / 1e6 / (now - since).as_secs_f64();
            self.trials.set_window(f64::from(received) * rounds);
        }
        let fell = core::mem::take(&mut self.interval.round_fall);
        let is_overloaded = self.trials.on_round(received, lost, fell) && self.measured.is_none();
        if is_overloaded && self.subscribed > 1 {
            self.fail(now, interval, self.subscribed - 1, Reason::Lost);
            return;
        }
        if self.interval.settling > 0 {
            self.interval.settling -= 1;
            return;
        }
        let carried = self.carried(now, interval);
        self.report(data.request, is_marked, carried.unwrap_or(rate));
        self.interval.received = self.interval.received.saturating_add(received);
        self.interval.lost = self.interval.lost.saturating_add(lost);
        self.interval.rounds += 1;
        self.interval.congested += u32::from(is_marked);
        self.calm_rounds = if is_marked {
            0
        } else {
            self.calm_rounds.saturating_add(1)
        };
        self.select(now, interval);
    }

    /// Sends a report of the round.
    fn report(&mut self, request: u16, is_marked: bool, rate: f64) {
        let mut is_congested = is_marked;
        if let Some(measured) = &mut self.measured {
            measured.has_reported = true;
            is_congested |= measured.is_exceeding(self.subscribed);
        }
        let feedback = self.feedback(request, is_congested, rate as u32);
        self.send(feedback);
    }

    fn feedback(&self, request: u16, is_congested: bool, rate: u32) -> Feedback {
        Feedback {
            source: self.id,
            session: self.session,
            group: self.subscribed.saturating_sub(1),
            more: false,
            request,
            reports: 1,
            congested: is_congested.into(),
            minimum: rate,
            maximum: rate,
            population: 1,
            hold_us: 0,
            rtt_us: 0,
        }
    }

    fn send(&mut self, feedback: Feedback) {
        let to = Destination::Endpoint(self.parent);
        let packet = Packet::new(to, Message::Feedback(feedback), 0);
        self.actions.push_back(Action::Send(packet));
    }

    /// Adds or drops a group at the end of a selection interval (selective participation).
    fn select(&mut self, now: Time, interval: Duration) {
        let since = *self.interval.since.get_or_insert(now);
        let measured = self.measured.as_ref();
        if now - since < measured.map_or(interval, |measured| measured.interval(interval)) {
            return;
        }
        let seen = core::mem::take(&mut self.interval);
        self.interval.top_rate = seen.top_rate;
        self.interval.since = Some(now);
        let next = self.subscribed + 1;
        let may_add = next <= self.groups
            && self.trials.may_add(now, next)
            && seen.is_calm(self.config.calm_share);
        let (add, drop) = match &mut self.measured {
            Some(measured) => reasons_by_measure(measured, &seen, self.subscribed),
            None => self.reasons_by_paper(&seen),
        };
        if let Some(reason) = add.filter(|_| may_add) {
            self.add_group(now, reason);
            self.trials.begin();
        } else if let Some(reason) = drop.filter(|_| self.subscribed > 1) {
            self.fail(now, interval, self.subscribed - 1, reason);
        } else {
            self.trials.on_interval(self.subscribed);
            if let Some(measured) = &mut self.measured {
                measured.on_interval();
            }
        }
    }

    /// Returns the reasons to add a group, if the interval was calm, and to drop one, by the
    /// paper's rules.
    fn reasons_by_paper(&self, seen: &Interval) -> (Option<Reason>, Option<Reason>) {
        let is_harmful = self.trials.is_harmful(seen.received, seen.lost);
        let drops = seen.is_congested() && seen.rose && is_harmful && !seen.is_draining;
        (
            seen.fell.then_some(Reason::Calm),
            drops.then_some(Reason::Congested),
        )
    }

    /// Leaves all but `keep` groups, which are more than the path carries.
    fn fail(&mut self, now: Time, interval: Duration, keep: u8, reason: Reason) {
        // A group that has moved is no failed trial.
        if reason != Reason::RateExceeds {
            self.trials.on_failure(now, self.subscribed, interval);
        }
        while self.subscribed > keep {
            self.drop_group(now, reason);
        }
    }
}

/// Returns the reasons to add a group, if the interval was calm, and to drop one, by the rules of
/// the second edition.
fn reasons_by_measure(
    measured: &mut Measured,
    seen: &Interval,
    groups: u8,
) -> (Option<Reason>, Option<Reason>) {
    let (top, next) = measured.take_averages();
    let add = match measured.allows(next) {
        Some(allows) => allows.then_some(Reason::RateAllows),
        // If pairs show nothing, a decrease that others caused is the sign.
        None => seen.fell.then_some(Reason::Calm),
    };
    let is_overloaded = seen.is_congested() && seen.rose;
    let is_thin = seen.congested > 0 && measured.is_thin(groups);
    let drop = match (measured.is_exceeded(top), is_overloaded || is_thin) {
        (true, _) => Some(Reason::RateExceeds),
        (false, true) => Some(Reason::Congested),
        (false, false) => None,
    };
    (add.filter(|_| drop.is_none()), drop)
}

impl Endpoint for Receiver {
    type Rx = Message;
    type Tx = Message;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Message>) {
        let Message::Data(data) = &packet.header else {
            return;
        };
        // Packets of a group that was just left no longer count.
        if data.group < self.subscribed {
            let is_marked = packet.ecn == Ecn::Marked;
            self.on_data(now, data, packet.wire_bytes(), is_marked);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.stop.is_some_and(|stop| stop <= now) {
            self.leave(now);
            self.start = Time::MAX;
        } else if self.subscribed == 0 && self.start <= now {
            for _ in 0..self.first {
                self.add_group(now, Reason::Entered);
            }
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
