//! The order and membership of one daemon: owns all parts, and calls them in turn.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use manyflow_core::ConfigError;
use manyflow_core::time::Time;
use manyflow_overlay::DaemonId;

use crate::clients::{Clients, Outgoing, RequestError};
use crate::config::OrderConfig;
use crate::event::Event;
use crate::exchange::{Exchange, Plan, brought, view_id};
use crate::marks::Marks;
use crate::names::{ClientId, Peer, ViewId};
use crate::parts;
use crate::present::{Applied, Present};
use crate::registry::Registry;
use crate::stream::Stream;
use crate::wire::{RECOVER_BYTES, Record, Recover, State, is_of_exchange, sender};

/// The order and membership of one daemon. The page of the [crate](crate) describes them.
///
/// After each call of a `handle_*` method and of [`connect`](Orderer::connect),
/// [`disconnect`](Orderer::disconnect), [`join`](Orderer::join) or [`leave`](Orderer::leave), drain
/// [`poll_transmit`](Orderer::poll_transmit) and [`poll_event`](Orderer::poll_event), then read
/// [`poll_timeout`](Orderer::poll_timeout) and [`is_open`](Orderer::is_open).
#[derive(Debug)]
pub struct Orderer {
    config: OrderConfig,
    here: Peer,
    present: Present,
    exchange: Exchange,
    marks: Marks,
    registry: Registry,
    clients: Clients,
    outbox: VecDeque<Bytes>,
    next_mark: Option<Time>,
    is_full: bool,
}

impl Orderer {
    /// Returns the order of a daemon that is alone. Each time that the daemon restarts, it needs a
    /// higher `incarnation`.
    ///
    /// # Errors
    /// Returns an error if a parameter is outside its range.
    pub fn new(
        config: OrderConfig,
        here: DaemonId,
        incarnation: u32,
    ) -> Result<Orderer, ConfigError> {
        config.check()?;
        let peer = Peer {
            daemon: here,
            incarnation,
        };
        let id = view_id([(peer, 0)].into_iter());
        Ok(Orderer {
            present: Present::new(id, here, &[(peer, 0)]),
            exchange: Exchange::new(peer, config.retry),
            marks: Marks::new(config.clone()),
            registry: Registry::new(here, id),
            here: peer,
            config,
            clients: Clients::default(),
            outbox: VecDeque::new(),
            next_mark: None,
            is_full: false,
        })
    }

    /// Handles the daemons that take part and can be reached, this one included, in ascending
    /// order. Call it before messages of a daemon that has just appeared are handled.
    pub fn handle_peers(&mut self, now: Time, peers: &[Peer]) {
        debug_assert!(peers.contains(&self.here), "a daemon reaches itself");
        debug_assert!(peers.is_sorted_by(|a, b| a.daemon < b.daemon));
        if self.exchange.peers != peers {
            for daemon in self.exchange.set_peers(peers) {
                self.cut(daemon);
            }
            self.exchange.forget(&self.present);
            self.begin_exchange(now);
        }
        self.work(now);
    }

    /// Begins another incarnation of this daemon, whose stream goes on, if it is alone in its view.
    /// To the others, it is another daemon. Returns whether it is alone.
    pub(crate) fn begin_incarnation(&mut self, incarnation: u32) -> bool {
        let is_alone = self.present.is_alone() && !self.exchange.is_running;
        if is_alone {
            self.here.incarnation = incarnation;
            self.present.streams[0].peer = self.here;
            self.exchange.begin_incarnation(self.here);
        }
        is_alone
    }

    /// Returns this daemon, in its present incarnation.
    pub(crate) fn here(&self) -> Peer {
        self.here
    }

    /// Handles a record of a daemon's stream, of this daemon's own as well. A stream's records come
    /// in order, none twice. A gap in their numbers means that some are lost for good.
    pub fn handle_message(&mut self, now: Time, origin: DaemonId, sequence: u64, record: Bytes) {
        let is_next = self.exchange.arrive(origin, sequence);
        let has_lost = !is_next && self.cut(origin);
        if is_of_exchange(&record) {
            self.handle_exchange(now, origin, sequence, record);
        } else {
            self.keep(origin, sequence, record);
        }
        if has_lost {
            self.begin_exchange(now);
        }
        self.work(now);
    }

