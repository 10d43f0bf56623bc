//! A sender of units on loopback, and receivers behind links.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use manyflow_amt::RelayConfig;
use manyflow_core::link::{LinkConfig, QueueLimit};
use manyflow_core::units::Rate;
use manyflow_layered::relay::{self, SessionInfo};
use manyflow_layered::unit::Unit;
use manyflow_layered::{rlm, sim};
use manyflow_net::amt::{RelayOptions, RelayServer, StreamsConfig};
use manyflow_net::description::HostPort;
use manyflow_net::inlet::Route;
use manyflow_net::last_mile::LastMile;
use manyflow_net::outlets::Outlets;
use manyflow_streams::{
    self, SendControl, SourceUnit, StreamDescription, StreamProtocol, StreamReceiveConfig,
    StreamReceiveProgress, StreamSendProgress, StreamSender,
};
use manyflow_testing::LIMIT;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const SESSION: u32 = 7;
/// Units are longer than any link of a test carries.
const UNIT_BYTES: usize = 150_000;
const UNIT_INTERVAL: Duration = Duration::from_millis(100);

/// A link in user space to one receiver.
pub(crate) struct Link {
    config: LinkConfig,
}

impl Link {
    /// A link with 20 ms of delay and a queue of 100 ms.
    pub(crate) fn new(rate: Rate) -> Link {
        let config = LinkConfig {
            rate: Some(rate),
            delay: Duration::from_millis(20),
            queue: QueueLimit::Bytes(rate.bits_per_s() / 80),
            ..LinkConfig::default()
        };
        Link { config }
    }

    pub(crate) fn into_config(self) -> LinkConfig {
        self.config
    }
}

/// A running sender, and the receivers of a test.
pub(crate) struct Stage {
    pub(crate) description: StreamDescription,
    relay: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    sent: watch::Receiver<StreamSendProgress>,
    tasks: Vec<JoinHandle<()>>,
}

impl Stage {
    /// Starts a sender of SIM with this number of groups.
    pub(crate) async fn start(groups: u8) -> Stage {
        let config = sim::SenderConfig {
            groups,
            packet_bytes: 1400,
            ..sim::SenderConfig::default()
        };
        Stage::start_with(SendControl::Sim(config), UNIT_BYTES).await
    }

    /// Starts a sender with this rate control of units of this length.
    pub(crate) async fn start_with(control: SendControl, unit_bytes: usize) -> Stage {
        let groups = control.groups();
        let description = description(&control);
        let info = SessionInfo {
            session: SESSION,
            groups,
        };
        let options = RelayOptions {
            streams: Some(StreamsConfig {
                relay: relay::RelayConfig::default(),
                sessions: vec![info],
                groups: (0..groups).map(|group| Some((0, group))).collect(),
            }),
            ..RelayOptions::default()
        };
        let listen = "127.0.0.1:0".parse().unwrap();
        let flows = description.flows();
        let server =
            RelayServer::bind_with(listen, RelayConfig::default(), flows.clone(), options).unwrap();
        let relay = server.local_addr();
        let outlets = Outlets::new(&flows, None, Some(server));
        let sender = StreamSender::new(SESSION, &control, outlets).unwrap();
        let sent = sender.progress();
        let (units, source) = mpsc::channel(2);
        let (stop, stopped) = oneshot::channel::<()>();
        let sending = tokio::spawn(async move {
            sender
                .run(source, async {
                    let _ = stopped.await;
                })
                .await;
        });
        Stage {
            description,
            relay,
            stop: Some(stop),
            sent,
            tasks: vec![sending, tokio::spawn(produce(units, unit_bytes))],
        }
    }

