//! The replicated map of the examples, while a daemon is killed, stopped or cut off: clients at
//! three daemons get, put, compare and set, and their history must be linearizable.
//!
//! `make test` does each fault once, `make jepsen` a hundred: MANYFLOW_FAULTS is their number. A
//! failure prints its seed, which MANYFLOW_SEED repeats as far as the daemons' timing allows.

mod history;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use manyflow_core::units::Rate;
use manyflow_examples::map::{Answer, Operation, Replica, Request};
use manyflow_messages::{Client, ClientOptions};
use manyflow_net::thin_link::{ThinLink, ThinLinkConfig};
use nix::sys::signal::Signal;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use self::history::{History, key_of};
use crate::attack::overlay::{Daemon, Overlay};
use crate::common::LIMIT;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// The ends of links. The second end opens the link.
const ENDS: [[usize; 2]; 3] = [[0, 1], [0, 2], [1, 2]];
/// Clients at each daemon.
const CLIENTS: u64 = 2;
/// Keys that are in use at one time, and operations until others take their place: the time that
/// the checker takes grows with the square of a key's operations.
const KEYS: usize = 3;
const OPERATIONS_OF_KEYS: usize = 300;
/// A client's pause between two operations.
const PAUSE: Duration = Duration::from_millis(3);
/// Operations that must be made during each fault, and after it.
const OPERATIONS_OF_FAULT: usize = 100;

/// How the map is used.
#[derive(Copy, Clone, PartialEq)]
enum Use {
    AsItShould,
    /// Reads ask the nearest replica alone.
    LocalReads,
    /// A replica believes that it is the only one.
    MinorityWrites,
}

#[derive(Copy, Clone, Debug)]
enum Fault {
    /// All links of the daemon break.
    CutOff,
    /// The daemon is killed, and started again.
    Kill,
    /// The daemon is stopped, and all others wait until it goes on.
    Pause,
    /// The daemon is stopped until others go on without it.
    Freeze,
}

const FAULTS: [Fault; 4] = [Fault::CutOff, Fault::Kill, Fault::Pause, Fault::Freeze];

/// A daemon, its replica, and the clients there.
struct Site {
    daemon: Option<Daemon>,
    addresses: [SocketAddr; 2],
    serving: watch::Receiver<usize>,
    tasks: Vec<JoinHandle<()>>,
}

struct Stage {
    overlay: Overlay,
    sites: Vec<Site>,
    /// The links that the test cuts, in the order of [`ENDS`].
    wires: [ThinLink; 3],
    history: Arc<History>,
    is_over: Arc<AtomicBool>,
    wrong_use: Use,
}

impl Stage {
    async fn start(usage: Use, seed: u64) -> Stage {
        let overlay = Overlay::open();
        let a = overlay.start("a", &[]);
        let to_a = [link_to(&a).await, link_to(&a).await];
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let b = overlay.start_at("b", [any, any], &[("a", to_a[0].address())]);
        let [b_to_a, c_to_a] = to_a;
        let c_to_b = link_to(&b).await;
        let links = [("a", c_to_a.address()), ("b", c_to_b.address())];
        let c = overlay.start_at("c", [any, any], &links);
        let mut stage = Stage {
            overlay,
            sites: Vec::new(),
            wires: [b_to_a, c_to_a, c_to_b],
            history: Arc::default(),
            is_over: Arc::default(),
            wrong_use: usage,
        };
        for (name, daemon) in NAMES.into_iter().zip([a, b, c]) {
            let site = stage.start_site(name, daemon, seed);
            stage.sites.push(site);
        }
        stage.wait_for(&[0, 1, 2], 3).await;
        stage
    }

    /// Starts the replica and the clients of a daemon.
    fn start_site(&self, name: &'static str, daemon: Daemon, seed: u64) -> Site {
        let (requests, asked) = mpsc::channel(16);
        let (status, serving) = watch::channel(0);
        let replicas = if self.wrong_use == Use::MinorityWrites {
            1
        } else {
            3
        };
        let replica = replicate(name, replicas, daemon.clients, asked, status);
        let mut tasks = vec![tokio::spawn(replica)];
        for client in 0..CLIENTS {
            let load = Load {
                requests: requests.clone(),
                history: Arc::clone(&self.history),
                is_over: Arc::clone(&self.is_over),
                reads_locally: self.wrong_use == Use::LocalReads,
                random: Pcg64Mcg::seed_from_u64(
                    seed ^ (u64::from(name.as_bytes()[0]) << 8 | client),
                ),
            };
            tasks.push(tokio::spawn(load.run()));
        }
        Site {
            addresses: [daemon.daemons, daemon.clients],
            daemon: Some(daemon),
            serving,
            tasks,
        }
    }

