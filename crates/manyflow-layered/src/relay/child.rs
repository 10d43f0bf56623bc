//! A child of a relay: its hop, and the reports that it has sent.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use manyflow_core::link::Carried;
use manyflow_core::{Ecn, Time};

use super::config::{Datagrams, LOWER_BYTES, RelayError, Where};
use super::inner::{inner_data, inner_ecn, mark_inner};
use crate::hop::{Direction, Hop, HopKey, RepairGaps, Stamp, Transmit};
use crate::repair::{Place, SentPackets};
use crate::sim::LATE_ROUNDS;
use crate::{Experiment, Feedback, GROUPS_MAX};

/// The maximum number of experiments that wait for a child.
const EXPERIMENTS_MAX: usize = 8;
/// The maximum number and bytes of datagrams that are sent with one call of the kernel.
const BATCH_MAX: usize = 32;
const BATCH_BYTES_MAX: usize = 60_000;
/// The number of rounds that a child may miss before its answer is no longer awaited. It is that
/// after which aggregators forget it.
const PATIENCE_ROUNDS: u16 = 4;

/// An AMT Multicast Data message that waits for a child. All children share its bytes.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    message: Arc<[u8]>,
    group: Option<(u32, u8)>,
    /// The place of layered data; `None` for other messages, which are not repaired.
    place: Option<Place>,
    is_capable: bool,
    is_marked: bool,
    is_repair: bool,
}

impl Queued {
    pub(super) fn new(message: &Arc<[u8]>, group: Option<(u32, u8)>) -> Queued {
        Queued {
            is_capable: group.is_some() && inner_ecn(message) != Ecn::NotCapable,
            place: group.and_then(|group| place(group, message)),
            message: Arc::clone(message),
            group,
            is_marked: false,
            is_repair: false,
        }
    }

    /// Returns the length on a link in bytes.
    pub(super) fn wire_bytes(&self) -> u32 {
        u32::try_from(self.message.len())
            .unwrap_or(u32::MAX)
            .saturating_add(LOWER_BYTES)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.message);
        if self.is_marked {
            mark_inner(&mut out[start..]);
        }
    }
}

/// Returns the place of the layered data in a message of a group.
fn place((session, rank): (u32, u8), message: &[u8]) -> Option<Place> {
    let data = inner_data(message)?;
    Some(Place {
        session,
        rank,
        sequence: data.sequence,
    })
}

impl Carried for Queued {
    fn is_ecn_capable(&self) -> bool {
        self.is_capable
    }

    fn mark(&mut self) {
        self.is_marked = true;
    }

    fn group(&self) -> Option<(u32, u8)> {
        self.group
    }
}

/// The reports about the receivers that share requests.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Reported {
    /// The last request that was answered.
    request: u16,
    /// The number of its answers.
    answers: u8,
}

/// The reports of one reporter about one session: those about each group that has requests of its
/// own. Otherwise the first place counts for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reports(Box<[Reported]>);

impl Reports {
    pub(super) fn new(groups: u8) -> Reports {
        Reports(vec![Reported::default(); groups.max(1).into()].into())
    }

    /// Counts an answer to `request` at one of the places. `newest` is the newest request there,
    /// and not long before an answer that can be accepted. An answer to a request that was long
    /// before `newest` says nothing about the order of this one.
    ///
    /// # Errors
    /// If there are more answers than groups, or a newer request was answered.
    pub(super) fn count(
        &mut self,
        place: usize,
        request: u16,
        newest: u16,
    ) -> Result<(), RelayError> {
        let last = self.0.get_mut(place).ok_or(RelayError::NoSession)?;
        let is_known = last.answers > 0 && newest.wrapping_sub(last.request) < LATE_ROUNDS;
        match request.wrapping_sub(last.request) as i16 {
            0 if is_known && last.answers >= GROUPS_MAX => return Err(RelayError::TooMany),
            0 if is_known => last.answers += 1,
            ..0 if is_known => return Err(RelayError::Stale),
            _ => (last.request, last.answers) = (request, 1),
        }
        Ok(())
    }
}

/// The last rounds in which a child got marked packets of a session.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct MarkedRounds {
    /// The request that ended the last round.
    request: u16,
    /// A bit for each of the last rounds, the lowest one for the last.
    ended: u8,
    /// Whether the present round has a mark.
    is_marked: bool,
}

impl MarkedRounds {
    /// Notes a packet at a time when `newest` is the newest request. The packet with a new request
    /// is the last one of its round, as it is for receivers.
    fn on_packet(&mut self, newest: u16, is_marked: bool) {
        self.is_marked |= is_marked;
        let passed = newest.wrapping_sub(self.request);
        if passed == 0 {
            return;
        }
        let former = u32::from(self.ended).checked_shl(passed.into());
        let ended = former.unwrap_or_default() | u32::from(self.is_marked);
        *self = MarkedRounds {
            request: newest,
            ended: ended as u8,
            is_marked: false,
        };
    }