    /// Starts a receiver behind a link to the sender.
    pub(crate) async fn receive_behind(&mut self, link: Link) -> Reception {
        let up = LinkConfig {
            delay: link.config.delay,
            ..LinkConfig::default()
        };
        let mile = LastMile::start(self.relay, link.config, up, 1)
            .await
            .unwrap();
        let route = Route::Relays(vec![mile.address().to_string()]);
        let config = StreamReceiveConfig {
            sim: sim::ReceiverConfig::default(),
            rlm: rlm::ReceiverConfig {
                join_timer_min: Duration::from_millis(500),
                ..rlm::ReceiverConfig::default()
            },
            patience: LIMIT,
            ..StreamReceiveConfig::new(self.description.clone(), route)
        };
        let (units, received) = mpsc::channel(64);
        let (watched, progress) = watch::channel(StreamReceiveProgress::default());
        let log = Arc::new(Mutex::new(Log::default()));
        let receiving = async move {
            let forever = std::future::pending::<()>();
            if let Err(error) = manyflow_streams::receive(config, units, watched, forever).await {
                panic!("{error}");
            }
        };
        self.tasks.push(tokio::spawn(receiving));
        self.tasks
            .push(tokio::spawn(record(received, Arc::clone(&log))));
        Reception {
            log,
            progress,
            mile,
        }
    }

    /// Waits until the condition holds.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < LIMIT, "waiting in vain: {what}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Stops the sender, and returns its last progress.
    pub(crate) async fn stop_sending(&mut self) -> StreamSendProgress {
        self.stop = None;
        let ended = async { while self.sent.changed().await.is_ok() {} };
        timeout(LIMIT, ended).await.expect("the sender ends");
        *self.sent.borrow()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// A running receiver.
pub(crate) struct Reception {
    log: Arc<Mutex<Log>>,
    pub(crate) progress: watch::Receiver<StreamReceiveProgress>,
    pub(crate) mile: LastMile,
}

/// The units that a receiver has got.
#[derive(Debug, Default)]
struct Log {
    units: u64,
    /// Units whose prefix is not the beginning of the unit that was sent.
    wrong: u64,
}

impl Reception {
    /// Returns the number of units that were delivered.
    pub(crate) fn units(&self) -> u64 {
        self.log.lock().unwrap().units
    }

    /// Whether each prefix was the beginning of the unit that was sent.
    pub(crate) fn prefixes_are_right(&self) -> bool {
        let log = self.log.lock().unwrap();
        log.wrong == 0 && log.units > 0
    }
}

async fn record(mut units: mpsc::Receiver<Unit>, log: Arc<Mutex<Log>>) {
    while let Some(unit) = units.recv().await {
        let mut log = log.lock().unwrap();
        log.units += 1;
        let pattern = (0..).map(|place: usize| place as u8);
        let is_right = unit
            .prefix
            .iter()
            .copied()
            .eq(pattern.take(unit.prefix.len()));
        log.wrong += u64::from(!is_right);
    }
}

async fn produce(units: mpsc::Sender<SourceUnit>, unit_bytes: usize) {
    let mut ticks = tokio::time::interval(UNIT_INTERVAL);
    let bytes: Bytes = (0..unit_bytes).map(|place| place as u8).collect();
    loop {
        ticks.tick().await;
        let unit = SourceUnit {
            bytes: bytes.clone(),
            interval: Some(UNIT_INTERVAL),
        };
        if units.send(unit).await.is_err() {
            return;
        }
    }
}

fn description(control: &SendControl) -> StreamDescription {
    StreamDescription {
        name: "test".to_owned(),
        session: SESSION,
        version: 1,
        source: "127.0.0.1".parse().unwrap(),
        first_group: "232.1.3.0".parse().unwrap(),
        port: 5446,
        ttl: Some(1),
        protocol: match control {
            SendControl::Sim(_) => StreamProtocol::Sim,
            SendControl::Rlm(_) => StreamProtocol::Rlm,
        },
        groups: control.groups(),
        reports: HostPort {
            host: "127.0.0.1".to_owned(),
            port: 1,
        },
        needs_key: false,
        amt_relay: None,
    }
}
