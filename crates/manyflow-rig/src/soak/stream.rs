//! `manyflow-rig soak stream`: a stream for a long time, while receivers come, go and stop, relays
//! are killed and restarted, links change their rates, and reports are lost.
//!
//! Everything runs in this process. Each delivered prefix is compared with the unit that was sent.
//! At the end everything is repaired, and each receiver must get pictures again. The memory of this
//! process late in the run must not be above that early in the run.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use indicatif::ProgressBar;
use manyflow_core::units::{Bytes, Rate};
use manyflow_files::session::ReceiveError;
use manyflow_streams::{SendControl, live_sender_config};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde_json::json;

use crate::cli::StreamSoakArgs;
use manyflow_rig::stream_lab::{LINKS_KBIT, Pictures, Place, Reception, Stage};
use manyflow_terminal::Display;
use manyflow_terminal::signals::interrupted;

const RELAYS: usize = 2;
/// The time between two changes.
const PAUSE_MS: std::ops::Range<u64> = 500..3_000;
/// The time in which each receiver must get pictures again after the faults.
const RECOVERY_LIMIT: Duration = Duration::from_secs(30);
/// The units that each receiver must get after the faults.
const RECOVERED_UNITS: u64 = 20;
/// Growth of memory that is noise of the allocator.
const GROWTH_MAX: u64 = 32 << 20;
/// The share of packets towards relays that are lost at times.
const UPWARD_LOSS: f64 = 0.3;

/// Runs the soak.
///
/// # Errors
/// If a prefix is wrong, a receiver gets no picture after the faults, or memory grows.
pub(crate) async fn run(args: &StreamSoakArgs, display: &Display) -> Result<()> {
    let pictures = Arc::new(tokio::task::spawn_blocking(Pictures::encode).await??);
    let control = SendControl::Sim(live_sender_config());
    let mut stage = Stage::start(&control, pictures, RELAYS).await?;
    let mut receivers = Vec::new();
    for place in 0..usize::from(args.receivers) {
        let rate = Rate::from_bits_per_s(1_000 * LINKS_KBIT[place % LINKS_KBIT.len()]);
        // Half of the receivers begin with the other relay.
        let mut relays = stage.relays();
        relays.rotate_left(place % RELAYS);
        receivers.push(stage.receive(&Place::behind(rate, relays)).await?);
    }
    let mut soak = Soak {
        states: vec![State::Runs; receivers.len()],
        stage,
        receivers,
        relay_is_up: [true; RELAYS],
        random: Pcg64Mcg::seed_from_u64(args.seed),
        memory: [0; 2],
        changes: 0,
    };
    let ended = tokio::select! {
        ended = soak.play(args.duration, display) => ended,
        () = interrupted() => return Err(ReceiveError::Stopped.into()),
    };
    ended.with_context(|| {
        let seconds = args.duration.as_secs();
        format!(
            "repeat with: manyflow-rig soak stream --seed {} --for {seconds}s",
            args.seed
        )
    })
}

/// The state of a receiver's program.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    Runs,
    Stopped,
    Gone,
}

struct Soak {
    stage: Stage,
    receivers: Vec<Reception>,
    states: Vec<State>,
    relay_is_up: [bool; RELAYS],
    random: Pcg64Mcg,
    /// The maximum resident memory in the second and in the last quarter of the run, in bytes.
    memory: [u64; 2],
    changes: u64,
}

impl Soak {
    async fn play(&mut self, duration: Duration, display: &Display) -> Result<()> {
        let bar = display.spinner(String::new());
        while self.stage.now() < duration {
            let pause = Duration::from_millis(self.random.random_range(PAUSE_MS));
            let next = duration.min(self.stage.now() + pause);
            self.stage.wait_until(next).await;
            self.look(duration, &bar)?;
            let change = self.change().await?;
            self.changes += 1;
            display.print_json(&json!({
                "event": "change", "seconds": self.stage.now().as_secs_f64(), "change": change,
            }))?;
        }
        bar.set_message("everything is repaired");
        self.repair().await?;
        bar.finish_and_clear();
        self.check_memory()?;
        self.report(display)
    }

