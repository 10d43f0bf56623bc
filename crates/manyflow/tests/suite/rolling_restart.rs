//! Three daemons under load that are restarted one after the other, as processes on loopback.
//!
//! A message counts as sent when a PING behind it has been answered; otherwise its publisher sends
//! it again at another daemon. A member that learns that its daemon stops subscribes at another
//! one before it leaves. Then each member gets every message.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::attack::overlay::{Daemon, Nats, OPEN, Overlay};
use crate::common::{LIMIT, wait_until};
use crate::overlay_deaths::{Census, three_daemons};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// The addresses of the daemons for clients.
type Addresses = [SocketAddr; 3];

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
    fn run(mut self, is_done: &AtomicBool) -> (u32, u32) {
        let mut count = 0;
        while !is_done.load(Ordering::Relaxed) {
            self.publish(&format!("{} {count} -", self.name));
            count += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        self.publish(&format!("{} {count} end", self.name));
        (count + 1, self.repeated)
    }
}

/// The messages of each publisher, and the number of its last one.
#[derive(Default)]
struct Seen {
    numbers: [BTreeSet<u32>; 3],
    ends: [Option<u32>; 3],
}

impl Seen {
    fn add(&mut self, payload: &[u8]) -> (usize, u32) {
        let text = String::from_utf8_lossy(payload);
        let words: Vec<_> = text.split(' ').collect();
        let publisher: usize = words[0].parse().unwrap();
        let number: u32 = words[1].parse().unwrap();
        self.numbers[publisher].insert(number);
        if words[2] == "end" {
            self.ends[publisher] = Some(number);
        }
        (publisher, number)
    }

    /// Returns whether all messages of a publisher up to this one are here.
    fn has_all_until(&self, publisher: usize, last: u32) -> bool {
        self.numbers[publisher].range(..=last).count() == last as usize + 1
    }

    fn is_complete(&self) -> bool {
        let mut ends = self.ends.iter().enumerate();
        ends.all(|(publisher, end)| end.is_some_and(|last| self.has_all_until(publisher, last)))
    }
}

/// A member of the group, which has seen the messages from the first one on.
struct Member {
    addresses: Addresses,
    place: usize,
    connection: Nats,
    seen: Seen,
}

fn subscribe(connection: &mut Nats) {
    connection.send("SUB load 1\r\nPING\r\n");
    // INFO may come between.
    while connection.line() != "PONG" {}
}

impl Member {
    fn join(place: usize, addresses: Addresses) -> Member {
        let mut connection = Nats::connect(addresses[place], OPEN);
        subscribe(&mut connection);
        Member {
            addresses,
            place,
            connection,
            seen: Seen::default(),
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

    /// Subscribes at another daemon, and leaves this one when that one has sent a message of each
    /// publisher and this one all before them.
    fn move_on(&mut self) {
        let (mut next, place) = connect_behind(&self.addresses, self.place);
        subscribe(&mut next);
        let mut first = [None; 3];
        while first.iter().any(Option::is_none) {
            let line = next.line();
            if line.starts_with("MSG ") {
                let (publisher, number) = self.seen.add(&next.payload_of(line).1);
                first[publisher].get_or_insert(number);
            }
        }
        let first = first.map(Option::unwrap);
        let overlaps = |seen: &Seen| (0..3).all(|one| seen.has_all_until(one, first[one]));
        while !overlaps(&self.seen) {
            let line = self.connection.line();
            assert!(self.handle(line), "the daemon closed the connection first");
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
    let mut census = Census::of(&daemons[place], "load");
    wait_until("the daemon knows the members at the others", || {
        census.take().iter().sum::<u64>() == 3
    });
}

#[test]
fn nothing_is_lost_when_daemons_are_restarted_one_after_the_other_under_load() {
    // A daemon waits until its clients have left, however busy the computer is.
    let overlay = Overlay::open().with_arguments(&["--grace", "10min"]);
    let daemons = three_daemons(&overlay);
    let addresses = daemons.each_ref().map(|daemon| daemon.clients);
    let mut daemons = Vec::from(daemons);
    let members = [0, 1, 2].map(|place| Member::join(place, addresses));
    for daemon in &daemons {
        let mut census = Census::of(daemon, "load");
        wait_until("all members are known", || census.take() == [1, 1, 1]);
    }
    let is_done = Arc::new(AtomicBool::new(false));
    let publishers: [JoinHandle<_>; 3] = [0, 1, 2].map(|name| {
        let (is_done, publisher) = (Arc::clone(&is_done), Publisher::connect(name, addresses));
        std::thread::spawn(move || publisher.run(&is_done))
    });
    let members = members.map(|member| std::thread::spawn(|| member.run()));
    for place in 0..3 {
        restart(&overlay, &mut daemons, place);
    }
    is_done.store(true, Ordering::Relaxed);
    for publisher in publishers {
        let (count, repeated) = publisher.join().unwrap();
        println!("{count} messages, of which {repeated} were sent again");
        assert!(count > 100, "there was load");
    }
    for member in members {
        member.join().unwrap();
    }
}
