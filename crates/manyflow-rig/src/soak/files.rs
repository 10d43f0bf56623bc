//! `manyflow-rig soak files`: transfers for a long time, on paths that change, between programs
//! that crash.
//!
//! One process runs a sender with its AMT relay, and receivers behind [`LastMile`]s, as the demo
//! does. Each receiver fetches the files again and again. A monitor watches the memory of the
//! process: its maximum late in the run must not be above that early in the run.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use manyflow_amt::RelayConfig;
use manyflow_core::link::{LinkConfig, LossModel, QueueLimit};
use manyflow_core::units::{self, Rate};
use manyflow_files::files::Scratch;
use manyflow_files::sdp::SessionDescription;
use manyflow_files::session::{self, ProgressSinks, ReceiveConfig, ReceiveError, SessionSender};
use manyflow_net::amt::RelayServer;
use manyflow_net::inlet::Route;
use manyflow_net::last_mile::LastMile;
use manyflow_net::outlets::Outlets;
use manyflow_net::reserved::own_address;
use manyflow_object::sender::{ObjectSender, SenderConfig, SourceFile, overhead};
use manyflow_object::storage::MemoryStorage;
use manyflow_webrc::{ReceiverConfig, Session, SessionConfig};
use rand::{Rng, RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::cli::SoakArgs;
use manyflow_terminal::Display;
use manyflow_terminal::signals::interrupted;

/// The session's rate, which is above that of all links.
const SESSION_RATE: Rate = Rate::from_bits_per_s(20_000_000);
const SYMBOL: u16 = 1_376;
const CCI_LENGTH: usize = 4;
/// The silence after which a receiver has failed. Faults of the soak are shorter.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval between two changes of a link.
const LINK_CHANGE_S: std::ops::Range<u64> = 5..15;
/// The time for which a sender runs before it is restarted, and for which it is away.
const SENDER_S: std::ops::Range<u64> = 20..60;
const SENDER_AWAY: Duration = Duration::from_secs(1);
/// The part of the receivers that is interrupted in a minute.
const CHURN_PER_MINUTE: f64 = 0.1;
/// Growth of the memory that is noise of the allocator.
const GROWTH_MAX: u64 = 16 << 20;

/// The state that all tasks share.
struct Soak {
    seed: u64,
    end: Instant,
    session: Session,
    description: SessionDescription,
    files: Vec<(&'static str, Bytes)>,
    transfers: AtomicU64,
    interruptions: AtomicU64,
    restarts: AtomicU64,
}

pub(crate) async fn run(args: SoakArgs, display: &Display) -> Result<()> {
    let home = tempfile::tempdir().context("cannot create a temporary folder")?;
    let relay = own_address()?;
    let soak = Arc::new(Soak::new(&args, relay)?);
    let sending = tokio::spawn(send(Arc::clone(&soak), relay));
    let mut receivers = JoinSet::new();
    for number in 0..args.receivers {
        let output = home.path().join(number.to_string());
        receivers.spawn(receive(Arc::clone(&soak), relay, number, output));
    }
    let memory = tokio::spawn(watch_memory(Arc::clone(&soak), display.clone()));
    let all = async {
        while let Some(ended) = receivers.join_next().await {
            ended??;
        }
        anyhow::Ok(())
    };
    let repeat = || {
        let seconds = args.duration.as_secs();
        format!("repeat with --seed {} --for {seconds}s", args.seed)
    };
    tokio::select! {
        ended = all => ended.with_context(repeat)?,
        ended = sending => ended?.with_context(repeat)?,
        () = interrupted() => return Err(ReceiveError::Stopped.into()),
    }
    let (early, late) = memory.await?;
    soak.report(display, early, late)
}

impl Soak {
    fn new(args: &SoakArgs, relay: SocketAddr) -> Result<Soak> {
        let mut random = Pcg64Mcg::seed_from_u64(args.seed);
        let mut content = |length: u64| {
            let mut content = vec![0; length as usize];
            random.fill_bytes(&mut content);
            Bytes::from(content)
        };
        let files = vec![
            ("large", content(args.size.0 * 3 / 4)),
            ("folder/small", content(args.size.0 / 4)),
            ("empty", Bytes::new()),
        ];
        let session = Session::new(SessionConfig {
            packet_bytes: u32::from(SYMBOL) + overhead(CCI_LENGTH) as u32,
            ..SessionConfig::lan(SESSION_RATE)
        })?;
        let mut soak = Soak {
            seed: args.seed,
            end: Instant::now() + args.duration,
            description: SessionDescription {
                name: "soak".to_owned(),
                tsi: 1,
                version: 1,
                source: Ipv4Addr::LOCALHOST.into(),
                first_group: Ipv4Addr::new(232, 1, 0, 0).into(),
                port: relay.port(),
                ttl: Some(1),
                fec_encoding_id: 6,
                table_sha256: None,
                table_key: None,
                protection: None,
                amt_relay: None,
                completion: None,
                webrc: session::describe(&session, ReceiverConfig::default().epoch(&session)),
            },
            session,
            files,
            transfers: AtomicU64::new(0),
            interruptions: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
        };
        soak.description.table_sha256 = Some(soak.objects(0)?.table_sha256());
        Ok(soak)
    }

    fn objects(&self, first_symbol: u32) -> Result<ObjectSender<Scratch>> {
        let mut config = SenderConfig::new(1, self.session.active_slots() as u16 + 1, self.seed);
        config.cci_length = CCI_LENGTH;
        config.symbol_length = SYMBOL;
        config.first_symbol = first_symbol;
        let files = self.files.iter();
        let files = files.map(|(name, content)| SourceFile::new(*name, content.clone()));
        let storage = Scratch::Memory(MemoryStorage::default());
        Ok(ObjectSender::with_storage(
            config,
            files.collect(),
            storage,
        )?)
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Checks that a folder has the files and nothing else.
    fn check(&self, folder: &Path) -> Result<()> {
        for (name, content) in &self.files {
            let path = folder.join(name);
            let received = std::fs::read(&path).with_context(|| path.display().to_string())?;
            ensure!(
                received == *content,
                "{}: differs from the file sent",
                path.display()
            );
        }
        let entries = std::fs::read_dir(folder)?.count();
        ensure!(
            entries == self.files.len(),
            "{}: has leftovers",
            folder.display()
        );
        Ok(())
    }

    fn report(&self, display: &Display, early: u64, late: u64) -> Result<()> {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (transfers, interruptions) = (count(&self.transfers), count(&self.interruptions));
        let restarts = count(&self.restarts);
        display.print_line(&format!(
            "{transfers} transfers, {interruptions} of them interrupted, {restarts} restarts of the sender: every byte is right"
        ))?;
        display.print_line(&format!(
            "memory: {} early, {} late",
            units::Bytes(early),
            units::Bytes(late)
        ))?;
        display.print_json(&json!({
            "event": "done",
            "transfers": transfers,
            "interruptions": interruptions,
            "restarts": restarts,
            "memory_early": early,
            "memory_late": late,
        }))?;
        ensure!(
            transfers > 0,
            "no transfer was completed: run it for longer"
        );
        ensure!(
            late <= early + GROWTH_MAX,
            "memory has grown: it was {} early and {} late",
            units::Bytes(early),
            units::Bytes(late)
        );
        Ok(())
    }
}

/// Runs the sender with its relay, and restarts both now and then, with other symbols. Ends only
/// with an error.
async fn send(soak: Arc<Soak>, relay: SocketAddr) -> Result<()> {
    let mut random = Pcg64Mcg::seed_from_u64(soak.seed ^ 0x5e4d);
    let mut first_symbol = 0;
    loop {
        let server = RelayServer::bind(
            relay,
            RelayConfig::default(),
            session::flows(&soak.description),
        )?;
        let outlets = Outlets::new(&session::flows(&soak.description), None, Some(server));
        let objects = soak.objects(first_symbol)?;
        let sender = SessionSender::new(soak.session.clone(), objects, outlets);
        tokio::select! {
            // A sender that is dropped does not announce its end: it has crashed.
            ended = sender.run(std::future::pending()) => { ended?; }
            () = sleep(Duration::from_secs(random.random_range(SENDER_S))) => {}
        }
        soak.restarts.fetch_add(1, Ordering::Relaxed);
        first_symbol = random.random_range(1 << 17..1 << 23);
        sleep(SENDER_AWAY).await;
    }
}

/// Receives the files again and again behind a link that changes.
async fn receive(soak: Arc<Soak>, relay: SocketAddr, number: u8, output: PathBuf) -> Result<()> {
    let seed = soak.seed.wrapping_mul(1_000).wrapping_add(number.into());
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let link = random_link(&mut random);
    let last_mile = LastMile::start(relay, link, LinkConfig::default(), seed).await?;
    while !soak.is_over() {
        let transfer = transfer(&soak, last_mile.address(), &output, &mut random);
        tokio::pin!(transfer);
        loop {
            // The links have a generator of their own: a transfer may take any time.
            let change = Duration::from_secs(rand::rng().random_range(LINK_CHANGE_S));
            tokio::select! {
                ended = &mut transfer => break ended?,
                () = sleep(change) => last_mile.reconfigure(random_link(&mut rand::rng())),
            }
        }
        soak.check(&output)?;
        std::fs::remove_dir_all(&output)?;
        soak.transfers.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Receives the files once. Some receivers are interrupted and come back.
async fn transfer(
    soak: &Soak,
    relay: SocketAddr,
    output: &Path,
    random: &mut Pcg64Mcg,
) -> Result<()> {
    loop {
        let config = ReceiveConfig {
            memory_max: 64 << 20,
            threads: 1,
            patience: PATIENCE,
            ..ReceiveConfig::new(
                soak.description.clone(),
                Route::Relays(vec![relay.to_string()]),
                output.to_owned(),
            )
        };
        let stays_s = -random.random::<f64>().ln() * 60.0 / CHURN_PER_MINUTE;
        let leaves = sleep(Duration::from_secs_f64(stays_s.min(1e6)));
        let (sinks, _progress, _files) = ProgressSinks::channels();
        match session::receive(config, sinks, leaves).await {
            Ok(_) => return Ok(()),
            Err(ReceiveError::Stopped) => {
                soak.interruptions.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => bail!("{}: {error}", output.display()),
        }
    }
}

/// A link of 1 to 16 Mbit/s and 1 to 60 ms, with some random loss, and a queue of 100 ms.
fn random_link(random: &mut impl Rng) -> LinkConfig {
    let rate = Rate::from_bits_per_s(1_000_000 << random.random_range(0..5));
    let packets = (rate.packets_per_s(1_500) / 10.0) as u32;
    LinkConfig {
        rate: Some(rate),
        delay: Duration::from_millis(random.random_range(1..=60)),
        queue: QueueLimit::Packets(packets.max(20)),
        loss: LossModel::Bernoulli([0.0, 0.0, 0.001, 0.01][random.random_range(0..4)]),
        ..LinkConfig::default()
    }
}

/// Returns the maximum memory of the process in the second and in the last quarter of the run.
async fn watch_memory(soak: Arc<Soak>, display: Display) -> (u64, u64) {
    let bar = display.spinner(String::new());
    let start = Instant::now();
    let duration = soak.end - start;
    let (mut early, mut late) = (0, 0);
    while !soak.is_over() {
        sleep(Duration::from_secs(1)).await;
        let memory = resident_bytes();
        match start.elapsed().as_secs_f64() / duration.as_secs_f64() {
            0.25..0.5 => early = early.max(memory),
            0.75.. => late = late.max(memory),
            _ => {}
        }
        bar.set_message(format!(
            "{} s, {} transfers, {} restarts of the sender, {} of memory",
            start.elapsed().as_secs(),
            soak.transfers.load(Ordering::Relaxed),
            soak.restarts.load(Ordering::Relaxed),
            units::Bytes(memory)
        ));
    }
    bar.finish_and_clear();
    (early, late)
}

/// The resident memory of this process; 0 where it is not known.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
