//! The small messages of a connection that its tasks cannot wait to send.

use std::sync::Arc;

use tokio::sync::{Notify, mpsc};

use super::super::wire::{MemberEvent, PLACES};

/// Maximum number of messages that wait: some for each request in progress.
const WAITING_MAX: usize = 4 * PLACES;

/// A queue of small messages. A gateway that asks without reading the answers overruns it.
#[derive(Clone, Debug)]
pub(super) struct Control {
    queue: mpsc::Sender<MemberEvent>,
    overrun: Arc<Notify>,
}

impl Control {
    pub(super) fn new() -> (Control, mpsc::Receiver<MemberEvent>) {
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        let overrun = Arc::default();
        (Control { queue, overrun }, waiting)
    }

    /// Queues a message. If the connection has ended, nobody waits for it.
    pub(super) fn push(&self, event: MemberEvent) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.queue.try_send(event) {
            self.overrun.notify_one();
        }
    }

    /// Waits until a message found no room.
    pub(super) async fn overrun(&self) {
        self.overrun.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::wire::RequestId;
    use super::*;

    #[tokio::test]
    async fn a_gateway_that_reads_nothing_overruns_a_bounded_queue() {
        let (control, waiting) = Control::new();
        for until in 0..2 * WAITING_MAX as u64 {
            control.push(MemberEvent::Credit(RequestId(1), until));
        }
        assert_eq!(waiting.len(), WAITING_MAX);
        control.overrun().await;
    }
}
