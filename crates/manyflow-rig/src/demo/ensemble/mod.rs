//! `manyflow demo ensemble`: one client fetches a file from four servers over one Anypoint
//! connection, while one of them is killed and another joins.
//!
//! ```text
//!                        +--  2 Mbit/s -- a
//!   client ---- switch --+--  4 Mbit/s -- b
//!                        +--  8 Mbit/s -- c     killed; e, behind 8 Mbit/s, joins later
//!                        +-- 16 Mbit/s -- d
//! ```
//!
//! Everything is in this process, and all datagrams cross loopback. The links are [`LastMile`]s
//! with XCP routers. Then the same client fetches the file from the fastest server alone. At the
//! end, comparisons on a shared link show the share of one connection to the service, and that of
//! four connections, each beside the connections of other clients.
//!
//! | file | what it holds |
//! |---|---|
//! | `server.rs` | a server with a copy of the file, behind its link |
//! | `fetch.rs` | the client: which chunk to ask which server for |
//! | `share.rs` | the comparisons on a shared link |
//!
//! [`LastMile`]: manyflow_net::last_mile::LastMile

mod fetch;
mod server;
mod share;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use manyflow_core::units::{self, Rate};
use manyflow_ensembles::anypoint::switch::{
    MemberConfig, PolicyName, ServiceConfig, SwitchHandle, SwitchOptions, start,
};
use manyflow_ensembles::anypoint::{Control, Options, connect};
use manyflow_files::session::ReceiveError;
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::time::{interval, sleep_until};

use self::fetch::{Fetch, KEYS_OF_MEMBER};
use self::server::Server;
use crate::demo::options::EnsembleDemoArgs;
use manyflow_terminal::Display;
use manyflow_terminal::signals::interrupted;

/// The servers: names, and rates of their links. The last one joins later.
const SERVERS: [(&str, u64); 5] = [
    ("a", 2_000_000),
    ("b", 4_000_000),
    ("c", 8_000_000),
    ("d", 16_000_000),
    ("e", 8_000_000),
];
/// The number of servers at the start.
const FIRST: usize = 4;
/// The server that is killed.
const VICTIM: usize = 2;
/// The server that is compared with the service.
const FASTEST: usize = 3;
/// The delay of each link, in each direction.
const DELAY: Duration = Duration::from_millis(5);
/// Shares of the file after which the server is killed and another joins.
const KILLED_AT: f64 = 0.3;
const JOINED_AT: f64 = 0.5;
/// The time between two lines of the table.
const TICK: Duration = Duration::from_millis(250);
/// The time limit of a transfer.
const LIMIT: Duration = Duration::from_secs(120);

/// A file: its content and SHA-256.
#[derive(Clone, Debug)]
struct File {
    content: Bytes,
    digest: [u8; 32],
}

pub(super) async fn run(args: &EnsembleDemoArgs, display: &Display) -> Result<()> {
    if args.size.0 == 0 || args.size.0 > 1 << 30 {
        return Err(manyflow_terminal::usage(
            "--size must be between 1 byte and 1 GiB",
        ));
    }
    tokio::select! {
        ended = play(args, display) => ended,
        () = interrupted() => Err(ReceiveError::Stopped.into()),
    }
}

async fn play(args: &EnsembleDemoArgs, display: &Display) -> Result<()> {
    let file = File::new(args.size.0 as usize, args.seed);
    display.print_line(&format!(
        "One client fetches {} over one connection from four servers behind links of 2, 4, 8 and 16 Mbit/s.",
        units::Bytes(args.size.0)
    ))?;
    let mut stage = Stage::start(file).await?;
    let service = stage.fetch_from_service(display).await?;
    let alone = stage.fetch_from_fastest(display).await?;
    let one = share::measure(1, 1).await?.share();
    let four = share::measure(FIRST, 1).await?.share();
    let jain = share::measure(1, 4).await?.jain();
    let rate = |seconds: f64| args.size.0 as f64 * 8.0 / seconds / 1e6;
    let (fastest, _) = SERVERS[FASTEST];
    display.print_line(&format!(
        "\n{:<58} {:>7.1} s  {:>5.1} Mbit/s\n{:<58} {:>7.1} s  {:>5.1} Mbit/s",
        "one connection to the service, a server killed on the way:",
        service,
        rate(service),
        format!("one connection to server {fastest}, the fastest:"),
        alone,
        rate(alone),
    ))?;
    display.print_line(&format!(
        "{:<58} {:>7.0} %\n{:<58} {:>7.0} %\n{:<58} {:>9.3}",
        "a shared link, beside one other connection: the service",
        one * 100.0,
        "the same link: four connections, one to each server",
        four * 100.0,
        "the service beside four other connections: Jain's index",
        jain,
    ))?;
    display.print_json(&json!({
        "event": "done",
        "service_seconds": service,
        "fastest_seconds": alone,
        "service_share": one,
        "four_connections_share": four,
        "jain": jain,
    }))?;
    Ok(())
}

