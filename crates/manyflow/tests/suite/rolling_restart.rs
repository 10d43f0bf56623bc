//! Three daemons under load that are restarted one after the other, as processes on loopback.
//!
//! A message counts as sent when a PING behind it has been answered; otherwise its publisher sends
//! it again at another daemon. A member that learns that its daemon stops subscribes at another
//! one, and leaves the first one when it has all messages that had been published until then. Then
//! each member gets every message.
//!
//! The number of the first message at the new daemon does not show when a member may leave: a
//! message that its publisher has sent at one daemon can overtake those that it sent before at
//! another one.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::attack::overlay::{Daemon, Nats, OPEN, Overlay};
use crate::common::{LIMIT, wait_until};
use crate::overlay_deaths::{Census, three_daemons};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// The messages of each publisher while a daemon serves, at least.
const LOAD: u32 = 30;

/// The addresses of the daemons for clients.
type Addresses = [SocketAddr; 3];

/// The publishers' progress.
#[derive(Default)]
struct Progress {
    /// For each publisher, the number of messages that it has begun to publish.
    begun: [AtomicU32; 3],
    is_done: AtomicBool,
}

impl Progress {
    fn begun(&self) -> [u32; 3] {
        self.begun
            .each_ref()
            .map(|begun| begun.load(Ordering::SeqCst))
    }

    /// Waits until each publisher has begun with `LOAD` further messages.
    fn wait_for_load(&self) {
        let before = self.begun();
        wait_until("each publisher publishes", || {
            let pairs = self.begun().into_iter().zip(before);
            pairs.into_iter().all(|(now, before)| now >= before + LOAD)
        });
    }
}

/// Connects to the first daemon behind a place that accepts clients. Returns its place.
fn connect_behind(addresses: &Addresses, place: usize) -> (Nats, usize) {
    let start = Instant::now();
    let mut places = (place + 1..).map(|place| place % addresses.len());
    loop {
        assert!(start.elapsed() < LIMIT, "no daemon accepts clients");
        let place = places.next().unwrap();
        if let Some(connection) = Nats::try_connect(addresses[place], OPEN) {
            return (connection, place);
        }
    }
}

fn says_that_the_daemon_stops(line: &str) -> bool {
    line.starts_with("INFO ") && line.contains("\"ldm\":true")
}

/// A client that publishes its number and the numbers of its messages.
struct Publisher {
    name: usize,
    addresses: Addresses,
    place: usize,
    connection: Nats,
    repeated: u32,
}

impl Publisher {
    fn connect(name: usize, addresses: Addresses) -> Publisher {
        Publisher {
            name,
            addresses,
            place: name,
            connection: Nats::connect(addresses[name], OPEN),
            repeated: 0,
        }
    }

    fn move_on(&mut self) {
        (self.connection, self.place) = connect_behind(&self.addresses, self.place);
    }

    /// Publishes a message until the daemon has answered a PING behind it.
    fn publish(&mut self, payload: &str) {
        loop {
            let length = payload.len();
            self.connection
                .send(format!("PUB load {length}\r\n{payload}\r\nPING\r\n"));
            let mut must_move = false;
            loop {
                match self.connection.line().as_str() {
                    "PONG" if must_move => return self.move_on(),
                    "PONG" => return,
                    "" => break,
                    line => must_move |= says_that_the_daemon_stops(line),
                }
            }
            self.repeated += 1;
            self.move_on();
        }
    }

    /// Publishes until this is done, and then the end. Returns the number of messages, and of those
    /// that it repeated.
    fn run(mut self, progress: &Progress) -> (u32, u32) {
        let begun = &progress.begun[self.name];
        while !progress.is_done.load(Ordering::SeqCst) {
            let number = begun.fetch_add(1, Ordering::SeqCst);
            self.publish(&format!("{} {number} -", self.name));
            std::thread::sleep(Duration::from_millis(1));
        }
        let number = begun.fetch_add(1, Ordering::SeqCst);
        self.publish(&format!("{} {number} end", self.name));
        (number + 1, self.repeated)
    }
}

/// The messages of each publisher, and the number of its last one.
#[derive(Default)]
struct Seen {
    numbers: [BTreeSet<u32>; 3],
    ends: [Option<u32>; 3],
}

impl Seen {
    fn add(&mut self, payload: &[u8]) {
        let text = String::from_utf8_lossy(payload);
        let words: Vec<_> = text.split(' ').collect();
        let publisher: usize = words[0].parse().unwrap();
        let number: u32 = words[1].parse().unwrap();
        self.numbers[publisher].insert(number);
        if words[2] == "end" {
            self.ends[publisher] = Some(number);
        }
    }

    /// Returns the messages of each publisher below these numbers that are not here.
    fn missing_below(&self, ends: [u32; 3]) -> [Vec<u32>; 3] {
        [0, 1, 2].map(|publisher| {
            let is_missing = |number: &u32| !self.numbers[publisher].contains(number);
            (0..ends[publisher]).filter(is_missing).collect()
        })
    }

    fn is_complete(&self) -> bool {
        let are_known = self.ends.iter().all(Option::is_some);
        are_known && self.has_all_below(self.ends.map(|end| end.unwrap_or(0)))
    }