    /// Waits until these replicas are in a view of this number of replicas, and serve.
    async fn wait_for(&mut self, places: &[usize], count: usize) {
        for &place in places {
            let serving = self.sites[place]
                .serving
                .wait_for(|serving| *serving == count);
            let reached = tokio::time::timeout(LIMIT, serving).await;
            let reached = reached.unwrap_or_else(|_| panic!("{} does not serve", NAMES[place]));
            reached.expect("the replica runs");
        }
    }

    /// Waits until a number of operations have been made.
    async fn make_operations(&self, count: usize) {
        let goal = self.history.done() + count;
        let made = async {
            while self.history.done() < goal {
                sleep(PAUSE).await;
            }
        };
        let made = tokio::time::timeout(LIMIT, made).await;
        made.expect("operations are made");
    }

    /// Returns the links that a daemon opens, by the daemons at their other ends.
    fn links_of(&self, place: usize) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        let wires = self.wires.iter().zip(ENDS);
        let own = wires.filter(move |(_, [_, from])| *from == place);
        own.map(|(wire, [to, _])| (NAMES[to], wire.address()))
    }

    /// Lets a daemon fail, and then come back.
    async fn fail(&mut self, fault: Fault, place: usize) {
        println!("{fault:?} {}", NAMES[place]);
        match fault {
            Fault::CutOff => {
                self.wires_of(place).for_each(|link| link.set_up(false));
                self.go_on_without(place).await;
                self.wait_alone(place).await;
                self.wires_of(place).for_each(|link| link.set_up(true));
            }
            Fault::Kill => {
                drop(self.sites[place].daemon.take());
                self.go_on_without(place).await;
                let daemon = self.restart(place);
                self.sites[place].daemon = Some(daemon);
            }
            Fault::Pause => {
                self.signal(place, Signal::SIGSTOP);
                self.wait_until_all_wait().await;
                self.signal(place, Signal::SIGCONT);
            }
            Fault::Freeze => {
                self.signal(place, Signal::SIGSTOP);
                self.go_on_without(place).await;
                self.signal(place, Signal::SIGCONT);
            }
        }
        self.wait_for(&[0, 1, 2], 3).await;
        self.make_operations(OPERATIONS_OF_FAULT).await;
    }

    /// Waits until the two others have made operations.
    async fn go_on_without(&mut self, place: usize) {
        self.wait_for(&[(place + 1) % 3, (place + 2) % 3], 2).await;
        self.make_operations(OPERATIONS_OF_FAULT).await;
    }

    /// Waits until the replica of a daemon knows that it is alone.
    async fn wait_alone(&mut self, place: usize) {
        let serving = usize::from(self.wrong_use == Use::MinorityWrites);
        self.wait_for(&[place], serving).await;
    }

    /// Waits until each client waits for an answer.
    async fn wait_until_all_wait(&self) {
        let all = NAMES.len() * CLIENTS as usize;
        let waiting = async {
            while self.history.waiting() < all {
                sleep(PAUSE).await;
            }
        };
        let waiting = tokio::time::timeout(LIMIT, waiting).await;
        waiting.expect("all clients wait");
    }

    fn restart(&self, place: usize) -> Daemon {
        let links = self.links_of(place);
        let links: Vec<_> = links.collect();
        let addresses = self.sites[place].addresses;
        self.overlay.start_at(NAMES[place], addresses, &links)
    }

    fn signal(&self, place: usize, signal: Signal) {
        let daemon = self.sites[place].daemon.as_ref();
        daemon.expect("it runs").process.signal(signal);
    }

    /// Returns the links of a daemon.
    fn wires_of(&self, place: usize) -> impl Iterator<Item = &ThinLink> {
        let wires = self.wires.iter().zip(ENDS);
        wires
            .filter(move |(_, ends)| ends.contains(&place))
            .map(|(wire, _)| wire)
    }

    /// Ends all clients. Returns the keys whose histories are not linearizable.
    async fn finish(mut self) -> Vec<String> {
        self.is_over.store(true, Ordering::Relaxed);
        let tasks = self
            .sites
            .iter_mut()
            .map(|site| core::mem::take(&mut site.tasks));
        for task in tasks.flatten() {
            let ended = tokio::time::timeout(LIMIT, task).await;
            ended.expect("each operation is answered").unwrap();
        }
        let [made, not_served, unknown] = self.history.counts();
        println!("{made} operations made, {not_served} not served, {unknown} of unknown outcome");
        self.history.wrong_keys()
    }
}

