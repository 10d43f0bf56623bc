//! This daemon's own incarnation, and its defence against other daemons that announce a later one.

use core::time::Duration;
use std::collections::VecDeque;

use super::Heard;
use crate::config::OverlayConfig;
use crate::event::Misconduct;
use crate::message::{Change, Item};
use crate::sequence::ChangeSeq;
use manyflow_core::time::Time;

/// The first time between two incarnations that outbid another daemon with the same number. It
/// doubles each time, up to [`OUTBID_MAX`], and begins again when none was outbid for that long.
pub(super) const OUTBID_MIN: Duration = Duration::from_millis(100);
pub(super) const OUTBID_MAX: Duration = Duration::from_secs(10);
/// The times after an incarnation began at which it is announced again. Daemons ignore one that is
/// too far in the future, which it is for a second at most.
const REPEATS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];
/// The number of own changes that are compared with those that come back.
const RECENT_MAX: usize = 256;

/// The incarnation of this daemon.
#[derive(Debug)]
pub(super) struct Own<P> {
    /// The incarnation with which the daemon started, at time zero.
    first: u32,
    ahead_max: u32,
    /// The last changes, each with the name of its group.
    recent: VecDeque<(ChangeSeq, Item, P)>,
    /// A later incarnation of this daemon that must be outbid, and when.
    outbid: Option<(Time, u32)>,
    outbid_wait: Duration,
    /// When the last one was outbid.
    outbid_at: Option<Time>,
    /// When the incarnation is announced again, and how often it has been.
    repeat: Option<(Time, usize)>,
}

/// Whether an incarnation can be that of a daemon.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Credibility {
    /// It is one of the past, or not far ahead.
    Credible,
    /// It is too far ahead. Another daemon, whose clock is ahead of this one's, may believe it.
    Early,
    /// No daemon whose clock is about right believes it.
    Forged,
}

impl<P: PartialEq> Own<P> {
    pub(super) fn new(first: u32, config: &OverlayConfig) -> Own<P> {
        Own {
            first,
            ahead_max: config.incarnation_ahead_max,
            recent: VecDeque::new(),
            outbid: None,
            outbid_wait: Duration::ZERO,
            outbid_at: None,
            repeat: None,
        }
    }

    /// Returns whether an incarnation can be that of a daemon.
    pub(super) fn credibility(&self, now: Time, incarnation: u32) -> Credibility {
        let seconds = (now - Time::ZERO).as_secs();
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        let limit = self.first.saturating_add(seconds);
        let limit = limit.saturating_add(self.ahead_max);
        if incarnation <= limit {
            Credibility::Credible
        } else if incarnation <= limit.saturating_add(self.ahead_max) {
            Credibility::Early
        } else {
            Credibility::Forged
        }
    }

    /// Returns what to do about an incarnation of another daemon, if it is not credible.
    pub(super) fn doubt(&self, now: Time, incarnation: u32) -> Option<Heard> {
        match self.credibility(now, incarnation) {
            Credibility::Credible => None,
            Credibility::Early => Some(Heard::Nothing),
            Credibility::Forged => Some(Heard::Forged(Misconduct::Incarnation(incarnation))),
        }
    }

    /// Notes a change of this daemon.
    pub(super) fn note(&mut self, change: ChangeSeq, item: Item, name: P) {
        self.recent.truncate(RECENT_MAX - 1);
        self.recent.push_front((change, item, name));
    }

    /// Returns whether a change that another daemon announces in this one's name, with this one's
    /// incarnation, differs from what this daemon announced.
    pub(super) fn contradicts(&self, change: &Change, name: &P) -> bool {
        let mut recent = self.recent.iter();
        let own = recent.find(|(number, ..)| *number == change.change);
        own.is_some_and(|(_, item, own)| *item != change.item || (item.has_name() && own != name))
    }

    /// Plans to outbid an incarnation of this daemon that another one announces.
    pub(super) fn schedule_outbid(&mut self, now: Time, incarnation: u32) {
        if self.outbid_at.is_some_and(|at| now - at >= OUTBID_MAX) {
            self.outbid_wait = Duration::ZERO;
        }
        let first = (now + self.outbid_wait, incarnation);
        let (at, other) = self.outbid.unwrap_or(first);
        self.outbid = Some((at, other.max(incarnation)));
    }

    /// Returns the incarnation to begin now instead of `present`, if a later one must be outbid.
    pub(super) fn outbid(&mut self, now: Time, present: u32) -> Option<u32> {
        let (_, incarnation) = self.outbid.take_if(|(at, _)| *at <= now)?;
        // The numbers end only after centuries: none that is far ahead is believed.
        let next = present.max(incarnation).checked_add(1)?;
        self.outbid_wait = (2 * self.outbid_wait).clamp(OUTBID_MIN, OUTBID_MAX);
        self.outbid_at = Some(now);
        self.repeat = Some((now + REPEATS[0], 0));
        self.recent.clear();
        Some(next)
    }

    /// Returns whether it is time to announce the incarnation again.
    pub(super) fn must_repeat(&mut self, now: Time) -> bool {
        let Some((_, count)) = self.repeat.take_if(|(at, _)| *at <= now) else {
            return false;
        };
        let next = REPEATS.get(count + 1);
        self.repeat = next.map(|after| (now + *after, count + 1));
        true
    }

    /// Returns when anything is due next.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let outbid = self.outbid.map(|(time, _)| time);
        let repeat = self.repeat.map(|(time, _)| time);
        outbid.into_iter().chain(repeat).min()
    }
}
