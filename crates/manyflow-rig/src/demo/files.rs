//! `manyflow demo`: one sender and five receivers behind different links, on this machine.
//!
//! Everything but the links is real. One process runs the sender with its AMT relay and five
//! receivers with their gateways. Real datagrams cross the loopback interface, and each receiver is
//! behind a [`LastMile`] made of the simulator's `Link`s.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use indicatif::ProgressBar;
use manyflow_amt::RelayConfig;
use manyflow_core::estimate::tcp_equation::TcpEquation;
use manyflow_core::link::{LinkConfig, LossModel, QueueLimit};
use manyflow_core::units::{self, Rate};
use manyflow_files::files::Scratch;
use manyflow_files::sdp::SessionDescription;
use manyflow_files::session::{
    self, Progress, ProgressSinks, ReceiveConfig, Received, SessionSender,
};
use manyflow_net::amt::RelayServer;
use manyflow_net::inlet::Route;
use manyflow_net::last_mile::{IP_UDP_BYTES, LastMile};
use manyflow_net::outlets::Outlets;
use manyflow_object::sender::{ObjectSender, SenderConfig, SourceFile, overhead};
use manyflow_object::storage::MemoryStorage;
use manyflow_webrc::{ReceiverConfig, Session, SessionConfig};
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::options::FilesDemoArgs;
use manyflow_terminal::display::{Display, show};
use manyflow_terminal::signals::interrupted;

/// Time limit for the whole demo.
const TIME_LIMIT: Duration = Duration::from_secs(58);
/// The session's rate. It exceeds the fastest bottleneck, so that the links limit the receivers.
const SESSION_RATE: Rate = Rate::from_bits_per_s(80_000_000);
/// The shortest trains, which leave the most room on the slowest last mile. The transfers are so
/// short that start-up is most of their time.
const TRAIN_PACKETS: u32 = 4;
const FILE_NAME: &str = "demo.bin";
const PORT: u16 = 5445;

/// The last mile of a receiver.
struct Site {
    label: &'static str,
    rate: Rate,
    one_way: Duration,
    loss: f64,
}

const fn site(label: &'static str, kbit_per_s: u64, one_way_ms: u64, loss: f64) -> Site {
    let rate = Rate::from_bits_per_s(kbit_per_s * 1000);
    Site {
        label,
        rate,
        one_way: Duration::from_millis(one_way_ms),
        loss,
    }
}

const SITES: [Site; 5] = [
    site("0.5 Mbit/s", 500, 10, 0.0),
    site("2 Mbit/s", 2_000, 10, 0.0),
    site("8 Mbit/s", 8_000, 10, 0.0),
    site("32 Mbit/s", 32_000, 10, 0.0),
    site("8 Mbit/s, 1 % loss, 100 ms", 8_000, 50, 0.01),
];

impl Site {
    /// The direction towards the receiver, with a queue of 100 ms and at least 20 packets.
    fn down(&self) -> LinkConfig {
        let packets = (self.rate.packets_per_s(1500) / 10.0) as u32;
        LinkConfig {
            rate: Some(self.rate),
            delay: self.one_way,
            queue: QueueLimit::Packets(packets.max(20)),
            loss: LossModel::Bernoulli(self.loss),
            ..LinkConfig::default()
        }
    }

    /// The direction towards the sender, which carries only joins.
    fn up(&self) -> LinkConfig {
        LinkConfig {
            delay: self.one_way,
            ..LinkConfig::default()
        }
    }

    /// The rate that limits the receiver: its link's rate, or with random loss the rate that TCP
    /// would reach there. That is Eq. (1) of the WEBRC paper with the loss event rate of Eq. (8),
    /// and the factor of Eq. (7) between the peak and the mean of a time slot.
    fn bottleneck(&self, packet_bytes: u32) -> Rate {
        if self.loss == 0.0 {
            return self.rate;
        }
        let loss_events = self.loss / (1.0 + (1.5 * self.loss).sqrt());
        let peak =
            TcpEquation::RENO.rate_packets_per_s(2.0 * self.one_way.as_secs_f64(), loss_events);
        self.rate.min(Rate::from_packets_per_s(
            peak * 0.25 / (4.0f64 / 3.0).ln(),
            packet_bytes,
        ))
    }
}

