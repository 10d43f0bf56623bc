//! `manyflow-rig bench relay`: the processor time and memory of a relay with many receivers.
//!
//! The relay is a process of its own. This process is its upstream, which sends packets at a fixed
//! rate, and all its gateways, which count what they receive. Everything is on loopback, where the
//! kernel delivers a packet in the processor time of the process that sends it.
//!
//! `stream.rs` measures layered flows, with `--stream`.

mod stream;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use manyflow_amt::{Family, Flow, GatewayConfig, GatewayEvent, RelayAddress, RelayConfig};
use manyflow_core::units::{Bytes, Rate};
use manyflow_net::amt::{GatewayClient, Incoming, RelaySender, RelayServer};
use manyflow_net::train::Train;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::process_cpu_s;
use crate::cli::RelayBenchArgs;
use manyflow_terminal::Display;

/// Minimum rate to all gateways for each second of the relay's processor time.
const RATE_BOUND: Rate = Rate::from_bits_per_s(1_000_000_000);
/// Maximum share of packets that do not arrive.
const LOSS_BOUND: f64 = 0.01;
/// Maximum resident memory of a relay with idle tunnels.
const MEMORY_BOUND: Bytes = Bytes(100_000_000);
/// Channels that carry the packets, as many as a WEBRC session of this rate has.
const CHANNELS: u8 = 32;
/// UDP payload of a packet: the default of `send --packet`.
const PACKET_BYTES: usize = 1_400;
/// Time between two bursts of packets.
const BURST_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum time for anything that the benchmark waits for.
const LIMIT: Duration = Duration::from_secs(60);

const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const PORT: u16 = 5445;

pub(crate) async fn run(args: &RelayBenchArgs, display: &Display) -> Result<()> {
    display.print_line(&format!("{:<44} {:>12} {:>12}", "", "measured", "bound"))?;
    let missed = if args.stream {
        stream::run(args, display).await?
    } else {
        let mut missed = measure_throughput(args, display).await?;
        missed.extend(measure_memory(args, display).await?);
        missed
    };
    ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}

/// Measures the rate to gateways and the processor time that it takes. Returns missed bounds.
async fn measure_throughput(args: &RelayBenchArgs, display: &Display) -> Result<Vec<String>> {
    let mut bench = Bench::start(args.gateways, flows()).await?;
    let received: Arc<AtomicU64> = Arc::default();
    for gateway in bench.gateways.drain(..) {
        bench.tasks.push(count_bytes(gateway, received.clone()));
    }
    // Caches and queues are warm after a moment.
    send(&bench.upstream, args.rate, Duration::from_secs(1)).await?;
    settle(&received).await;
    let (cpu_before, bytes_before) = (bench.relay.cpu_s()?, received.load(Ordering::Relaxed));
    let started = Instant::now();
    let sent = send(&bench.upstream, args.rate, args.duration).await?;
    let seconds = started.elapsed().as_secs_f64();
    settle(&received).await;
    let cpu_s = bench.relay.cpu_s()? - cpu_before;
    let bits = (received.load(Ordering::Relaxed) - bytes_before) as f64 * 8.0;
    let loss = 1.0 - bits / (sent as f64 * 8.0 * f64::from(args.gateways));
    let per_cpu = bits / cpu_s;
    let bound = RATE_BOUND.bits_per_s() as f64;
    let rows = [
        (
            format!("Gbit/s to {} gateways", args.gateways),
            bits / seconds / 1e9,
            None,
        ),
        (
            "relay's processor time, s per s".to_owned(),
            cpu_s / seconds,
            None,
        ),
        (
            "Gbit per second of processor time".to_owned(),
            per_cpu / 1e9,
            Some(bound / 1e9),
        ),
        ("loss".to_owned(), loss, Some(LOSS_BOUND)),
    ];
    for (name, value, bound) in rows {
        print_row(display, &name, value, bound)?;
    }
    display.print_json(&json!({
        "event": "throughput", "gateways": args.gateways, "bits_per_s": bits / seconds,
        "cpu_s_per_s": cpu_s / seconds, "bits_per_cpu_s": per_cpu, "loss": loss,
    }))?;
    let mut missed = Vec::new();
    if per_cpu < bound {
        missed.push(format!(
            "the relay forwards less than {RATE_BOUND} on one core"
        ));
    }
    if loss > LOSS_BOUND {
        missed.push(format!("more than {LOSS_BOUND} of the packets are lost"));
    }
    Ok(missed)
}