impl File {
    fn new(bytes: usize, seed: u64) -> File {
        let mut content = vec![0; bytes];
        Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut content);
        File {
            digest: Sha256::digest(&content).into(),
            content: content.into(),
        }
    }
}

/// Returns the parameters of all ends.
fn options() -> Options {
    Options {
        control: Control::Xcp,
        ..Options::default()
    }
}

/// Returns the entry of a member, which gets the keys of its number.
fn member(number: usize, address: std::net::SocketAddr) -> MemberConfig {
    let first = KEYS_OF_MEMBER * number as u32;
    MemberConfig {
        name: SERVERS[number].0.to_owned(),
        address,
        weight: 1.0,
        keys: vec![first..=first + KEYS_OF_MEMBER - 1],
    }
}

/// Returns a service that finds a member by the key of a request.
fn service(members: Vec<MemberConfig>) -> ServiceConfig {
    ServiceConfig {
        members,
        policy: PolicyName::KeyRange,
    }
}

/// The servers and the switch.
struct Stage {
    file: File,
    servers: Vec<Server>,
    switch: SwitchHandle,
}

impl Stage {
    async fn start(file: File) -> Result<Stage> {
        let mut servers = Vec::new();
        for number in 0..FIRST {
            servers.push(start_server(number, &file).await?);
        }
        let switch = start(
            "127.0.0.1:0".parse()?,
            service(members(&servers)),
            SwitchOptions::default(),
        )?;
        Ok(Stage {
            file,
            servers,
            switch,
        })
    }

    /// Fetches the file from all servers, one of which is killed; another joins. Returns the time
    /// in seconds.
    async fn fetch_from_service(&mut self, display: &Display) -> Result<f64> {
        let connection = connect(self.switch.local_address(), options()).await?;
        let mut fetch = Fetch::new(self.file.content.len(), FIRST);
        let begin = Instant::now();
        let table = display.spinner(String::new());
        let mut tick = interval(TICK);
        let mut before = self.delivered();
        let (mut was_killed, mut has_joined) = (false, false);
        fetch.begin(&connection).await?;
        while !fetch.is_complete() {
            tokio::select! {
                happening = fetch.next(&connection) => fetch.handle(&connection, happening?).await?,
                _ = tick.tick() => {
                    let now = self.delivered();
                    let rows = self.rows(&before, &now, &fetch);
                    before = now;
                    table.set_message(rows);
                }
                () = sleep_until((begin + LIMIT).into()) => anyhow::bail!("the transfer takes longer than {LIMIT:?}"),
            }
            if !was_killed && fetch.progress() >= KILLED_AT {
                was_killed = true;
                self.servers[VICTIM].kill();
                say(display, begin, "server c is killed")?;
            }
            if !has_joined && fetch.progress() >= JOINED_AT {
                has_joined = true;
                self.servers.push(start_server(FIRST, &self.file).await?);
                self.switch.set_service(service(members(&self.servers)))?;
                before.push(0);
                say(display, begin, "server e joins")?;
            }
        }
        table.finish_and_clear();
        let seconds = begin.elapsed().as_secs_f64();
        self.check(&fetch)?;
        self.print_table(&fetch, seconds, display)?;
        Ok(seconds)
    }

