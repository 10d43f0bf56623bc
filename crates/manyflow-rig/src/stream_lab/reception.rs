//! A receiver behind a link of its own to each relay.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use manyflow_core::link::{LinkConfig, LossModel, QueueLimit};
use manyflow_core::units::Rate;
use manyflow_layered::unit::Unit;
use manyflow_net::last_mile::LastMile;
use manyflow_netsim::models::Lie;
use manyflow_streams::{StreamDescription, StreamReceiveProgress, receive};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::interval;

use super::crowd::receive_config;
use super::history::{History, Tick};
use super::liar::Liar;
use super::pictures::Pictures;

/// The rates of the links of demos and measurements, in kbit/s.
pub const LINKS_KBIT: [u64; 4] = [300, 1_000, 3_000, 10_000];
/// The delay of each direction of a link.
const DELAY: Duration = Duration::from_millis(20);
/// The queue of a link, as the time that it takes to drain. One product of bandwidth and delay is
/// less: 40 ms.
const QUEUE: Duration = Duration::from_millis(100);
/// Time between two measurements.
const TICK: Duration = Duration::from_millis(250);
/// The units of the last second.
const SECOND_UNITS: usize = 10;
/// Units whose quality is measured, of those of a second.
const QUALITY_UNITS: usize = 2;

/// Returns a drop-tail link with this rate.
pub fn mile_config(rate: Rate) -> LinkConfig {
    let bytes = rate.bits_per_s() as f64 / 8.0 * QUEUE.as_secs_f64();
    LinkConfig {
        rate: Some(rate),
        delay: DELAY,
        queue: QueueLimit::Bytes(bytes as u64),
        ..LinkConfig::default()
    }
}

/// Returns the direction to the relay, which loses this share of its packets.
fn upward_config(loss: f64) -> LinkConfig {
    LinkConfig {
        delay: DELAY,
        loss: match loss > 0.0 {
            true => LossModel::Bernoulli(loss),
            false => LossModel::None,
        },
        ..LinkConfig::default()
    }
}

/// The place of a receiver in the network.
#[derive(Clone, Debug)]
pub struct Place {
    /// The relays, of which the first that answers is used.
    pub relays: Vec<SocketAddr>,
    /// The rate of the link to each relay.
    pub rate: Rate,
    /// The lie that the receiver tells.
    pub lie: Option<Lie>,
    /// The seed of the links.
    pub seed: u64,
}

impl Place {
    /// An honest receiver behind a link of this rate to each relay.
    pub fn behind(rate: Rate, relays: Vec<SocketAddr>) -> Place {
        Place {
            relays,
            rate,
            lie: None,
            seed: 1,
        }
    }
}

/// A running receiver, which ends when it is dropped.
pub struct Reception {
    /// The rate of the link at present.
    pub rate: Rate,
    shared: Arc<Shared>,
    receiving: Option<JoinHandle<()>>,
    /// Whether the receiver's program is stopped.
    stopped: watch::Sender<bool>,
    measuring: JoinHandle<()>,
    pictures: Arc<Pictures>,
    description: StreamDescription,
    route: Vec<String>,
    _liars: Vec<Liar>,
    start: Instant,
}

struct Shared {
    miles: Vec<LastMile>,
    history: Mutex<History>,
    /// The progress of the present receiver, and the counts of those before it.
    progress: Mutex<Counted>,
}

struct Counted {
    present: watch::Receiver<StreamReceiveProgress>,
    before: StreamReceiveProgress,
}

impl Shared {
    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().expect("no holder panics")
    }

    fn progress(&self) -> MutexGuard<'_, Counted> {
        self.progress.lock().expect("no holder panics")
    }

    fn tick(&self, at: Duration) -> Tick {
        let counted = self.progress();
        let (now, before) = (*counted.present.borrow(), counted.before);
        let downs: Vec<_> = self.miles.iter().map(LastMile::downstream).collect();
        Tick {
            at,
            useful: now.units.bytes + before.units.bytes,
            link_bytes: downs.iter().map(|down| down.delivered_bytes).sum(),
            link_drops: downs.iter().map(|down| down.dropped + down.lost).sum(),
            packets: now.packets + before.packets,
            lost: now.lost + before.lost,
            units: now.units.units + before.units.units,
            missing: now.units.units_missing + before.units.units_missing,
            groups: now.groups,
            latency: now.latency,
        }
    }
}

impl Reception {
    /// Starts a receiver, whose times count from `start`.
    ///
    /// # Errors
    /// If a socket cannot be opened.
    pub async fn start(
        description: &StreamDescription,
        place: &Place,
        pictures: Arc<Pictures>,
        start: Instant,
    ) -> Result<Reception> {
        let (mut miles, mut liars, mut route) = (Vec::new(), Vec::new(), Vec::new());
        for relay in &place.relays {
            let down = mile_config(place.rate);
            let mile = LastMile::start(*relay, down, upward_config(0.0), place.seed).await?;
            let mut address = mile.address();
            if let Some(lie) = place.lie {
                let liar = Liar::start(address, lie).await?;
                address = liar.address();
                liars.push(liar);
            }
            route.push(address.to_string());
            miles.push(mile);
        }
        let (_, present) = watch::channel(StreamReceiveProgress::default());
        let shared = Arc::new(Shared {
            miles,
            history: Mutex::default(),
            progress: Mutex::new(Counted {
                present,
                before: StreamReceiveProgress::default(),
            }),
        });
        let mut reception = Reception {
            rate: place.rate,
            measuring: tokio::spawn(measure(Arc::clone(&shared), start)),
            shared,
            receiving: None,
            stopped: watch::Sender::new(false),
            pictures,
            description: description.clone(),
            route,
            _liars: liars,
            start,
        };
        reception.resume();
        Ok(reception)
    }

