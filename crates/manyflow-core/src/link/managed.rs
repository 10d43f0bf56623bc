//! Links with active queue management or a rate that varies by itself: the queue decides about a
//! packet when it leaves, too.
//!
//! A drop-tail link knows a packet's departure when the packet is pushed. Here it does not: CoDel
//! may drop the packets before it, and fair queueing sends others first. So waiting packets stay in
//! the queue, and the link takes one whenever its transmitter becomes free
//! ([`Link::advance`]). That is an event of its own, and [`Link::next_time`] returns its time.

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::cake::{Cake, CakeConfig};
use super::codel::{CoDel, CoDelConfig};
use super::dualpi2::{DualPi2, DualPi2Config};
use super::fair::mix;
use super::fq_codel::{FqCoDel, FqCoDelConfig};
use super::pace::Pacer;
use super::pie::{Pie, PieConfig};
use super::waiting::{Fifo, Store, Waiting};
use super::{Carried, Dropped, Flow, Item, Link, LinkConfig, QueueLimit};
use crate::time::Time;

/// Active queue management that needs a queue of its own. [`RedConfig`](super::RedConfig) decides
/// when packets arrive, and needs none.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Aqm {
    /// Controlled delay (RFC 8289).
    CoDel(CoDelConfig),
    /// Fair queueing of flows with CoDel (RFC 8290).
    FqCoDel(FqCoDelConfig),
    /// Fair queueing of hosts and their flows with CoDel.
    Cake(CakeConfig),
    /// Proportional integral controller enhanced (RFC 8033).
    Pie(PieConfig),
    /// The coupled dual queue for L4S (RFC 9332).
    DualPi2(DualPi2Config),
}

impl Aqm {
    /// Returns whether packets' flows matter.
    fn keeps_flows(&self) -> bool {
        matches!(self, Aqm::FqCoDel(_) | Aqm::Cake(_))
    }
}

/// The fate of a packet that the link had taken, for a world that stores packets elsewhere.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Fate<T> {
    /// The queue dropped the packet.
    Dropped(T, Dropped),
    /// The queue marked the packet, which will arrive.
    Marked(T),
    /// The wire is going to lose the packet.
    Lost(T),
    /// The packet will arrive twice.
    Doubled(T),
}

#[derive(Debug)]
enum Discipline {
    /// First in, first out: a link with a [`Pace`](super::Pace) and no [`Aqm`].
    Fifo(Fifo),
    CoDel(CoDelConfig, CoDel, Fifo),
    FqCoDel(FqCoDel),
    Cake(Cake),
    Pie(Pie),
    DualPi2(DualPi2),
}

impl Discipline {
    fn new(aqm: Option<Aqm>, seed: u64, now: Time) -> Discipline {
        let Some(aqm) = aqm else {
            return Discipline::Fifo(Fifo::default());
        };
        match aqm {
            Aqm::CoDel(config) => Discipline::CoDel(config, CoDel::default(), Fifo::default()),
            Aqm::FqCoDel(config) => Discipline::FqCoDel(FqCoDel::new(config, seed)),
            Aqm::Cake(config) => Discipline::Cake(Cake::new(config, seed)),
            Aqm::Pie(config) => Discipline::Pie(Pie::new(config, now)),
            Aqm::DualPi2(config) => Discipline::DualPi2(DualPi2::new(config, now)),
        }
    }

    /// Queues a packet, or drops it early.
    fn enqueue<T: Item>(
        &mut self,
        now: Time,
        packet: Waiting<T>,
        store: &mut Store<T>,
        random: &mut Pcg64Mcg,
    ) -> Result<(), Dropped> {
        match self {
            Discipline::Fifo(fifo) | Discipline::CoDel(.., fifo) => store.push(fifo, packet),
            Discipline::FqCoDel(queue) => queue.enqueue(packet, store),
            Discipline::Cake(queue) => queue.enqueue(packet, store),
            Discipline::Pie(queue) => return queue.enqueue(now, packet, store, random),
            Discipline::DualPi2(queue) => queue.enqueue(now, packet, store),
        }
        Ok(())
    }

