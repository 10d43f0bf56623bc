//! The relay of layered sessions.

use core::cmp::Reverse;
use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use manyflow_core::estimate::token_bucket::TokenBucket;
use manyflow_core::{ConfigError, Ecn, Time};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::child::{Child, Queued, Share};
use super::config::{Datagrams, RelayConfig, RelayError, SessionInfo, Where};
use super::inner::inner_ecn;
use super::reporting::ReportingEnd;
use super::session::RelaySession;
use super::strangers::Strangers;
use crate::hop::{
    Direction, Feedbacks, Hop, HopConfig, HopCounters, HopMessage, HopRate, HopState, Stamp,
};
use crate::repair::Arrival;
use crate::{Data, Experiment, Feedback};

/// The maximum rate of experiments that are announced to all children, and of a burst of them.
const EXPERIMENTS_PER_S: f64 = 10.0;
const EXPERIMENTS_BURST: f64 = 10.0;
/// The maximum number of summaries that wait for the sender.
const FEEDBACK_MAX: usize = 4096;

/// A relay of layered sessions, or the sender's end of a tree. It has neither clock nor sockets.
#[derive(Debug)]
pub struct StreamRelay {
    config: RelayConfig,
    random: StdRng,
    sessions: Vec<RelaySession>,
    /// The children by their places, which `places` and `wakes` refer to.
    children: Vec<Option<Box<Child>>>,
    places: BTreeMap<SocketAddr, u32>,
    free: Vec<u32>,
    /// When children want to send. An entry counts if its time is that of the child.
    wakes: BinaryHeap<Reverse<(Time, u32)>>,
    strangers: Strangers,
    /// The source number of the next child or receiver.
    next_source: u32,
    experiments: TokenBucket,
    parent: Option<ReportingEnd>,
    feedback: VecDeque<Feedback>,
}