    /// Starts the receiver's program, if it does not run.
    pub fn resume(&mut self) {
        if self.receiving.is_some() {
            return;
        }
        let config = receive_config(&self.description, self.route.clone());
        let (units, received) = mpsc::channel(64);
        let (watched, present) = watch::channel(StreamReceiveProgress::default());
        self.shared.progress().present = present;
        let recording = record(
            received,
            Arc::clone(&self.shared),
            Arc::clone(&self.pictures),
            self.start,
        );
        let program = async move {
            let receiving = receive(config, units, watched, std::future::pending::<()>());
            let (ended, ()) = tokio::join!(receiving, recording);
            if let Err(error) = ended {
                tracing::warn!("a receiver has ended: {error}");
            }
        };
        let stopped = self.stopped.subscribe();
        self.receiving = Some(tokio::spawn(run_unless_stopped(program, stopped)));
    }

    /// Kills the receiver's program. It says nothing to its relay.
    pub fn kill(&mut self) {
        if let Some(receiving) = self.receiving.take() {
            receiving.abort();
            let mut counted = self.shared.progress();
            let now = *counted.present.borrow();
            let before = &mut counted.before;
            before.packets += now.packets;
            before.lost += now.lost;
            before.units.bytes += now.units.bytes;
            before.units.units += now.units.units;
            before.units.units_missing += now.units.units_missing;
            counted.present = watch::channel(StreamReceiveProgress::default()).1;
        }
    }

    /// Stops the receiver's program, or lets it go on, as SIGSTOP and SIGCONT do with a process.
    pub fn stop(&self, is_stopped: bool) {
        self.stopped.send_replace(is_stopped);
    }

    /// Changes the rate of the links to all relays.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
        for mile in &self.shared.miles {
            mile.reconfigure(mile_config(rate));
        }
    }

    /// Loses this share of the packets to the relays, which are reports and joins.
    pub fn set_upward_loss(&self, loss: f64) {
        for mile in &self.shared.miles {
            mile.reconfigure_upstream(upward_config(loss));
        }
    }

    /// Returns the measurements between two times since the start of the stage.
    pub fn span(&self, from: Duration, to: Duration) -> super::Span {
        self.shared.history().span(from, to).unwrap_or_default()
    }

    /// Returns the end of the first span of the given length, begun at `from` or later, that meets
    /// a condition.
    pub fn first(
        &self,
        from: Duration,
        length: Duration,
        condition: impl Fn(&super::Span) -> bool,
    ) -> Option<Duration> {
        self.shared.history().first(from, length, condition)
    }

    /// Returns the counts at the last measurement.
    pub fn last(&self) -> super::Tick {
        self.shared.history().last()
    }

    /// Returns the longest time without a delivered unit since the last call.
    pub fn take_gap(&self) -> Duration {
        self.shared.history().take_gap(self.start.elapsed())
    }

    /// Returns the number of prefixes that were not the beginning of a unit.
    pub fn wrong(&self) -> u64 {
        self.shared.history().wrong
    }

    /// Returns the numbers and the prefixes of the last units, oldest first.
    pub fn recent(&self) -> Vec<(u32, Bytes)> {
        self.shared.history().recent.iter().cloned().collect()
    }

    /// Returns the mean quality of some units of the last second in dB; 0 without units.
    pub async fn quality_db(&self) -> f64 {
        let (recent, pictures) = (self.recent(), Arc::clone(&self.pictures));
        let step = SECOND_UNITS / QUALITY_UNITS;
        let measured = tokio::task::spawn_blocking(move || {
            let last = recent.iter().rev().take(SECOND_UNITS).step_by(step);
            let qualities: Vec<_> = last
                .map(|(_, prefix)| pictures.quality_db(prefix))
                .collect();
            qualities.iter().sum::<f64>() / qualities.len().max(1) as f64
        });
        measured.await.unwrap_or_default()
    }
}

impl Drop for Reception {
    fn drop(&mut self) {
        self.measuring.abort();
        if let Some(receiving) = &self.receiving {
            receiving.abort();
        }
    }
}

/// Runs a program, except while it is stopped.
async fn run_unless_stopped(program: impl Future<Output = ()>, mut stopped: watch::Receiver<bool>) {
    tokio::pin!(program);
    loop {
        if stopped.wait_for(|is_stopped| !is_stopped).await.is_err() {
            return;
        }
        tokio::select! {
            biased;
            _ = stopped.wait_for(|is_stopped| *is_stopped) => {}
            () = &mut program => return,
        }
    }
}

/// Measures until it is aborted.
async fn measure(shared: Arc<Shared>, start: Instant) {
    let mut ticks = interval(TICK);
    loop {
        ticks.tick().await;
        let tick = shared.tick(start.elapsed());
        shared.history().push(tick);
    }
}

/// Checks and notes all units.
async fn record(
    mut units: mpsc::Receiver<Unit>,
    shared: Arc<Shared>,
    pictures: Arc<Pictures>,
    start: Instant,
) {
    while let Some(unit) = units.recv().await {
        let is_right = pictures.is_prefix(&unit.prefix);
        let at = start.elapsed();
        shared
            .history()
            .note_unit(at, unit.number, unit.prefix, is_right);
    }
}
