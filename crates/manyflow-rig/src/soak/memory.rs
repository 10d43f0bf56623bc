//! The resident memory of daemons.

use anyhow::{Result, ensure};
use manyflow_core::units::Bytes;

use manyflow_rig::overlay_lab::{Network, daemon_name};

/// The maximum memory of a daemon. It keeps up to 64 MB of messages that others have not
/// acknowledged.
const MEMORY_MAX: u64 = 256 << 20;
/// Growth that is noise of the allocator, or of a partition late in the run.
const GROWTH_MAX: u64 = 32 << 20;

/// The maximum memory of each daemon, in the second and in the last quarter of the run, in bytes.
#[derive(Debug)]
pub(super) struct Memory(Vec<[u64; 2]>);

impl Memory {
    pub(super) fn new(daemons: usize) -> Memory {
        Memory(vec![[0; 2]; daemons])
    }

    /// Measures all running daemons; `part` is the part of the run that is over.
    pub(super) fn measure(&mut self, network: &Network, part: f64) {
        let half = match part {
            0.25..0.5 => 0,
            0.75.. => 1,
            _ => return,
        };
        for (daemon, maxima) in self.0.iter_mut().enumerate() {
            let bytes = network.resident_bytes(daemon).unwrap_or(0);
            maxima[half] = maxima[half].max(bytes);
        }
    }

    fn maximum(&self, half: usize) -> u64 {
        self.0.iter().map(|maxima| maxima[half]).max().unwrap_or(0)
    }

    /// Returns the maximum of all daemons in the second quarter.
    pub(super) fn early(&self) -> u64 {
        self.maximum(0)
    }

    /// Returns the maximum of all daemons in the last quarter.
    pub(super) fn late(&self) -> u64 {
        self.maximum(1)
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let line = |(daemon, [early, late]): (usize, &[u64; 2])| {
            let (early, late) = (Bytes(*early), Bytes(*late));
            let name = daemon_name(daemon);
            format!("memory of daemon {name}: {early} early, {late} late")
        };
        self.0.iter().enumerate().map(line).collect()
    }

    /// Checks that no daemon uses too much, and that the maximum has not grown.
    ///
    /// # Errors
    /// Returns which bound is exceeded.
    pub(super) fn check(&self) -> Result<()> {
        let (early, late) = (self.early(), self.late());
        ensure!(
            early.max(late) <= MEMORY_MAX,
            "a daemon uses {} of memory, more than {}",
            Bytes(early.max(late)),
            Bytes(MEMORY_MAX)
        );
        ensure!(
            late <= early + GROWTH_MAX,
            "the memory of daemons has grown: it was {} early and {} late",
            Bytes(early),
            Bytes(late)
        );
        Ok(())
    }
}