    /// Handles a record of the daemons' exchange.
    fn handle_exchange(&mut self, now: Time, origin: DaemonId, sequence: u64, record: Bytes) {
        let mut record = record;
        if let Some(Record::Part(part)) = Record::decode(&record) {
            let whole = self.exchange.assemble(origin, &part);
            record = whole.unwrap_or_default();
        }
        match Record::decode(&record) {
            Some(Record::State(state)) => self.handle_state(now, origin, sequence, state),
            Some(Record::Recover(recover)) => {
                self.handle_recover(&record, &recover);
                self.keep(origin, sequence, Bytes::new());
            }
            Some(Record::Ready { view }) => {
                if let Some(source) = self.exchange.sources.get_mut(&origin) {
                    source.ready = Some(view);
                }
                self.keep(origin, sequence, Bytes::new());
            }
            Some(Record::Roster(_)) => {
                self.exchange.add_roster(origin, record);
                self.keep(origin, sequence, Bytes::new());
            }
            _ => self.keep(origin, sequence, record),
        }
    }

    /// Handles all timers that are due at `now`. Spurious calls do nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.exchange.retry_at.is_some_and(|due| due <= now) {
            self.exchange.count_try();
            self.begin_exchange(now);
        }
        self.work(now);
    }

    /// Returns when [`handle_timeout`](Orderer::handle_timeout) is wanted next, if at all.
    pub fn poll_timeout(&self) -> Option<Time> {
        let times = [self.exchange.retry_at, self.next_mark];
        times.into_iter().flatten().min()
    }

    /// Returns the next record that has to enter this daemon's stream at once.
    pub fn poll_transmit(&mut self) -> Option<Bytes> {
        self.outbox.pop_front()
    }

    /// Returns whether there is a record for [`poll_transmit`](Orderer::poll_transmit).
    pub fn has_to_transmit(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Returns the next event for a client.
    pub fn poll_event(&mut self) -> Option<Event> {
        loop {
            let event = self.registry.pop_event()?;
            if self.clients.is_connected(event.to()) {
                return Some(event);
            }
        }
    }

    /// Returns whether messages of clients may enter this daemon's stream: the daemons are not on
    /// their way to another view, and there is room.
    pub fn is_open(&self) -> bool {
        !self.exchange.is_running && !self.is_full
    }

    /// Returns the present view of the daemons.
    pub fn view(&self) -> (ViewId, impl Iterator<Item = Peer>) {
        let streams = self.present.streams.iter();
        (self.present.id, streams.map(|stream| stream.peer))
    }

    /// Returns the number of entries that this daemon keeps for clients, groups and messages. It is
    /// small once all clients have left and all messages have been delivered.
    pub fn state_size(&self) -> usize {
        let waiting = self.outbox.len() + self.clients.len();
        let later = self.exchange.sources.values().map(|s| s.later.len());
        self.present.records() + self.registry.len() + waiting + later.sum::<usize>()
    }
}

/// Requests of clients.
impl Orderer {
    /// Connects a client. Its name must be unique in the whole overlay, such as `#user#daemon`; it
    /// has 1 to 255 bytes.
    ///
    /// # Errors
    /// Returns an error if the name has another length, or if another client of this daemon has it.
    pub fn connect(&mut self, now: Time, name: &str) -> Result<ClientId, RequestError> {
        let client = self.clients.connect(name)?;
        self.enter_requests(now);
        Ok(client)
    }

    /// Disconnects a client, which leaves all of its groups. Ignores unknown clients.
    pub fn disconnect(&mut self, now: Time, client: ClientId) {
        self.clients.disconnect(client);
        self.enter_requests(now);
    }

    /// Lets a client join a group; it learns of it by a view. Does nothing for members.
    ///
    /// # Errors
    /// Returns an error if the client is unknown, or the name is not one.
    pub fn join(&mut self, now: Time, client: ClientId, group: &str) -> Result<(), RequestError> {
        self.clients.join(client, group)?;
        self.enter_requests(now);
        Ok(())
    }

    /// Lets a client leave a group; it learns of it by [`Event::Left`]. Does nothing for others
    /// than members.
    ///
    /// # Errors
    /// Returns an error if the client is unknown, or the name is not one.
    pub fn leave(&mut self, now: Time, client: ClientId, group: &str) -> Result<(), RequestError> {
        self.clients.leave(client, group)?;
        self.enter_requests(now);
        Ok(())
    }