    /// Checks all prefixes so far, and measures the memory.
    fn look(&mut self, duration: Duration, bar: &ProgressBar) -> Result<()> {
        for receiver in &self.receivers {
            ensure!(
                receiver.wrong() == 0,
                "the receiver behind {} got a prefix that was not sent",
                receiver.rate
            );
        }
        let now = self.stage.now();
        let half = match now.as_secs_f64() / duration.as_secs_f64() {
            0.25..0.5 => Some(0),
            0.75.. => Some(1),
            _ => None,
        };
        if let Some(half) = half {
            self.memory[half] = self.memory[half].max(resident_bytes()?);
        }
        bar.set_message(format!(
            "{} s, {} units, {} changes",
            now.as_secs(),
            self.units(),
            self.changes
        ));
        Ok(())
    }

    /// Returns the units that all receivers have got together.
    fn units(&self) -> u64 {
        let units = |receiver: &Reception| receiver.last().units;
        self.receivers.iter().map(units).sum()
    }

    /// Makes one change. Returns its name.
    async fn change(&mut self) -> Result<String> {
        let place = self.random.random_range(0..self.receivers.len());
        let receiver = &mut self.receivers[place];
        Ok(match self.random.random_range(0..6) {
            0 => self.toggle_relay().await?,
            1 => {
                let kbit = LINKS_KBIT[self.random.random_range(0..LINKS_KBIT.len())];
                receiver.set_rate(Rate::from_bits_per_s(1_000 * kbit));
                format!("receiver {place} has {kbit} kbit/s")
            }
            2 => {
                let is_lossy = self.random.random_bool(0.5);
                receiver.set_upward_loss(if is_lossy { UPWARD_LOSS } else { 0.0 });
                format!("receiver {place} loses reports: {is_lossy}")
            }
            _ => self.change_state(place),
        })
    }

    fn change_state(&mut self, place: usize) -> String {
        let receiver = &mut self.receivers[place];
        let next = match self.states[place] {
            State::Runs if self.random.random_bool(0.5) => {
                receiver.kill();
                State::Gone
            }
            State::Runs => {
                receiver.stop(true);
                State::Stopped
            }
            State::Stopped => {
                receiver.stop(false);
                State::Runs
            }
            State::Gone => {
                receiver.resume();
                State::Runs
            }
        };
        self.states[place] = next;
        format!("receiver {place} is now in state {next:?}")
    }

    async fn toggle_relay(&mut self) -> Result<String> {
        let relay = self.random.random_range(0..RELAYS);
        self.relay_is_up[relay] ^= true;
        if self.relay_is_up[relay] {
            self.stage.restart_relay(relay).await?;
            Ok(format!("relay {relay} is restarted"))
        } else {
            self.stage.kill_relay(relay);
            Ok(format!("relay {relay} is killed"))
        }
    }

    /// Repairs everything, and waits until each receiver gets pictures again.
    async fn repair(&mut self) -> Result<()> {
        for relay in 0..RELAYS {
            self.stage.restart_relay(relay).await?;
        }
        for receiver in &mut self.receivers {
            receiver.stop(false);
            receiver.resume();
            receiver.set_upward_loss(0.0);
        }
        let before: Vec<_> = self.receivers.iter().map(|one| one.last().units).collect();
        let deadline = self.stage.now() + RECOVERY_LIMIT;
        for (receiver, before) in self.receivers.iter().zip(before) {
            while receiver.last().units < before + RECOVERED_UNITS {
                ensure!(
                    self.stage.now() < deadline,
                    "the receiver behind {} gets no pictures after the faults",
                    receiver.rate
                );
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            ensure!(
                receiver.wrong() == 0,
                "a prefix after the faults was not sent"
            );
        }
        Ok(())
    }

    fn check_memory(&self) -> Result<()> {
        let [early, late] = self.memory;
        ensure!(
            late <= early + GROWTH_MAX,
            "the memory has grown: it was {} early and {} late",
            Bytes(early),
            Bytes(late)
        );
        Ok(())
    }

    fn report(&self, display: &Display) -> Result<()> {
        let [early, late] = self.memory;
        let (units, changes) = (self.units(), self.changes);
        display.print_line(&format!(
            "{units} units at {} receivers, {changes} changes: each prefix was right, and each receiver got pictures after the \
             faults.\nMemory: {} early, {} late",
            self.receivers.len(),
            Bytes(early),
            Bytes(late)
        ))?;
        Ok(display.print_json(&json!({
            "event": "done", "units": units, "changes": changes, "memory_early": early,
            "memory_late": late,
        }))?)
    }
}

/// Returns the resident memory of this process.
fn resident_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kibibytes = kibibytes.context("no VmRSS in /proc/self/status")?;
    Ok(kibibytes.trim().parse::<u64>()? << 10)
}