    /// Removes and returns the next packet, unless the queue drops all.
    fn dequeue<T: Item>(&mut self, now: Time, store: &mut Store<T>) -> Option<Waiting<T>> {
        match self {
            Discipline::Fifo(fifo) => store.pop(now, fifo),
            Discipline::CoDel(config, codel, fifo) => codel.dequeue(config, now, fifo, store),
            Discipline::FqCoDel(queue) => queue.dequeue(now, store),
            Discipline::Cake(queue) => queue.dequeue(now, store),
            Discipline::Pie(queue) => queue.dequeue(now, store),
            Discipline::DualPi2(queue) => queue.dequeue(now, store),
        }
    }

    /// Makes room in a fair queue that is over its limit.
    fn shed<T: Item>(&mut self, now: Time, store: &mut Store<T>) {
        match self {
            Discipline::FqCoDel(queue) => queue.shed(now, store),
            Discipline::Cake(queue) => queue.shed(now, store),
            _ => {}
        }
    }

    /// Removes and returns any packet that no other of its flow precedes.
    fn take<T: Item>(&mut self, now: Time, store: &mut Store<T>) -> Option<Waiting<T>> {
        match self {
            Discipline::Fifo(fifo) | Discipline::CoDel(.., fifo) => store.pop(now, fifo),
            Discipline::FqCoDel(queue) => queue.take(now, store),
            Discipline::Cake(queue) => queue.take(now, store),
            Discipline::Pie(queue) => queue.take(now, store),
            Discipline::DualPi2(queue) => queue.take(now, store),
        }
    }
}

/// The queue of a link with active queue management or a pace. It remains when both are removed.
#[derive(Debug)]
pub(super) struct Managed<T> {
    discipline: Discipline,
    keeps_flows: bool,
    random: Pcg64Mcg,
    store: Store<T>,
    /// The transmitter, if the link has a pace.
    pacer: Option<Pacer>,
}

impl<T: Item> Managed<T> {
    /// Creates an empty queue. A pace began at `began`.
    fn new(config: &LinkConfig, seed: u64, now: Time, began: Time) -> Managed<T> {
        // The link's faults draw from the seed itself.
        let seed = mix(seed);
        Managed {
            discipline: Discipline::new(config.aqm, seed, now),
            keeps_flows: config.aqm.is_some_and(|aqm| aqm.keeps_flows()),
            random: Pcg64Mcg::seed_from_u64(seed),
            store: Store::default(),
            pacer: pacer(config, seed, began),
        }
    }

    /// Returns when the transmitter of a link that was busy until `free_at` is ready for a packet
    /// that comes at `now`.
    #[inline]
    fn ready(&mut self, free_at: Time, now: Time) -> Time {
        match &mut self.pacer {
            Some(pacer) => pacer.begin(now),
            None => free_at.max(now),
        }
    }

    /// Returns the number of waiting packets and their bytes.
    pub(super) fn queued(&self) -> (usize, u64) {
        (self.store.packets() as usize, self.store.bytes())
    }

    /// Returns the sum of the times for which packets have waited until `now`, in nanoseconds.
    pub(super) fn waited(&self, now: Time) -> u64 {
        self.store.waited(now)
    }

    /// Returns the numbers of packets that were dropped and marked.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.store.drops, self.store.marks)
    }

    fn is_over(&self, limit: QueueLimit, packets: u32, bytes: u32) -> bool {
        match limit {
            QueueLimit::Unlimited => false,
            QueueLimit::Packets(most) => self.store.packets() + packets > most,
            QueueLimit::Bytes(most) => self.store.bytes() + u64::from(bytes) > most,
        }
    }

    /// Queues a packet. If there is no room, fair queues drop packets of the longest flow, others
    /// the packet itself.
    fn enqueue(&mut self, now: Time, packet: Waiting<T>, limit: QueueLimit) -> Result<(), Dropped> {
        let refuses = !self.keeps_flows && self.is_over(limit, 1, packet.bytes);
        let queued = match refuses {
            true => Err(Dropped::Full),
            false => self
                .discipline
                .enqueue(now, packet, &mut self.store, &mut self.random),
        };
        self.store.drops += u64::from(queued.is_err());
        while self.keeps_flows && self.is_over(limit, 0, 0) {
            self.discipline.shed(now, &mut self.store);
        }
        queued
    }

    /// Queues a packet of another queue, which may drop it.
    fn move_in(&mut self, now: Time, packet: Waiting<T>) {
        let item = packet.item.clone();
        let queued = self.enqueue(now, packet, QueueLimit::Unlimited);
        if let Err(why) = queued
            && T::IS_STORED
        {
            self.store.fates.push_back(Fate::Dropped(item, why));
        }
    }

    /// Returns the time at which the next packet is taken, if the transmitter is free from
    /// `free_at` on.
    pub(super) fn next_time(&self, free_at: Time) -> Option<Time> {
        (self.store.packets() > 0).then_some(free_at)
    }
}

