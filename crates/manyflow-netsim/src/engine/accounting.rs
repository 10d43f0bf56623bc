//! Checks that each packet is accounted for.

use manyflow_core::Header;
use manyflow_core::link::Counters;

use super::{LinkId, Network};

/// The counters of a link do not add up, which is a bug of the simulator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("link {link}: {sent} packets went in, {accounted} are accounted for")]
pub struct AccountingError {
    link: String,
    sent: u64,
    accounted: u64,
}

impl<H: Header, E> Network<H, E> {
    /// Checks for every link that sent = delivered + dropped + lost + carried.
    ///
    /// # Errors
    /// Returns an error that names the first link whose counters do not add up.
    pub fn check_accounting(&self) -> Result<(), AccountingError> {
        if let Some(parallel) = &self.parallel {
            return parallel.check_accounting(|link| self.link_name(link));
        }
        let carried = self.links.iter().map(|entry| entry.link.carried());
        debug_assert_eq!(carried.sum::<u64>(), self.limits.carried);
        debug_assert_eq!(self.packets.references(), self.limits.carried);
        for (index, entry) in self.links.iter().enumerate() {
            let name = || self.link_name(LinkId(index as u32));
            check(&entry.link.counters(), entry.link.carried(), name)?;
        }
        Ok(())
    }

    /// Returns the number of packets that were discarded because no path led to their destination.
    pub fn unroutable(&self) -> u64 {
        let parts = self.parallel.as_ref();
        self.unroutable + parts.map_or(0, |parallel| parallel.unroutable())
    }
}

/// Checks the counters of one link.
pub(super) fn check(
    counters: &Counters,
    carried: u64,
    name: impl Fn() -> String,
) -> Result<(), AccountingError> {
    let sent = counters.pushed + counters.duplicated;
    let accounted = counters.delivered + counters.dropped + counters.lost + carried;
    if sent == accounted {
        return Ok(());
    }
    Err(AccountingError {
        link: name(),
        sent,
        accounted,
    })
}
