//! Soft flow control that follows the drain rate.
//!
//! The rate is measured by the times between reads while frames wait. Let it be m, the round-trip time d, Q the persistent queue
//! (what has been waiting all of a round trip, as in XCP), q what waits now, and B the buffer. Then the window shall be
//!
//! ```text
//!   W = min(m d + beta (Q' - Q), B - max(Q, q - m d)),    Q' = Q within increase_below B .. decrease_above B
//! ```
//!
//! The first is what keeps the application busy, with frames in reserve for when it gets faster. The second is what the buffer
//! holds: a frame that is released now comes when m d bytes have gone. Where no frames wait, the application is faster than the
//! network, m has no bound, and W = B - q, which is what credit would grant.
//!
//! A header tells the window as it was a round trip ago in terms of feedback: what this end has told the sender since then is
//! added. So there is no delay in the loop, and an error of W is made good at once:
//! - downwards, a frame takes back at most itself, for its acknowledgement then releases no other;
//! - upwards, in a quarter of a round trip rather than in a burst.
//!
//! Of the paper's five cases the first (idle: a read that is overdue lowers m), the third and the fifth (the thresholds) are
//! in this; the second (halve after drops) is done by the sender, and reckoned with; the fourth keeps a probe from running away, and nothing is probed.

use super::Buffer;
use crate::anypoint::segment::{Congestion, Feedback};
use crate::time::{Time, seconds};

/// An error of the window is made good in the round-trip time over this.
const CATCH_UP: f64 = 4.0;
/// XCP's: the share of the queue's error that is corrected in a round-trip time.
const BETA: f64 = 0.226;
/// The drain rate is averaged over about so many reads, and not believed before.
const READS: u32 = 8;

#[derive(Debug)]
pub(in crate::anypoint) struct Follow {
    buffer: Buffer,
    rtt_s: f64,
    drain: Drain,
    /// What the sender's window will be when it has heard all that it was told, in bytes of packets.
    window: f64,
    epoch: Epoch,
    /// For so long drops belong to a loss that the sender answers once.
    recovers_until: Time,
}

/// A round-trip time.
#[derive(Debug)]
struct Epoch {
    since: Time,
    /// `window` at its beginning: what headers say at its end.
    window: f64,
    /// Q of the epoch before, and of this one so far.
    queue: f64,
    queue_so_far: f64,
}

/// How fast the application reads while frames wait for it.
#[derive(Debug, Default)]
struct Drain {
    /// Sums over the last reads, older ones counting less.
    bytes: f64,
    time_s: f64,
    reads: u32,
    /// When the last frame was read, its bytes, and whether others waited behind it.
    last: Option<(Time, f64, bool)>,
}

impl Follow {
    pub(super) fn new(buffer: Buffer) -> Follow {
        Follow {
            buffer,
            rtt_s: 0.0,
            drain: Drain::default(),
            window: 0.0,
            epoch: Epoch {
                since: Time::ZERO,
                window: 0.0,
                queue: 0.0,
                queue_so_far: 0.0,
            },
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
        let begins = now >= self.epoch.since + seconds(self.rtt_s);
        if begins {
            self.begin_epoch(now, congestion.cwnd.into(), occupied);
        }
        self.epoch.queue_so_far = self.epoch.queue_so_far.min(occupied);
        let wanted = self.buffer.wire_factor(wire_bytes) * self.wanted(now, occupied);
        let missing = wanted.max(bytes) - self.window;
        let share = CATCH_UP * bytes / f64::from(congestion.cwnd.max(1));
        let change = match missing > 0.0 {
            true => missing * share.min(1.0),
            false => missing.max(-bytes),
        };
        congestion.feedback = congestion.feedback.min(Feedback::from_bytes(change));
        // The sender keeps a window of one packet at least.
        self.window = (self.window + congestion.feedback.bytes()).max(bytes);
        if begins {
            // The frame that its acknowledgement releases comes first after a round trip, and knows this.
            self.epoch.window = self.window;
        }
    }

    pub(super) fn on_overflow(&mut self, now: Time) {
        let _ = now;
    }

    pub(super) fn on_read(&mut self, now: Time, bytes: u32, occupied: u32) {
        self.drain.on_read(now, bytes.into(), occupied > 0);
    }

    /// The window is what the header says, and what it cannot know yet.
    fn begin_epoch(&mut self, now: Time, told: f64, occupied: f64) {
        let is_recent = now < self.epoch.since + seconds(2.0 * self.rtt_s);
        self.window = match is_recent {
            true => told + self.window - self.epoch.window,
            false => told,
        };
        self.epoch = Epoch {
            since: now,
            window: self.window,
            queue: self.epoch.queue_so_far,
            queue_so_far: occupied,
        };
    }

    /// W, in bytes of frames.
    fn wanted(&self, now: Time, occupied: f64) -> f64 {
        let Buffer {
            bytes,
            increase_below,
            decrease_above,
            ..
        } = self.buffer;
        match self.drain.rate(now, self.rtt_s) {
            Some(rate) => {
                let drained = rate * self.rtt_s;
                let queue = self.epoch.queue.min(self.epoch.queue_so_far);
                let reserve = queue.min(decrease_above).max(increase_below);
                let busy = drained + BETA * (reserve - queue);
                busy.min(bytes - queue.max(occupied - drained))
            }
            None => bytes - occupied,
        }
    }
}

impl Drain {
    fn on_read(&mut self, now: Time, bytes: f64, others_wait: bool) {
        if let Some((before, of_bytes, true)) = self.last {
            let kept = 1.0 - 1.0 / f64::from(READS);
            self.bytes = kept * self.bytes + of_bytes;
            self.time_s = kept * self.time_s + (now - before).as_secs_f64();
            self.reads = (self.reads + 1).min(READS);
        }
        self.last = Some((now, bytes, others_wait));
    }

    /// In bytes per second; `None` while it is not known.
    ///
    /// A read that is overdue counts as if it came now. Where no frames have waited for two round trips, the application may
    /// have become faster.
    fn rate(&self, now: Time, rtt_s: f64) -> Option<f64> {
        let (before, bytes, others_wait) = self.last.filter(|_| self.reads == READS)?;
        let measured = self.bytes / self.time_s.max(1e-9);
        let waited_s = (now - before).as_secs_f64();
        match others_wait {
            true => Some(measured.min(bytes / waited_s.max(1e-9))),
            false => (waited_s < 2.0 * rtt_s).then_some(measured),
        }
    }
}
