//! Daemons that are killed: what others lose, and for how long. They are processes on loopback.
//!
//! The members of a daemon that cannot be reached count for ten seconds. All that is asserted here
//! happens while they do, so that no expiry of that time brings it about.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::attack::overlay::{Daemon, Nats, OPEN, Overlay};
use crate::common::{LIMIT, wait_until};

/// The options of CONNECT of a client that wants to know that nobody answers.
const REQUESTER: &str = "{\"verbose\":false,\"headers\":true,\"no_responders\":true}";

/// Three daemons, each with a link to the others.
pub(crate) fn three_daemons(overlay: &Overlay) -> [Daemon; 3] {
    let a = overlay.start("a", &[]);
    let b = overlay.start("b", &[("a", &a)]);
    let c = overlay.start("c", &[("a", &a), ("b", &b)]);
    [a, b, c]
}

/// A client that asks a daemon for the members of a group.
pub(crate) struct Census {
    client: Nats,
    request: String,
}

impl Census {
    pub(crate) fn of(daemon: &Daemon, pattern: &str) -> Census {
        let mut client = Nats::connect(daemon.clients, OPEN);
        client.send_and_wait("SUB census 1\r\n");
        let request = format!("PUB $MF.members.{pattern} census 0\r\n\r\n");
        Census { client, request }
    }

    /// Returns the numbers of members at the daemons `a`, `b` and `c`.
    pub(crate) fn take(&mut self) -> [u64; 3] {
        self.client.send(&self.request);
        let answer: Value = serde_json::from_slice(&self.client.message().1).unwrap();
        ["a", "b", "c"].map(|name| answer["members"][name].as_u64().unwrap_or(0))
    }

    fn wait_for(&mut self, members: [u64; 3]) {
        wait_until("the members are known", || self.take() == members);
    }
}

/// Connects a worker that answers each request with the name of its daemon.
fn start_worker(daemon: &Daemon, name: &'static str) {
    let mut worker = Nats::connect(daemon.clients, OPEN);
    worker.send_and_wait("SUB work workers 1\r\n");
    std::thread::spawn(move || {
        loop {
            let line = worker.line();
            let Some(reply) = line.split(' ').nth(3) else {
                // The daemon was killed.
                return;
            };
            let reply = reply.to_owned();
            worker.payload_of(line);
            worker.send(format!("PUB {reply} 1\r\n{name}\r\n"));
        }
    });
}

/// A client with requests, each of which has a subject for its answer.
struct Requester {
    client: Nats,
    sent: u32,
}

impl Requester {
    fn connect(daemon: &Daemon) -> Requester {
        let mut client = Nats::connect(daemon.clients, REQUESTER);
        client.send_and_wait("SUB answers.* 1\r\n");
        Requester { client, sent: 0 }
    }

    /// Sends a request. Returns the answer, which is the name of a daemon or 503; `None` if none
    /// comes soon.
    fn ask(&mut self) -> Option<String> {
        self.sent += 1;
        let own = format!("answers.{}", self.sent);
        self.client.send(format!("PUB work {own} 1\r\n?\r\n"));
        self.client.wait_at_most(Duration::from_millis(200));
        let answer = loop {
            let Some(line) = self.client.try_line() else {
                break None;
            };
            // An answer to an earlier request may come late.
            let is_own = line.split(' ').nth(1) == Some(&own);
            let is_503 = line.starts_with("HMSG");
            let (_, payload) = self.client.payload_of(line);
            match (is_own, is_503) {
                (false, _) => {}
                (true, true) => break Some("503".to_owned()),
                (true, false) => break Some(String::from_utf8(payload).unwrap()),
            }
        };
        self.client.wait_at_most(LIMIT);
        answer
    }

    /// Asks until 20 requests in a row are answered with `wanted`. Returns the number of those
    /// without an answer.
    fn ask_until_all_are(&mut self, wanted: &str) -> u32 {
        let (start, mut lost, mut in_row) = (Instant::now(), 0, 0);
        while in_row < 20 {
            assert!(start.elapsed() < LIMIT, "requests are not all answered");
            match self.ask() {
                Some(answer) if answer == wanted => in_row += 1,
                Some(_) => in_row = 0,
                None => (lost, in_row) = (lost + 1, 0),
            }
        }
        println!(
            "after {:?}, {lost} requests without an answer",
            start.elapsed()
        );
        lost
    }
}

#[test]
fn requests_go_to_other_workers_at_once_when_a_daemon_is_killed_and_get_503_without_any() {
    for controller in ["cost-benefit", "tfrc"] {
        let overlay = Overlay::open().with_controller(controller);
        let [a, b, c] = three_daemons(&overlay);
        for (daemon, name) in [(&b, "b"), (&c, "c"), (&c, "c")] {
            start_worker(daemon, name);
        }
        let mut census = Census::of(&a, "work");
        census.wait_for([0, 1, 2]);
        let mut requester = Requester::connect(&a);
        let answers: Vec<_> = (0..30).filter_map(|_| requester.ask()).collect();
        let of_b = answers.iter().filter(|answer| *answer == "b").count();
        println!("{controller}: {of_b} of {} answers are of b", answers.len());
        drop(c);
        requester.ask_until_all_are("b");
        assert_eq!(census.take(), [0, 1, 2], "the members of c count still");
        drop(b);
        requester.ask_until_all_are("503");
        assert_eq!(census.take()[1], 1, "the members of b count still");
    }
}

/// Lets a member read, so that nobody waits for it.
fn read_all(mut member: Nats) {
    std::thread::spawn(move || while !member.line().is_empty() {});
}

#[test]
fn a_daemon_that_is_killed_under_load_does_not_delay_the_others() {
    fail_under_load(Signal::SIGKILL);
}

/// Its kernel acknowledges what others send until its buffers are full. Without load they never
/// are: `replicated_map` stops a daemon in a group with few messages.
#[test]
fn a_daemon_that_hangs_under_load_delays_the_others_for_some_seconds_only() {
    fail_under_load(Signal::SIGSTOP);
}

fn fail_under_load(signal: Signal) {
    for controller in ["cost-benefit", "none", "tfrc"] {
        let overlay = Overlay::open().with_controller(controller);
        let [a, b, c] = three_daemons(&overlay);
        let members = [&a, &b, &c].map(|daemon| {
            let mut member = Nats::connect(daemon.clients, OPEN);
            member.send_and_wait("SUB load 1\r\n");
            member
        });
        let [own, mut member, failed] = members;
        for other in [own, failed] {
            read_all(other);
        }
        let mut census = Census::of(&a, "load");
        census.wait_for([1, 1, 1]);
        let mut publisher = Nats::connect(a.clients, OPEN);
        // More than the queue of a link has room for.
        const MESSAGES: u32 = 6_000;
        let sender = std::thread::spawn(move || {
            let payload = "x".repeat(100);
            for number in 0..MESSAGES {
                publisher.send(format!("PUB load 107\r\n{payload}{number:07}\r\n"));
                std::thread::sleep(Duration::from_micros(200));
            }
            publisher
        });
        for number in 0..MESSAGES / 4 {
            assert_eq!(
                member.message().1[100..],
                *format!("{number:07}").as_bytes()
            );
        }
        c.process.signal(signal);
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        for number in MESSAGES / 4..MESSAGES {
            assert_eq!(
                member.message().1[100..],
                *format!("{number:07}").as_bytes()
            );
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        println!("{controller}, {signal}: {longest:?} between two messages at most");
        assert_eq!(census.take(), [1, 1, 1], "the member of c counts still");
        drop(sender.join().unwrap());
    }
}
