//! `manyflow demo overlay`: six clients of three daemons exchange group messages, while a link gets
//! slow and a daemon is killed.
//!
//! ```text
//!   1 west -- a ===== b ===== c -- 5 all
//!   2 all  --/        | \      \-- 6 all
//!              3 west   4 all
//! ```
//!
//! The daemons are processes of this program. The links between them are [`ThinLink`]s of 10 Mbit/s
//! and 20 ms. Messages to `all` cross both links, and those to `west` only the first. At the end
//! each member must have read each message once and in order.
//!
//! [`ThinLink`]: manyflow_net::thin_link::ThinLink

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use indicatif::ProgressBar;
use manyflow_core::units::Rate;
use manyflow_files::session::ReceiveError;
use manyflow_net::thin_link::ThinLinkConfig;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use super::options::OverlayDemoArgs;
use crate::overlay_lab::{
    Faults, Judge, Ledger, LinkPlan, Network, PAYLOAD_BYTES, Pace, Part, Seat, daemon_name,
    run_life, wait_until_read,
};
use manyflow_terminal::Display;
use manyflow_terminal::signals::interrupted;

const LINK: ThinLinkConfig = ThinLinkConfig {
    rate: Rate::from_bits_per_s(10_000_000),
    delay: Duration::from_millis(20),
    queue_packets: 8,
};
const SLOW_RATE: Rate = Rate::from_bits_per_s(2_000_000);
/// The links by their daemons, and the number of the one that gets slow.
const LINKS: [[usize; 2]; 2] = [[0, 1], [1, 2]];
const SLOW_LINK: usize = 1;
/// The daemon that is killed.
const VICTIM: usize = 2;
const GROUPS: [&str; 2] = ["west", "all"];
/// The daemon and the group of each client.
const SEATS: [(usize, usize); 6] = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1), (2, 1)];
/// The pause between two attempts of a client to connect.
const RETRY: Duration = Duration::from_millis(200);
/// The time for all members to join.
const JOIN_LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn run(args: &OverlayDemoArgs, display: &Display) -> Result<()> {
    ensure!(
        args.duration >= Duration::from_secs(8),
        manyflow_terminal::usage("--for must be at least 8 s")
    );
    tokio::select! {
        ended = watch(args.duration, display) => ended,
        () = interrupted() => Err(ReceiveError::Stopped.into()),
    }
}

/// The moments at which something changes, in 40ths of the duration.
const SCRIPT: [(u32, Change); 5] = [
    (10, Change::Squeeze),
    (20, Change::Recover),
    (25, Change::Kill),
    (28, Change::Restart),
    (40, Change::End),
];

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Change {
    Squeeze,
    Recover,
    Kill,
    Restart,
    End,
}

struct Demo {
    network: Network,
    ledger: Arc<Ledger>,
    faults: Faults,
    samples: Vec<Vec<Sample>>,
    /// The links in both directions, averaged over some seconds.
    links: Vec<LinkState>,
}

/// One second of a sender.
#[derive(Clone, Debug)]
struct Sample {
    bits_per_s: f64,
    latency_ms: Option<f64>,
    why: String,
}

async fn watch(duration: Duration, display: &Display) -> Result<()> {
    display.print_line(
        "Three daemons a, b, c in a line, over links of 10 Mbit/s and 20 ms; two clients at each. \
         Each client\nsends messages of 1 KB to its group as fast as it may, and reads its group.\n",
    )?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let plans = LINKS.map(|ends| LinkPlan { ends, config: LINK });
    let mut demo = Demo {
        network: Network::start(program, 3, &plans).await?,
        ledger: Arc::new(Ledger::start()),
        faults: Faults::new(LINKS.to_vec()),
        samples: Vec::new(),
        links: Vec::new(),
    };
    let mut clients = JoinSet::new();
    for (client, (daemon, group)) in SEATS.into_iter().enumerate() {
        let seat = Seat {
            client,
            daemon,
            group,
        };
        let address = demo.network.client_address(daemon);
        clients.spawn(keep_connected(Arc::clone(&demo.ledger), seat, address));
    }
    demo.wait_until_joined().await?;
    let ready = demo.ledger.now();
    demo.ledger.sending.send_replace(true);
    demo.play(duration, display).await?;
    demo.ledger.sending.send_replace(false);
    wait_until_read(&demo.ledger).await;
    demo.prove(ready, display)
}

