//! The cost of simulations: work, CPU time and memory.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use manyflow_core::Bytes;
use manyflow_scenario::Outcome;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// The work that the program has done so far, and the CPU time and memory it took.
pub(crate) struct Cost {
    pub(crate) receivers: u64,
    pub(crate) transmissions: u64,
    pub(crate) cpu: Duration,
    /// The maximum resident memory so far.
    pub(crate) memory: Bytes,
}

impl Cost {
    pub(crate) fn of(outcomes: &[Outcome]) -> Result<Cost> {
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        let cpu = usage.user_time() + usage.system_time();
        let runs = || outcomes.iter().flatten();
        Ok(Cost {
            receivers: runs().map(|run| run.receivers).sum(),
            transmissions: runs().map(|run| run.transmissions).sum(),
            cpu: Duration::from_micros(cpu.num_microseconds() as u64),
            // Linux reports `max_rss` in units of 1024 bytes.
            memory: Bytes(usage.max_rss() as u64 * 1024),
        })
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (receivers, transmissions) = (self.receivers, self.transmissions);
        let (cpu_s, memory) = (self.cpu.as_secs_f64(), self.memory);
        write!(
            f,
            "{receivers} receivers, {transmissions} packets over links; {cpu_s:.1} s of CPU time and {memory} of memory so far"
        )
    }
}