impl StreamRelay {
    /// Creates a relay of `sessions`. `seed` is random; numbers that must not be guessed come from
    /// it.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(
        config: RelayConfig,
        sessions: &[SessionInfo],
        seed: [u8; 32],
        now: Time,
    ) -> Result<StreamRelay, ConfigError> {
        config.check(sessions)?;
        let mut random = StdRng::from_seed(seed);
        let parent = config
            .has_parent
            .then(|| ReportingEnd::new(config.key.clone(), random.random()));
        let id = config.id;
        let of_session = |info: &SessionInfo| RelaySession::new(*info, id);
        Ok(StreamRelay {
            sessions: sessions.iter().map(of_session).collect(),
            children: Vec::new(),
            places: BTreeMap::new(),
            free: Vec::new(),
            wakes: BinaryHeap::new(),
            strangers: Strangers::new(config.strangers_max, sessions),
            next_source: 0,
            experiments: TokenBucket::new(now, EXPERIMENTS_PER_S, EXPERIMENTS_BURST),
            parent,
            feedback: VecDeque::new(),
            random,
            config,
        })
    }

    /// Adds a child whose hop has another rate than that of the configuration. Other children are
    /// added by [`push`](StreamRelay::push) and [`set_top`](StreamRelay::set_top). The rate of a
    /// child that is known does not change.
    ///
    /// # Errors
    /// If there are as many children as the configuration allows.
    pub fn add_child(
        &mut self,
        now: Time,
        child: SocketAddr,
        local: IpAddr,
        rate: HopRate,
    ) -> Result<(), RelayError> {
        self.place(now, child, local, rate).map(|_| ())
    }

    /// Returns the place of a child, which is added if it is not known.
    fn place(
        &mut self,
        now: Time,
        address: SocketAddr,
        local: IpAddr,
        rate: HopRate,
    ) -> Result<u32, RelayError> {
        if let Some(place) = self.places.get(&address) {
            return Ok(*place);
        }
        if self.places.len() >= self.config.children_max {
            return Err(RelayError::Full);
        }
        let config = HopConfig {
            rate,
            ..self.config.hop.clone()
        };
        let (nonce, seed) = (self.random.random(), self.random.random());
        let hop = Hop::new(config, nonce, seed, now).map_err(|_| RelayError::Full)?;
        self.strangers.remove(&address);
        let source = self.new_source();
        let sessions = self.sessions.iter();
        let shares = sessions
            .map(|known| Share::new(known.info.groups))
            .collect();
        let child = Child::new(address, local, source, hop, shares);
        let place = self.free.pop().unwrap_or_else(|| {
            self.children.push(None);
            self.children.len() as u32 - 1
        });
        self.children[place as usize] = Some(Box::new(child));
        self.places.insert(address, place);
        self.schedule(place);
        debug_assert_eq!(self.places.len() + self.free.len(), self.children.len());
        Ok(place)
    }

    fn new_source(&mut self) -> u32 {
        self.next_source = self.next_source.wrapping_add(1);
        self.next_source
    }

    fn child(&mut self, place: u32) -> Option<&mut Child> {
        self.children.get_mut(place as usize)?.as_deref_mut()
    }

    /// Notes when a child wants to send.
    fn schedule(&mut self, place: u32) {
        let Some(child) = self.child(place) else {
            return;
        };
        let wanted = child.poll_timeout();
        if wanted < child.wake {
            child.wake = wanted;
            self.wakes.push(Reverse((wanted, place)));
        }
    }

    /// Queues an AMT Multicast Data message for a child. `rank` is that of its group; `None` for a
    /// session without groups. `local` is the address to send from, and matters only for a new
    /// child.
    ///
    /// # Errors
    /// If the hop's queue dropped the message, there is no such session, or there are as many
    /// children as the configuration allows.
    pub fn push(
        &mut self,
        now: Time,
        child: SocketAddr,
        local: IpAddr,
        session: usize,
        rank: Option<u8>,
        message: &Arc<[u8]>,
    ) -> Result<(), RelayError> {
        let known = self.sessions.get(session).ok_or(RelayError::NoSession)?;
        let group = rank.map(|rank| (known.info.session, rank));
        let place = self.place(now, child, local, self.config.hop.rate)?;
        let item = Queued::new(message, group);
        let bytes = item.wire_bytes();
        let child = self.children.get_mut(place as usize);
        let Some(child) = child.and_then(|child| child.as_deref_mut()) else {
            return Err(RelayError::NoHop);
        };
        let share = &mut child.shares[session];
        if let Some(top) = share.top {
            child.hop.expect(now, self.sessions[session].rate(top));
        }
        let pushed = child.hop.push(now, item, bytes);
        match pushed {
            Ok(is_marked) => {
                let top = share.top.unwrap_or_default();
                let newest = self.sessions[session].newest(top);
                share.on_packet(newest, is_marked || inner_ecn(message) == Ecn::Marked);
            }
            // The queue drops from the top, so it holds nothing of higher groups.
            Err(_) if rank == Some(0) && child.hop.is_rate_known() => {
                let carried = child.hop.rate();
                self.sessions[session].report_early(now, carried);
                self.pass_summaries(now, session);
            }
            Err(_) => {}
        }
        self.schedule(place);
        pushed.map(|_| ()).map_err(|_| RelayError::Dropped)
    }

    /// Sets the top group of a session that a child has joined; `None` if the child has left the
    /// session.
    ///
    /// # Errors
    /// If there is no such session, or there are as many children as the configuration allows.
    pub fn set_top(
        &mut self,
        now: Time,
        child: SocketAddr,
        local: IpAddr,
        session: usize,
        top: Option<u8>,
    ) -> Result<(), RelayError> {
        let known = self.sessions.get(session).ok_or(RelayError::NoSession)?;
        let number = known.info.session;
        let newest = known.newest(top.unwrap_or_default());
        let is_by_group = known.is_by_group();
        let place = match (top, self.places.get(&child)) {
            (None, None) => return Ok(()),
            _ => self.place(now, child, local, self.config.hop.rate)?,
        };
        if let Some(child) = self.child(place) {
            child.hop.set_top(number, top);
            child.shares[session].set_top(top, newest, is_by_group);
        }
        Ok(())
    }

    /// Removes a child and its queue.
    pub fn remove_child(&mut self, child: SocketAddr) {
        if let Some(place) = self.places.remove(&child) {
            self.children[place as usize] = None;
            self.free.push(place);
        }
    }

    /// Returns whether a data packet has a new request, which is the last packet of its round.
    pub fn has_new_request(&self, session: usize, data: &Data) -> bool {
        let known = self.sessions.get(session);
        known.is_some_and(|known| known.has_new_request(data))
    }

    /// Notes a data packet of any group that passes here. A new request in it begins a round of
    /// feedback. Packets that arrived before it have to be pushed before, so that their marks
    /// belong to the former round.
    pub fn observe_data(&mut self, now: Time, session: usize, data: &Data) {
        let Some(known) = self.sessions.get_mut(session) else {
            return;
        };
        if !known.observe(data) {
            return;
        }
        let newest = known.newest(data.group);
        let of = data.is_for_group.then_some(data.group);
        let children = self.children.iter().flatten();
        let awaited = children.filter(|child| child.shares[session].is_awaited(newest, of));
        known.open_round(now, data, awaited.count());
        self.pass_summaries(now, session);
    }

    /// Handles a message of a hop from a child, or a report from a receiver without a hop. A child
    /// whose message is accepted is answered from `local`, at which the message arrived.
    ///
    /// # Errors
    /// If the message is refused. A part of its feedback may have been accepted.
    pub fn handle_datagram(
        &mut self,
        now: Time,
        from: SocketAddr,
        local: IpAddr,
        bytes: &[u8],
    ) -> Result<(), RelayError> {
        let place = self.places.get(&from).copied();
        self.on_message(now, from, place, bytes)?;
        if let Some(child) = place.and_then(|place| self.child(place)) {
            child.local = local;
        }
        Ok(())
    }

    fn on_message(
        &mut self,
        now: Time,
        from: SocketAddr,
        place: Option<u32>,
        bytes: &[u8],
    ) -> Result<(), RelayError> {
        let key = self.config.key.clone();
        match HopMessage::decode(bytes, Direction::Up, key.as_ref())? {
            HopMessage::Echo(echo) => {
                let place = place.ok_or(RelayError::NoHop)?;
                let child = self.child(place).ok_or(RelayError::NoHop)?;
                let is_ours = child.hop.handle_echo(now, &echo);
                self.schedule(place);
                is_ours.then_some(()).ok_or(RelayError::Stale)
            }
            HopMessage::Report(stamp, feedbacks) => match place {
                Some(place) => self.on_report(now, place, &stamp, &feedbacks),
                None => self.on_strange_report(now, from, &feedbacks),
            },
            HopMessage::Experiment(stamp, experiment) => {
                let place = place.ok_or(RelayError::NoHop)?;
                let child = self.child(place).ok_or(RelayError::NoHop)?;
                child.take_stamp(&stamp)?;
                self.on_experiment(now, Some(place), experiment)
            }
            HopMessage::Repair { stamp, wait, gaps } => {
                let place = place.ok_or(RelayError::NoHop)?;
                let child = self.child(place).ok_or(RelayError::NoHop)?;
                child.take_stamp(&stamp)?;
                child.repair(now, stamp.number, wait, &gaps);
                self.schedule(place);
                Ok(())
            }
            HopMessage::Sounding(_) => Err(RelayError::Direction),
        }
    }

    fn on_report(
        &mut self,
        now: Time,
        place: u32,
        stamp: &Stamp,
        feedbacks: &Feedbacks<'_>,
    ) -> Result<(), RelayError> {
        self.child(place)
            .ok_or(RelayError::NoHop)?
            .take_stamp(stamp)?;
        for feedback in feedbacks.iter() {
            let session = self.check(&feedback)?;
            let known = &self.sessions[session];
            let newest = known.newest(feedback.group);
            let (at, is_by_group) = (known.place(feedback.group), known.is_by_group());
            let child = self.child(place).ok_or(RelayError::NoHop)?;
            let share = &mut child.shares[session];
            share.reports.count(at, feedback.request, newest)?;
            share.on_answer(feedback.group, newest, is_by_group);
            let feedback = share.with_marks(&feedback, is_by_group);
            let source = child.source;
            self.sessions[session].add(now, source, &feedback);
            self.pass_summaries(now, session);
        }
        Ok(())
    }

    fn on_strange_report(
        &mut self,
        now: Time,
        from: SocketAddr,
        feedbacks: &Feedbacks<'_>,
    ) -> Result<(), RelayError> {
        for feedback in feedbacks.iter() {
            let session = self.check(&feedback)?;
            let known = &self.sessions[session];
            let (at, newest) = (known.place(feedback.group), known.newest(feedback.group));
            let next = &mut self.next_source;
            let stranger = self.strangers.at(now, from, || {
                *next = next.wrapping_add(1);
                *next
            })?;
            stranger.reported[session].count(at, feedback.request, newest)?;
            let source = stranger.source;
            self.sessions[session].add(now, source, &feedback);
            self.pass_summaries(now, session);
        }
        Ok(())
    }

    /// Returns the index of the session of feedback that can be accepted.
    fn check(&self, feedback: &Feedback) -> Result<usize, RelayError> {
        let mut known = self.sessions.iter();
        let session = known
            .position(|known| known.info.session == feedback.session)
            .ok_or(RelayError::NoSession)?;
        self.sessions[session].check(feedback)?;
        Ok(session)
    }

    /// Passes on an experiment of the child at `from`, or of the parent, to all other ends that
    /// have the session.
    fn on_experiment(
        &mut self,
        now: Time,
        from: Option<u32>,
        experiment: Experiment,
    ) -> Result<(), RelayError> {
        let mut known = self.sessions.iter();
        let session = known
            .position(|known| known.info.session == experiment.session)
            .ok_or(RelayError::NoSession)?;
        if !self.experiments.take(now, 1.0) {
            return Err(RelayError::TooMany);
        }
        for place in 0..self.children.len() as u32 {
            let child = self.child(place).filter(|_| Some(place) != from);
            if let Some(child) = child.filter(|child| child.shares[session].top.is_some()) {
                child.announce(experiment);
                self.schedule(place);
            }
        }
        if let Some(parent) = self.parent.as_mut().filter(|_| from.is_some()) {
            parent.announce(experiment);
        }
        Ok(())
    }

    /// Passes the summaries of a session to the parent, or keeps them for the sender.
    fn pass_summaries(&mut self, now: Time, session: usize) {
        let known = &mut self.sessions[session];
        let summaries: Vec<_> = core::iter::from_fn(|| known.poll_feedback(now)).collect();
        match &mut self.parent {
            Some(parent) => parent.report(&summaries),
            None => {
                let room = FEEDBACK_MAX.saturating_sub(self.feedback.len());
                self.feedback.extend(summaries.into_iter().take(room));
            }
        }
    }

    /// Counts an AMT Multicast Data message of a session from the parent, and asks for packets that
    /// it shows to be missing. A duplicate is not to be forwarded.
    pub fn handle_parent_data(&mut self, session: usize, message: &[u8]) -> Arrival {
        match (&mut self.parent, self.sessions.get(session)) {
            (Some(parent), Some(known)) => parent.handle_data(known.info.session, message),
            _ => Arrival::Fresh,
        }
    }

    /// Handles a message of a hop from the parent.
    ///
    /// # Errors
    /// If the message is refused, or this end has no parent.
    pub fn handle_parent_datagram(&mut self, now: Time, bytes: &[u8]) -> Result<(), RelayError> {
        let parent = self.parent.as_mut().ok_or(RelayError::Direction)?;
        parent.handle_datagram(bytes)?;
        while let Some(experiment) = self.parent.as_mut().and_then(ReportingEnd::poll_experiment) {
            self.on_experiment(now, None, experiment)?;
        }
        Ok(())
    }

    /// Replaces `out` by the next datagrams that are due at `now`, all of one length. Returns where
    /// they go; `None` if nothing is due.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Datagrams> {
        out.clear();
        if let Some(parent) = &mut self.parent
            && parent.poll_transmit(out)
        {
            return Some(Datagrams {
                place: Where::Parent,
                segment_bytes: out.len(),
            });
        }
        while let Some(&Reverse((time, place))) = self.wakes.peek() {
            if time > now {
                return None;
            }
            self.wakes.pop();
            let key = self.config.key.as_ref();
            let child = self.children.get_mut(place as usize);
            let Some(child) = child.and_then(|child| child.as_deref_mut()) else {
                continue;
            };
            if child.wake != time {
                continue;
            }
            child.wake = Time::MAX;
            let sent = child.poll_transmit(now, key, out);
            self.schedule(place);
            if sent.is_some() {
                return sent;
            }
        }
        None
    }

    /// Returns the next summary of feedback for the sender, if this end has no parent.
    pub fn poll_feedback(&mut self) -> Option<Feedback> {
        self.feedback.pop_front()
    }

    /// Returns when [`handle_timeout`](StreamRelay::handle_timeout) and
    /// [`poll_transmit`](StreamRelay::poll_transmit) are wanted next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let wake = self.wakes.peek().map(|Reverse((time, _))| *time);
        let parent = self.parent.as_ref().filter(|parent| parent.has_datagrams());
        let sessions = self.sessions.iter().filter_map(RelaySession::poll_timeout);
        let times = sessions.chain(wake).chain(parent.map(|_| Time::ZERO));
        times.min()
    }

    /// Handles the timers that are due: aggregators that have waited long enough.
    pub fn handle_timeout(&mut self, now: Time) {
        for session in 0..self.sessions.len() {
            self.sessions[session].handle_timeout(now);
            self.pass_summaries(now, session);
        }
    }

    /// Returns the hop of a child: its rate, RTT and counts.
    pub fn hop(&self, child: SocketAddr) -> Option<HopStatus> {
        let place = *self.places.get(&child)?;
        let child = self.children.get(place as usize)?.as_deref()?;
        Some(HopStatus {
            rate: child.hop.rate(),
            state: child.hop.state(),
            rtt: child.hop.rtt(),
            queued: child.hop.queued(),
            counters: child.hop.counters(),
        })
    }

    /// Iterates over the addresses of the children, in their order.
    pub fn children(&self) -> impl Iterator<Item = SocketAddr> {
        self.places.keys().copied()
    }
}

/// The state of the hop to a child.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct HopStatus {
    /// The present rate.
    pub rate: manyflow_core::Rate,
    /// The reason for the rate.
    pub state: HopState,
    /// The smoothed RTT and its minimum; `None` before the first echo.
    pub rtt: Option<(core::time::Duration, core::time::Duration)>,
    /// The packets that wait, and their bytes.
    pub queued: (usize, u64),
    /// The counts of the hop.
    pub counters: HopCounters,
}
