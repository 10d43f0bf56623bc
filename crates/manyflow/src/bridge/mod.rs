//! `manyflow bridge`: carries subjects and streams of a site's nats-server to other sites.

mod file;

use std::time::Duration;

use anyhow::Result;
use manyflow_bridge::{BridgeConfig, BridgeState, BridgeStatus, StreamConfig, StreamStatus, Way};
use manyflow_terminal::signals::interrupted;
use manyflow_terminal::{Display, usage};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::cli::BridgeArgs;
use file::BridgeFile;

/// The time between two reports of messages that wait for other sites.
const WAITING_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) async fn run(args: BridgeArgs, display: &Display) -> Result<()> {
    let config = match &args.file {
        Some(path) => BridgeFile::read(path)?.config()?,
        None => of_arguments(args),
    };
    let interrupted = interrupted();
    let printer = Printer {
        display,
        config: config.clone(),
    };
    let bridge = manyflow_bridge::start(config).map_err(|error| usage(error.to_string()))?;
    let status = bridge.status();
    tokio::select! {
        () = interrupted => {}
        ended = printer.print(status.clone()) => ended?,
    }
    let last = status.borrow().clone();
    printer.print_end(&last)
}

/// Returns the bridge that the options of the small case stand for.
fn of_arguments(args: BridgeArgs) -> BridgeConfig {
    let (site, nats) = (args.site.unwrap_or_default(), args.nats.unwrap_or_default());
    BridgeConfig {
        subjects: args.subject,
        ..BridgeConfig::new(&site, &nats, &args.daemon)
    }
}

struct Printer<'a> {
    display: &'a Display,
    config: BridgeConfig,
}

impl Printer<'_> {
    /// Prints each new state, and every ten seconds which messages wait for other sites.
    async fn print(&self, mut status: watch::Receiver<BridgeStatus>) -> Result<()> {
        let mut printed = BridgeState::Starting;
        let mut waiting = Vec::new();
        let mut tick = interval(WAITING_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.tick().await;
        loop {
            tokio::select! {
                changed = status.changed() => {
                    if changed.is_err() {
                        anyhow::bail!("the bridge has ended unexpectedly");
                    }
                    let state = status.borrow_and_update().state.clone();
                    if state != printed {
                        self.print_state(&state)?;
                        printed = state;
                    }
                }
                _ = tick.tick() => {
                    let now = status.borrow().streams.clone();
                    if now != waiting {
                        self.print_waiting(&now)?;
                    }
                    waiting = now;
                }
            }
        }
    }

    fn print_state(&self, state: &BridgeState) -> Result<()> {
        let site = &self.config.site;
        let (line, object) = match state {
            BridgeState::Active => (self.carried(), self.active()),
            BridgeState::Standby => (
                "waits, because another bridge of the site is active".to_owned(),
                json!({"event": "standby", "site": site}),
            ),
            BridgeState::Failing(reason) => (
                format!("{reason}; tries again"),
                json!({"event": "failing", "site": site, "reason": reason}),
            ),
            BridgeState::Starting => return Ok(()),
        };
        self.display.print_line(&format!("bridge {site}: {line}"))?;
        self.display.print_json(&object)?;
        Ok(())
    }

    /// Returns what the bridge carries, in words.
    fn carried(&self) -> String {
        let subjects = &self.config.subjects;
        let core = (!subjects.is_empty()).then(|| subjects.join(", "));
        let streams = self.config.streams.iter().map(|stream| {
            let StreamConfig { name, way, .. } = stream;
            match way {
                Way::To(sites) => format!("stream {name} to {}", sites.join(", ")),
                Way::From { site, stream } => format!("stream {name} from {stream} of {site}"),
            }
        });
        let carried: Vec<_> = core.into_iter().chain(streams).collect();
        format!("carries {}", carried.join("; "))
    }

    fn active(&self) -> Value {
        let streams = self.config.streams.iter().map(|stream| match &stream.way {
            Way::To(sites) => json!({"name": stream.name, "to": sites}),
            Way::From {
                site,
                stream: other,
            } => {
                json!({"name": stream.name, "from": site, "stream": other})
            }
        });
        json!({
            "event": "active",
            "site": self.config.site,
            "subjects": self.config.subjects,
            "streams": streams.collect::<Vec<_>>(),
        })
    }

    fn print_waiting(&self, streams: &[StreamStatus]) -> Result<()> {
        let own = &self.config.site;
        for stream in streams {
            let name = &stream.name;
            for (site, messages) in stream.waiting.iter().filter(|(_, messages)| *messages > 0) {
                self.display.print_line(&format!(
                    "bridge {own}: stream {name}: {messages} messages on the way to {site}"
                ))?;
                self.display.print_json(&json!({
                    "event": "waiting", "site": own, "stream": name, "to": site, "messages": messages,
                }))?;
            }
        }
        Ok(())
    }

    fn print_end(&self, status: &BridgeStatus) -> Result<()> {
        let (site, counters) = (&self.config.site, &status.counters);
        let (left, arrived, dropped) = (counters.left, counters.arrived, counters.dropped);
        self.display.print_line(&format!(
            "bridge {site}: {left} messages have left, {arrived} have arrived, {dropped} were dropped"
        ))?;
        self.display.print_json(&json!({
            "event": "done", "site": site, "left": left, "arrived": arrived, "dropped": dropped,
        }))?;
        Ok(())
    }
}