    /// Returns the record that carries a client's message, in [parts](Orderer::parts).
    ///
    /// # Errors
    /// Returns an error if the client is unknown, a name is not one, or the message is for too many
    /// groups or too long.
    pub fn message(&self, client: ClientId, send: &Outgoing<'_>) -> Result<Bytes, RequestError> {
        self.clients.message(client, send)
    }

    /// Divides the record of a client's message into parts, which enter this daemon's stream one
    /// after the other when flow control admits them, and only while the order
    /// [is open](Orderer::is_open). If it closes when some parts of a message have entered, the
    /// others enter at once, before the next record of [`poll_transmit`](Orderer::poll_transmit).
    pub fn parts(&self, client: ClientId, record: &Bytes) -> impl Iterator<Item = Bytes> {
        // A part may have to be sent again, in a record of its own.
        parts::divide(client, record, self.config.record_bytes - RECOVER_BYTES)
    }

    /// Sends a record in this daemon's stream.
    fn send(&mut self, record: &Bytes) {
        let parts = parts::divide(ClientId(0), record, self.config.record_bytes);
        self.outbox.extend(parts);
    }

    /// Sends the records of requests, unless the next view is under way.
    fn enter_requests(&mut self, now: Time) {
        while !self.exchange.is_running
            && let Some(record) = self.clients.enter_next()
        {
            self.send(&record);
        }
        self.work(now);
    }
}

/// The present view.
impl Orderer {
    /// Notes that records of a daemon are lost. Returns whether they belonged to the present view.
    fn cut(&mut self, origin: DaemonId) -> bool {
        let Some(index) = self.present.index(origin) else {
            return false;
        };
        let stream = &mut self.present.streams[index];
        // The first record of this daemon's own stream can have any number.
        let is_first = index == self.present.own && stream.next() == 0;
        if stream.end.is_some() || stream.is_cut || is_first {
            return false;
        }
        stream.is_cut = true;
        true
    }

    /// Keeps a record for the view that it belongs to.
    fn keep(&mut self, origin: DaemonId, sequence: u64, record: Bytes) {
        if let Some(source) = self.exchange.sources.get_mut(&origin)
            && source.heard.is_some()
        {
            source.later.push(record);
            return;
        }
        let Some(index) = self.present.index(origin) else {
            return;
        };
        let stream = &mut self.present.streams[index];
        if stream.end.is_some() || stream.is_cut {
            return;
        }
        stream.begin_at(sequence);
        debug_assert!(stream.next() >= sequence, "a stream without gaps");
        // Another daemon may have sent it before, because this one seemed to lack it.
        if stream.next() == sequence {
            stream.push(record);
        }
    }

    /// Does what follows from every call.
    fn work(&mut self, now: Time) {
        self.enter_next_view(now);
        if self.exchange.is_running {
            self.next_mark = None;
            return;
        }
        for index in 0..self.present.streams.len() {
            self.apply(index);
        }
        self.deliver_due();
        self.present.forget();
        if let Some((round, received)) = self.marks.poll(now, &self.present) {
            let mark = Record::Mark { round, received };
            self.send(&mark.encode());
        }
        self.next_mark = self.marks.due(now, &self.present);
        let bytes = self.present.bytes();
        let limit = self.config.backlog_bytes;
        self.is_full = bytes > if self.is_full { limit / 2 } else { limit };
    }

    /// Gives all records of a stream their rounds, and delivers those that need not wait.
    fn apply(&mut self, index: usize) {
        let origin = self.present.streams[index].peer.daemon;
        while let Some((applied, record)) = self.present.apply_next(index) {
            match applied {
                Applied::Deliver => {
                    if let Some(Record::Data(data)) = Record::decode(&record) {
                        self.registry.deliver(origin, &record, &data);
                    }
                }
                Applied::Hello => {
                    if let Some(Record::Hello { client, name }) = Record::decode(&record) {
                        self.registry.add((origin, client), name);
                    }
                }
                Applied::Wait => self.marks.has_sent |= index == self.present.own,
                Applied::Nothing => {}
            }
        }
    }

    /// Delivers the messages whose turn has come.
    fn deliver_due(&mut self) {
        while let Some(due) = self.present.pop_due() {
            self.deliver(due.index, &due.record);
        }
    }

