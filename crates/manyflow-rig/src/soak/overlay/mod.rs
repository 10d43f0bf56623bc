//! `manyflow-rig soak overlay`: group messages for a long time, while links break, daemons crash
//! and clients come and go.
//!
//! The daemons are processes of `manyflow`, with [`ThinLink`]s between them. The clients run in
//! this process. Each message has a number and a checksum, and each connection of a client checks
//! what it reads at once. A watch looks for missing messages all the time, and for all messages at
//! the end. It also measures the memory of the daemons: its maximum late in the run must not be
//! above that early in the run.
//!
//! [`ThinLink`]: manyflow_net::thin_link::ThinLink

pub(super) mod plan;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use indicatif::ProgressBar;
use manyflow_files::session::ReceiveError;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::plan::{Change, Plan};
use super::memory::Memory;
use crate::cli::OverlaySoakArgs;
use manyflow_rig::overlay_lab::{
    Faults, Judge, Judged, Ledger, Life, Network, Pace, Part, Seat, daemon_name, is_all_read,
    run_life, wait_until_read,
};
use manyflow_terminal::Display;
use manyflow_terminal::signals::interrupted;

/// The pause between two attempts of a client to connect.
const RETRY: Duration = Duration::from_millis(200);
/// The time between two reads of a slow client.
const SLOW_READ_US: u64 = 50_000;
/// The time in which everything must work again after the faults.
const RECOVERY_LIMIT: Duration = Duration::from_secs(60);
/// The number of messages that each sender must get into the overlay after the faults.
const PROGRESS_MESSAGES: u64 = 10;
/// The time between two looks at everything.
const TICK: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: OverlaySoakArgs, display: &Display) -> Result<()> {
    let plan = Plan::of(args.seed, args.duration);
    let links: Vec<_> = plan.links.iter().map(|link| link.ends).collect();
    display.print_line(&format!(
        "{} daemons, {} clients, links {}",
        plan.daemons,
        plan.clients.len(),
        links
            .iter()
            .map(|[one, two]| format!("{}-{}", daemon_name(*one), daemon_name(*two)))
            .collect::<Vec<_>>()
            .join(", ")
    ))?;
    let mut soak = Soak {
        network: Network::start(crate::program::manyflow()?, plan.daemons, &plan.links).await?,
        ledger: Arc::new(Ledger::start()),
        faults: Faults::new(links),
        downs: vec![0; plan.links.len()],
        clients: Vec::new(),
        memory: Memory::new(plan.daemons),
    };
    let ended = tokio::select! {
        ended = soak.play(&plan, args.duration, display) => ended,
        () = interrupted() => return Err(ReceiveError::Stopped.into()),
    };
    ended.with_context(|| {
        let logs = soak.network.keep_logs().display();
        format!(
            "repeat with: manyflow-rig soak overlay --seed {} --for {}s; the logs of the daemons are in {logs}",
            args.seed,
            args.duration.as_secs()
        )
    })
}

struct Soak {
    network: Network,
    ledger: Arc<Ledger>,
    faults: Faults,
    /// How often each link has gone down and not up.
    downs: Vec<u32>,
    clients: Vec<Client>,
    memory: Memory,
}

/// The handle of a client's task.
struct Client {
    pace: Arc<Pace>,
    moves: mpsc::UnboundedSender<(Seat, Duration)>,
}

impl Soak {
    async fn play(&mut self, plan: &Plan, duration: Duration, display: &Display) -> Result<()> {
        let mut tasks = JoinSet::new();
        self.start_clients(plan, &mut tasks);
        self.ledger.sending.send_replace(true);
        let bar = display.spinner(String::new());
        let mut tick = self.ledger.now();
        let start = tick;
        for (at, change) in &plan.changes {
            self.watch_until(start + *at, &mut tick, duration, &bar)
                .await?;
            self.apply(change, plan, display)?;
        }
        self.watch_until(start + duration, &mut tick, duration, &bar)
            .await?;
        bar.set_message("everything is repaired");
        self.repair(plan)?;
        self.recover().await?;
        self.ledger.sending.send_replace(false);
        wait_until_read(&self.ledger).await;
        bar.finish_and_clear();
        ensure!(
            is_all_read(&self.ledger),
            "messages do not arrive after the faults: {}",
            self.laggards()
        );
        let judged = self.judge(true)?;
        self.report(&judged, plan, display)
    }

