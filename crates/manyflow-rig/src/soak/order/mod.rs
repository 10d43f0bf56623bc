//! `manyflow-rig soak order`: ordered groups for a long time, while daemons are killed, stopped and
//! cut off.
//!
//! The daemons are processes of `manyflow`, with [`ThinLink`]s between them. The clients run in
//! this process. Each writes a trace of what it sends, delivers and sees: views and transitional
//! signals. A run has rounds. A round begins with faults and ends without: then all members have to
//! be in one view of their group, and to deliver new messages of all others. When nothing is on its
//! way, [`check`] reads the traces of the round; no promise may be broken.
//!
//! | file | contents |
//! |---|---|
//! | `plan.rs` | the network and the faults of each round |
//! | `member.rs` | one connection of a client |
//! | `journal.rs` | the traces |
//!
//! [`ThinLink`]: manyflow_net::thin_link::ThinLink

mod journal;
mod member;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use manyflow_files::session::ReceiveError;
use manyflow_order::GroupViewId;
use manyflow_order::check::{Trace, TraceEvent, check};
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::journal::{Journal, Life};
use self::member::{GROUPS, Stage, groups_of, run_life};
use self::plan::{Change, Plan, Round};
use super::memory::Memory;
use crate::cli::OrderSoakArgs;
use manyflow_rig::overlay_lab::{Network, daemon_name};
use manyflow_terminal::Display;
use manyflow_terminal::signals::interrupted;

const CLIENTS_PER_DAEMON: usize = 2;
/// The pause between two attempts of a client to connect.
const RETRY: Duration = Duration::from_millis(200);
/// The time between two looks at the members.
const POLL: Duration = Duration::from_millis(50);
/// The time in which everything must work again after the faults of a round.
const RECOVERY_LIMIT: Duration = Duration::from_secs(60);
/// The number of messages that each member must send after the faults.
const PROGRESS_MESSAGES: usize = 5;

pub(crate) async fn run(args: OrderSoakArgs, display: &Display) -> Result<()> {
    let plan = Plan::of(args.seed);
    let links: Vec<_> = plan.links.iter().map(|link| link.ends).collect();
    display.print_line(&format!(
        "{} daemons, {} clients, links {}",
        plan.daemons,
        plan.daemons * CLIENTS_PER_DAEMON,
        links
            .iter()
            .map(|[one, two]| format!("{}-{}", daemon_name(*one), daemon_name(*two)))
            .collect::<Vec<_>>()
            .join(", ")
    ))?;
    let mut soak = Soak {
        network: Network::start(crate::program::manyflow()?, plan.daemons, &plan.links).await?,
        downs: vec![0; links.len()],
        memory: Memory::new(plan.daemons),
        totals: Totals::default(),
    };
    let ended = tokio::select! {
        ended = soak.play(plan, &args, display) => ended,
        () = interrupted() => return Err(ReceiveError::Stopped.into()),
    };
    ended.with_context(|| {
        let logs = soak.network.keep_logs().display();
        format!(
            "round {}; repeat with: manyflow-rig soak order --seed {} --for {}s; the logs of the daemons, the \
             traces and the states of the daemons are in {logs}",
            soak.totals.rounds + 1,
            args.seed,
            args.duration.as_secs()
        )
    })
}

/// The events of all rounds that have ended.
#[derive(Debug, Default)]
struct Totals {
    rounds: u64,
    connections: u64,
    sent: u64,
    delivered: u64,
    views: u64,
    signals: u64,
    kills: u64,
    stops: u64,
    cuts: u64,
}

impl Totals {
    fn add_trace(&mut self, trace: &Trace) {
        self.connections += 1;
        for event in &trace.events {
            *match event {
                TraceEvent::Sent(_) => &mut self.sent,
                TraceEvent::Delivered(_) => &mut self.delivered,
                TraceEvent::View(_) => &mut self.views,
                TraceEvent::Transitional(_) => &mut self.signals,
                TraceEvent::Left(_) => continue,
            } += 1;
        }
    }

    fn add_change(&mut self, change: &Change) {
        match change {
            Change::Kill(_) => self.kills += 1,
            Change::Stop(_) => self.stops += 1,
            Change::Down(_) | Change::Break(_) => self.cuts += 1,
            _ => {}
        }
    }
}

