//! Checks that each packet is accounted for.

use manyflow_core::Header;

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
        let carried = self.links.iter().map(|entry| entry.link.carried());
        debug_assert_eq!(carried.sum::<u64>(), self.limits.carried);
        debug_assert_eq!(self.packets.references(), self.limits.carried);
        for (index, entry) in self.links.iter().enumerate() {
            let counters = entry.link.counters();
            let sent = counters.pushed + counters.duplicated;
            let accounted =
                counters.delivered + counters.dropped + counters.lost + entry.link.carried();
            if sent != accounted {
                return Err(AccountingError {
                    link: self.link_name(LinkId(index as u32)),
                    sent,
                    accounted,
                });
            }
        }
        Ok(())
    }

    /// Returns the number of packets that were discarded because no path led to their destination.
    pub fn unroutable(&self) -> u64 {
        self.unroutable
    }
}