    fn start_clients(&mut self, plan: &Plan, tasks: &mut JoinSet<()>) {
        let addresses: Vec<_> = (0..plan.daemons)
            .map(|daemon| self.network.client_address(daemon))
            .collect();
        for client in &plan.clients {
            let (moves, mut moved) = mpsc::unbounded_channel();
            let pace = Arc::new(Pace::default());
            pace.send_us.store(client.send_us, Ordering::Relaxed);
            self.clients.push(Client {
                pace: Arc::clone(&pace),
                moves,
            });
            let (ledger, addresses) = (Arc::clone(&self.ledger), addresses.clone());
            let mut seat = client.seat;
            tasks.spawn(async move {
                loop {
                    tokio::select! {
                        _ = run_life(&ledger, seat, addresses[seat.daemon], &pace) => sleep(RETRY).await,
                        Some((next, away)) = moved.recv() => {
                            sleep(away).await;
                            seat = next;
                        }
                    }
                }
            });
        }
    }

    /// Watches the run until a time since the start of the ledger.
    async fn watch_until(
        &mut self,
        at: Duration,
        tick: &mut Duration,
        duration: Duration,
        bar: &ProgressBar,
    ) -> Result<()> {
        loop {
            let now = self.ledger.now();
            if *tick <= now {
                *tick += TICK;
                let read = self.judge(false)?.messages;
                let part = now.as_secs_f64() / duration.as_secs_f64();
                self.memory.measure(&self.network, part);
                bar.set_message(format!("{} s, {read} messages read", now.as_secs()));
            }
            if now >= at {
                return Ok(());
            }
            sleep(at.min(*tick).saturating_sub(now)).await;
        }
    }

    fn apply(&mut self, change: &Change, plan: &Plan, display: &Display) -> Result<()> {
        let now = self.ledger.now();
        display.print_json(&json!({
            "event": "change",
            "seconds": now.as_secs_f64(),
            "change": format!("{change:?}"),
        }))?;
        match change {
            Change::Down(links) => links.iter().for_each(|link| self.take_down(*link, now)),
            Change::Up(links) => links.iter().for_each(|link| self.bring_up(*link, now)),
            Change::Break(link) => self.network.links[*link].thin.break_connections(),
            Change::SetRate(link, rate) => self.network.links[*link].thin.set_rate(*rate),
            Change::Kill(daemon) => {
                self.faults.begin(Part::Daemon(*daemon), now);
                self.network.kill_daemon(*daemon);
            }
            Change::Restart(daemon) => self.start_daemon(*daemon)?,
            Change::Slow(client, is_slow) => {
                let read_us = if *is_slow { SLOW_READ_US } else { 0 };
                let pace = &self.clients[*client].pace;
                pace.read_us.store(read_us, Ordering::Relaxed);
            }
            Change::Move(seat, away) => {
                debug_assert!(seat.client < plan.clients.len());
                // The task of the client runs as long as this.
                let _ = self.clients[seat.client].moves.send((*seat, *away));
            }
        }
        Ok(())
    }

    fn take_down(&mut self, link: usize, now: Duration) {
        self.downs[link] += 1;
        self.faults.begin(Part::Link(link), now);
        self.network.links[link].thin.set_up(false);
    }

    fn bring_up(&mut self, link: usize, now: Duration) {
        self.downs[link] -= 1;
        if self.downs[link] == 0 {
            self.network.links[link].thin.set_up(true);
            self.faults.end(Part::Link(link), now);
        }
    }

    fn start_daemon(&mut self, daemon: usize) -> Result<()> {
        self.network.start_daemon(daemon)?;
        self.faults.end(Part::Daemon(daemon), self.ledger.now());
        Ok(())
    }

