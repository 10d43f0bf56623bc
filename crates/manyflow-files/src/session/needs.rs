//! The receiver's reports of the symbols that it needs.

use std::time::{Duration, Instant};

use manyflow_object::receiver::ObjectReceiver;
use manyflow_object::storage::Storage;

use crate::completion::NEEDS_BYTES_MAX;

/// Time between two reports.
const INTERVAL: Duration = Duration::from_millis(500);
/// The part of all symbols, as a divisor, from which the sender need not know which are needed.
const NEEDS_MAX: u64 = 4;

/// The last report, and the time of the next one.
pub(super) struct NeedsReports {
    next: Instant,
    last: Option<Vec<u8>>,
}

impl NeedsReports {
    pub(super) fn new(now: Instant) -> NeedsReports {
        NeedsReports {
            next: now,
            last: None,
        }
    }

    /// Returns the symbols that are needed, encoded, if it is time and they are others than before.
    /// A receiver that has got everything by packets does not say what it needs: all others of its
    /// kind need as much.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        receiver: &ObjectReceiver<impl Storage>,
    ) -> Option<Option<Vec<u8>>> {
        let progress = receiver.progress();
        if progress.earlier_bytes == 0 || now < self.next {
            return None;
        }
        self.next = now + INTERVAL;
        let needs = receiver.needs();
        let needs = needs.filter(|needs| needs.symbols() <= progress.needed_symbols / NEEDS_MAX);
        let needs = needs.and_then(|needs| needs.encode(NEEDS_BYTES_MAX));
        (needs != self.last).then(|| {
            self.last.clone_from(&needs);
            needs
        })
    }
}
