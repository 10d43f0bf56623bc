//! The queue to the decoder, for datagrams from the network and for blocks that other threads have
//! decoded.
//!
//! Datagrams are copied into one buffer, and pass in batches: the driver queues all that it has
//! received together, and the decoder takes all that are queued. So there is one lock, and at most
//! one wake-up, for a batch.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use manyflow_object::fec::Decoded;

/// Maximum size of the datagrams that wait for the decoder, in bytes. The decoder holds as many
/// while it handles them.
const BYTES_MAX: usize = 64 << 20;

/// The end of a queue that takes datagrams. When it is dropped, the decoder gets those that are
/// queued, and no others.
pub(super) struct Input(Arc<Queue>);

/// The end of a queue that takes decoded blocks.
#[derive(Clone)]
pub(super) struct DecodedInput(Arc<Queue>);

/// The end of a queue that yields datagrams and decoded blocks.
pub(super) struct Output(Arc<Queue>);

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    batch: Batch,
    decoded: Vec<Decoded>,
    is_closed: bool,
}

/// Datagrams in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Batch {
    pub(super) fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts
            .zip(&self.ends)
            .map(|(&start, &end)| &self.bytes[start..end])
    }

    /// Adds a datagram.
    pub(super) fn push(&mut self, datagram: &[u8]) {
        self.bytes.extend_from_slice(datagram);
        self.ends.push(self.bytes.len());
    }

    fn append(&mut self, other: &Batch) {
        let offset = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| offset + end));
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// Creates a queue.
pub(super) fn queue() -> (Input, Output) {
    let queue = Arc::new(Queue::default());
    (Input(Arc::clone(&queue)), Output(queue))
}

impl Input {
    /// Queues the datagrams of `batch`, which is empty then. Returns false if there is no room: the
    /// batch is as it was.
    pub(super) fn push(&self, batch: &mut Batch) -> bool {
        if batch.ends.is_empty() {
            return true;
        }
        let mut state = self.0.lock();
        let queued = &mut state.batch;
        let was_empty = queued.ends.is_empty();
        if was_empty {
            std::mem::swap(queued, batch);
        } else if queued.bytes.len() + batch.bytes.len() <= BYTES_MAX {
            queued.append(batch);
        } else {
            return false;
        }
        drop(state);
        batch.clear();
        if was_empty {
            self.0.changed.notify_one();
        }
        true
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_one();
    }
}

impl DecodedInput {
    pub(super) fn push(&self, decoded: Decoded) {
        self.0.lock().decoded.push(decoded);
        self.0.changed.notify_one();
    }
}

impl Output {
    /// Returns the end that takes decoded blocks.
    pub(super) fn decoded_input(&self) -> DecodedInput {
        DecodedInput(Arc::clone(&self.0))
    }

    /// Waits for datagrams or decoded blocks, at most for `patience`, and moves them into `batch`
    /// and `decoded`. Returns false if there will be no more. `is_decoding` says whether blocks are
    /// still to come when datagrams are not.
    pub(super) fn take(
        &self,
        batch: &mut Batch,
        decoded: &mut Vec<Decoded>,
        is_decoding: bool,
        patience: Duration,
    ) -> bool {
        batch.clear();
        decoded.clear();
        let waiting = |state: &mut State| {
            let is_over = state.is_closed && !is_decoding;
            state.batch.ends.is_empty() && state.decoded.is_empty() && !is_over
        };
        let changed = &self.0.changed;
        let waited = changed.wait_timeout_while(self.0.lock(), patience, waiting);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.batch, batch);
        std::mem::swap(&mut state.decoded, decoded);
        let is_over = state.is_closed && !is_decoding;
        !is_over || !batch.ends.is_empty() || !decoded.is_empty()
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(datagrams: &[&[u8]]) -> Batch {
        let mut batch = Batch::default();
        datagrams.iter().for_each(|datagram| batch.push(datagram));
        batch
    }

    fn take(output: &Output, batch: &mut Batch) -> bool {
        output.take(batch, &mut Vec::new(), false, Duration::from_secs(60))
    }

    #[test]
    fn datagrams_come_in_batches_and_in_order() {
        let (input, output) = queue();
        let mut taken = Batch::default();
        assert!(input.push(&mut batch(&[b"one", b""])));
        assert!(input.push(&mut batch(&[b"three"])));
        assert!(take(&output, &mut taken));
        let datagrams: Vec<_> = taken.datagrams().collect();
        assert_eq!(datagrams, [&b"one"[..], b"", b"three"]);
        input.push(&mut batch(&[b"four"]));
        drop(input);
        assert!(take(&output, &mut taken));
        assert_eq!(taken.datagrams().collect::<Vec<_>>(), [b"four"]);
        assert!(!take(&output, &mut taken));
    }

    #[test]
    fn a_full_queue_takes_no_more() {
        let (input, output) = queue();
        let datagram = vec![0; 60_000];
        let taken = (0..2_000).filter(|_| input.push(&mut batch(&[&datagram])));
        assert_eq!(taken.count(), BYTES_MAX / 60_000);
        let mut waiting = batch(&[b"waits"]);
        while input.push(&mut batch(&[b"fills"])) {}
        assert!(!input.push(&mut waiting));
        assert!(take(&output, &mut Batch::default()));
        assert!(input.push(&mut waiting));
        let mut taken = Batch::default();
        assert!(take(&output, &mut taken));
        assert_eq!(taken.datagrams().collect::<Vec<_>>(), [b"waits"]);
    }
}