/// The session and the file that is sent.
struct Transfer {
    session: Session,
    description: SessionDescription,
    content: Bytes,
    digest: [u8; 32],
}

/// A receiver that has been started.
struct Running {
    site: &'static Site,
    last_mile: LastMile,
    progress: watch::Receiver<Progress>,
    bar: ProgressBar,
    task: JoinHandle<Result<Received, session::ReceiveError>>,
    start: Instant,
    /// The time since the start and the bytes on the last mile when start-up was over.
    started_up: Option<(Duration, u64)>,
}

pub(super) async fn run(args: FilesDemoArgs, display: &Display) -> Result<()> {
    if args.size.0 == 0 || args.size.0 > 1 << 30 {
        return Err(manyflow_terminal::usage(
            "--size must be between 1 byte and 1 GiB",
        ));
    }
    let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
    let mut transfer = Transfer::new(&args)?;
    let relay = RelayServer::bind(
        (Ipv4Addr::LOCALHOST, 0).into(),
        RelayConfig::default(),
        session::flows(&transfer.description),
    )
    .context("cannot open a socket on loopback")?;
    let address = relay.local_addr();
    let objects = transfer.objects(args.seed)?;
    transfer.description.table_sha256 = Some(objects.table_sha256());
    let outlets = Outlets::new(&session::flows(&transfer.description), None, Some(relay));
    let sender = SessionSender::new(transfer.session.clone(), objects, outlets);
    let sending = tokio::spawn(sender.run(std::future::pending()));

    display.print_line(&format!(
        "One sender, five receivers, each behind its own link; {} go to each receiver at its own rate.\n",
        args.size
    ))?;
    let mut receivers = Vec::new();
    for (number, site) in SITES.iter().enumerate() {
        let seed = args.seed.wrapping_mul(100).wrapping_add(2 * number as u64);
        let last_mile = LastMile::start(address, site.down(), site.up(), seed).await?;
        let output = folder.path().join(number.to_string());
        receivers.push(Running::start(
            site,
            last_mile,
            &mut transfer,
            &output,
            display,
        ));
    }
    let finished = tokio::select! {
        finished = watch_all(&mut receivers, args.size.0) => finished,
        () = interrupted() => return Err(session::ReceiveError::Stopped.into()),
    };
    sending.abort();
    print_table(&transfer, &receivers, finished, folder.path(), display)
}

impl Transfer {
    fn new(args: &FilesDemoArgs) -> Result<Transfer> {
        let mut content = vec![0; args.size.0 as usize];
        Pcg64Mcg::seed_from_u64(args.seed).fill_bytes(&mut content);
        let cci_length = 4;
        let packet_bytes = u32::from(SYMBOL) + overhead(cci_length) as u32;
        let session = Session::new(SessionConfig {
            packet_bytes,
            ..SessionConfig::lan(SESSION_RATE).with_packet_trains(TRAIN_PACKETS)
        })?;
        let description = SessionDescription {
            name: "demo".to_owned(),
            tsi: 1,
            version: 1,
            source: Ipv4Addr::LOCALHOST.into(),
            first_group: Ipv4Addr::new(232, 1, 0, 0).into(),
            port: PORT,
            ttl: Some(1),
            fec_encoding_id: 6,
            table_sha256: None,
            table_key: None,
            protection: None,
            amt_relay: None,
            completion: None,
            webrc: session::describe(&session, ReceiverConfig::default().epoch(&session)),
        };
        Ok(Transfer {
            digest: Sha256::digest(&content).into(),
            content: content.into(),
            session,
            description,
        })
    }

