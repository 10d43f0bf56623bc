//! `manyflow-rig bench relay --stream`: a relay of layered flows, which go through a hop to each
//! gateway.
//!
//! The hops have a given rate above that of the stream, so that what is measured is the work of
//! queues, pacing, soundings and reports, not the search for a rate. The gateways answer soundings,
//! and report once in each round, as receivers do.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use manyflow_amt::{Flow, RelayConfig};
use manyflow_core::units::Rate;
use manyflow_layered::relay::ReportingEnd;
use manyflow_layered::{Data, Feedback, Message};
use manyflow_net::amt::{FromRelay, GatewayClient, RelaySender, RelayServer};
use manyflow_net::description::HostPort;
use manyflow_net::train::Train;
use manyflow_streams::{StreamDescription, StreamProtocol};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    BURST_INTERVAL, LOSS_BOUND, MEMORY_BOUND, PACKET_BYTES, PORT, RATE_BOUND, RelayProcess, SOURCE,
    connect, print_row, settle,
};
use crate::cli::RelayBenchArgs;
use manyflow_terminal::Display;

const GROUPS: u8 = 4;
const SESSION: u32 = 7;
/// The packets per second that a relay must take.
const PACKETS_BOUND: f64 = 100_000.0;
/// The rate of each hop, as a multiple of the stream's.
const HOP_FACTOR: u64 = 4;
/// The time between two requests for reports.
const ROUND: Duration = Duration::from_millis(250);
/// The time and the rate of the data to many gateways.
const TRICKLE: Duration = Duration::from_secs(5);
const TRICKLE_PACKETS_PER_S: f64 = 10.0;

/// Measures processor time, packets per second, and memory. Returns missed bounds.
///
/// # Errors
/// If a process or a socket fails.
pub(super) async fn run(args: &RelayBenchArgs, display: &Display) -> Result<Vec<String>> {
    let mut missed = measure_processor_time(args, display).await?;
    missed.extend(measure_packets(args, display).await?);
    missed.extend(measure_memory(args, display).await?);
    Ok(missed)
}

async fn measure_processor_time(args: &RelayBenchArgs, display: &Display) -> Result<Vec<String>> {
    let packets_per_s = args.rate.bits_per_s() as f64 / 8.0 / PACKET_BYTES as f64;
    let measured = measure(args.gateways, packets_per_s, args.duration).await?;
    let sent_bits = measured.received_bytes as f64 * 8.0;
    let per_cpu = sent_bits / measured.cpu_s;
    let bound = RATE_BOUND.bits_per_s() as f64;
    let name = format!("stream: Gbit/s to {} gateways", args.gateways);
    print_row(display, &name, sent_bits / measured.seconds / 1e9, None)?;
    let name = "stream: relay's processor time, s per s";
    print_row(display, name, measured.cpu_s / measured.seconds, None)?;
    let name = "stream: Gbit per second of processor time";
    print_row(display, name, per_cpu / 1e9, Some(bound / 1e9))?;
    print_row(
        display,
        "stream: loss",
        measured.loss(args.gateways),
        Some(LOSS_BOUND),
    )?;
    display.print_json(&json!({
        "event": "stream_throughput", "gateways": args.gateways, "bits_per_cpu_s": per_cpu,
        "cpu_s_per_s": measured.cpu_s / measured.seconds, "loss": measured.loss(args.gateways),
    }))?;
    let mut missed = Vec::new();
    if per_cpu < bound {
        missed.push(format!(
            "the relay sends less than {RATE_BOUND} of a stream on one core"
        ));
    }
    if measured.loss(args.gateways) > LOSS_BOUND {
        missed.push(format!(
            "more than {LOSS_BOUND} of a stream's packets are lost"
        ));
    }
    Ok(missed)
}

async fn measure_packets(args: &RelayBenchArgs, display: &Display) -> Result<Vec<String>> {
    let measured = measure(1, 1.05 * PACKETS_BOUND, args.duration).await?;
    let packets = measured.received_bytes as f64 / PACKET_BYTES as f64 / measured.seconds;
    let name = "stream: packets/s through one hop";
    print_row(display, name, packets, Some(PACKETS_BOUND))?;
    print_row(display, "stream: loss at that rate", measured.loss(1), None)?;
    let name = "stream: processor time at that rate, s per s";
    print_row(display, name, measured.cpu_s / measured.seconds, None)?;
    display.print_json(&json!({
        "event": "stream_packets", "packets_per_s": packets, "loss": measured.loss(1),
    }))?;
    Ok(match packets < PACKETS_BOUND {
        true => vec![format!(
            "the relay takes less than {PACKETS_BOUND} packets/s of a stream"
        )],
        false => vec![],
    })
}