    fn has_all_below(&self, ends: [u32; 3]) -> bool {
        let mut all = self.numbers.iter().zip(ends);
        all.all(|(numbers, end)| numbers.range(..end).count() == end as usize)
    }
}

/// A member of the group, which has seen the messages from the first one on.
struct Member {
    addresses: Addresses,
    place: usize,
    connection: Nats,
    seen: Seen,
    progress: Arc<Progress>,
}

fn subscribe(connection: &mut Nats) {
    connection.send("SUB load 1\r\nPING\r\n");
    // INFO may come between.
    while connection.line() != "PONG" {}
}

impl Member {
    fn join(place: usize, addresses: Addresses, progress: &Arc<Progress>) -> Member {
        let mut connection = Nats::connect(addresses[place], OPEN);
        subscribe(&mut connection);
        Member {
            addresses,
            place,
            connection,
            seen: Seen::default(),
            progress: Arc::clone(progress),
        }
    }

    /// Handles a line of the present connection. Returns false at the end.
    fn handle(&mut self, line: String) -> bool {
        if line.starts_with("MSG ") {
            let (_, payload) = self.connection.payload_of(line);
            self.seen.add(&payload);
            return true;
        }
        assert!(line.is_empty() || line.starts_with("INFO "), "{line}");
        !line.is_empty()
    }

    /// Subscribes at another daemon, and leaves this one when all messages are here that had been
    /// begun until then. That daemon gets the others, because all know a member there.
    fn move_on(&mut self) {
        let (mut next, place) = connect_behind(&self.addresses, self.place);
        subscribe(&mut next);
        let begun = self.progress.begun();
        while !self.seen.has_all_below(begun) {
            let line = self.connection.try_line().unwrap_or_default();
            let missing = || self.seen.missing_below(begun);
            assert!(
                !line.is_empty(),
                "daemon {} sends nothing: {:?} are missing",
                self.place,
                missing()
            );
            self.handle(line);
        }
        (self.connection, self.place) = (next, place);
    }

    /// Reads until all messages are here.
    fn run(mut self) {
        while !self.seen.is_complete() {
            let line = self.connection.line();
            match says_that_the_daemon_stops(&line) {
                true => self.move_on(),
                false => assert!(
                    self.handle(line),
                    "the connection ended: {:?}",
                    self.seen.ends
                ),
            }
        }
    }
}

/// Connects a member that remains at a daemon until that one stops. Because of it, all daemons know
/// that this one has members before another member subscribes there.
fn begin_standing(daemon: &Daemon) {
    let mut connection = Nats::connect(daemon.clients, OPEN);
    subscribe(&mut connection);
    std::thread::spawn(move || {
        loop {
            let line = connection.line();
            if line.is_empty() || says_that_the_daemon_stops(&line) {
                return;
            }
            if line.starts_with("MSG ") {
                connection.payload_of(line);
            }
        }
    });
}

/// Waits until each daemon knows members at each.
fn wait_for_members(daemons: &[Daemon]) {
    for daemon in daemons {
        let mut census = Census::of(daemon, "load");
        wait_until("members at all daemons are known", || {
            census.take().iter().all(|members| *members > 0)
        });
    }
}

/// Restarts a daemon: SIGTERM, the end, and a start at the same addresses.
fn restart(overlay: &Overlay, daemons: &mut Vec<Daemon>, place: usize) {
    let old = daemons.remove(place);
    let addresses = [old.daemons, old.clients];
    old.process.signal(Signal::SIGTERM);
    old.process.finish().succeeded("the daemon that stops");
    let others = NAMES.iter().filter(|other| **other != NAMES[place]);
    let links = others
        .zip(&*daemons)
        .map(|(name, daemon)| (*name, daemon.daemons));
    let links: Vec<_> = links.collect();
    daemons.insert(place, overlay.start_at(NAMES[place], addresses, &links));
    begin_standing(&daemons[place]);
    wait_for_members(daemons);
}

#[test]
fn nothing_is_lost_when_daemons_are_restarted_one_after_the_other_under_load() {
    // A daemon waits until its clients have left, however busy the computer is.
    let overlay = Overlay::open().with_arguments(&["--grace", "10min"]);
    let daemons = three_daemons(&overlay);
    let addresses = daemons.each_ref().map(|daemon| daemon.clients);
    let mut daemons = Vec::from(daemons);
    daemons.iter().for_each(begin_standing);
    let progress = Arc::new(Progress::default());
    let members = [0, 1, 2].map(|place| Member::join(place, addresses, &progress));
    wait_for_members(&daemons);
    let publishers: [JoinHandle<_>; 3] = [0, 1, 2].map(|name| {
        let (progress, publisher) = (Arc::clone(&progress), Publisher::connect(name, addresses));
        std::thread::spawn(move || publisher.run(&progress))
    });
    let members = members.map(|member| std::thread::spawn(|| member.run()));
    for place in 0..3 {
        progress.wait_for_load();
        restart(&overlay, &mut daemons, place);
    }
    progress.wait_for_load();
    progress.is_done.store(true, Ordering::SeqCst);
    for publisher in publishers {
        let (count, repeated) = publisher.join().unwrap();
        println!("{count} messages, of which {repeated} were sent again");
    }
    for member in members {
        member.join().unwrap();
    }
}