    fn deliver(&mut self, index: usize, record: &Bytes) {
        let origin = self.present.streams[index].peer.daemon;
        match Record::decode(record) {
            Some(Record::Data(data)) => self.registry.deliver(origin, record, &data),
            Some(change) => self.registry.change(origin, &change),
            None => {}
        }
        self.present.had_turn(index, sender(record).0);
    }
}

/// The way to the next view.
impl Orderer {
    /// Sends a state to all peers. Until all of them agree, clients' messages wait.
    fn begin_exchange(&mut self, now: Time) {
        let Some(attempt) = self.exchange.begin(now) else {
            return;
        };
        let mut rosters = Vec::new();
        self.clients.rosters(|record| rosters.push(record));
        rosters.iter().for_each(|record| self.send(record));
        let streams = self.present.streams.iter();
        let own = &self.present.streams[self.present.own];
        let state = State {
            incarnation: self.here.incarnation,
            attempt,
            first: own.end.unwrap_or(0),
            rosters: rosters.len() as u16,
            previous: self.present.id,
            peers: self.exchange.peers.clone(),
            arrived: streams.map(Stream::arrived).collect(),
        };
        self.send(&Record::State(state).encode());
    }

    fn handle_state(&mut self, now: Time, origin: DaemonId, sequence: u64, state: State) {
        if let Some(index) = self.present.index(origin) {
            let stream = &mut self.present.streams[index];
            if stream.end.is_none() && !stream.is_cut {
                stream.begin_at(sequence);
                stream.end = Some(sequence);
            }
        }
        let is_peer = self.exchange.peers.iter().any(|p| p.daemon == origin);
        let is_complete = self.exchange.handle_state(origin, sequence, state);
        if self.exchange.take_outdated() || (is_peer && !self.exchange.is_running) || !is_complete {
            self.begin_exchange(now);
        }
    }

    /// Adds a record that another daemon has sent because this one may lack it.
    fn handle_recover(&mut self, bytes: &Bytes, recover: &Recover<'_>) {
        if recover.view != self.present.id {
            return;
        }
        let Some(index) = self.present.index(recover.origin) else {
            return;
        };
        let stream = &mut self.present.streams[index];
        if stream.next() == recover.sequence {
            stream.push(bytes.slice_ref(recover.record));
        }
    }

    /// Enters the next view if all of its daemons are ready for it.
    fn enter_next_view(&mut self, now: Time) {
        if !self.exchange.is_running {
            return;
        }
        let Some(plan) = self.exchange.plan(&self.present) else {
            return;
        };
        if self.exchange.sent_for != Some(plan.id) {
            self.exchange.sent_for = Some(plan.id);
            self.send_missing(&plan);
        }
        let ends = self.present.streams.iter().zip(&plan.ends);
        if ends.into_iter().any(|(stream, end)| stream.next() < *end) {
            return;
        }
        if self.exchange.ready_for != Some(plan.id) {
            if self.has_undeclared() {
                return self.begin_exchange(now);
            }
            self.exchange.set_ready(now, plan.id);
            self.send(&Record::Ready { view: plan.id }.encode());
            self.promise(&plan);
        }
        if !self.exchange.are_ready(plan.id) {
            return;
        }
        self.close_view(&plan);
        self.begin_view(&plan);
        self.marks.begin_view();
        while let Some(record) = self.clients.enter_next() {
            self.send(&record);
        }
        self.exchange.forget(&self.present);
    }

    /// Notes what the daemons of a view rely on once this daemon has said that it is ready for it:
    /// they may deliver, in the end of the present view, all that the plan allows.
    fn promise(&mut self, plan: &Plan) {
        self.exchange.has_promised = true;
        for (index, stream) in self.present.streams.iter_mut().enumerate() {
            let end = plan.ends[index];
            let sound = match plan.stay.contains(&stream.peer.daemon) {
                true => end,
                false => plan.sound[index],
            };
            stream.sound = stream.sound.max(sound);
            if plan.are_complete[index] {
                stream.end.get_or_insert(end);
            }
        }
    }