struct Soak {
    network: Network,
    /// How often each link has gone down and not up.
    downs: Vec<u32>,
    memory: Memory,
    totals: Totals,
}

/// The clients of a round. Their connections end when it is dropped.
struct Clients {
    journal: Arc<Journal>,
    stage: watch::Sender<Stage>,
    disconnects: Vec<Arc<Notify>>,
    _tasks: JoinSet<()>,
}

impl Clients {
    fn start(network: &Network, seed: u64) -> Clients {
        let journal = Arc::new(Journal::default());
        let (stage, _) = watch::channel(Stage::Change);
        let (mut tasks, mut disconnects) = (JoinSet::new(), Vec::new());
        for client in 0..network.daemon_count() * CLIENTS_PER_DAEMON {
            let disconnect = Arc::new(Notify::new());
            disconnects.push(Arc::clone(&disconnect));
            let address = network.client_address(client % network.daemon_count());
            let (journal, stage) = (Arc::clone(&journal), stage.subscribe());
            let seed = seed.wrapping_mul(1_000).wrapping_add(client as u64);
            tasks.spawn(run_client(
                journal,
                client,
                address,
                stage,
                (disconnect, seed),
            ));
        }
        Clients {
            journal,
            stage,
            disconnects,
            _tasks: tasks,
        }
    }

    /// Returns the connection of each client, if all are connected and know their names.
    fn members(&self) -> Result<Vec<Arc<Life>>, String> {
        let mut alive = self.journal.lives();
        alive.retain(|life| !life.log().is_gone);
        let is_member = |life: &&Arc<Life>| life.log().name.is_some();
        let members: BTreeSet<_> = alive.iter().filter(is_member).map(|l| l.client).collect();
        match (0..self.disconnects.len()).find(|client| !members.contains(client)) {
            Some(client) => Err(format!("client {client} is no member of its groups")),
            None => Ok(alive),
        }
    }

    /// Returns the views of the groups, if the members of each have the same view of all of them.
    fn agreed_views(&self) -> Result<Vec<GroupViewId>, String> {
        let members = self.members()?;
        let mut agreed = Vec::new();
        for group in GROUPS {
            let of_group = members_of(&members, group);
            let names: BTreeSet<_> = of_group
                .iter()
                .filter_map(|l| l.log().name.clone())
                .collect();
            let mut views = BTreeMap::new();
            for life in &of_group {
                let log = life.log();
                match log.views.get(group) {
                    Some((view, members)) if *members == names => views.insert(*view, life.client),
                    Some((view, members)) => {
                        return Err(format!(
                            "the view {view} of {group} at client {} has {} members, but there are {}",
                            life.client,
                            members.len(),
                            names.len()
                        ));
                    }
                    None => return Err(format!("client {} has no view of {group}", life.client)),
                };
            }
            if views.len() > 1 {
                return Err(format!("members of {group} have the views {views:?}"));
            }
            agreed.extend(views.into_keys());
        }
        Ok(agreed)
    }