async fn measure_memory(args: &RelayBenchArgs, display: &Display) -> Result<Vec<String>> {
    let mut bench = Bench::start(args.tunnels, Rate::from_bits_per_s(1_000_000), 1).await?;
    bench.send(TRICKLE_PACKETS_PER_S, TRICKLE, 1).await?;
    settle(&bench.received).await;
    let memory = bench.relay.resident_bytes()?;
    let name = format!(
        "stream: MB of memory with {} tunnels with data",
        args.tunnels
    );
    print_row(
        display,
        &name,
        memory as f64 / 1e6,
        Some(MEMORY_BOUND.0 as f64 / 1e6),
    )?;
    display.print_json(&json!({
        "event": "stream_memory", "tunnels": args.tunnels, "resident_bytes": memory,
    }))?;
    Ok(match memory > MEMORY_BOUND.0 {
        true => vec![format!(
            "the relay of a stream takes more than {MEMORY_BOUND}"
        )],
        false => vec![],
    })
}

/// A measurement of one rate.
#[derive(Copy, Clone, Debug)]
struct Measured {
    seconds: f64,
    cpu_s: f64,
    sent_packets: u64,
    received_bytes: u64,
}

impl Measured {
    fn loss(&self, gateways: u32) -> f64 {
        let sent = self.sent_packets as f64 * PACKET_BYTES as f64 * f64::from(gateways);
        1.0 - self.received_bytes as f64 / sent
    }
}

async fn measure(gateways: u32, packets_per_s: f64, duration: Duration) -> Result<Measured> {
    let bits_per_s = packets_per_s * PACKET_BYTES as f64 * 8.0;
    let hop = Rate::from_bits_per_s(HOP_FACTOR * bits_per_s as u64);
    let mut bench = Bench::start(gateways, hop, GROUPS).await?;
    // Caches and queues are warm after a moment.
    bench
        .send(packets_per_s, Duration::from_secs(1), GROUPS)
        .await?;
    settle(&bench.received).await;
    let (cpu_before, bytes_before) = (bench.relay.cpu_s()?, bench.received.load(Ordering::Relaxed));
    let started = Instant::now();
    let sent_packets = bench.send(packets_per_s, duration, GROUPS).await?;
    let seconds = started.elapsed().as_secs_f64();
    settle(&bench.received).await;
    Ok(Measured {
        seconds,
        cpu_s: bench.relay.cpu_s()? - cpu_before,
        sent_packets,
        received_bytes: bench.received.load(Ordering::Relaxed) - bytes_before,
    })
}

/// An upstream, a relay of a stream, and gateways that have joined groups.
struct Bench {
    upstream: RelaySender,
    _server: RelayServer,
    relay: RelayProcess,
    received: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
    sequences: [u32; GROUPS as usize],
    request: u16,
    _directory: TempDir,
}

impl Bench {
    /// Starts everything, and waits until all gateways have joined the first `joined` groups.
    async fn start(gateways: u32, hop: Rate, joined: u8) -> Result<Bench> {
        let config = RelayConfig {
            gateway_rate_max: Rate::from_bits_per_s(u64::MAX),
            rate_max: Rate::from_bits_per_s(u64::MAX),
            ..RelayConfig::default()
        };
        let description = describe();
        let flows = description.flows();
        let server = RelayServer::bind(([127, 0, 0, 1], 0).into(), config, flows.clone())?;
        let (directory, path) = write_description(&description)?;
        let link = format!("127.0.0.0/8={}bit/s", hop.bits_per_s());
        let session = path.to_str().context("a path without UTF-8")?;
        let options = ["--session", session, "--link", &link];
        let mut relay = RelayProcess::start_with(server.local_addr(), gateways, &options)?;
        let started = relay.wait_for(|event| event["event"] == "started").await?;
        let address = started["listen"].as_str().unwrap_or_default().parse()?;
        let (received, mut tasks) = (Arc::<AtomicU64>::default(), Vec::new());
        let flows: Vec<Flow> = flows.into_iter().take(joined.into()).collect();
        for number in 0..gateways {
            let client = connect(address, &flows).await?;
            tasks.push(tokio::spawn(receive(client, number, Arc::clone(&received))));
        }
        let joins = u64::from(gateways) * u64::from(joined);
        let all_joined = |event: &Value| event["joins"].as_u64() == Some(joins);
        relay.wait_for(all_joined).await?;
        Ok(Bench {
            upstream: server.sender(),
            _server: server,
            relay,
            received,
            tasks,
            sequences: [0; GROUPS as usize],
            request: 1,
            _directory: directory,
        })
    }