/// Connects a client again whenever its connection has ended.
async fn keep_connected(ledger: Arc<Ledger>, seat: Seat, address: std::net::SocketAddr) {
    loop {
        if let Err(error) = run_life(&ledger, seat, address, &Pace::default()).await {
            tracing::info!("client {}: {error:#}", seat.client + 1);
        }
        sleep(RETRY).await;
    }
}

impl Demo {
    /// Waits until each daemon knows the members of all groups.
    async fn wait_until_joined(&self) -> Result<()> {
        let joined = async {
            while !self.network.statuses().await.iter().all(knows_all) {
                sleep(Duration::from_millis(100)).await;
            }
        };
        let joined = tokio::time::timeout(JOIN_LIMIT, joined).await;
        joined.context("the daemons do not learn of all members: look at RUST_LOG=info")
    }

    async fn play(&mut self, duration: Duration, display: &Display) -> Result<()> {
        let start = self.ledger.now();
        let (mut tick, table) = (
            interval(Duration::from_secs(1)),
            display.spinner(String::new()),
        );
        tick.tick().await;
        let mut counts = self.accepted();
        for (at, change) in SCRIPT {
            self.samples.clear();
            let at = start + duration * at / 40;
            while self.ledger.now() < at {
                tick.tick().await;
                let elapsed = (self.ledger.now() - start).as_secs_f64();
                let before = std::mem::replace(&mut counts, self.accepted());
                self.sample(elapsed, (&before, &counts), &table, display)
                    .await?;
            }
            display.print_line(&self.phase_table())?;
            let line = self.apply(change)?;
            display.print_line(&format!("{:.0} s: {line}", (at - start).as_secs_f64()))?;
        }
        table.finish_and_clear();
        Ok(())
    }

