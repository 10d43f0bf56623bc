//! Three senders and three members, one pair at each server, and what they measured.

use std::io;
use std::net::TcpStream;
use std::ops::Add;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

use super::member::{self, Received};
use super::sender;
use super::servers::Servers;

pub(in crate::bench) const SENDERS: usize = 3;
pub(in crate::bench) const MEMBERS: usize = 3;

/// Time after which reads return, to look whether the load has ended.
const READ_TIME_OUT: Duration = Duration::from_millis(100);
/// Time in which the first messages reach all members.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// Time without any message, after which missing messages count as lost; and without a byte that
/// the server takes or sends, after which a connection counts as broken.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_secs(10);
/// Time before the measurement, in which caches and TCP's windows grow.
const WARM_UP: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The messages of a measurement.
#[derive(Debug, Copy, Clone)]
pub(in crate::bench) struct Load {
    pub(in crate::bench) payload_bytes: usize,
    /// The rate of all senders together; `None`: as fast as the servers read.
    pub(in crate::bench) messages_per_s: Option<u32>,
    pub(in crate::bench) duration: Duration,
    /// The number of messages of each sender, which ends the load before `duration`.
    pub(in crate::bench) messages_max: Option<u64>,
}

/// Failures of delivery: each member should get each sender's messages once and in order.
#[derive(Debug, Default, Copy, Clone)]
pub(in crate::bench) struct Order {
    pub(in crate::bench) missed: u64,
    /// Messages that came twice, or after a later one of the same sender.
    pub(in crate::bench) repeated: u64,
}

impl Order {
    pub(in crate::bench) fn failures(self) -> u64 {
        self.missed + self.repeated
    }
}

impl Add for Order {
    type Output = Order;

    fn add(self, other: Order) -> Order {
        Order {
            missed: self.missed + other.missed,
            repeated: self.repeated + other.repeated,
        }
    }
}

/// The result of a load.
#[derive(Debug, Clone)]
pub(in crate::bench) struct Measured {
    /// Messages delivered to members, in all, while it was measured.
    delivered: u64,
    seconds: f64,
    /// Processor time of all servers in that time.
    cpu_s: f64,
    /// In ascending order.
    latencies_ns: Vec<u64>,
    pub(in crate::bench) order: Order,
}

impl Measured {
    pub(in crate::bench) fn messages_per_s(&self) -> f64 {
        self.delivered as f64 / self.seconds
    }

    /// Returns the number of messages that members missed, or got twice or out of order.
    pub(in crate::bench) fn failures(&self) -> u64 {
        self.order.failures()
    }

    pub(in crate::bench) fn cpu_us_per_message(&self) -> f64 {
        self.cpu_s * 1e6 / self.delivered as f64
    }

    /// Returns the latency that the share `quantile` of the messages does not exceed.
    pub(in crate::bench) fn latency_us(&self, quantile: f64) -> f64 {
        let index = (self.latencies_ns.len() as f64 * quantile) as usize;
        let latency = self.latencies_ns.get(index).or(self.latencies_ns.last());
        latency.map_or(f64::NAN, |&latency| latency as f64 / 1e3)
    }
}

/// The state that the threads of a load share.
#[derive(Debug)]
pub(super) struct Shared {
    start: Instant,
    begun: AtomicBool,
    stopped: AtomicBool,
    finished: AtomicBool,
    ready_members: AtomicUsize,
    delivered: [AtomicU64; MEMBERS],
    /// Messages sent from this time on have their latency measured.
    measured_from_ns: AtomicU64,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            start: Instant::now(),
            begun: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            ready_members: AtomicUsize::new(0),
            delivered: Default::default(),
            measured_from_ns: AtomicU64::new(u64::MAX),
        }
    }
}

