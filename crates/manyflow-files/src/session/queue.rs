//! The queue to the decoder, for datagrams from the network and for blocks that other threads have
//! decoded.
//!
//! Datagrams are copied into a buffer, once, and pass in batches: the driver queues all that it has
//! received together, and the decoder takes all batches that are queued. So there is one lock, and
//! at most one wake-up, for a batch, and no copy while the lock is held.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use manyflow_object::fec::Decoded;

/// Maximum size of the datagrams that wait for the decoder, in bytes. The decoder holds as many
/// while it handles them.
const BYTES_MAX: usize = 64 << 20;

/// The time for which the decoder lets datagrams gather after the first, and their size from which
/// it takes them at once. Each time that it is woken costs as much as some packets.
const GATHER_TIME: Duration = Duration::from_millis(4);
const GATHER_BYTES: usize = 512 << 10;

/// Maximum number of empty batches that are kept, and maximum memory of each. A batch has the
/// memory of datagrams that were received together, which are many after a pause.
const SPARE_MAX: usize = 32;
const SPARE_BYTES_MAX: usize = 64 << 10;

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
    batches: Vec<Batch>,
    /// The size of the datagrams in `batches`, in bytes.
    bytes: usize,
    /// Batches that the decoder has emptied, whose memory new ones use.
    spare: Vec<Batch>,
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

    /// Returns the datagram that was added last; an empty one if there is none.
    pub(super) fn last(&self) -> &[u8] {
        &self.bytes[self.start_of_last()..]
    }

    /// Removes the datagram that was added last.
    pub(super) fn pop(&mut self) {
        self.bytes.truncate(self.start_of_last());
        self.ends.pop();
    }

    fn start_of_last(&self) -> usize {
        match self.ends[..] {
            [.., before, _] => before,
            _ => 0,
        }
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
        let was_empty = state.batches.is_empty();
        if !was_empty && state.bytes + batch.bytes.len() > BYTES_MAX {
            return false;
        }
        let before = state.bytes;
        state.bytes += batch.bytes.len();
        let is_enough = before < GATHER_BYTES && state.bytes >= GATHER_BYTES;
        let spare = state.spare.pop().unwrap_or_default();
        state.batches.push(std::mem::replace(batch, spare));
        drop(state);
        if was_empty || is_enough {
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

    /// Waits for datagrams or decoded blocks, at most for `patience`, and moves them into `batches`
    /// and `decoded`. Returns false if there will be no more. `is_decoding` says whether blocks are
    /// still to come when datagrams are not.
    pub(super) fn take(
        &self,
        batches: &mut Vec<Batch>,
        decoded: &mut Vec<Decoded>,
        is_decoding: bool,
        patience: Duration,
    ) -> bool {
        batches.iter_mut().for_each(Batch::clear);
        decoded.clear();
        let mut state = self.0.lock();
        let room = SPARE_MAX.saturating_sub(state.spare.len());
        let small = |batch: &Batch| batch.bytes.capacity() <= SPARE_BYTES_MAX;
        state
            .spare
            .extend(batches.drain(..).filter(small).take(room));
        let waiting = |state: &mut State| {
            let is_over = state.is_closed && !is_decoding;
            state.batches.is_empty() && state.decoded.is_empty() && !is_over
        };
        let changed = &self.0.changed;
        let waited = changed.wait_timeout_while(state, patience, waiting);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let gathers = |state: &mut State| {
            let is_few = (1..GATHER_BYTES).contains(&state.bytes);
            is_few && state.decoded.is_empty() && !state.is_closed
        };
        let waited = changed.wait_timeout_while(state, GATHER_TIME, gathers);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.batches, batches);
        std::mem::swap(&mut state.decoded, decoded);
        state.bytes = 0;
        let is_over = state.is_closed && !is_decoding;
        !is_over || !batches.is_empty() || !decoded.is_empty()
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

    fn take(output: &Output, batches: &mut Vec<Batch>) -> bool {
        output.take(batches, &mut Vec::new(), false, Duration::from_secs(60))
    }

    fn datagrams(batches: &[Batch]) -> Vec<&[u8]> {
        batches.iter().flat_map(Batch::datagrams).collect()
    }

    #[test]
    fn datagrams_come_in_batches_and_in_order() {
        let (input, output) = queue();
        let mut taken = Vec::new();
        assert!(input.push(&mut batch(&[b"one", b""])));
        assert!(input.push(&mut batch(&[b"three"])));
        assert!(take(&output, &mut taken));
        assert_eq!(datagrams(&taken), [&b"one"[..], b"", b"three"]);
        input.push(&mut batch(&[b"four"]));
        drop(input);
        assert!(take(&output, &mut taken));
        assert_eq!(datagrams(&taken), [b"four"]);
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
        let mut taken = Vec::new();
        assert!(take(&output, &mut taken));
        assert!(input.push(&mut waiting));
        assert!(take(&output, &mut taken));
        assert_eq!(datagrams(&taken), [b"waits"]);
    }

    #[test]
    fn the_last_datagram_of_a_batch_can_be_removed() {
        let mut batch = batch(&[b"one", b"two"]);
        assert_eq!(batch.last(), b"two");
        batch.pop();
        assert_eq!(batch.last(), b"one");
        batch.pop();
        assert_eq!((batch.last(), batch.datagrams().count()), (&b""[..], 0));
    }
}