    fn apply(&mut self, change: Change) -> Result<&'static str> {
        let now = self.ledger.now();
        let thin = &self.network.links[SLOW_LINK].thin;
        Ok(match change {
            Change::Squeeze => {
                thin.set_rate(SLOW_RATE);
                "the link b-c is squeezed to 2 Mbit/s"
            }
            Change::Recover => {
                thin.set_rate(LINK.rate);
                "the link b-c has 10 Mbit/s again"
            }
            Change::Kill => {
                self.faults.begin(Part::Daemon(VICTIM), now);
                self.network.kill_daemon(VICTIM);
                "the daemon c is killed"
            }
            Change::Restart => {
                self.network.start_daemon(VICTIM)?;
                self.faults.end(Part::Daemon(VICTIM), now);
                "the daemon c is started again, and its clients reconnect"
            }
            Change::End => "the clients stop",
        })
    }

    /// Returns the number of messages of each client that have entered the overlay.
    fn accepted(&self) -> [u64; 6] {
        let mut counts = [0; 6];
        for life in self.ledger.lives() {
            counts[life.seat.client] += life.log().accepted();
        }
        counts
    }

    /// Measures the last second, and shows it.
    async fn sample(
        &mut self,
        elapsed_s: f64,
        (before, after): (&[u64; 6], &[u64; 6]),
        table: &ProgressBar,
        display: &Display,
    ) -> Result<()> {
        let statuses = self.network.statuses().await;
        self.links = link_states(&statuses, &self.links);
        let links = &self.links;
        let lives = self.ledger.lives();
        let samples = (0..SEATS.len()).map(|client| {
            let life = lives.iter().rev().find(|life| life.seat.client == client);
            let is_alive = life.is_some_and(|life| life.log().is_alive());
            Sample {
                bits_per_s: (after[client] - before[client]) as f64 * PAYLOAD_BYTES as f64 * 8.0,
                latency_ms: life.and_then(|life| life.take_latency_ms()),
                why: match is_alive {
                    true => explain(SEATS[client], links),
                    false => "not connected".to_owned(),
                },
            }
        });
        let samples: Vec<_> = samples.collect();
        let rows = rows(samples.iter());
        table.set_message(format!("{elapsed_s:.0} s\n{rows}{}", link_lines(links)));
        display.print_json(&json!({
            "event": "second",
            "seconds": elapsed_s,
            "senders": samples.iter().zip(1..).map(|(sample, client)| json!({
                "client": client,
                "bits_per_s": sample.bits_per_s,
                "latency_ms": sample.latency_ms,
                "why": sample.why,
            })).collect::<Vec<_>>(),
            "links": links.iter().map(|link| json!({
                "from": link.from.to_string(),
                "to": link.to,
                "up": link.is_up,
                "queue_messages": link.queue,
                "price_dollars": link.price,
            })).collect::<Vec<_>>(),
        }))?;
        self.samples.push(samples);
        Ok(())
    }

    /// Returns the average of each sender over the second half of a phase.
    fn phase_table(&self) -> String {
        let half = &self.samples[self.samples.len() / 2..];
        let averages = (0..SEATS.len()).map(|client| {
            let mut samples = half.iter().map(|samples| &samples[client]);
            let latencies: Vec<_> = samples
                .clone()
                .filter_map(|sample| sample.latency_ms)
                .collect();
            let count = latencies.len() as f64;
            Sample {
                bits_per_s: samples.clone().map(|s| s.bits_per_s).sum::<f64>()
                    / half.len().max(1) as f64,
                latency_ms: (count > 0.0).then(|| latencies.iter().sum::<f64>() / count),
                why: samples.next_back().map_or(String::new(), |s| s.why.clone()),
            }
        });
        rows(averages.collect::<Vec<_>>().iter())
    }

    fn prove(&self, ready: Duration, display: &Display) -> Result<()> {
        let lives = self.ledger.lives();
        display.print_line(&format!(
            "\n{:<8} {:>6} {:>6} {:>11} {:>9} {:>9}  end",
            "client", "daemon", "group", "connection", "sent", "read"
        ))?;
        let mut connections = [0; 6];
        for life in lives.iter().filter(|life| life.log().joined.is_some()) {
            let (log, seat) = (life.log(), life.seat);
            connections[seat.client] += 1;
            let read: u64 = log.flows.values().map(|flow| flow.next - flow.first).sum();
            let end = log.ended.map_or("connected", |_| "broken");
            display.print_line(&format!(
                "{:<8} {:>6} {:>6} {:>11} {:>9} {read:>9}  {end}",
                seat.client + 1,
                daemon_name(seat.daemon),
                GROUPS[seat.group],
                connections[seat.client],
                log.accepted(),
            ))?;
        }
        let judge = Judge {
            ledger: &self.ledger,
            faults: &self.faults,
            ready,
            is_over: true,
        };
        let judged = judge.check_all();
        let failure = self.ledger.failure();
        let judged = match (failure, judged) {
            (Some(failure), _) => Err(anyhow::anyhow!(failure)),
            (None, judged) => judged,
        };
        let judged = judged.context("the proof fails")?;
        display.print_line(&format!(
            "\nProof: {} pairs of a sender's and a member's connection, {} messages: every member read every message of each\n\
             sender that remained connected once, in order and intact. Of connections that were broken with the daemon c,\n\
             members read the messages from some one on without gaps.",
            judged.pairs, judged.messages
        ))?;
        display.print_json(&json!({
            "event": "done",
            "pairs": judged.pairs,
            "messages": judged.messages,
        }))?;
        Ok(())
    }
}

/// Returns whether a daemon knows the members of all groups.
fn knows_all(status: &Option<Value>) -> bool {
    let groups = status
        .as_ref()
        .and_then(|status| status["first_groups"].as_array());
    let members = groups.into_iter().flatten().flat_map(|group| {
        let members = group["members"].as_array();
        members
            .into_iter()
            .flatten()
            .filter_map(|member| member[1].as_u64())
    });
    members.sum::<u64>() == SEATS.len() as u64
}