/// Measures the memory of a relay whose gateways have joined a silent channel. Returns missed
/// bounds.
async fn measure_memory(args: &RelayBenchArgs, display: &Display) -> Result<Vec<String>> {
    let bench = Bench::start(args.tunnels, flows()[..1].to_vec()).await?;
    let memory = bench.relay.resident_bytes()?;
    let name = format!("MB of memory with {} idle tunnels", args.tunnels);
    let (megabytes, bound) = (memory as f64 / 1e6, MEMORY_BOUND.0 as f64 / 1e6);
    print_row(display, &name, megabytes, Some(bound))?;
    display.print_json(&json!({
        "event": "memory", "tunnels": args.tunnels, "resident_bytes": memory,
    }))?;
    Ok(match memory > MEMORY_BOUND.0 {
        true => vec![format!("the relay takes more than {MEMORY_BOUND}")],
        false => vec![],
    })
}

fn print_row(display: &Display, name: &str, value: f64, bound: Option<f64>) -> Result<()> {
    let bound = bound.map_or("-".to_owned(), |bound| bound.to_string());
    Ok(display.print_line(&format!("{name:<44} {value:>12.3} {bound:>12}"))?)
}

fn flows() -> Vec<Flow> {
    let flow = |channel| Flow {
        source: (SOURCE, PORT).into(),
        group: ([232, 1, 0, channel], PORT).into(),
    };
    (0..CHANNELS).map(flow).collect()
}

/// An upstream, a relay and gateways that have joined flows.
struct Bench {
    upstream: RelaySender,
    _server: RelayServer,
    relay: RelayProcess,
    gateways: Vec<GatewayClient>,
    tasks: Vec<JoinHandle<()>>,
}

