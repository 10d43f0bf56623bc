//! Soft flow control that follows the drain rate.
//!
//! The rate is measured by the times between reads while frames wait. Let it be m, the round-trip
//! time d, Q the persistent queue (what has been waiting all of a round trip, as in XCP), q what
//! waits now, and B the buffer. Then the window shall be
//!
//! ```text
//!   W = min(m d + beta (Q' - Q), B - max(Q, q + s - m d)),    Q' = Q within min(increase_below B, m d) .. decrease_above B
//! ```
//!
//! The first is what keeps the application busy, with frames in reserve for when it gets faster.
//! The second is what the buffer holds: a frame that is released now comes when m d bytes have
//! gone; s is the frame itself, and one that the application may be late by. A reserve of more than
//! m d would be no use, and a link that is little faster than the application would have to queue
//! what fills it. Where no frames wait, the application is faster than the network, m has no bound,
//! and W = B - q, which is what credit would grant.
//!
//! A header tells the window as it was a round trip ago in terms of feedback: what this end has
//! told the sender since then is added. So there is no delay in the loop, and an error of W is made
//! good at once:
//! - downwards, a frame takes back at most itself, for its acknowledgement then releases no other;
//! - upwards, in a quarter of a round trip rather than in a burst; while m is not known, by four
//!   frames for each at most, so that it is known before the buffer is full.
//!
//! Of the paper's five cases the first (idle: a read that is overdue lowers m) and the thresholds
//! of the third and the fifth are in this. The second, to halve after drops, is the sender's answer
//! to a loss, and is reckoned with. The fourth keeps a probe from running away, and nothing is
//! probed.

use std::collections::VecDeque;

use super::Buffer;
use manyflow_core::time::{Time, seconds};
use manyflow_core::xcp::{Congestion, WindowChange};

/// An error of the window is made good in the round-trip time over this.
const CATCH_UP: f64 = 4.0;
/// XCP's: the share of the queue's error that is corrected in a round-trip time.
const BETA: f64 = 0.226;
/// The drain rate is averaged over about so many reads, and not believed before.
const READS: u32 = 8;

/// Frames by which the buffer is fuller than it was reckoned to be: the one that arrives, and one
/// that the application has not finished.
const MARGIN: f64 = 2.0;

/// WindowChange is remembered in so many parts of a round-trip time.
const PARTS: f64 = 64.0;

#[derive(Debug)]
pub(crate) struct Follow {
    buffer: Buffer,
    rtt_s: f64,
    drain: Drain,
    queue: PersistentQueue,
    told: Told,
    /// What the sender's window will be, in bytes of packets.
    window: f64,
    /// Drops until then belong to a loss that the sender has been reckoned to answer.
    recovers_until: Time,
}

/// What has been waiting all of a round-trip time, in bytes of frames.
#[derive(Debug, Default)]
struct PersistentQueue {
    /// Of the last round-trip time, and of this one so far.
    last: f64,
    so_far: f64,
    ends: Time,
}

/// WindowChange that was told in the last round-trip time: headers do not know of it yet.
#[derive(Debug, Default)]
struct Told {
    /// When, and how much, in units of [`WindowChange`].
    parts: VecDeque<(Time, i64)>,
    sum: i64,
}

/// How fast the application reads while frames wait for it.
#[derive(Debug, Default)]
struct Drain {
    /// Sums over the last reads, older ones counting less.
    bytes: f64,
    time_s: f64,
    reads: u32,
    /// When the last frame was read, and its bytes.
    last: Option<(Time, f64)>,
    /// Since when others wait behind it.
    waits_since: Option<Time>,
}

impl Follow {
    pub(super) fn new(buffer: Buffer) -> Follow {
        Follow {
            buffer,
            rtt_s: 0.0,
            drain: Drain::default(),
            queue: PersistentQueue::default(),
            told: Told::default(),
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
    ) {
        self.rtt_s = f64::from(congestion.rtt_us) / 1e6;
        let (bytes, occupied) = (f64::from(wire_bytes), f64::from(occupied));
        let cwnd = f64::from(congestion.cwnd).max(1.0);
        self.queue.observe(now, occupied, self.rtt_s);
        self.told.forget(now, self.rtt_s);
        // The sender keeps a window of one packet at least.
        self.window = (cwnd + self.told.bytes()).max(bytes);
        let drain = self.drain.rate(now, self.rtt_s);
        let factor = self.buffer.wire_factor(wire_bytes);
        let wanted = factor * self.wanted(drain, occupied, bytes / factor);
        let missing = wanted.max(bytes) - self.window;
        let increase = missing * (CATCH_UP * bytes / cwnd).min(1.0);
        let change = match drain {
            _ if missing < 0.0 => missing.max(-bytes),
            Some(_) => increase,
            None => increase.min(CATCH_UP * bytes),
        };
        congestion.feedback = congestion.feedback.min(WindowChange::from_bytes(change));
        self.told.tell(now, congestion.feedback, self.rtt_s);
        self.drain.on_arrival(now);
    }

    /// The sender will halve its window, once for all drops of a round-trip time.
    pub(super) fn on_overflow(&mut self, now: Time) {
        if now >= self.recovers_until {
            let halved = WindowChange::from_bytes(-0.5 * self.window);
            self.told.tell(now, halved, self.rtt_s);
            self.recovers_until = now + seconds(self.rtt_s);
        }
    }

    pub(super) fn on_read(&mut self, now: Time, bytes: u32, occupied: u32) {
        self.drain.on_read(now, bytes.into(), occupied > 0);
    }

    /// W, in bytes of frames; they are of `frame` bytes.
    fn wanted(&self, drain: Option<f64>, occupied: f64, frame: f64) -> f64 {
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

impl Told {
    fn tell(&mut self, now: Time, feedback: WindowChange, rtt_s: f64) {
        let feedback = i64::from(feedback.0);
        self.sum += feedback;
        match self.parts.back_mut() {
            Some((since, sum)) if now < *since + seconds(rtt_s / PARTS) => *sum += feedback,
            _ => self.parts.push_back((now, feedback)),
        }
    }

    fn forget(&mut self, now: Time, rtt_s: f64) {
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
    /// A frame arrives that may have to wait.
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
        }
        self.last = Some((now, bytes));
        self.waits_since = others_wait.then_some(now);
    }

    /// In bytes per second; `None` while it is not known.
    ///
    /// A read that is overdue counts as if it came now. Where no frames have waited for two round
    /// trips, the application may have become faster.
    fn rate(&self, now: Time, rtt_s: f64) -> Option<f64> {
        let (before, bytes) = self.last.filter(|_| self.reads == READS)?;
        let measured = self.bytes / self.time_s.max(1e-9);
        match self.waits_since {
            Some(since) => Some(measured.min(bytes / (now - since).as_secs_f64().max(1e-9))),
            None => (now < before + seconds(2.0 * rtt_s)).then_some(measured),
        }
    }
}
