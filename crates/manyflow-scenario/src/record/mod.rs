//! Runs a scene and records it: the series that measures and plots need, captures and traces.
//!
//! A module refers only to those above it: `audience`, `place`, `probe`, `recorder`, `feed` and
//! `inspect`.

mod audience;
mod feed;
pub(crate) mod inspect;
mod place;
mod probe;
mod recorder;

use std::collections::BTreeMap;

use manyflow_core::Time;
use manyflow_netsim::Halt;

pub use feed::{Beginning, LinkState, OverlayLinkState, Sample, Watch};
pub use inspect::Inspection;
pub(crate) use recorder::Recorder;

use crate::scene::Scene;
use crate::world::World;
use inspect::{Ended, Inspector, Watchers};

const TOO_SHORT: &str = "too few events happen within the shortest delay between parts";

/// Runs a network until `end`. Pauses for progress reports and samples, which change nothing.
fn advance(network: &mut dyn World, end: Time, watchers: &mut Watchers) -> Result<(), Ended> {
    loop {
        let began = network.now();
        let next = end.min(began + watchers.inspector.step());
        network.run_until(next, watchers).map_err(Ended::Halted)?;
        if network.windows().is_some_and(|work| work.are_too_short()) {
            return Err(Ended::Halted(Halt::OneThread(TOO_SHORT)));
        }
        watchers.inspector.advance(next - began);
        watchers.sample(network)?;
        if next == end {
            return Ok(());
        }
    }
}

impl Recorder {
    /// Runs and records the network until `end`. Pauses at each change, so that nothing changes
    /// between two pauses.
    ///
    /// # Errors
    /// Returns the reason if the network halts, or the watcher stops the run.
    pub(super) fn run(
        &mut self,
        scene: &mut Scene,
        end: Time,
        inspector: &mut Inspector,
    ) -> Result<(), Ended> {
        let mut bins: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, probe) in self.probes.iter().enumerate() {
            if probe.bin_ns > 0 {
                bins.entry(probe.bin_ns).or_default().push(index);
            }
        }
        let next = |bin: u64, now: Time| Time::from_nanos((now.as_nanos() / bin + 1) * bin);
        let mut now = Time::ZERO;
        while now < end {
            let ends = bins.keys().map(|&bin| next(bin, now));
            let until = ends.chain(scene.schedule.next_time()).min();
            let until = until.unwrap_or(end).min(end);
            scene.schedule.apply_until(&mut *scene.network, until);
            for audience in &mut self.audiences {
                audience.advance(&*scene.network, now, until);
            }
            now = until;
            let mut watchers = Watchers {
                recorder: self,
                inspector,
            };
            advance(&mut *scene.network, now, &mut watchers)?;
            let over = bins.iter().filter(|(bin, _)| is_end(**bin, now));
            for &probe in over.flat_map(|(_, probes)| probes) {
                self.end_interval(probe, scene, now);
            }
        }
        Ok(())
    }
}

/// Returns whether an interval of this length ends now.
fn is_end(bin_ns: u64, now: Time) -> bool {
    now > Time::ZERO && now.as_nanos().is_multiple_of(bin_ns)
}