    /// Returns whether the round that ended with `request` had a mark.
    fn had_mark(&self, request: u16) -> bool {
        let age = self.request.wrapping_sub(request);
        u32::from(self.ended)
            .checked_shr(age.into())
            .unwrap_or_default()
            & 1
            == 1
    }
}

/// The state of a child in one session.
#[derive(Clone, Debug)]
pub(super) struct Share {
    pub(super) top: Option<u8>,
    pub(super) reports: Reports,
    /// The request from which the child's silence counts.
    since: u16,
    marked: MarkedRounds,
}

impl Share {
    pub(super) fn new(groups: u8) -> Share {
        Share {
            top: None,
            reports: Reports::new(groups),
            since: 0,
            marked: MarkedRounds::default(),
        }
    }

    /// Notes a packet that the hop has taken, marked by it or by one before.
    pub(super) fn on_packet(&mut self, newest: u16, is_marked: bool) {
        self.marked.on_packet(newest, is_marked);
    }

    /// Returns feedback of the child in which the marks that this relay knows decide. All receivers
    /// below are congested if packets of their top group were marked in this round, here or
    /// before: they have seen the marks, unless they lie. A receiver sees no other marks, so that
    /// without them it is not congested, whatever it says. If groups have requests of their own,
    /// those of a higher group than the child's do not count.
    pub(super) fn with_marks(&self, feedback: &Feedback, is_by_group: bool) -> Feedback {
        let is_top = self.top.is_some_and(|top| match is_by_group {
            true => feedback.group == top,
            false => feedback.group >= top,
        });
        let congested = match is_top && self.marked.had_mark(feedback.request) {
            true => feedback.reports,
            false if feedback.is_of_receiver() => 0,
            // The hops below a relay mark packets, too.
            false => feedback.congested,
        };
        Feedback {
            congested,
            ..*feedback
        }
    }

    /// Sets the top group of the child. `newest` is the newest request to receivers with this top
    /// group; if groups have requests of their own, the marks of another group no longer count.
    pub(super) fn set_top(&mut self, top: Option<u8>, newest: u16, is_by_group: bool) {
        let has_others = is_by_group && self.top != top;
        if self.top.is_none() || has_others {
            self.since = newest;
        }
        if has_others {
            self.marked = MarkedRounds::default();
        }
        self.top = top;
    }

    /// Notes an answer about a group. `newest` is the newest request to receivers of this group.
    pub(super) fn on_answer(&mut self, group: u8, newest: u16, is_by_group: bool) {
        if !is_by_group || self.top == Some(group) {
            self.since = newest;
        }
    }

    /// Returns whether an answer of this child to the request `newest` is awaited. The request is
    /// for receivers with the top group `of`, or for all.
    pub(super) fn is_awaited(&self, newest: u16, of: Option<u8>) -> bool {
        self.top.is_some()
            && of.is_none_or(|group| self.top == Some(group))
            && newest.wrapping_sub(self.since) <= PATIENCE_ROUNDS
    }
}

/// A child of a relay.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) address: SocketAddr,
    pub(super) local: IpAddr,
    /// The source of the child's reports, for the aggregators of this relay.
    pub(super) source: u32,
    pub(super) hop: Hop<Queued>,
    sent: SentPackets<Queued>,
    pub(super) shares: Box<[Share]>,
    /// The stamp of the last message from the child.
    last: Stamp,
    /// The number of experiments sent to the child.
    sent_experiments: u32,
    experiments: VecDeque<Experiment>,
    /// The time for which this child has an entry in the relay's queue of times.
    pub(super) wake: Time,
}

impl Child {
    pub(super) fn new(
        address: SocketAddr,
        local: IpAddr,
        source: u32,
        hop: Hop<Queued>,
        shares: Box<[Share]>,
    ) -> Child {
        Child {
            address,
            local,
            source,
            hop,
            sent: SentPackets::default(),
            shares,
            last: Stamp::default(),
            sent_experiments: 0,
            experiments: VecDeque::new(),
            wake: Time::MAX,
        }
    }

    /// Takes the stamp of a message from the child.
    ///
    /// # Errors
    /// If the message is of another hop, or not newer than the last.
    pub(super) fn take_stamp(&mut self, stamp: &Stamp) -> Result<(), RelayError> {
        let (nonce, number) = self.hop.sounded();
        if stamp.nonce != nonce || stamp.number > number || !stamp.follows(&self.last) {
            return Err(RelayError::Stale);
        }
        self.last = *stamp;
        Ok(())
    }

    /// Notes a packet that is sent, so that it can be sent again.
    fn note_sent(&mut self, now: Time, item: &Queued, bytes: u32) {
        let (_, sounded) = self.hop.sounded();
        match item.place {
            Some(place) if item.is_repair => self.sent.note_repair(place, sounded),
            Some(place) => self.sent.note(now, place, item, bytes, sounded),
            None => {}
        }
    }

