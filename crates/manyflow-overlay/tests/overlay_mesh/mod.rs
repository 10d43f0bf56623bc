//! Five daemons with clients that connect and disconnect at random. A frame takes 2 milliseconds on
//! a link. Links of datagrams lose one frame in a hundred.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use manyflow_core::{Ecn, Length, Time};
use manyflow_overlay::Event;
use manyflow_overlay::controller::{Audience, Controller, Request, Site};
use manyflow_overlay::hop::{DatagramHop, Hop, StreamHop};
use manyflow_overlay::{
    ClientFrame, ClientId, Control, Daemon, DaemonId, Data, Frame, GroupId, LinkId, LinkKind,
    OverlayConfig, Topology, Transmit,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

pub(crate) const DAEMONS: usize = 5;
const LINKS: [(u16, u16); 4] = [(0, 1), (1, 2), (2, 3), (1, 4)];
const GROUPS: u32 = 3;
/// The time between two changes.
const STEP: Duration = Duration::from_millis(5);
const DELAY: Duration = Duration::from_millis(2);

/// A controller that the test can read as well.
#[derive(Debug)]
pub(crate) struct Shared<C>(Arc<Mutex<C>>);

impl<C> Shared<C> {
    pub(crate) fn new(controller: C) -> Shared<C> {
        Shared(Arc::new(Mutex::new(controller)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, C> {
        self.0.lock().unwrap()
    }
}

impl<C> Clone for Shared<C> {
    fn clone(&self) -> Shared<C> {
        Shared(Arc::clone(&self.0))
    }
}

impl<C: Controller> Controller for Shared<C> {
    fn add_client(&mut self, now: Time, client: ClientId, priority: f64) {
        self.lock().add_client(now, client, priority);
    }
    fn remove_client(&mut self, now: Time, client: ClientId) {
        self.lock().remove_client(now, client);
    }
    fn try_admit(&mut self, now: Time, request: &Request, site: &Site) -> bool {
        self.lock().try_admit(now, request, site)
    }
    fn on_sent(&mut self, now: Time, data: &Data, bytes: u32, site: &Site) {
        self.lock().on_sent(now, data, bytes, site);
    }
    fn on_queue(&mut self, now: Time, link: LinkId, messages: usize) {
        self.lock().on_queue(now, link, messages);
    }
    fn on_arrival(&mut self, now: Time, origin: DaemonId, data: &Data, repaired: bool, bytes: u32) {
        let mut controller = self.lock();
        controller.on_arrival(now, origin, data, repaired, bytes);
    }
    fn on_control(&mut self, now: Time, from: DaemonId, control: &Control, site: &Site) {
        self.lock().on_control(now, from, control, site);
    }
    fn on_membership(&mut self, now: Time, group: GroupId, site: &Site) {
        self.lock().on_membership(now, group, site);
    }
    fn handle_timeout(&mut self, now: Time, site: &Site) {
        self.lock().handle_timeout(now, site);
    }
    fn poll_timeout(&self) -> Option<Time> {
        self.lock().poll_timeout()
    }
    fn poll_ready(&mut self) -> Option<ClientId> {
        self.lock().poll_ready()
    }
    fn poll_control(&mut self) -> Option<(Audience, Control)> {
        self.lock().poll_control()
    }
    fn poll_event(&mut self) -> Option<Event> {
        self.lock().poll_event()
    }
}

pub(crate) struct Mesh {
    now: Time,
    pub(crate) daemons: Vec<Daemon<Length>>,
    /// Frames in transit, by arrival time.
    frames: BTreeMap<(Time, u64), (DaemonId, DaemonId, Frame, Length)>,
    count: u64,
    lossy: bool,
    /// Clients that connect and disconnect.
    visitors: Vec<(usize, ClientId)>,
    /// Permanent senders, with the number of their accepted messages.
    senders: Vec<(usize, ClientId, u32)>,
    random: Pcg64Mcg,
}

impl Mesh {
    pub(crate) fn new<C: Controller + 'static>(links: LinkKind, controllers: &[Shared<C>]) -> Mesh {
        let ends = LINKS.map(|(a, b)| (DaemonId(a), DaemonId(b), 1));
        let topology = Arc::new(Topology::new(DAEMONS, &ends).unwrap());
        let config = OverlayConfig::default();
        let daemon = |(here, controller): (u16, &Shared<C>)| {
            let neighbours = topology.neighbours(DaemonId(here)).iter();
            let hops = neighbours.map(|(end, _)| -> Box<dyn Hop<Length>> {
                match &links {
                    LinkKind::Streams(tcp) => {
                        Box::new(StreamHop::new(tcp.clone(), end.0.into()).unwrap())
                    }
                    LinkKind::Datagrams => Box::new(DatagramHop::new()),
                }
            });
            let (config, topology) = (config.clone(), topology.clone());
            let controller = Box::new(controller.clone());
            Daemon::new(config, controller, DaemonId(here), topology, hops.collect()).unwrap()
        };
        Mesh {
            now: Time::ZERO,
            daemons: (0..).zip(controllers).map(daemon).collect(),
            frames: BTreeMap::new(),
            count: 0,
            lossy: matches!(links, LinkKind::Datagrams),
            visitors: Vec::new(),
            senders: Vec::new(),
            random: Pcg64Mcg::seed_from_u64(1),
        }
    }

    fn handle_client(&mut self, at: usize, client: ClientId, frame: ClientFrame) {
        self.daemons[at].handle_client(self.now, client, &frame, Length(500));
        self.drain(at);
    }

    fn any_group(&mut self) -> GroupId {
        GroupId(self.random.random_range(0..GROUPS))
    }

    fn send(&mut self, at: usize, client: ClientId) {
        let group = self.any_group();
        self.handle_client(at, client, ClientFrame::Send { group, sent_us: 0 });
    }

    pub(crate) fn add_sender(&mut self, at: usize) {
        let client = self.daemons[at].connect(self.now, 100);
        self.senders.push((at, client, 0));
        self.send(at, client);
    }

    /// Returns the number of accepted messages of each permanent sender.
    pub(crate) fn senders(&self) -> Vec<u32> {
        self.senders.iter().map(|(.., taken)| *taken).collect()
    }

    /// Connects or disconnects a random client, or lets it join or leave a group.
    pub(crate) fn change(&mut self) {
        let at = self.random.random_range(0..DAEMONS);
        let visitor =
            (!self.visitors.is_empty()).then(|| self.random.random_range(0..self.visitors.len()));
        let group = self.any_group();
        match (self.random.random_range(0..10), visitor) {
            (0..2, _) if self.visitors.len() < 30 => {
                let client = self.daemons[at].connect(self.now, 100);
                self.visitors.push((at, client));
                self.send(at, client);
            }
            (0..3, Some(place)) => {
                let (at, client) = self.visitors.swap_remove(place);
                self.handle_client(at, client, ClientFrame::Disconnect);
            }
            (3..7, Some(place)) => {
                let (at, client) = self.visitors[place];
                self.handle_client(at, client, ClientFrame::Join(group));
            }
            (_, Some(place)) => {
                let (at, client) = self.visitors[place];
                self.handle_client(at, client, ClientFrame::Leave(group));
            }
            (_, None) => {}
        }
    }

    /// Disconnects all clients, and runs until everything in transit has arrived.
    pub(crate) fn end(&mut self) {
        let senders = self.senders.drain(..).map(|(at, client, _)| (at, client));
        let all: Vec<_> = senders.chain(self.visitors.drain(..)).collect();
        for (at, client) in all {
            self.handle_client(at, client, ClientFrame::Disconnect);
        }
        (0..12_000).for_each(|_| self.run());
    }

    /// Runs until the next change. Each permanent sender offers a message first.
    pub(crate) fn run(&mut self) {
        for place in 0..self.senders.len() {
            let (at, client, _) = self.senders[place];
            self.send(at, client);
        }
        let end = self.now + STEP;
        loop {
            let timers = self.daemons.iter().filter_map(Daemon::poll_timeout);
            let arrival = self.frames.first_key_value().map(|(key, _)| key.0);
            let next = timers.chain(arrival).min().filter(|next| *next <= end);
            let Some(next) = next else {
                break;
            };
            self.now = self.now.max(next);
            self.arrive();
            for at in 0..DAEMONS {
                if self.daemons[at]
                    .poll_timeout()
                    .is_some_and(|due| due <= self.now)
                {
                    self.daemons[at].handle_timeout(self.now);
                    self.drain(at);
                }
            }
        }
        self.now = end;
    }

    fn arrive(&mut self) {
        while let Some(entry) = self.frames.first_entry()
            && entry.key().0 <= self.now
        {
            let (from, to, frame, payload) = entry.remove();
            let at = usize::from(to.0);
            self.daemons[at].handle_frame(self.now, from, &frame, Ecn::NotCapable, payload);
            self.drain(at);
        }
    }

    fn drain(&mut self, at: usize) {
        let here = DaemonId(at as u16);
        while let Some(transmit) = self.daemons[at].poll_transmit() {
            match transmit {
                Transmit::Daemon(to, frame, payload) => {
                    if self.lossy && self.random.random_bool(0.01) {
                        continue;
                    }
                    self.count += 1;
                    let key = (self.now + DELAY, self.count);
                    self.frames.insert(key, (here, to, frame, payload));
                }
                Transmit::Client(client, ClientFrame::Deliver { .. }, _) => {
                    let took = ClientFrame::Took { messages: 1 };
                    self.daemons[at].handle_client(self.now, client, &took, Length(0));
                }
                Transmit::Client(client, ClientFrame::Ready, _) => self.on_ready(at, client),
                Transmit::Client(..) => {}
            }
        }
        while self.daemons[at].poll_event().is_some() {}
    }

    /// Counts an accepted message of a permanent sender.
    fn on_ready(&mut self, at: usize, client: ClientId) {
        let known = self
            .senders
            .iter_mut()
            .find(|known| (known.0, known.1) == (at, client));
        if let Some((.., taken)) = known {
            *taken += 1;
        }
    }
}