    /// Returns whether each member has sent messages since, and all have arrived at all members.
    /// `all`: also the messages that a member has sent before, at itself.
    fn progress(&self, since: u64, all: bool) -> Result<(), String> {
        let members = self.members()?;
        for life in &members {
            let log = life.log();
            let sent: Vec<_> = log
                .sent
                .range(since..)
                .map(|(m, g)| (*m, Arc::clone(g)))
                .collect();
            let expected = log.expected.first().copied();
            drop(log);
            if sent.len() < PROGRESS_MESSAGES {
                return Err(format!("client {} sends nothing", life.client));
            }
            if all && let Some(message) = expected {
                return Err(format!(
                    "client {} lacks its own message {message}",
                    life.client
                ));
            }
            let wanted = if all { sent.len() } else { PROGRESS_MESSAGES };
            for (message, group) in &sent[..wanted] {
                for member in members_of(&members, group) {
                    if !member.log().delivered.contains(message) {
                        let client = member.client;
                        return Err(format!(
                            "client {client} lacks message {message} of client {}",
                            life.client
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the connections of clients that are members of a group.
fn members_of(lives: &[Arc<Life>], group: &str) -> Vec<Arc<Life>> {
    let is_member = |life: &&Arc<Life>| groups_of(life.client).iter().any(|name| **name == *group);
    lives.iter().filter(is_member).cloned().collect()
}

/// Keeps a client connected.
async fn run_client(
    journal: Arc<Journal>,
    client: usize,
    address: SocketAddr,
    stage: watch::Receiver<Stage>,
    (disconnect, seed): (Arc<Notify>, u64),
) {
    for connection in 0.. {
        let seed = seed.wrapping_add(connection << 32);
        tokio::select! {
            ended = run_life(&journal, client, address, stage.clone(), seed) => {
                tracing::info!("client {client}: {:#}", ended.err().unwrap_or_else(|| unreachable!()));
            }
            () = disconnect.notified() => {}
        }
        sleep(RETRY).await;
    }
}

/// Waits until a condition holds.
async fn wait_for<T>(deadline: Instant, condition: impl Fn() -> Result<T, String>) -> Result<T> {
    loop {
        match condition() {
            Ok(value) => return Ok(value),
            Err(reason) if Instant::now() > deadline => {
                let seconds = RECOVERY_LIMIT.as_secs();
                bail!("no progress within {seconds} s after the faults: {reason}");
            }
            Err(_) => sleep(POLL).await,
        }
    }
}

impl Soak {
    async fn play(
        &mut self,
        mut plan: Plan,
        args: &OrderSoakArgs,
        display: &Display,
    ) -> Result<()> {
        let start = Instant::now();
        let bar = display.spinner(String::new());
        while start.elapsed() < args.duration {
            let clients = self.network.daemon_count() * CLIENTS_PER_DAEMON;
            let round = plan.round(clients);
            let part = start.elapsed().as_secs_f64() / args.duration.as_secs_f64();
            let totals = &self.totals;
            bar.set_message(format!(
                "{} s, {} rounds, {} messages delivered",
                start.elapsed().as_secs(),
                totals.rounds,
                totals.delivered
            ));
            self.memory.measure(&self.network, part);
            let seed = args
                .seed
                .wrapping_mul(1_000_000)
                .wrapping_add(totals.rounds);
            self.play_round(&round, seed, display).await?;
            self.totals.rounds += 1;
        }
        bar.finish_and_clear();
        self.report(display)
    }

    /// Plays a round, and checks its traces.
    async fn play_round(&mut self, round: &Round, seed: u64, display: &Display) -> Result<()> {
        let clients = Clients::start(&self.network, seed);
        let ended = self.play_faults(round, &clients, display).await;
        let ended = match ended {
            Ok(()) => self.recover(&clients).await,
            error => error,
        };
        if ended.is_err() {
            self.keep_statuses().await?;
        }
        let journal = Arc::clone(&clients.journal);
        let traces = journal.traces();
        drop(clients);
        for trace in &traces {
            self.totals.add_trace(trace);
        }
        if let Err(error) = ended {
            self.keep_traces(&traces)?;
            return Err(error);
        }
        let violations = check(&traces);
        if let Some(first) = violations.first() {
            let files = self.keep_traces(&traces)?;
            bail!(
                "{} promises are broken, the first: {first}; all: manyflow check-order {}/*.jsonl",
                violations.len(),
                files.display()
            );
        }
        Ok(())
    }

    async fn play_faults(
        &mut self,
        round: &Round,
        clients: &Clients,
        display: &Display,
    ) -> Result<()> {
        let start = Instant::now();
        let seconds = |at: Duration| at.saturating_sub(start.elapsed());
        for (at, change) in &round.changes {
            sleep(seconds(*at)).await;
            display.print_json(&json!({
                "event": "change",
                "round": self.totals.rounds + 1,
                "seconds": start.elapsed().as_secs_f64(),
                "change": format!("{change:?}"),
            }))?;
            self.totals.add_change(change);
            self.apply(change, clients)?;
        }
        sleep(seconds(round.duration)).await;
        Ok(())
    }

    fn apply(&mut self, change: &Change, clients: &Clients) -> Result<()> {
        match change {
            Change::Down(links) => links.iter().for_each(|link| self.take_down(*link)),
            Change::Up(links) => links.iter().for_each(|link| self.bring_up(*link)),
            Change::Break(link) => self.network.links[*link].thin.break_connections(),
            Change::Kill(daemon) => self.network.kill_daemon(*daemon),
            Change::Restart(daemon) => self.network.start_daemon(*daemon)?,
            Change::Stop(daemon) => self.network.stop_daemon(*daemon, true)?,
            Change::Continue(daemon) => self.network.stop_daemon(*daemon, false)?,
            Change::Disconnect(client) => clients.disconnects[*client].notify_one(),
        }
        Ok(())
    }

    fn take_down(&mut self, link: usize) {
        self.downs[link] += 1;
        self.network.links[link].thin.set_up(false);
    }

    fn bring_up(&mut self, link: usize) {
        self.downs[link] -= 1;
        if self.downs[link] == 0 {
            self.network.links[link].thin.set_up(true);
        }
    }

    /// Ends all faults, and waits until all members agree on their views, all have made progress,
    /// and nothing is on its way.
    async fn recover(&mut self, clients: &Clients) -> Result<()> {
        for link in 0..self.downs.len() {
            while self.downs[link] > 0 {
                self.bring_up(link);
            }
        }
        for daemon in 0..self.network.daemon_count() {
            self.network.stop_daemon(daemon, false)?;
            self.network.start_daemon(daemon)?;
        }
        self.network.wait_until_connected(RECOVERY_LIMIT).await?;
        let deadline = Instant::now() + RECOVERY_LIMIT;
        while !self.settle(clients, deadline).await? {}
        Ok(())
    }

    /// Waits until all members have the same views, have made progress in them, and nothing is on
    /// its way. Returns whether the views remained: connections of daemons that were cut before can
    /// break later, and messages of a view need not cross its end.
    async fn settle(&self, clients: &Clients, deadline: Instant) -> Result<bool> {
        clients.stage.send_replace(Stage::Send);
        let views = wait_for(deadline, || clients.agreed_views()).await?;
        let since = clients.journal.messages();
        let progress = |all: bool| {
            let views = &views;
            wait_for(deadline, move || match clients.agreed_views()? == *views {
                true => clients.progress(since, all).map(|()| true),
                false => Ok(false),
            })
        };
        if !progress(false).await? {
            return Ok(false);
        }
        clients.stage.send_replace(Stage::Read);
        progress(true).await
    }

    /// Writes what the daemons report of themselves beside their logs.
    async fn keep_statuses(&mut self) -> Result<()> {
        let statuses = self.network.statuses().await;
        let folder = self.network.keep_logs();
        for (daemon, status) in statuses.into_iter().enumerate() {
            let path = folder.join(format!("{}-status.json", daemon_name(daemon)));
            std::fs::write(path, status.unwrap_or_default().to_string())?;
        }
        Ok(())
    }

    /// Writes the traces beside the logs of the daemons, and returns their folder.
    fn keep_traces(&mut self, traces: &[Trace]) -> Result<PathBuf> {
        let folder = self.network.keep_logs().to_owned();
        for (number, trace) in traces.iter().enumerate() {
            let path = folder.join(format!("{number}.jsonl"));
            std::fs::write(path, journal::lines(trace))?;
        }
        Ok(folder)
    }

    fn report(&self, display: &Display) -> Result<()> {
        let totals = &self.totals;
        display.print_line(&format!(
            "{} rounds: {} connections of clients sent {} messages, delivered {}, and saw {} views and {} \
             transitional signals,\nwhile daemons were killed {} times and stopped {} times, and links cut {} \
             times: no promise was broken",
            totals.rounds,
            totals.connections,
            totals.sent,
            totals.delivered,
            totals.views,
            totals.signals,
            totals.kills,
            totals.stops,
            totals.cuts
        ))?;
        for line in self.memory.lines() {
            display.print_line(&line)?;
        }
        display.print_json(&json!({
            "event": "done",
            "rounds": totals.rounds,
            "connections": totals.connections,
            "sent": totals.sent,
            "delivered": totals.delivered,
            "views": totals.views,
            "signals": totals.signals,
            "kills": totals.kills,
            "stops": totals.stops,
            "cuts": totals.cuts,
            "memory_early": self.memory.early(),
            "memory_late": self.memory.late(),
        }))?;
        ensure!(totals.delivered > 0, "no message was delivered");
        self.memory.check()
    }
}
