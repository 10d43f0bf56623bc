//! The events of a run, from its beginning, for any number of pages.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{mpsc, watch};

/// The number of events that may wait for a page.
const WAITING_MAX: usize = 16;

/// The events of a run. A page that comes late, or again, gets all that are kept.
#[derive(Debug)]
pub(super) struct Log {
    events: Mutex<Events>,
    changed: watch::Sender<()>,
    /// The maximum number of events that are kept.
    kept: usize,
}

#[derive(Debug, Default)]
struct Events {
    /// The number of the first event that is kept.
    first: usize,
    events: VecDeque<Bytes>,
    bytes: usize,
    is_over: bool,
}

impl Events {
    /// Returns the events from this number on, and the number of the next one.
    fn since(&self, next: usize) -> (Vec<Bytes>, usize) {
        let skipped = next.saturating_sub(self.first);
        let events = self.events.iter().skip(skipped).cloned().collect();
        (events, next.max(self.first + self.events.len()))
    }
}

impl Default for Log {
    fn default() -> Log {
        Log::keeping(usize::MAX)
    }
}

impl Log {
    /// Creates a log of the latest events, up to this number.
    pub(super) fn keeping(kept: usize) -> Log {
        Log {
            events: Mutex::default(),
            changed: watch::Sender::new(()),
            kept,
        }
    }

    /// Adds an event. Returns the length of all events in bytes.
    pub(super) fn push(&self, kind: &str, value: &impl Serialize) -> usize {
        let json = serde_json::to_string(value).expect("all keys of maps are texts");
        let mut events = self.lock();
        let number = events.first + events.events.len();
        let event = format!("id: {number}\nevent: {kind}\ndata: {json}\n\n");
        events.bytes += event.len();
        events.events.push_back(Bytes::from(event));
        if events.events.len() > self.kept {
            events.events.pop_front();
            events.first += 1;
        }
        self.changed.send_replace(());
        events.bytes
    }

    /// Adds the last event.
    pub(super) fn end(&self, kind: &str, value: &impl Serialize) {
        self.push(kind, value);
        self.lock().is_over = true;
        self.changed.send_replace(());
    }

    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Returns a channel that brings all events from this number on, until the last one.
    pub(super) fn follow(self: Arc<Log>, from: usize) -> mpsc::Receiver<Bytes> {
        let (out, events) = mpsc::channel(WAITING_MAX);
        tokio::spawn(self.forward(from, out));
        events
    }

    async fn forward(self: Arc<Log>, from: usize, out: mpsc::Sender<Bytes>) {
        let mut changed = self.changed.subscribe();
        let mut next = from;
        loop {
            let (batch, is_over) = {
                let events = self.lock();
                let (batch, end) = events.since(next);
                next = end;
                (batch, events.is_over)
            };
            for event in batch {
                if out.send(event).await.is_err() {
                    return;
                }
            }
            if is_over {
                return;
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = out.closed() => return,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_late_page_gets_all_events_and_a_returning_one_the_rest() {
        let log = Arc::new(Log::default());
        log.push("frame", &1);
        let mut early = Arc::clone(&log).follow(0);
        assert_eq!(
            early.recv().await.unwrap(),
            "id: 0\nevent: frame\ndata: 1\n\n"
        );
        log.end("done", &2);
        let last = "id: 1\nevent: done\ndata: 2\n\n";
        assert_eq!(early.recv().await.unwrap(), last);
        assert_eq!(early.recv().await, None);
        let mut returning = Arc::clone(&log).follow(1);
        assert_eq!(returning.recv().await.unwrap(), last);
        assert_eq!(returning.recv().await, None);
        assert_eq!(log.follow(9).recv().await, None);
    }
}