    /// Fetches the file from the fastest server alone. Returns the time in seconds.
    async fn fetch_from_fastest(&mut self, display: &Display) -> Result<f64> {
        let connection = connect(self.switch.local_address(), options()).await?;
        let mut fetch = Fetch::only_from(self.file.content.len(), FASTEST);
        let begin = Instant::now();
        let bar = display.spinner("the same file from server d alone".to_owned());
        let complete = async {
            fetch.begin(&connection).await?;
            while !fetch.is_complete() {
                let happening = fetch.next(&connection).await?;
                fetch.handle(&connection, happening).await?;
            }
            anyhow::Ok(())
        };
        let complete = tokio::time::timeout(LIMIT, complete).await;
        complete.context("the transfer takes too long")??;
        bar.finish_and_clear();
        self.check(&fetch)?;
        Ok(begin.elapsed().as_secs_f64())
    }

    fn check(&self, fetch: &Fetch) -> Result<()> {
        let digest: [u8; 32] = Sha256::digest(fetch.content()).into();
        ensure!(digest == self.file.digest, "the file did not arrive intact");
        Ok(())
    }

    /// Returns the bytes that have crossed each server's link towards the switch.
    fn delivered(&self) -> Vec<u64> {
        let links = self.servers.iter();
        links.map(|server| server.link().delivered_bytes).collect()
    }

    fn rows(&self, before: &[u64], now: &[u64], fetch: &Fetch) -> String {
        let mut rows = format!(
            "{:.0} %\n{:<7} {:>12} {:>13} {:>15} {:>8}\n",
            fetch.progress() * 100.0,
            "server",
            "link",
            "rate",
            "window, frames",
            "chunks"
        );
        for (number, server) in self.servers.iter().enumerate() {
            let (name, link) = SERVERS[number];
            let bits = (now[number] - before[number]) as f64 * 8.0 / TICK.as_secs_f64();
            rows.push_str(&format!(
                "{name:<7} {:>12} {:>6.1} Mbit/s {:>15.1} {:>8}  {}\n",
                Rate::from_bits_per_s(link).to_string(),
                bits / 1e6,
                server.window_frames(),
                fetch.chunks_of(number),
                if server.is_killed() { "killed" } else { "" },
            ));
        }
        rows
    }

    fn print_table(&self, fetch: &Fetch, seconds: f64, display: &Display) -> Result<()> {
        display.print_line(&format!(
            "\n{:<7} {:>12} {:>8} {:>16}",
            "server", "link", "chunks", "through its link"
        ))?;
        for (number, server) in self.servers.iter().enumerate() {
            let (name, link) = SERVERS[number];
            let mean = server.link().delivered_bytes as f64 * 8.0 / seconds;
            display.print_line(&format!(
                "{name:<7} {:>12} {:>8} {:>9.1} Mbit/s",
                Rate::from_bits_per_s(link).to_string(),
                fetch.chunks_of(number),
                mean / 1e6,
            ))?;
            display.print_json(&json!({
                "event": "server",
                "name": name,
                "link_bits_per_s": link,
                "chunks": fetch.chunks_of(number),
                "bits_per_s": mean,
                "killed": server.is_killed(),
            }))?;
        }
        display.print_line("The SHA-256 of the file is that of the servers' file.")?;
        Ok(())
    }
}

async fn start_server(number: usize, file: &File) -> Result<Server> {
    let rate = Rate::from_bits_per_s(SERVERS[number].1);
    let server = Server::start(number, &file.content, rate, DELAY).await;
    server.context("cannot open a socket on loopback")
}

/// Returns the members that run.
fn members(servers: &[Server]) -> Vec<MemberConfig> {
    let numbered = servers.iter().enumerate();
    numbered
        .map(|(number, server)| member(number, server.address()))
        .collect()
}

fn say(display: &Display, begin: Instant, what: &str) -> Result<()> {
    let seconds = begin.elapsed().as_secs_f64();
    display.print_line(&format!("{seconds:>4.1} s  {what}"))?;
    display.print_json(&json!({"event": "change", "seconds": seconds, "what": what}))?;
    Ok(())
}