impl Shared {
    pub(super) fn elapsed_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Lets the senders begin the load.
    pub(super) fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Ends all threads.
    fn end(&self) {
        for state in [&self.begun, &self.stopped, &self.finished] {
            state.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(super) fn has_finished(&self) -> bool {
        self.finished.load(Ordering::Relaxed)
    }

    pub(super) fn is_measured(&self, sent_ns: u64) -> bool {
        sent_ns >= self.measured_from_ns.load(Ordering::Relaxed)
    }

    pub(super) fn add_delivered(&self, member: usize, count: u64) {
        self.delivered[member].fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn add_ready_member(&self) {
        self.ready_members.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of messages that all members have received.
    fn delivered(&self) -> u64 {
        let counts = self.delivered.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

pub(super) fn is_time_out(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Runs a load on the servers and measures it.
///
/// # Errors
/// If a connection fails, or if the first messages do not reach all members.
pub(in crate::bench) fn run(servers: &Servers<'_>, load: &Load) -> Result<Measured> {
    let program = servers.program;
    let connect = |join| {
        move |number| -> Result<TcpStream> {
            let stream = servers.connect(number, join)?;
            stream.set_read_timeout(Some(READ_TIME_OUT))?;
            Ok(stream)
        }
    };
    let members = (0..MEMBERS)
        .map(connect(Some(program.subscription())))
        .collect::<Result<Vec<_>>>()?;
    let senders = (0..SENDERS)
        .map(connect(None))
        .collect::<Result<Vec<_>>>()?;
    let shared = Shared::default();
    thread::scope(|scope| {
        let shared = &shared;
        let members = members.iter().enumerate();
        let members = members
            .map(|(number, stream)| scope.spawn(move || member::receive(stream, number, shared)));
        let members = members.collect::<Vec<_>>();
        let senders = senders.iter().zip(0..);
        let senders = senders.map(|(stream, number)| {
            scope.spawn(move || sender::send(stream, number, (program.subject(), load), shared))
        });
        let senders = senders.collect::<Vec<_>>();
        let measured = Threads {
            shared,
            members,
            senders,
        }
        .measure(servers, load);
        // The threads end after an error, too.
        shared.end();
        measured
    })
}

struct Threads<'scope, 'a> {
    shared: &'a Shared,
    members: Vec<ScopedJoinHandle<'scope, Result<Received>>>,
    senders: Vec<ScopedJoinHandle<'scope, Result<u64>>>,
}

impl Threads<'_, '_> {
    fn measure(self, servers: &Servers<'_>, load: &Load) -> Result<Measured> {
        let shared = self.shared;
        if !self.wait_until_ready() {
            return Err(self.abandon());
        }
        shared.begin();
        if load.messages_max.is_none() {
            thread::sleep(WARM_UP);
        }
        shared
            .measured_from_ns
            .store(shared.elapsed_ns(), Ordering::Relaxed);
        let (start, cpu_s, before) = (Instant::now(), servers.cpu_s()?, shared.delivered());
        self.wait_for_end(load);
        let delivered = shared.delivered() - before;
        let seconds = start.elapsed().as_secs_f64();
        let cpu_s = servers.cpu_s()? - cpu_s;
        let (order, latencies_ns) = self.finish()?;
        ensure!(delivered > 0, "no message was delivered");
        Ok(Measured {
            delivered,
            seconds,
            cpu_s,
            latencies_ns,
            order,
        })
    }

    /// Waits for the first messages. Returns whether they have reached all members; a connection
    /// that ends is an end of the wait, too.
    fn wait_until_ready(&self) -> bool {
        let deadline = Instant::now() + READY_LIMIT;
        let is_ready = || self.shared.ready_members.load(Ordering::Relaxed) == MEMBERS;
        let has_ended = || {
            self.senders.iter().any(|sender| sender.is_finished())
                || self.members.iter().any(|member| member.is_finished())
        };
        while !is_ready() && !has_ended() && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        is_ready()
    }

    /// Ends a load that did not begin. Returns the error of a sender or a member, if there is one.
    fn abandon(self) -> anyhow::Error {
        self.shared.end();
        let sent = join_all(self.senders).err();
        sent.or(join_all(self.members).err()).unwrap_or_else(|| {
            anyhow!(
                "messages of all senders did not reach all members within {} s, or a connection ended",
                READY_LIMIT.as_secs()
            )
        })
    }

    /// Waits for the end of the time, for the last message, or for a member that has failed.
    fn wait_for_end(&self, load: &Load) {
        let deadline = Instant::now() + load.duration;
        let all = load.messages_max.unwrap_or(u64::MAX);
        let all = all.saturating_mul((SENDERS * MEMBERS) as u64);
        let has_failed = || self.members.iter().any(|member| member.is_finished());
        while Instant::now() < deadline && self.shared.delivered() < all && !has_failed() {
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Stops the senders, waits for the last messages, and returns the failures of all members and
    /// all latencies in ascending order.
    fn finish(self) -> Result<(Order, Vec<u64>)> {
        self.shared.stopped.store(true, Ordering::Relaxed);
        let sent = join_all(self.senders)?;
        let all = sent.iter().sum::<u64>() * MEMBERS as u64;
        wait_for_deliveries(self.shared, all);
        self.shared.finished.store(true, Ordering::Relaxed);
        let (mut order, mut latencies_ns) = (Order::default(), Vec::new());
        for received in join_all(self.members)? {
            order = order + received.order(&sent);
            latencies_ns.extend(received.latencies_ns);
        }
        latencies_ns.sort_unstable();
        Ok((order, latencies_ns))
    }
}

fn join_all<T>(threads: Vec<ScopedJoinHandle<'_, Result<T>>>) -> Result<Vec<T>> {
    let join = |thread: ScopedJoinHandle<'_, Result<T>>| {
        thread
            .join()
            .map_err(|_| anyhow!("a thread of the load panicked"))?
    };
    threads.into_iter().map(join).collect()
}

/// Waits until the members have received `all` messages, or have received none for a while.
fn wait_for_deliveries(shared: &Shared, all: u64) {
    let (mut before, mut since) = (shared.delivered(), Instant::now());
    while before < all && since.elapsed() < SILENCE_LIMIT {
        thread::sleep(POLL_INTERVAL);
        let delivered = shared.delivered();
        if delivered > before {
            (before, since) = (delivered, Instant::now());
        }
    }
}