    /// Returns whether this daemon was ready for another view, whose daemons rely on it to deliver
    /// their messages, and has not told those of the next one.
    fn has_undeclared(&self) -> bool {
        let declared = self.exchange.declared().iter();
        let mut streams = self.present.streams.iter().zip(declared);
        self.exchange.has_promised
            && streams.any(|(stream, declared)| {
                let now = stream.arrived();
                now.sound > declared.sound || now.is_complete != declared.is_complete
            })
    }

    /// Sends those records that others lack and that it is this daemon's turn to send.
    fn send_missing(&mut self, plan: &Plan) {
        let here = self.here.daemon;
        for gap in plan.gaps.iter().filter(|gap| gap.by == here) {
            // A daemon has said that it has what is no longer held, unless it lies.
            let held = &self.present.streams[gap.index];
            let (from, to) = (gap.from.max(held.first()), gap.to.min(held.next()));
            for sequence in from..to {
                let stream = &self.present.streams[gap.index];
                let recover = Recover {
                    view: self.present.id,
                    origin: stream.peer.daemon,
                    sequence,
                    record: stream.record(sequence).map_or(&[], |record| record),
                };
                let recover = Record::Recover(recover).encode();
                self.send(&recover);
            }
        }
    }

    /// Delivers the rest of the present view: what is due in it, then the transitional signal, then
    /// the messages of those that stay, and those of others that depend on nothing that is missing.
    fn close_view(&mut self, plan: &Plan) {
        for (stream, end) in self.present.streams.iter_mut().zip(&plan.ends) {
            stream.truncate(*end);
        }
        for index in 0..self.present.streams.len() {
            self.apply(index);
        }
        self.deliver_due();
        let stays = |daemon: DaemonId| plan.stay.contains(&daemon);
        let others = plan.members.iter().map(|(peer, _)| peer.daemon);
        let sources = &self.exchange.sources;
        let heard = others
            .filter(|daemon| !stays(*daemon))
            .filter_map(|daemon| sources.get(&daemon)?.heard.as_ref());
        let groups = heard.flat_map(|heard| brought(&heard.rosters).map(|(_, _, group)| group));
        let groups = groups.filter(|group| !group.is_empty());
        let is_breaking = plan.stay.len() < self.present.streams.len();
        self.registry
            .begin_end(plan.id, &plan.stay, is_breaking, groups);
        // A message depends on messages of earlier rounds only. Of a daemon that does not stay, and
        // whose stream may go on, messages of the round after the last one that it has closed can
        // be missing.
        let departed = self.present.streams.iter().zip(&plan.are_complete);
        let departed =
            departed.filter(|(stream, is_complete)| !stays(stream.peer.daemon) && !**is_complete);
        let last_sound = departed.map(|(stream, _)| stream.open_round());
        let last_sound = last_sound.min();
        let last_sound = last_sound.unwrap_or(u64::MAX);
        self.present.close();
        let mut dropped = BTreeSet::new();
        while let Some(due) = self.present.pop_due() {
            let stays = stays(self.present.streams[due.index].peer.daemon);
            let is_sound = due.round <= last_sound || due.sequence < plan.sound[due.index];
            let (client, is_ordered) = sender(&due.record);
            // A message without order depends on its client's earlier messages only. Others may
            // have delivered it when it arrived.
            let is_free = !is_ordered && !dropped.contains(&(due.index, client));
            if stays || is_sound || is_free {
                self.deliver(due.index, &due.record);
            } else {
                dropped.insert((due.index, client));
            }
        }
    }

    /// Enters the next view, with what its daemons have sent in it so far.
    fn begin_view(&mut self, plan: &Plan) {
        self.present = Present::new(plan.id, self.here.daemon, &plan.members);
        let mut heard = Vec::new();
        for (index, (peer, _)) in plan.members.iter().enumerate() {
            let Some(source) = self.exchange.sources.get_mut(&peer.daemon) else {
                continue;
            };
            let stream = &mut self.present.streams[index];
            source
                .later
                .drain(..)
                .for_each(|record| stream.push(record));
            if !plan.stay.contains(&peer.daemon) {
                heard.extend(source.heard.take().map(|heard| (peer.daemon, heard)));
            }
        }
        let all = heard.iter().flat_map(|(daemon, heard)| {
            brought(&heard.rosters).map(|(client, name, group)| ((*daemon, client), name, group))
        });
        self.registry.begin_view(all);
        self.exchange.end();
    }
}