impl<T: Item> Link<T> {
    /// Returns the managed queue of a link that has had the same configuration since time 0, or
    /// has one already.
    #[inline]
    fn managed(&mut self, now: Time) -> &mut Managed<T> {
        let (config, seed) = (&self.config, self.seed);
        let make = || Box::new(Managed::new(config, seed, now, Time::ZERO));
        self.managed.get_or_insert_with(make)
    }

    /// Returns the time from which the transmitter has nothing to send, if no packet waits.
    fn idle_from(&self) -> Time {
        let pacer = self.managed.as_ref().and_then(|all| all.pacer.as_ref());
        pacer.map_or(self.free_at, Pacer::idle_from)
    }

    /// Returns the bytes that full packets of 1,500 bytes could have taken of the opportunities of
    /// the link's [`Pace`](super::Pace) until `now`. `None` if it has no opportunities.
    pub fn offered_bytes(&mut self, now: Time) -> Option<u64> {
        self.config.pace.as_ref()?;
        self.advance(now);
        self.managed(now).pacer.as_mut()?.offered_bytes(now)
    }

    /// Hands a packet to a link with a managed queue.
    pub(super) fn push_managed(
        &mut self,
        now: Time,
        mut item: impl Carried + Into<T>,
        bytes: u32,
    ) -> Result<u32, Dropped> {
        if self.config.red.is_some() || self.config.xcp.is_some() {
            self.judge(now, &mut item, bytes)?;
        }
        let (free_at, limit) = (self.free_at, self.config.queue);
        let managed = self.managed(now);
        let free_at = managed.ready(free_at, now);
        // The packet in transmission does not count towards the limit, so a packet that need not
        // wait has room.
        let limit = match free_at <= now {
            true => QueueLimit::Unlimited,
            false => limit,
        };
        let packet = Waiting {
            bytes,
            entered: now,
            flow: match managed.keeps_flows {
                true => item.flow(),
                false => Flow::default(),
            },
            is_ecn_capable: item.is_ecn_capable(),
            is_l4s: item.is_l4s(),
            is_marked: false,
            item: item.into(),
        };
        let queued = managed.enqueue(now, packet, limit);
        self.free_at = free_at;
        queued?;
        self.advance(now);
        self.check_counters();
        Ok(1)
    }

    /// Begins the transmissions that are due by `now`, on a link with an [`Aqm`] or a
    /// [`Pace`](super::Pace).
    #[inline]
    pub fn advance(&mut self, now: Time) {
        if self.managed.is_some() {
            self.advance_managed(now);
        }
    }

    fn advance_managed(&mut self, now: Time) {
        while self.free_at <= now
            && let Some(managed) = &mut self.managed
            && managed.store.packets() > 0
        {
            let begins = self.free_at;
            if let Some(packet) = managed.discipline.dequeue(begins, &mut managed.store) {
                self.transmit(packet);
            }
        }
    }

    /// Transmits a packet from now on, when the transmitter is free.
    fn transmit(&mut self, packet: Waiting<T>) {
        let (mut item, bytes) = (packet.item, packet.bytes);
        if packet.is_marked {
            item.set_mark();
            self.tell(|| Fate::Marked(item.clone()));
        }
        let sent = self.occupy(bytes);
        if !T::IS_STORED {
            self.put_on_wire(sent, item, bytes);
            return;
        }
        match self.put_on_wire(sent, item.clone(), bytes) {
            0 => self.tell(|| Fate::Lost(item)),
            1 => {}
            _ => self.tell(|| Fate::Doubled(item)),
        }
    }