    /// Queues the packets that a request shows to be lost, unless the queue drops them.
    pub(super) fn repair(&mut self, now: Time, heard: u32, wait: Duration, gaps: &RepairGaps<'_>) {
        let hop = &mut self.hop;
        self.sent
            .answer(now, heard, wait, gaps.iter(), |item, bytes| {
                let again = Queued {
                    is_repair: true,
                    ..item
                };
                // The hop counts what its queue drops.
                let _ = hop.push_repair(now, again, bytes);
            });
    }

    /// Queues an experiment for the child. A child with many of them misses it.
    pub(super) fn announce(&mut self, experiment: Experiment) {
        if self.experiments.len() < EXPERIMENTS_MAX {
            self.experiments.push_back(experiment);
        }
    }

    /// Writes the next datagrams to the child that are due.
    pub(super) fn poll_transmit(
        &mut self,
        now: Time,
        key: Option<&HopKey>,
        out: &mut Vec<u8>,
    ) -> Option<Datagrams> {
        self.hop.handle_timeout(now);
        if let Some(experiment) = self.experiments.pop_front() {
            let (nonce, number) = self.hop.sounded();
            self.sent_experiments = self.sent_experiments.wrapping_add(1);
            let stamp = Stamp {
                nonce,
                number,
                counter: self.sent_experiments,
            };
            stamp.encode_experiment(experiment, Direction::Down, key, out);
        } else {
            match self.hop.poll_transmit(now)? {
                Transmit::Sounding(sounding) => sounding.encode(key, out),
                Transmit::Item(item, bytes) => {
                    item.write(out);
                    self.note_sent(now, &item, bytes);
                    return Some(self.fill_batch(now, bytes, out));
                }
            }
        }
        Some(self.datagrams(out.len()))
    }

    /// Appends messages of the same length that are due, too.
    fn fill_batch(&mut self, now: Time, bytes: u32, out: &mut Vec<u8>) -> Datagrams {
        let segment_bytes = out.len();
        for _ in 1..BATCH_MAX {
            if out.len() + segment_bytes > BATCH_BYTES_MAX
                || self.hop.next_bytes(now) != Some(bytes)
            {
                break;
            }
            let Some(Transmit::Item(item, _)) = self.hop.poll_transmit(now) else {
                break;
            };
            item.write(out);
            self.note_sent(now, &item, bytes);
        }
        debug_assert_eq!(out.len() % segment_bytes.max(1), 0);
        self.datagrams(segment_bytes)
    }

    fn datagrams(&self, segment_bytes: usize) -> Datagrams {
        let place = Where::Child {
            to: self.address,
            local: self.local,
        };
        Datagrams {
            place,
            segment_bytes,
        }
    }

    pub(super) fn poll_timeout(&self) -> Time {
        if self.experiments.is_empty() {
            self.hop.poll_timeout().unwrap_or(Time::MAX)
        } else {
            Time::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_counts_for_the_request_that_ends_its_round() {
        let mut rounds = MarkedRounds::default();
        for (newest, is_marked) in [
            (7, false),
            (7, true),
            (8, false),
            (8, false),
            (9, true),
            (9, false),
        ] {
            rounds.on_packet(newest, is_marked);
        }
        let marked = (5..12).filter(|request| rounds.had_mark(*request));
        assert_eq!(marked.collect::<Vec<_>>(), [8, 9]);
        rounds.on_packet(12, false);
        assert!(rounds.had_mark(9) && !rounds.had_mark(10) && !rounds.had_mark(12));
        rounds.on_packet(3, true);
        assert!(
            rounds.had_mark(3) && !rounds.had_mark(9),
            "the sender has restarted"
        );
    }

    /// The child's top group is 2, and a packet was marked in the round of the first request.
    #[test]
    fn marks_of_the_top_group_decide_whatever_a_receiver_says() {
        let mut share = Share::new(4);
        share.set_top(Some(2), 0, false);
        share.on_packet(1, true);
        let congested = |group, request, said, hold_us| {
            let feedback = Feedback {
                group,
                request,
                reports: 3,
                source: 1,
                session: 7,
                more: false,
                congested: said,
                minimum: 0,
                maximum: 0,
                population: 3,
                hold_us,
                rtt_us: 0,
            };
            share.with_marks(&feedback, false).congested
        };
        for said in [0, 3] {
            let of_receiver =
                [(2, 1), (1, 1), (2, 2)].map(|(group, n)| congested(group, n, said, 0));
            assert_eq!(of_receiver, [3, 0, 0], "a receiver says {said}");
        }
        let of_relay = [(2, 1), (1, 1), (2, 2)].map(|(group, n)| congested(group, n, 2, 1));
        assert_eq!(of_relay, [3, 2, 2], "hops below a relay mark packets, too");
    }
}
