//! The records of one daemon on their way to another.

use std::collections::VecDeque;

use bytes::Bytes;

/// A record under way.
#[derive(Clone, Debug)]
pub(super) struct UnderWay {
    pub(super) due_us: u64,
    pub(super) incarnation: u32,
    pub(super) sequence: u64,
    pub(super) record: Bytes,
}

/// The records of one daemon on their way to another: in order, and kept while the other cannot be
/// reached, for the hold time.
#[derive(Debug, Default)]
pub(super) struct Channel {
    pub(super) queue: VecDeque<UnderWay>,
    /// Whether the sender knows the other as a member, and has not given it up.
    pub(super) is_open: bool,
    /// Grows with each view of the topology at the sender.
    pub(super) doubts: u32,
}

impl Channel {
    /// Sends a record, which arrives after those before it.
    pub(super) fn push(&mut self, mut under_way: UnderWay) {
        if self.is_open {
            let last = self.queue.back().map_or(0, |last| last.due_us);
            under_way.due_us = under_way.due_us.max(last);
            self.queue.push_back(under_way);
        }
    }

    /// Delays all records, after a cut.
    pub(super) fn delay(&mut self, until_us: u64) {
        for under_way in &mut self.queue {
            under_way.due_us = under_way.due_us.max(until_us);
        }
    }

    /// Loses all records from one on: the sender has crashed, or gives up.
    pub(super) fn lose_from(&mut self, first: usize) {
        self.queue.truncate(first);
        self.is_open = false;
    }
}
