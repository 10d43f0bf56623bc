//! Runs windows, and makes changes between them.

use core::mem::take;
use core::ops::DerefMut;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use manyflow_core::{EndpointId, Header, Time};

use super::border::Cargo;
use super::log::Handled;
use super::merge::merge;
use super::threads::{Crew, lock};
use super::{Drive, FINAL, Parallel, Part};
use crate::engine::events::Due;
use crate::engine::{Change, Halt, Incident, LinkId, Network, Observer};

impl<H: Header, E: Clone + Send> Network<H, E> {
    /// Handles all events by `end` on several threads, if the network can be divided.
    pub(super) fn run_in_parts(
        &mut self,
        end: Time,
        observer: &mut dyn Observer<H, E>,
    ) -> Result<(), Halt> {
        self.pairs = None;
        let drive = self.drive.expect("several threads run the network");
        if self.parallel.is_none() && !self.divide(drive.threads) {
            self.drive = None;
            return self.run_until(end, observer);
        }
        let mut parallel = self.parallel.take().expect("the network is divided");
        let ended = self.run_windows(drive, &mut parallel, end, observer);
        self.parallel = Some(parallel);
        self.now = self.now.max(end);
        ended
    }

    fn run_windows(
        &mut self,
        drive: Drive<H, E>,
        parallel: &mut Parallel<H, E>,
        end: Time,
        observer: &mut dyn Observer<H, E>,
    ) -> Result<(), Halt> {
        let parts: Vec<_> = take(&mut parallel.parts)
            .into_iter()
            .map(Mutex::new)
            .collect();
        let crew = Crew::new(&parts);
        let ended = thread::scope(|scope| {
            let mut dismissal = None;
            loop {
                let mut locked: Vec<_> = parts.iter().map(lock).collect();
                let Some(last) = self.next_window(parallel, &mut locked, end, observer) else {
                    locked.iter_mut().for_each(|part| part.settle());
                    return Ok(());
                };
                if parallel.number > drive.number_max {
                    parallel.renumber(&mut locked);
                }
                parallel.begin(&mut locked, last, self.limits.carried_max)?;
                if parallel.events < drive.events_min * parts.len() as u64 {
                    locked.iter_mut().for_each(|part| part.run());
                } else {
                    drop(locked);
                    crew.run(dismissal.get_or_insert_with(|| crew.start(scope)));
                    locked = parts.iter().map(lock).collect();
                }
                if locked.iter().any(|part| part.is_over) {
                    return Err(match self.limits.stop.is_requested() {
                        true => Halt::Stopped,
                        false => Halt::OneThread("it comes near a limit"),
                    });
                }
                parallel.end(&mut locked, observer);
            }
        });
        drop(crew);
        let unlocked = parts.into_iter().map(Mutex::into_inner);
        parallel.parts = unlocked
            .map(|part| part.unwrap_or_else(PoisonError::into_inner))
            .collect();
        ended
    }