    /// Occupies the transmitter with a packet when it is free. Returns when the packet has been
    /// sent, or reaches the wire if the pace delays it further.
    #[inline]
    pub(super) fn occupy(&mut self, bytes: u32) -> Time {
        let begins = self.free_at;
        let pacer = self.managed.as_mut().and_then(|all| all.pacer.as_mut());
        let Some(pacer) = pacer else {
            self.free_at = self.transmitted(begins, bytes);
            return self.free_at;
        };
        let sent = pacer.carry(begins, bytes);
        self.free_at = sent.ready;
        sent.at + sent.delay
    }

    fn tell(&mut self, fate: impl FnOnce() -> Fate<T>) {
        if let Some(managed) = &mut self.managed
            && T::IS_STORED
        {
            managed.store.fates.push_back(fate());
        }
    }

    /// Returns whether [`pop_fate`](Link::pop_fate) has a fate.
    #[inline]
    pub fn has_fates(&self) -> bool {
        let managed = self.managed.as_deref();
        managed.is_some_and(|managed| !managed.store.fates.is_empty())
    }

    /// Removes and returns the next fate of a packet that the link had taken. Only worlds that
    /// [store](Item::IS_STORED) packets get any; they take them after each call that can have
    /// moved packets, and before they use a packet that has arrived.
    #[inline]
    pub fn pop_fate(&mut self) -> Option<Fate<T>> {
        self.managed.as_mut()?.store.fates.pop_front()
    }

    /// Removes and returns all packets that wait in the managed queue. Those of one flow are in
    /// their order.
    pub(super) fn take_managed(&mut self, now: Time) -> Vec<Waiting<T>> {
        let Some(managed) = &mut self.managed else {
            return Vec::new();
        };
        let store = &mut managed.store;
        core::iter::from_fn(|| managed.discipline.take(now, store)).collect()
    }

    /// Ends the transmission of a packet that was lost.
    pub(super) fn stop_transmission(&mut self, now: Time) {
        let pacer = self.managed.as_mut().and_then(|all| all.pacer.as_mut());
        if let Some(pacer) = pacer {
            pacer.stop(now);
        }
    }

    /// Adopts another pace, or none, after the configuration has changed. A packet in transmission
    /// continues as it began.
    pub(super) fn adopt_pace(&mut self, now: Time) {
        let busy_until = self.idle_from().max(now);
        let (config, seed) = (&self.config, self.seed);
        match &mut self.managed {
            Some(managed) => managed.pacer = pacer(config, mix(seed), now),
            None => self.managed = Some(Box::new(Managed::new(config, seed, now, now))),
        }
        let managed = self.managed(now);
        self.free_at = managed.ready(busy_until, busy_until);
    }

    /// Adopts new management after the configuration has changed. Waiting packets move to the new
    /// queue, in which their time begins again; without management they are transmitted in turn.
    pub(super) fn adopt_management(&mut self, now: Time) {
        let waiting = self.take_managed(now);
        if self.config.aqm.is_none() && self.config.pace.is_none() {
            self.free_at = self.free_at.max(now);
            for packet in waiting {
                let begins = self.free_at;
                self.extras().wait(now, begins, packet.bytes);
                self.transmit(packet);
            }
            return;
        }
        let Some(managed) = &mut self.managed else {
            return;
        };
        let aqm = self.config.aqm;
        managed.discipline = Discipline::new(aqm, mix(self.seed), now);
        managed.keeps_flows = aqm.is_some_and(|aqm| aqm.keeps_flows());
        for packet in waiting {
            let entered = now;
            managed.move_in(now, Waiting { entered, ..packet });
        }
    }
}

/// Returns the transmitter of a link with a pace. `seed` is that of the link's managed queue.
fn pacer(config: &LinkConfig, seed: u64, began: Time) -> Option<Pacer> {
    let pace = config.pace.as_ref()?;
    Some(Pacer::new(pace, mix(!seed), began))
}