impl Bench {
    /// Starts everything, and waits until all gateways have joined all `flows`.
    async fn start(gateways: u32, flows: Vec<Flow>) -> Result<Bench> {
        let config = RelayConfig {
            gateway_rate_max: Rate::from_bits_per_s(u64::MAX),
            rate_max: Rate::from_bits_per_s(u64::MAX),
            ..RelayConfig::default()
        };
        let server = RelayServer::bind((Ipv4Addr::LOCALHOST, 0).into(), config, flows.clone())?;
        let mut relay = RelayProcess::start(server.local_addr(), gateways)?;
        let started = relay.wait_for(|event| event["event"] == "started").await?;
        let address: SocketAddr = started["listen"].as_str().unwrap_or_default().parse()?;
        let mut clients = Vec::new();
        for _ in 0..gateways {
            clients.push(connect(address, &flows).await?);
        }
        let joins = u64::from(gateways) * flows.len() as u64;
        let all_joined = |event: &Value| event["joins"].as_u64() == Some(joins);
        relay.wait_for(all_joined).await?;
        Ok(Bench {
            upstream: server.sender(),
            _server: server,
            relay,
            gateways: clients,
            tasks: Vec::new(),
        })
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Connects a gateway and waits until its joins are sent.
async fn connect(relay: SocketAddr, flows: &[Flow]) -> Result<GatewayClient> {
    let config = GatewayConfig::new(RelayAddress::Unicast(relay), Family::V4);
    let mut client = GatewayClient::connect(config)?;
    for flow in flows {
        client.join(*flow)?;
    }
    match timeout(LIMIT, client.recv())
        .await
        .context("no answer of the relay")??
    {
        Incoming::Event(GatewayEvent::Ready) => Ok(client),
        other => bail!("the relay does not answer a gateway: {other:?}"),
    }
}

/// Receives forever, and adds the length of all packets to `received`.
fn count_bytes(mut gateway: GatewayClient, received: Arc<AtomicU64>) -> JoinHandle<()> {
    tokio::spawn(async move {
        while gateway.recv().await.is_ok() {
            let mut bytes = 0;
            while let Some(datagram) = gateway.next_datagram() {
                bytes += datagram.payload.len() as u64;
            }
            received.fetch_add(bytes, Ordering::Relaxed);
        }
    })
}

/// Sends packets at a rate, evenly on all channels. Returns the number of bytes.
async fn send(upstream: &RelaySender, rate: Rate, duration: Duration) -> Result<u64> {
    let packet = [7; PACKET_BYTES];
    let started = Instant::now();
    let mut bursts = interval(BURST_INTERVAL);
    bursts.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut sent, mut channel) = (0, 0);
    loop {
        let elapsed = bursts.tick().await.duration_since(started).min(duration);
        let due = (rate.bits_per_s() as f64 / 8.0 * elapsed.as_secs_f64()) as u64;
        while sent + PACKET_BYTES as u64 <= due {
            let train = Train::of(&packet);
            upstream.send(channel, &train)?;
            channel = (channel + 1) % usize::from(CHANNELS);
            sent += PACKET_BYTES as u64;
        }
        if elapsed == duration {
            return Ok(sent);
        }
    }
}

/// Waits until no more packets arrive.
async fn settle(received: &AtomicU64) {
    let mut before = u64::MAX;
    let mut looks = interval(Duration::from_millis(200));
    while before != received.load(Ordering::Relaxed) {
        before = received.load(Ordering::Relaxed);
        looks.tick().await;
        looks.tick().await;
    }
}

/// A running `manyflow relay`, killed when dropped.
struct RelayProcess {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl RelayProcess {
    /// Starts a relay of the flows of files.
    fn start(upstream: SocketAddr, gateways: u32) -> Result<RelayProcess> {
        let (source, port) = (SOURCE.to_string(), PORT.to_string());
        let options = [
            "--source",
            &source,
            "--groups",
            "232.1.0.0/27",
            "--port",
            &port,
        ];
        RelayProcess::start_with(upstream, gateways, &options)
    }

    /// Starts a relay with further options.
    fn start_with(upstream: SocketAddr, gateways: u32, options: &[&str]) -> Result<RelayProcess> {
        let program = crate::program::manyflow()?;
        let mut command = Command::new(program);
        command.args(["relay", "--json", "--listen", "127.0.0.1:0"]);
        command.args(["--relay", &upstream.to_string()]);
        command.args(options);
        command.args(["--relay-rate-max", "1000Gbit/s"]);
        let gateways = gateways.to_string();
        command.args(["--relay-gateways", &gateways]);
        command.args(["--relay-gateways-per-address", &gateways]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        let stdout = child.stdout.take().context("the relay has no output")?;
        Ok(RelayProcess {
            child,
            lines: BufReader::new(stdout).lines(),
        })
    }

    /// Waits for an event that meets a condition.
    async fn wait_for(&mut self, condition: impl Fn(&Value) -> bool) -> Result<Value> {
        let found = async {
            loop {
                let line = self
                    .lines
                    .next_line()
                    .await?
                    .context("the relay has ended")?;
                let event = serde_json::from_str(&line)?;
                if condition(&event) {
                    return Ok(event);
                }
            }
        };
        timeout(LIMIT, found)
            .await
            .context("the relay did not get ready in a minute")?
    }

    fn id(&self) -> Result<u32> {
        self.child.id().context("the relay has ended")
    }

    /// Returns the processor time of the process in seconds, user and system.
    fn cpu_s(&self) -> Result<f64> {
        process_cpu_s(self.id()?)
    }

    /// Returns the maximum of the process's resident memory.
    fn resident_bytes(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()?))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
        let kibibytes = kibibytes.context("no VmHWM in /proc/PID/status")?;
        Ok(kibibytes.trim().parse::<u64>()? << 10)
    }
}