/// Starts a link to a daemon that the test can cut.
async fn link_to(daemon: &Daemon) -> ThinLink {
    let config = ThinLinkConfig {
        rate: Rate::from_bits_per_s(100_000_000),
        delay: Duration::from_millis(1),
        queue_packets: 100,
    };
    ThinLink::start(daemon.daemons, config).await.unwrap()
}

/// Runs a replica, and another one whenever its connection ends, until all clients have ended.
async fn replicate(
    name: &'static str,
    replicas: usize,
    daemon: SocketAddr,
    mut requests: mpsc::Receiver<Request>,
    serving: watch::Sender<usize>,
) {
    loop {
        match Client::connect(&daemon.to_string(), &ClientOptions::default()).await {
            Err(_) => sleep(Duration::from_millis(20)).await,
            Ok(client) => {
                let replica = Replica::new(name, replicas);
                if replica.run(client, &mut requests, &serving).await.is_ok() {
                    return;
                }
                serving.send_replace(0);
            }
        }
    }
}

/// A client, which makes one operation after the other.
struct Load {
    requests: mpsc::Sender<Request>,
    history: Arc<History>,
    is_over: Arc<AtomicBool>,
    reads_locally: bool,
    random: Pcg64Mcg,
}

impl Load {
    async fn run(mut self) {
        // A value that the client has read, which it then compares with.
        let mut read = (String::new(), None);
        while !self.is_over.load(Ordering::Relaxed) {
            let operation = self.choose(&read);
            let number = self.history.call(operation.clone());
            let (answer, answered) = oneshot::channel();
            let sent = self.requests.send((operation.clone(), answer)).await;
            sent.expect("the replica runs");
            let answer = answered.await.unwrap_or(Answer::Unknown);
            self.history.answer(number, answer);
            if let Answer::Value(value) = answer {
                read = (key_of(&operation).to_owned(), value);
            }
            sleep(PAUSE).await;
        }
    }

    fn choose(&mut self, read: &(String, Option<u64>)) -> Operation {
        let called = self.history.called();
        let generation = called / OPERATIONS_OF_KEYS;
        let key = format!("{generation}-{}", self.random.random_range(0..KEYS));
        let value = self.random.random();
        match self.random.random_range(0..10) {
            0..3 => Operation::Put(key, value),
            3..6 if read.0 == key => Operation::CompareAndSet(key, read.1, value),
            _ if self.reads_locally => Operation::Peek(key),
            _ => Operation::Get(key),
        }
    }
}

fn seed() -> u64 {
    let seed = std::env::var("MANYFLOW_SEED");
    let seed = seed.map_or_else(|_| rand::random(), |seed| seed.parse().expect("a seed"));
    println!("repeat with MANYFLOW_SEED={seed}");
    seed
}

#[tokio::test]
async fn a_map_is_linearizable_while_daemons_are_killed_stopped_and_cut_off() {
    let seed = seed();
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let faults = std::env::var("MANYFLOW_FAULTS");
    let faults = faults.map_or(FAULTS.len(), |faults| {
        faults.parse().expect("a number of faults")
    });
    let mut stage = Stage::start(Use::AsItShould, seed).await;
    stage.make_operations(OPERATIONS_OF_FAULT).await;
    for number in 0..faults {
        let fault = match FAULTS.get(number) {
            Some(fault) => *fault,
            None => *FAULTS.choose(&mut random).unwrap(),
        };
        stage.fail(fault, random.random_range(0..3)).await;
    }
    assert_eq!(stage.finish().await, [""; 0]);
}

#[tokio::test]
async fn a_map_with_local_reads_or_writes_in_a_minority_is_not_linearizable() {
    for usage in [Use::LocalReads, Use::MinorityWrites] {
        let seed = seed();
        let mut stage = Stage::start(usage, seed).await;
        stage.fail(Fault::CutOff, 2).await;
        assert_ne!(stage.finish().await, [""; 0]);
    }
}
