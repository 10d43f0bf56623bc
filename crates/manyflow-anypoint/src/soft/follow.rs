//! Soft flow control that follows the drain rate.
//!
//! The rate is measured from the times between reads while frames wait. Let m be that rate, d the
//! round-trip time, Q the persistent queue (the bytes that waited throughout a round trip, as in
//! XCP), q the bytes that wait now, and B the buffer. The window W that the sender should have is
//!
//! ```text
//!   W = min(m d + beta (Q' - Q), B - max(Q, q + s - m d)),    Q' = Q within min(increase_below B, m d) .. decrease_above B
//! ```
//!
//! The first term keeps the application busy, with frames in reserve for when it gets faster. The
//! second term is the capacity of the buffer: a frame that is released now arrives after m d bytes
//! have been read, and s stands for that frame and for one more by which the application may be
//! late. A reserve above m d has no use, and a link that is only a little faster than the
//! application would have to queue the frames that fill it. While no frames wait, the application
//! is faster than the network, m has no upper bound, and W = B - q, the same as credit would grant.
//!
//! A header states the window as it was one round trip ago, in terms of feedback. The feedback that
//! this end has sent since then is therefore added. So the loop has no delay, and an error of W is
//! corrected at once:
//! - downwards, a frame takes back at most its own length, because its acknowledgement then
//!   releases no other frame;
//! - upwards, over a quarter of a round trip instead of in a burst. While m is unknown, each frame
//!   adds at most four frames, so that m is known before the buffer is full.
//!
//! The paper's first case (idle) is covered because an overdue read lowers m; the thresholds of the
//! third and fifth cases are part of Q'. The second case, to halve after drops, is the sender's
//! answer to a loss, and is taken into account. The fourth case stops a probe from growing without
//! bound; there is no probe here.

use std::collections::VecDeque;

use super::Buffer;
use manyflow_core::time::{Time, seconds};
use manyflow_core::xcp::{Congestion, WindowChange};

/// An error of the window is corrected within the round-trip time divided by this.
const CATCH_UP: f64 = 4.0;
/// XCP's beta: the share of the queue's error that is corrected in a round-trip time.
const BETA: f64 = 0.226;
/// The number of reads over which the drain rate is averaged. Before that, it counts as unknown.
const READS: u32 = 8;

/// Frames by which the buffer may be fuller than computed: the one that arrives, and one that the
/// application has not finished.
const MARGIN: f64 = 2.0;

/// The resolution of the record of sent feedback: parts per round-trip time.
const PARTS: f64 = 64.0;

#[derive(Debug)]
pub(crate) struct Follow {
    buffer: Buffer,
    rtt_s: f64,
    drain: Drain,
    queue: PersistentQueue,
    recent: RecentFeedback,
    /// The sender's window after all feedback that was sent, in bytes of packets.
    window: f64,
    /// Drops before this time belong to a loss whose halving of the window is already counted.
    recovers_until: Time,
}

/// The lowest queue of a round-trip time, in bytes of frames.
#[derive(Debug, Default)]
struct PersistentQueue {
    /// The minimum of the last round-trip time.
    last: f64,
    /// The minimum of the current round-trip time so far.
    so_far: f64,
    /// The end of the current round-trip time.
    ends: Time,
}

/// The feedback that was sent in the last round-trip time: headers do not reflect it yet.
#[derive(Debug, Default)]
struct RecentFeedback {
    /// The time of each part, and its sum in units of [`WindowChange`].
    parts: VecDeque<(Time, i64)>,
    sum: i64,
}

/// The rate at which the application reads while frames wait for it.
#[derive(Debug, Default)]
struct Drain {
    /// Bytes read in the last reads; older reads weigh less.
    bytes: f64,
    /// Time that those reads took, with the same weights.
    time_s: f64,
    reads: u32,
    /// The time of the last read, and the bytes of the frame.
    last: Option<(Time, f64)>,
    /// The time since which frames wait behind the one that was read last.
    waits_since: Option<Time>,
    /// When a frame was last seen to wait for a read.
    waited: Time,
}

impl Follow {
    pub(super) fn new(buffer: Buffer) -> Follow {
        Follow {
            buffer,
            rtt_s: 0.0,
            drain: Drain::default(),
            queue: PersistentQueue::default(),
            recent: RecentFeedback::default(),
            window: 0.0,
            recovers_until: Time::ZERO,
        }
    }