    /// Makes the changes that come first. Returns the last time of the next window, or `None` if
    /// nothing more is due by `end`.
    fn next_window(
        &mut self,
        parallel: &mut Parallel<H, E>,
        parts: &mut [MutexGuard<'_, Part<H, E>>],
        end: Time,
        observer: &mut dyn Observer<H, E>,
    ) -> Option<Time> {
        loop {
            let next = parts.iter_mut().map(|part| part.next_time()).min()?;
            let change = self.events.next_time().unwrap_or(Time::MAX);
            if next.min(change) > end || next.min(change) == Time::MAX {
                return None;
            }
            if change <= next {
                self.now = change;
                self.make_change(parallel, parts, observer);
                continue;
            }
            let nanosecond = Duration::from_nanos(1);
            let before = |time: Time| Time::from_nanos(time.as_nanos() - 1);
            self.now = next;
            let last = (next + (parallel.lookahead - nanosecond)).min(end);
            return Some(match change {
                Time::MAX => last,
                _ => last.min(before(change)),
            });
        }
    }

    /// Makes the next change.
    fn make_change(
        &mut self,
        parallel: &mut Parallel<H, E>,
        parts: &mut [MutexGuard<'_, Part<H, E>>],
        observer: &mut dyn Observer<H, E>,
    ) {
        let Some((now, Due::Change(index))) = self.events.pop_until(self.now) else {
            return;
        };
        let change = self.changes[index as usize].clone();
        self.free_changes.push(index);
        self.report(&Incident::Changed(&change), observer);
        if let Change::Configure(link, config) = &change {
            parallel.note_delay(parts, *link, config.delay);
        }
        let (Change::Configure(link, _) | Change::Cut(link, _)) = change;
        let (part, index) = parallel.map.link(link);
        let change = match change {
            Change::Configure(_, config) => Change::Configure(LinkId(index), config),
            Change::Cut(_, cut) => Change::Cut(LinkId(index), cut),
        };
        parallel.act(parts, part, now, observer, |network, log| {
            network.apply(change, log);
        });
    }

    /// Handles an endpoint that was changed from outside.
    pub(super) fn wake_in_part(&mut self, endpoint: EndpointId, observer: &mut dyn Observer<H, E>) {
        let Some(mut parallel) = self.parallel.take() else {
            return;
        };
        let mut parts = take(&mut parallel.parts);
        let mut all: Vec<_> = parts.iter_mut().collect();
        let (part, index) = parallel.map.endpoint(endpoint);
        parallel.act(&mut all, part, self.now, observer, |network, log| {
            network.wake(EndpointId(index), log);
        });
        all.iter_mut().for_each(|part| part.settle());
        parallel.parts = parts;
        self.parallel = Some(parallel);
    }
}

impl<H: Header, E: Clone> Parallel<H, E> {
    /// Lets one part do something at a time at which no part runs. Its numbers are final at once.
    fn act(
        &mut self,
        parts: &mut [impl DerefMut<Target = Part<H, E>>],
        place: usize,
        now: Time,
        observer: &mut dyn Observer<H, E>,
        act: impl FnOnce(&mut Network<H, E>, &mut dyn Observer<H, E>),
    ) {
        parts.iter_mut().for_each(|part| part.settle());
        let part = &mut *parts[place];
        part.network.advance_to(now);
        part.network.events.begin_window(Time::MAX, self.number);
        act(&mut part.network, &mut part.log);
        self.number = part.network.events.sequence();
        for call in take(&mut part.log.calls) {
            call.make(now, part.border(), observer);
        }
        self.exchange(parts);
    }

    /// Prepares the next window.
    ///
    /// # Errors
    /// Returns an error if the links carry too many packets.
    fn begin(
        &mut self,
        parts: &mut [MutexGuard<'_, Part<H, E>>],
        last: Time,
        carried_max: u64,
    ) -> Result<(), Halt> {
        let carried = parts.iter().map(|part| part.network.limits.carried);
        let room = carried_max.checked_sub(carried.sum());
        let room = room.ok_or(Halt::OneThread("its links carry too many packets"))?;
        let share = room / parts.len() as u64;
        for part in parts {
            part.window = (last, self.number);
            part.log.events = 0;
            let limits = &mut part.network.limits;
            limits.carried_max = limits.carried + share;
        }
        Ok(())
    }

    /// Ends a window: gives events their final numbers, calls observers, and delivers what goes
    /// from part to part.
    fn end(&mut self, parts: &mut [MutexGuard<'_, Part<H, E>>], observer: &mut dyn Observer<H, E>) {
        self.number = merge(parts, observer);
        self.exchange(parts);
        let events = parts.iter().map(|part| part.log.events);
        self.events = events.clone().sum();
        self.counts.windows += 1;
        self.counts.events += self.events;
        self.counts.longest += events.max().unwrap_or(0);
    }

    /// Delivers what the parts have sent to each other.
    fn exchange(&mut self, parts: &mut [impl DerefMut<Target = Part<H, E>>]) {
        for from in 0..parts.len() {
            for to in 0..parts.len() {
                let mut sent = take(&mut parts[from].border_mut().outboxes[to]);
                let mut packets = 0;
                let mut first = Time::MAX;
                for crossing in &mut sent {
                    crossing.number = parts[from].number(crossing.number);
                    packets += u64::from(matches!(crossing.cargo, Cargo::Packet(..)));
                    first = first.min(crossing.time);
                }
                self.counts.crossings += sent.len() as u64;
                parts[from].network.limits.carried -= packets;
                let part = &mut *parts[to];
                part.network.limits.carried += packets;
                part.inbox_from = part.inbox_from.min(first);
                part.inbox.append(&mut sent);
                // The memory is used again.
                parts[from].border_mut().outboxes[to] = sent;
            }
        }
    }

    /// Keeps routes as they are when a delay changes: one thread computes the routes to a
    /// destination once, when the first packet goes there.
    fn note_delay(
        &mut self,
        parts: &mut [MutexGuard<'_, Part<H, E>>],
        link: LinkId,
        delay: Duration,
    ) {
        let delay = delay.as_nanos() as u64;
        if self.graph.links[link.0 as usize].1 == delay {
            return;
        }
        for to in 0..parts[0].network.routes.len() {
            let is_known = parts.iter().any(|part| !part.network.routes[to].is_empty());
            for part in parts.iter_mut().filter(|_| is_known) {
                if part.network.routes[to].is_empty() {
                    let node = crate::engine::NodeId(to as u32);
                    part.network.routes[to] = part.border().routes_to(node);
                }
            }
        }
        let graph = Arc::make_mut(&mut self.graph);
        graph.links[link.0 as usize].1 = delay;
        for part in parts {
            part.border_mut().graph = Arc::clone(&self.graph);
        }
    }

    /// Numbers all that is pending from 1, in the same order.
    fn renumber(&mut self, parts: &mut [MutexGuard<'_, Part<H, E>>]) {
        let mut numbers = Vec::new();
        for part in parts.iter_mut() {
            part.settle();
            part.network.events.for_each_number(|number| {
                numbers.push(number);
                number
            });
            let arrivals = part.border().arrivals.iter();
            numbers.extend(arrivals.map(|arrivals| arrivals.last));
        }
        numbers.sort_unstable();
        numbers.dedup();
        let place = |number| numbers.partition_point(|other| *other <= number) as u32;
        for part in parts.iter_mut() {
            part.network.events.for_each_number(place);
            for arrivals in &mut part.border_mut().arrivals {
                arrivals.last = place(arrivals.last);
            }
        }
        self.number = numbers.len() as u32;
    }
}

impl<H: Header, E> Part<H, E> {
    /// Returns the time of the next event.
    pub(super) fn next_time(&mut self) -> Time {
        self.network.events.next_time_of_all().min(self.inbox_from)
    }

    /// Gives the events of the last window their final numbers, and takes what has arrived from
    /// other parts.
    pub(super) fn settle(&mut self) {
        let numbers = take(&mut self.numbers);
        let first = self.base.wrapping_add(1);
        let settled = |number: u32| match number.checked_sub(first) {
            Some(place) => numbers[place as usize],
            None => number,
        };
        self.network.events.add_deferred(settled);
        let border = self.border_mut();
        for place in take(&mut border.reserved) {
            let last = &mut border.arrivals[place as usize].last;
            *last = settled(*last);
        }
        (self.numbers, self.base) = (numbers, FINAL);
        self.network.import(&mut self.inbox);
        self.inbox_from = Time::MAX;
    }
}

impl<H: Header, E: Clone> Part<H, E> {
    /// Handles the events of the current window.
    pub(super) fn run(&mut self) {
        self.settle();
        let (last, base) = self.window;
        self.base = base;
        let Part { network, log, .. } = self;
        network.events.begin_window(last, base);
        let (mut taken, mut calls) = (base, 0);
        while let Some(key) = network.events.pop_key(last) {
            let time = key.time();
            network.advance_to(time);
            network.handle(key.due(), log);
            log.events += 1;
            if !network.limits.hold() {
                self.is_over = true;
                return;
            }
            let now_taken = network.events.sequence();
            if now_taken > taken || log.calls.len() > calls {
                (taken, calls) = (now_taken, log.calls.len());
                log.handled.push(Handled {
                    time,
                    number: key.number(),
                    taken,
                    calls: calls as u32,
                });
            }
        }
    }
}

impl<H, E> Network<H, E> {
    /// Lets time pass until an event.
    fn advance_to(&mut self, time: Time) {
        debug_assert!(time >= self.now, "time never goes back");
        if time > self.now {
            self.now = time;
            self.limits.steps = 0;
        }
    }
}