    fn objects(&self, seed: u64) -> Result<ObjectSender<Scratch>> {
        let mut config = SenderConfig::new(1, self.session.active_slots() as u16 + 1, seed);
        config.cci_length = self.session.cci_format().wire_bytes();
        config.symbol_length = SYMBOL;
        let file = SourceFile::new(FILE_NAME, self.content.clone());
        let storage = Scratch::Memory(MemoryStorage::default());
        Ok(ObjectSender::with_storage(config, vec![file], storage)?)
    }

    /// The length of a packet on a last mile: its payload, the tunnelled headers, and the tunnel's
    /// own.
    fn packet_bytes(&self) -> u32 {
        self.session.config().packet_bytes + IP_UDP_BYTES + 2 + IP_UDP_BYTES
    }
}

/// The symbol length in bytes, which gives packets of about 1400 bytes.
const SYMBOL: u16 = 1380;

impl Running {
    fn start(
        site: &'static Site,
        last_mile: LastMile,
        transfer: &mut Transfer,
        output: &Path,
        display: &Display,
    ) -> Running {
        let route = Route::Relays(vec![last_mile.address().to_string()]);
        let config = ReceiveConfig {
            memory_max: 1 << 30,
            threads: 1,
            patience: TIME_LIMIT,
            ..ReceiveConfig::new(transfer.description.clone(), route, output.to_owned())
        };
        let (sinks, progress, _files) = ProgressSinks::channels();
        let task = tokio::spawn(session::receive(config, sinks, std::future::pending()));
        let bar = display.transfer(format!("{:<26}", site.label));
        Running {
            site,
            last_mile,
            progress,
            bar,
            task,
            start: Instant::now(),
            started_up: None,
        }
    }

    /// Notes the end of start-up, after which the link has carried a quarter of the file.
    fn note_start_up(&mut self, file_bytes: u64) {
        let carried = self.last_mile.downstream().delivered_bytes;
        if self.started_up.is_none() && carried >= file_bytes / 4 {
            self.started_up = Some((self.start.elapsed(), carried));
        }
    }

    /// Returns the rate on the last mile from the end of start-up to the end of the transfer, which
    /// took `elapsed` in all.
    fn rate_after_start_up(&self, elapsed: Duration) -> Option<Rate> {
        let (at, before) = self.started_up?;
        let bytes = self.last_mile.downstream().delivered_bytes - before;
        let seconds = elapsed.checked_sub(at)?.as_secs_f64();
        Some(Rate::from_bits_per_s((bytes as f64 * 8.0 / seconds) as u64))
    }
}

/// Updates the bars until all receivers have ended or time is over; returns the results in order.
async fn watch_all(receivers: &mut [Running], file_bytes: u64) -> Vec<Option<Received>> {
    let deadline = tokio::time::Instant::now() + TIME_LIMIT;
    // Start-up takes some hundred milliseconds.
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    while receivers
        .iter()
        .any(|receiver| !receiver.task.is_finished())
        && tokio::time::Instant::now() < deadline
    {
        tick.tick().await;
        for receiver in receivers.iter_mut() {
            receiver.note_start_up(file_bytes);
            if !receiver.task.is_finished() {
                show(&receiver.bar, &receiver.progress.borrow());
            } else if !receiver.bar.is_finished() {
                let seconds = receiver.start.elapsed().as_secs_f64();
                receiver
                    .bar
                    .abandon_with_message(format!("done in {seconds:.1} s"));
            }
        }
    }
    let mut finished = Vec::new();
    for receiver in receivers {
        receiver.bar.finish_and_clear();
        if !receiver.task.is_finished() {
            receiver.task.abort();
        }
        finished.push(match (&mut receiver.task).await {
            Ok(Ok(received)) => Some(received),
            Ok(Err(error)) => {
                tracing::error!("{}: {error}", receiver.site.label);
                None
            }
            Err(_) => None,
        });
    }
    finished
}