    pub(super) fn on_arrival(
        &mut self,
        now: Time,
        congestion: &mut Congestion,
        wire_bytes: u32,
        occupied: u32,
        is_readable: bool,
    ) {
        self.rtt_s = f64::from(congestion.rtt_us) / 1e6;
        let (bytes, occupied) = (f64::from(wire_bytes), f64::from(occupied));
        let cwnd = f64::from(congestion.cwnd).max(1.0);
        self.queue.observe(now, occupied, self.rtt_s);
        self.recent.expire(now, self.rtt_s);
        // The sender keeps a window of at least one packet.
        self.window = (cwnd + self.recent.bytes()).max(bytes);
        let drain = self.drain.rate(now, self.rtt_s);
        let factor = self.buffer.wire_factor(wire_bytes);
        let wanted = factor * self.wanted_window(drain, occupied, bytes / factor);
        let missing = wanted.max(bytes) - self.window;
        let increase = missing * (CATCH_UP * bytes / cwnd).min(1.0);
        let change = match drain {
            _ if missing < 0.0 => missing.max(-bytes),
            Some(_) => increase,
            None => increase.min(CATCH_UP * bytes),
        };
        congestion.feedback = congestion.feedback.min(WindowChange::from_bytes(change));
        self.recent.add(now, congestion.feedback, self.rtt_s);
        if is_readable {
            self.drain.on_arrival(now);
        }
    }

    /// Takes into account that the sender will halve its window, once for all drops of a round-trip
    /// time. A sender that follows CUBIC keeps more, and its headers say so a round trip later.
    pub(super) fn on_overflow(&mut self, now: Time) {
        if now >= self.recovers_until {
            let halved = WindowChange::from_bytes(-0.5 * self.window);
            self.recent.add(now, halved, self.rtt_s);
            self.recovers_until = now + seconds(self.rtt_s);
        }
    }

    pub(super) fn on_read(&mut self, now: Time, bytes: u32, readable: u32) {
        self.drain.on_read(now, bytes.into(), readable > 0);
    }

    /// Returns W in bytes of frames. Each frame has `frame` bytes.
    fn wanted_window(&self, drain: Option<f64>, occupied: f64, frame: f64) -> f64 {
        let Buffer {
            bytes,
            increase_below,
            decrease_above,
            ..
        } = self.buffer;
        match drain {
            Some(rate) => {
                let drained = rate * self.rtt_s;
                let queue = self.queue.bytes();
                let reserve = queue.min(decrease_above).max(increase_below.min(drained));
                let busy = drained + BETA * (reserve - queue);
                busy.min(bytes - queue.max(occupied + MARGIN * frame - drained))
            }
            None => bytes - occupied,
        }
    }
}

impl PersistentQueue {
    fn observe(&mut self, now: Time, occupied: f64, rtt_s: f64) {
        if now >= self.ends {
            self.last = self.so_far;
            self.so_far = occupied;
            self.ends = now + seconds(rtt_s);
        }
        self.so_far = self.so_far.min(occupied);
    }

    fn bytes(&self) -> f64 {
        self.last.min(self.so_far)
    }
}

impl RecentFeedback {
    fn add(&mut self, now: Time, feedback: WindowChange, rtt_s: f64) {
        let feedback = i64::from(feedback.0);
        self.sum += feedback;
        match self.parts.back_mut() {
            Some((since, sum)) if now < *since + seconds(rtt_s / PARTS) => *sum += feedback,
            _ => self.parts.push_back((now, feedback)),
        }
    }

    fn expire(&mut self, now: Time, rtt_s: f64) {
        while let Some(&(since, feedback)) = self.parts.front()
            && now >= since + seconds(rtt_s)
        {
            self.parts.pop_front();
            self.sum -= feedback;
        }
    }

    fn bytes(&self) -> f64 {
        self.sum as f64 / 256.0
    }
}

impl Drain {
    /// Notes the arrival of a frame that can be read, and may have to wait.
    fn on_arrival(&mut self, now: Time) {
        self.waits_since = self.waits_since.or(Some(now));
    }

    fn on_read(&mut self, now: Time, bytes: f64, others_wait: bool) {
        if let Some((before, of_bytes)) = self.last
            && self.waits_since == Some(before)
        {
            let kept = 1.0 - 1.0 / f64::from(READS);
            self.bytes = kept * self.bytes + of_bytes;
            self.time_s = kept * self.time_s + (now - before).as_secs_f64();
            self.reads = (self.reads + 1).min(READS);
            self.waited = now;
        }
        self.last = Some((now, bytes));
        self.waits_since = others_wait.then_some(now);
    }

    /// Returns the drain rate in bytes per second, or `None` while it is unknown.
    ///
    /// An overdue read counts as if it happened now. If no frame has waited for two round trips,
    /// the application may have become faster, and the rate is unknown.
    fn rate(&self, now: Time, rtt_s: f64) -> Option<f64> {
        let (_, bytes) = self.last.filter(|_| self.reads == READS)?;
        let measured = self.bytes / self.time_s.max(1e-9);
        match self.waits_since {
            Some(since) => Some(measured.min(bytes / (now - since).as_secs_f64().max(1e-9))),
            None => (now < self.waited + seconds(2.0 * rtt_s)).then_some(measured),
        }
    }
}