/// One direction of a link, as the daemon before it reports it. The queue and the price are
/// averages over some seconds, since they change with each message.
#[derive(Clone, Debug)]
struct LinkState {
    from: char,
    to: String,
    is_up: bool,
    queue: f64,
    price: f64,
}

impl LinkState {
    /// Continues the averages of the state before.
    fn averaged(mut self, before: &LinkState) -> LinkState {
        let average = |old: f64, new: f64| old + (new - old) * NEW_SHARE;
        self.queue = average(before.queue, self.queue);
        self.price = average(before.price, self.price);
        self
    }
}

/// The share of a new value in an average.
const NEW_SHARE: f64 = 0.3;

fn link_states(statuses: &[Option<Value>], before: &[LinkState]) -> Vec<LinkState> {
    let mut states = Vec::new();
    for (place, status) in statuses.iter().enumerate() {
        let links = status
            .as_ref()
            .and_then(|status| status["links"].as_array());
        for link in links.into_iter().flatten() {
            let state = LinkState {
                from: daemon_name(place),
                to: link["name"].as_str().unwrap_or_default().to_owned(),
                is_up: link["is_up"].as_bool().unwrap_or_default(),
                queue: link["queue_messages"].as_f64().unwrap_or_default(),
                price: link["price_dollars"].as_f64().unwrap_or_default(),
            };
            let is_same = |old: &&LinkState| (old.from, &old.to) == (state.from, &state.to);
            states.push(match before.iter().find(is_same) {
                Some(before) => state.averaged(before),
                None => state,
            });
        }
    }
    states
}

/// Returns why a sender has its rate: the dearest link on the way to the members of its group.
fn explain((daemon, group): (usize, usize), links: &[LinkState]) -> String {
    let members = SEATS
        .iter()
        .filter(|seat| seat.1 == group)
        .map(|seat| seat.0);
    let members: Vec<_> = members.collect();
    // The daemons are in a line: a message crosses the link from b to c if it begins at a or b and
    // has a member at c.
    let is_on_way = |link: &&LinkState| {
        let (from, to) = (link.from as usize - 'a' as usize, link.to.as_str());
        match to.chars().next().map(|to| to as usize - 'a' as usize) {
            Some(to) if to > from => daemon <= from && members.iter().any(|at| *at >= to),
            Some(to) => daemon >= from && members.iter().any(|at| *at <= to),
            None => false,
        }
    };
    let dearest = links.iter().filter(is_on_way);
    let dearest = dearest.max_by(|one, two| one.price.total_cmp(&two.price));
    match dearest {
        None => "no link on the way".to_owned(),
        Some(link) if !link.is_up => format!("{}>{} is down", link.from, link.to),
        Some(link) => format!(
            "{}>{} costs most: {:.1} $, {:.0} messages wait",
            link.from, link.to, link.price, link.queue
        ),
    }
}

fn rows<'a>(samples: impl Iterator<Item = &'a Sample>) -> String {
    let mut rows = format!(
        "{:<8} {:>6} {:>6} {:>12} {:>10}  {}\n",
        "client", "daemon", "group", "rate", "latency", "why"
    );
    for ((sample, seat), client) in samples.zip(SEATS).zip(1..) {
        let latency = sample.latency_ms;
        rows.push_str(&format!(
            "{client:<8} {:>6} {:>6} {:>5.2} Mbit/s {:>10}  {}\n",
            daemon_name(seat.0),
            GROUPS[seat.1],
            sample.bits_per_s / 1e6,
            latency.map_or("-".to_owned(), |latency| format!("{latency:.0} ms")),
            sample.why
        ));
    }
    rows
}

fn link_lines(links: &[LinkState]) -> String {
    let mut lines = String::new();
    for link in links {
        let state = match link.is_up {
            true => format!("{:>4.0} messages wait, {:>5.1} $", link.queue, link.price),
            false => "down".to_owned(),
        };
        lines.push_str(&format!("{}>{}  {state}\n", link.from, link.to));
    }
    lines
}