    /// Ends all faults.
    fn repair(&mut self, plan: &Plan) -> Result<()> {
        let now = self.ledger.now();
        for (link, plan) in plan.links.iter().enumerate() {
            self.network.links[link].thin.set_rate(plan.config.rate);
            while self.downs[link] > 0 {
                self.bring_up(link, now);
            }
        }
        for daemon in 0..plan.daemons {
            self.start_daemon(daemon)?;
        }
        for client in &self.clients {
            client.pace.read_us.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Waits until all daemons reach each other, and until all senders have made progress.
    async fn recover(&mut self) -> Result<()> {
        self.network.wait_until_connected(RECOVERY_LIMIT).await?;
        let deadline = self.ledger.now() + RECOVERY_LIMIT;
        let before = self.present_connections();
        loop {
            let stuck = self.stuck_clients(&before);
            if stuck.is_empty() {
                return Ok(());
            }
            if self.ledger.now() > deadline {
                bail!("clients are stuck after the faults: {}", stuck.join("; "));
            }
            self.judge(false)?;
            sleep(RETRY).await;
        }
    }

    /// Returns the present connection of each client and what it has sent, if it is connected.
    fn present_connections(&self) -> Vec<Option<(u32, u64)>> {
        let mut present = vec![None; self.clients.len()];
        for life in self.ledger.lives() {
            let log = life.log();
            if log.is_alive() {
                present[life.seat.client] = Some((life.number, log.accepted()));
            }
        }
        present
    }

    /// Returns the clients that have sent no messages since, or of whose messages a member has read
    /// none since.
    fn stuck_clients(&self, before: &[Option<(u32, u64)>]) -> Vec<String> {
        let (now, lives) = (self.present_connections(), self.ledger.lives());
        let mut stuck = Vec::new();
        for (client, (before, now)) in before.iter().zip(&now).enumerate() {
            let Some((number, accepted)) = *now else {
                stuck.push(format!("client {client} is not connected"));
                continue;
            };
            let since = before.filter(|before| before.0 == number);
            let since = since.map_or(0, |before| before.1) + PROGRESS_MESSAGES;
            if accepted < since {
                stuck.push(format!("client {client} sends nothing"));
                continue;
            }
            let group = lives[number as usize].seat.group;
            let members = now_members(&lives, group);
            for member in members {
                let log = member.log();
                if log.flows.get(&number).is_none_or(|flow| flow.next < since) {
                    let reader = member.seat.client;
                    stuck.push(format!("client {reader} reads nothing of client {client}"));
                }
            }
        }
        stuck
    }

    /// Returns the pairs of clients between which messages are missing.
    fn laggards(&self) -> String {
        let lives = self.ledger.lives();
        let mut pairs = Vec::new();
        for sender in lives.iter().filter(|life| life.log().is_alive()) {
            let written = sender.log().written;
            for member in now_members(&lives, sender.seat.group) {
                let next = member.log().flows.get(&sender.number).map_or(0, |f| f.next);
                if next < written {
                    pairs.push(format!(
                        "client {} at {} has read {next} of {written} of client {} at {}",
                        member.seat.client,
                        daemon_name(member.seat.daemon),
                        sender.seat.client,
                        daemon_name(sender.seat.daemon)
                    ));
                }
            }
        }
        pairs.join("; ")
    }

    fn judge(&self, is_over: bool) -> Result<Judged> {
        if let Some(failure) = self.ledger.failure() {
            return Err(anyhow!(failure));
        }
        let judge = Judge {
            ledger: &self.ledger,
            faults: &self.faults,
            ready: Duration::ZERO,
            is_over,
        };
        judge.check_all()
    }

    fn report(&self, judged: &Judged, plan: &Plan, display: &Display) -> Result<()> {
        let count = |wanted: fn(&Change) -> bool| {
            let changes = plan.changes.iter();
            changes.filter(|(_, change)| wanted(change)).count()
        };
        let kills = count(|change| matches!(change, Change::Kill(_)));
        let cuts = count(|change| matches!(change, Change::Down(_) | Change::Break(_)));
        let connections = self.ledger.lives().len();
        display.print_line(&format!(
            "{} messages read by {connections} connections of clients, while {kills} daemons were killed and links cut \
             {cuts} times:\neach once, in order and intact; {} messages did not cross partitions",
            judged.messages, judged.separated
        ))?;
        for line in self.memory.lines() {
            display.print_line(&line)?;
        }
        display.print_json(&json!({
            "event": "done",
            "messages": judged.messages,
            "pairs": judged.pairs,
            "separated": judged.separated,
            "connections": connections,
            "kills": kills,
            "cuts": cuts,
            "memory_early": self.memory.early(),
            "memory_late": self.memory.late(),
        }))?;
        ensure!(judged.messages > 0, "no message was read");
        self.memory.check()
    }
}

/// Returns the connected members of a group.
fn now_members(lives: &[Arc<Life>], group: usize) -> impl Iterator<Item = &Arc<Life>> {
    let members = lives.iter().filter(move |life| life.seat.group == group);
    members.filter(|life| life.log().is_alive())
}