/// Prints the closing table. Fails if a file did not arrive intact.
fn print_table(
    transfer: &Transfer,
    receivers: &[Running],
    finished: Vec<Option<Received>>,
    folder: &Path,
    display: &Display,
) -> Result<()> {
    display.print_line(&format!(
        "{:<28} {:>12} {:>12} {:>6} {:>7} {:>6} {:>8}  SHA-256",
        "receiver", "bottleneck", "goodput", "share", "loss", "waves", "time"
    ))?;
    let mut intact = 0;
    let mut slowest = Rate::from_bits_per_s(u64::MAX);
    let times = finished
        .iter()
        .flatten()
        .map(|received| received.elapsed.as_secs_f64());
    let (first, last) = times.fold((f64::INFINITY, 0.0), |(first, last): (f64, f64), time| {
        (first.min(time), last.max(time))
    });
    for (number, (receiver, received)) in receivers.iter().zip(finished).enumerate() {
        slowest = slowest.min(receiver.site.bottleneck(transfer.packet_bytes()));
        let file = folder.join(number.to_string()).join(FILE_NAME);
        intact += usize::from(print_receiver(
            transfer, receiver, received, &file, display,
        )?);
    }
    let size = units::Bytes(transfer.content.len() as u64);
    let single = size.0 as f64 * 8.0 / slowest.bits_per_s() as f64;
    display.print_line(&format!(
        "\nA share is that of the bottleneck after a quarter of the file, since start-up takes most of the time before.\n\
         For a link with random loss, the bottleneck is the rate that TCP would reach there. Times include start-up.\n\
         With one rate for all, each receiver would need {single:.1} s (computed: {size} / {slowest}).\n\
         Here the first one needed {first:.1} s, {:.0} times less, and the last one {last:.1} s, {:.2} times that.",
        single / first,
        last / single
    ))?;
    display.print_json(&json!({"event": "done", "intact": intact, "receivers": receivers.len(), "single_rate_seconds": single}))?;
    if intact < receivers.len() {
        bail!(
            "{} of {} receivers do not have an intact copy of the file; try again, or report it with the table above",
            receivers.len() - intact,
            receivers.len()
        );
    }
    Ok(())
}

/// Prints the row of a receiver; returns whether its file is intact.
fn print_receiver(
    transfer: &Transfer,
    receiver: &Running,
    received: Option<Received>,
    file: &Path,
    display: &Display,
) -> Result<bool> {
    let bottleneck = receiver.site.bottleneck(transfer.packet_bytes());
    let label = receiver.site.label;
    let Some(received) = received else {
        display.print_line(&format!(
            "{label:<28} {:>12} {:>12}",
            bottleneck.to_string(),
            "incomplete"
        ))?;
        return Ok(false);
    };
    let content = std::fs::read(file)?;
    let digest: [u8; 32] = Sha256::digest(&content).into();
    let agrees = digest == transfer.digest;
    let seconds = received.elapsed.as_secs_f64();
    let goodput = Rate::from_bits_per_s((content.len() as f64 * 8.0 / seconds) as u64);
    let share = receiver.rate_after_start_up(received.elapsed);
    let share = share.map_or(f64::NAN, |rate| {
        rate.bits_per_s() as f64 / bottleneck.bits_per_s() as f64
    });
    let link = receiver.last_mile.downstream();
    let loss = (link.dropped + link.lost) as f64 / link.pushed.max(1) as f64;
    let waves = received.progress.waves_max;
    display.print_line(&format!(
        "{label:<28} {:>12} {:>12} {:>4.0} % {:>5.1} % {waves:>6} {seconds:>6.1} s  {} {}",
        bottleneck.to_string(),
        goodput.to_string(),
        share * 100.0,
        loss * 100.0,
        hex(&digest[..4]),
        if agrees { "ok" } else { "WRONG" },
    ))?;
    display.print_json(&json!({
        "event": "receiver",
        "link": label,
        "bottleneck_bits_per_s": bottleneck.bits_per_s(),
        "goodput_bits_per_s": goodput.bits_per_s(),
        "share": share,
        "loss": loss,
        "waves": waves,
        "seconds": seconds,
        "intact": agrees,
    }))?;
    Ok(agrees)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
