//! Rates that vary by themselves: when a link can send.
//!
//! A link with a [`Pace`] sends as Mahimahi's `mm-link` (`link_queue.cc`): at each opportunity it
//! takes packets from its queue until the opportunity is used up. A packet that does not fit
//! continues in the next opportunity. If the queue becomes empty, the rest of the opportunity is
//! lost. A packet that comes at the time of an opportunity is too late for it.

use core::time::Duration;
use std::sync::Arc;

use super::rate_trace::{Cursor, FRAMING_BYTES, FULL_PACKET_BYTES, OPPORTUNITY_BYTES, RateTrace};
use super::shape::{Generator, Shape};
use super::token_bucket::{Bucket, TokenBucket};
use crate::time::Time;
use crate::units::Rate;

/// How the rate of a link varies.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pace {
    /// As a recording, which repeats.
    Trace(Arc<RateTrace>),
    /// As a model of a wireless link.
    Shape(Shape),
    /// As a token bucket.
    Bucket(TokenBucket),
}

impl Pace {
    /// Returns the average rate over a long time.
    pub fn rate(&self) -> Rate {
        match self {
            Pace::Trace(trace) => trace.rate(),
            Pace::Shape(shape) => shape.mean,
            Pace::Bucket(bucket) => bucket.sustained,
        }
    }
}

#[derive(Debug)]
enum Source {
    Trace(Cursor),
    Shape(Box<Generator>),
}

impl Source {
    fn ms(&self) -> u64 {
        match self {
            Source::Trace(cursor) => cursor.ms(),
            Source::Shape(generator) => generator.ms(),
        }
    }

    fn count(&self) -> u64 {
        match self {
            Source::Trace(cursor) => cursor.count(),
            Source::Shape(generator) => generator.count(),
        }
    }

    fn before(&self) -> u64 {
        match self {
            Source::Trace(cursor) => cursor.before(),
            Source::Shape(generator) => generator.before(),
        }
    }

    fn delay(&self) -> Duration {
        match self {
            Source::Trace(_) => Duration::ZERO,
            Source::Shape(generator) => generator.delay(),
        }
    }

    fn advance(&mut self) {
        match self {
            Source::Trace(cursor) => cursor.advance(),
            Source::Shape(generator) => generator.advance(),
        }
    }

    /// Moves to the first opportunities after a time.
    fn skip(&mut self, ms: u64) {
        match self {
            Source::Trace(cursor) => cursor.skip(ms),
            Source::Shape(generator) => {
                while generator.ms() <= ms {
                    generator.advance();
                }
            }
        }
    }
}

/// The opportunities of a link in turn.
#[derive(Debug)]
struct Opportunities {
    source: Source,
    began: Time,
    /// The time of the present opportunities.
    at: Time,
    /// The bytes that they can still carry.
    left: u64,
}

impl Opportunities {
    fn new(source: Source, began: Time) -> Opportunities {
        let mut opportunities = Opportunities {
            source,
            began,
            at: began,
            left: 0,
        };
        opportunities.renew();
        opportunities
    }

    /// Takes up the opportunities at the present place.
    fn renew(&mut self) {
        self.at = self.began + Duration::from_millis(self.source.ms());
        self.left = self.source.count() * OPPORTUNITY_BYTES;
    }

    /// Returns the time at which the next waiting packet can begin.
    fn ready(&mut self) -> Time {
        if self.left == 0 {
            self.source.advance();
            self.renew();
        }
        self.at
    }

    /// Loses the opportunities up to `now`, at which nothing waits.
    fn pass(&mut self, now: Time) {
        if self.at <= now {
            let past = now - self.began;
            self.source.skip((past.as_nanos() / 1_000_000) as u64);
            self.renew();
        }
    }

    /// Sends a packet.
    fn carry(&mut self, bytes: u32) -> Sent {
        let mut bytes = u64::from(bytes) + FRAMING_BYTES;
        loop {
            let at = self.ready();
            let taken = bytes.min(self.left);
            self.left -= taken;
            bytes -= taken;
            if bytes == 0 {
                return Sent {
                    at,
                    delay: self.source.delay(),
                    ready: self.ready(),
                };
            }
        }
    }
}

/// A packet that has been sent.
#[derive(Copy, Clone, Debug)]
pub(super) struct Sent {
    /// The time at which its last byte leaves.
    pub(super) at: Time,
    /// The delay that the link adds to its own.
    pub(super) delay: Duration,
    /// The time at which the next packet can begin, if it waits by then.
    pub(super) ready: Time,
}

/// The transmitter of a link with a [`Pace`].
#[derive(Debug)]
pub(super) struct Pacer {
    kind: Kind,
    /// The time at which the last packet has been sent.
    idle_from: Time,
}

#[derive(Debug)]
enum Kind {
    Opportunities(Opportunities),
    Bucket(Bucket),
}

impl Pacer {
    /// Begins a pace. Time 0 of a trace is `began`; `seed` selects the course of a shape.
    pub(super) fn new(pace: &Pace, seed: u64, began: Time) -> Pacer {
        let source = match pace {
            Pace::Trace(trace) => Source::Trace(Cursor::new(Arc::clone(trace))),
            Pace::Shape(shape) => Source::Shape(Box::new(Generator::new(*shape, seed))),
            Pace::Bucket(bucket) => {
                return Pacer {
                    kind: Kind::Bucket(Bucket::new(*bucket, began)),
                    idle_from: began,
                };
            }
        };
        Pacer {
            kind: Kind::Opportunities(Opportunities::new(source, began)),
            idle_from: began,
        }
    }

    /// Returns the time at which the last packet has been sent.
    pub(super) fn idle_from(&self) -> Time {
        self.idle_from
    }

    /// Returns when the next packet can begin, if it comes at `now` or waits already.
    pub(super) fn begin(&mut self, now: Time) -> Time {
        match &mut self.kind {
            Kind::Opportunities(opportunities) => {
                opportunities.pass(now);
                opportunities.ready()
            }
            Kind::Bucket(_) => self.idle_from.max(now),
        }
    }

    /// Sends a packet that begins when the link is ready, at `begins`.
    pub(super) fn carry(&mut self, begins: Time, bytes: u32) -> Sent {
        let sent = match &mut self.kind {
            Kind::Opportunities(opportunities) => opportunities.carry(bytes),
            Kind::Bucket(bucket) => {
                let at = bucket.carry(begins, bytes);
                Sent {
                    at,
                    delay: Duration::ZERO,
                    ready: at,
                }
            }
        };
        debug_assert!(
            begins <= sent.at && sent.at <= sent.ready,
            "{begins} {sent:?}"
        );
        self.idle_from = sent.at;
        sent
    }

    /// Ends the transmission of a packet that was lost. The tokens and opportunities that it has
    /// taken are lost, too.
    pub(super) fn stop(&mut self, now: Time) {
        self.idle_from = self.idle_from.min(now);
    }

    /// Returns the bytes that full packets could have taken of the opportunities up to `now`, at
    /// which no packet can begin. `None` if the pace has no opportunities.
    pub(super) fn offered_bytes(&mut self, now: Time) -> Option<u64> {
        let Kind::Opportunities(opportunities) = &mut self.kind else {
            return None;
        };
        opportunities.pass(now);
        Some(opportunities.source.before() * FULL_PACKET_BYTES)
    }
}
