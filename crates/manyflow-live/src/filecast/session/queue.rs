//! The queue between the network and the decoder.
//!
//! Datagrams are copied into one buffer, and the decoder takes all that are there at once. So a
//! queued datagram pins no larger buffer, and the decoder's thread is woken once for a batch.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Maximum size of the datagrams that wait for the decoder, in bytes. The decoder holds as many
/// while it handles them.
const BYTES_MAX: usize = 16 << 20;

/// The end of a queue that takes datagrams. When it is dropped, the decoder gets those that are
/// queued, and no others.
#[derive(Debug)]
pub(super) struct Input(Arc<Queue>);

/// The end of a queue that yields datagrams.
#[derive(Debug)]
pub(super) struct Output(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    batch: Batch,
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

    fn clear(&mut self) {
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
    /// Queues a datagram. Returns whether there was room.
    pub(super) fn push(&self, datagram: &[u8]) -> bool {
        let mut state = self.0.lock();
        let batch = &mut state.batch;
        if batch.bytes.len() + datagram.len() > BYTES_MAX {
            return false;
        }
        let was_empty = batch.ends.is_empty();
        batch.bytes.extend_from_slice(datagram);
        batch.ends.push(batch.bytes.len());
        drop(state);
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

impl Output {
    /// Waits for datagrams and moves them into `batch`. Returns false if there will be no more.
    pub(super) fn take(&self, batch: &mut Batch) -> bool {
        batch.clear();
        let waiting = |state: &mut State| state.batch.ends.is_empty() && !state.is_closed;
        let state = self.0.changed.wait_while(self.0.lock(), waiting);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.batch, batch);
        !batch.ends.is_empty()
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

    #[test]
    fn datagrams_come_in_batches_and_in_order() {
        let (input, output) = queue();
        let mut batch = Batch::default();
        assert!(input.push(b"one") && input.push(b"") && input.push(b"three"));
        assert!(output.take(&mut batch));
        let datagrams: Vec<_> = batch.datagrams().collect();
        assert_eq!(datagrams, [&b"one"[..], b"", b"three"]);
        input.push(b"four");
        drop(input);
        assert!(output.take(&mut batch));
        assert_eq!(batch.datagrams().collect::<Vec<_>>(), [b"four"]);
        assert!(!output.take(&mut batch));
    }

    #[test]
    fn a_full_queue_takes_no_more() {
        let (input, output) = queue();
        let datagram = vec![0; 60_000];
        let taken = (0..1_000).take_while(|_| input.push(&datagram)).count();
        assert_eq!(taken, BYTES_MAX / 60_000);
        output.take(&mut Batch::default());
        assert!(input.push(&datagram));
    }
}