    /// Sends packets evenly on the first `groups` groups. Returns their number.
    async fn send(&mut self, packets_per_s: f64, duration: Duration, groups: u8) -> Result<u64> {
        let started = Instant::now();
        let mut bursts = interval(BURST_INTERVAL);
        bursts.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut sent, mut round) = (0, 0);
        loop {
            let elapsed = bursts.tick().await.duration_since(started).min(duration);
            let due = (packets_per_s * elapsed.as_secs_f64()) as u64;
            if elapsed.as_nanos() / ROUND.as_nanos() > round {
                round += 1;
                self.request = self.request.wrapping_add(1).max(1);
            }
            while sent < due {
                let group = (sent % u64::from(groups)) as u8;
                self.send_packet(group)?;
                sent += 1;
            }
            if elapsed == duration {
                return Ok(sent);
            }
        }
    }

    fn send_packet(&mut self, group: u8) -> Result<()> {
        let sequence = &mut self.sequences[usize::from(group)];
        *sequence = sequence.wrapping_add(1);
        let header = Message::Data(Data {
            group,
            sequence: *sequence,
            request: self.request,
            is_for_group: false,
            rate: 1_000,
            rtt_us: 100_000,
            next_rate: 0,
            is_pair: false,
        });
        let mut packet = [7; PACKET_BYTES];
        let header = header.encode();
        packet[..header.as_bytes().len()].copy_from_slice(header.as_bytes());
        self.upstream.send(group.into(), &Train::of(&packet))?;
        Ok(())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Receives forever: counts the payload, answers soundings, and reports once in each round.
async fn receive(mut gateway: GatewayClient, number: u32, received: Arc<AtomicU64>) {
    let mut end = ReportingEnd::new(None, number);
    let (mut request, mut out) = (0, Vec::new());
    while gateway.recv().await.is_ok() {
        let mut bytes = 0;
        while let Some(incoming) = gateway.next_received() {
            match incoming {
                FromRelay::Packet(packet) => {
                    end.handle_data(SESSION, packet.message);
                    bytes += packet.payload.len() as u64;
                    if let Ok(Message::Data(data)) = Message::decode(packet.payload)
                        && data.request != request
                    {
                        request = data.request;
                        end.report(&[feedback(number, request)]);
                    }
                }
                // A refused message is not answered, as at a receiver.
                FromRelay::Hop(message) => {
                    let _ = end.handle_datagram(message);
                }
            }
        }
        while end.poll_transmit(&mut out) {
            gateway.send_hop_message(&out);
        }
        received.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn feedback(source: u32, request: u16) -> Feedback {
    Feedback {
        source,
        session: SESSION,
        group: 0,
        more: false,
        request,
        reports: 1,
        congested: 0,
        minimum: 1_000,
        maximum: 1_000,
        population: 1,
        hold_us: 0,
        rtt_us: 0,
    }
}

fn describe() -> StreamDescription {
    StreamDescription {
        name: "relay".to_owned(),
        session: SESSION,
        version: 1,
        source: SOURCE,
        first_group: [232, 1, 3, 0].into(),
        port: PORT,
        ttl: Some(1),
        protocol: StreamProtocol::Sim,
        groups: GROUPS,
        reports: HostPort {
            host: "127.0.0.1".to_owned(),
            port: 1,
        },
        needs_key: false,
        amt_relay: None,
    }
}

fn write_description(description: &StreamDescription) -> Result<(TempDir, PathBuf)> {
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let path = directory.path().join("stream.sdp");
    std::fs::write(&path, description.to_sdp(None)?)?;
    Ok((directory, path))
}
