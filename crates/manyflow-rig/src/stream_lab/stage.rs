//! The sender of a stage, and its relays.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use manyflow_amt::RelayConfig;
use manyflow_layered::relay::{self, SessionInfo};
use manyflow_net::amt::StreamsConfig;
use manyflow_net::forwarder::{Feed, Forwarder, ForwarderConfig};
use manyflow_net::inlet::Route;
use manyflow_streams::{
    OpenedStream, SendControl, StreamDescription, StreamSendConfig, StreamSendProgress,
    live_hop_config,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::pictures::Pictures;
use super::reception::{Place, Reception};

const LOOPBACK: &str = "127.0.0.1:0";
/// Gateways that a relay takes from one address.
const GATEWAYS_MAX: usize = 2_000;
/// Attempts to open the port of a relay that was killed, 50 ms apart.
const ATTEMPTS: u32 = 40;

/// A running sender with its relays, which end when the stage is dropped.
pub struct Stage {
    /// The description by which receivers join.
    pub description: StreamDescription,
    /// The pictures that are sent.
    pub pictures: Arc<Pictures>,
    /// The progress of the sender.
    pub progress: watch::Receiver<StreamSendProgress>,
    start: Instant,
    /// The address of the sender's own relay.
    sender: String,
    relays: Vec<RunningRelay>,
    tasks: Vec<JoinHandle<()>>,
    receivers: u64,
}

struct RunningRelay {
    address: SocketAddr,
    task: Option<JoinHandle<()>>,
}

impl Stage {
    /// Starts a sender with `relays` relays.
    ///
    /// # Errors
    /// If a parameter is refused, or a socket cannot be opened.
    pub async fn start(
        control: &SendControl,
        pictures: Arc<Pictures>,
        relays: usize,
    ) -> Result<Stage> {
        let listen = Some(LOOPBACK.parse()?);
        let OpenedStream {
            description,
            sender,
        } = OpenedStream::open(StreamSendConfig {
            control: control.clone(),
            listen,
            ..StreamSendConfig::new("test pictures", None)
        })?;
        let sender_address = description.amt_relay.as_ref();
        let sender_address = sender_address
            .context("the sender has no relay")?
            .authority();
        let progress = sender.progress();
        let (units, source) = mpsc::channel(2);
        let produced = Arc::clone(&pictures);
        let tasks = vec![
            tokio::spawn(async move {
                sender.run(source, std::future::pending::<()>()).await;
            }),
            tokio::spawn(async move { produced.produce(units).await }),
        ];
        let mut stage = Stage {
            description,
            pictures,
            progress,
            start: Instant::now(),
            sender: sender_address,
            relays: Vec::new(),
            tasks,
            receivers: 0,
        };
        for _ in 0..relays {
            let (address, task) = stage.open_relay(LOOPBACK.parse()?).await?;
            let task = Some(task);
            stage.relays.push(RunningRelay { address, task });
        }
        Ok(stage)
    }

    /// Returns the time since the start.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits until a time since the start.
    pub async fn wait_until(&self, at: Duration) {
        sleep(at.saturating_sub(self.now())).await;
    }

    /// Returns the addresses of the relays.
    pub fn relays(&self) -> Vec<SocketAddr> {
        self.relays.iter().map(|relay| relay.address).collect()
    }

    /// Starts a receiver.
    ///
    /// # Errors
    /// If a socket cannot be opened.
    pub async fn receive(&mut self, place: &Place) -> Result<Reception> {
        self.receivers += 1;
        let place = Place {
            seed: place.seed.wrapping_add(self.receivers),
            ..place.clone()
        };
        let pictures = Arc::clone(&self.pictures);
        Reception::start(&self.description, &place, pictures, self.start).await
    }

    /// Kills a relay: it says nothing to anybody, and its port is closed.
    pub fn kill_relay(&mut self, relay: usize) {
        if let Some(task) = self.relays[relay].task.take() {
            task.abort();
        }
    }

    /// Starts a killed relay again, at the same address.
    ///
    /// # Errors
    /// If the address remains in use.
    pub async fn restart_relay(&mut self, relay: usize) -> Result<()> {
        if self.relays[relay].task.is_some() {
            return Ok(());
        }
        let address = self.relays[relay].address;
        let mut last = None;
        for _ in 0..ATTEMPTS {
            match self.open_relay(address).await {
                Ok((_, task)) => {
                    self.relays[relay].task = Some(task);
                    return Ok(());
                }
                Err(error) => last = Some(error),
            }
            sleep(Duration::from_millis(50)).await;
        }
        match last {
            Some(error) => Err(error).context("a killed relay does not start again"),
            None => bail!("a killed relay was not started again"),
        }
    }

    async fn open_relay(&self, listen: SocketAddr) -> Result<(SocketAddr, JoinHandle<()>)> {
        let id = self.relays.len() as u32 + 1;
        let config = ForwarderConfig {
            feeds: vec![Feed {
                flows: self.description.flows(),
                route: Route::Relays(vec![self.sender.clone()]),
            }],
            listen: Some(listen),
            relay: limits(),
            links: Vec::new(),
            hosts: None,
            streams: Some(streams(&self.description, id)),
            reports_to: None,
        };
        let forwarder = Forwarder::open(config).await?;
        let address = forwarder.local_addr().context("a relay has no address")?;
        let task = tokio::spawn(async move {
            if let Err(error) = forwarder.run(std::future::pending::<()>()).await {
                tracing::warn!("a relay has ended: {error}");
            }
        });
        Ok((address, task))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        (0..self.relays.len()).for_each(|relay| self.kill_relay(relay));
    }
}

/// Returns limits that the relays of a stage do not meet: all gateways have one address.
fn limits() -> RelayConfig {
    RelayConfig {
        gateways_max: GATEWAYS_MAX,
        gateways_per_address_max: GATEWAYS_MAX,
        ..RelayConfig::default()
    }
}

fn streams(description: &StreamDescription, id: u32) -> StreamsConfig {
    let info = SessionInfo {
        session: description.session,
        groups: description.groups,
    };
    StreamsConfig {
        relay: relay::RelayConfig {
            hop: live_hop_config(),
            has_parent: true,
            id,
            ..relay::RelayConfig::default()
        },
        sessions: vec![info],
        groups: (0..description.groups)
            .map(|group| Some((0, group)))
            .collect(),
    }
}
