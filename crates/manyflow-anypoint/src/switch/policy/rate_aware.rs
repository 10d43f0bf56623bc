//! Shares that follow what each member's path and server carry.
//!
//! The inbound rate of a connection is that of its most constrained path, divided by that path's
//! share (section III-A): `min_k S_k / b_k`. The paper leaves the shares `b_k` to the service. The
//! rate is largest, `sum S_k`, if `b_k` is in proportion to `S_k`. This policy finds such shares
//! from what every acknowledgement tells the switch:
//!
//! - **Feedback.** With XCP, the answer to a frame says by how many bytes the window may change
//!   because of it. The change is negative where a path, or a server that steers its peer by
//!   feedback, takes less than its share, and positive where it takes more. The policy adds it to
//!   the part of the peer's window that the member has. So shares move until all paths answer
//!   alike, with XCP's own gains, and stay while the way to the switch is the limit, because then
//!   all answers are alike.
//! - **Round trips.** Where no router answers, a queue tells that a path is full: then the rate at
//!   which the member answers is the path's rate, and its share becomes that rate's part of all
//!   members' rates. Then the share of a path without a queue grows by [`GROWTH`] in each round
//!   trip.
//! - **Nothing tells members apart** while no path is full: shares go back to the mean, by
//!   [`EVENING`]. Without this rule, feedback alone leaves shares that noise has moved, and growth
//!   would depend on the number of round trips, which is higher for members that get more frames:
//!   one of four equal members got nearly all of them.
//! - **Losses** take a part of a member's share, at most once in a window of its frames, where
//!   queues are too short to be noticed.
//! - **Outstanding frames.** A member that keeps far more than its share of all unanswered frames
//!   is passed over at once, before its feedback tells why. One that has answered everything gets a
//!   frame now and then, however small its share is, so that a path that comes back is found.
//! - **Other connections** of the switch share what they learn (`rate_aware/shared.rs`): a new
//!   connection begins with the shares of all. The next frame of a connection without unanswered
//!   frames goes to the less loaded one of two members.

mod shared;

use core::time::Duration;
use std::sync::Arc;

use super::{Candidate, MemberMetrics, Policy, Round};
use crate::Data;
use crate::switch::MemberId;
use manyflow_core::xcp::Feedback;
use shared::Shared;

/// The growth of a share in each round trip without a queue, where no router answers.
const GROWTH: f64 = 1.125;
/// The part of its distance from the mean that a share loses in each round trip while no path is
/// full.
const EVENING: f64 = 1.0 / 512.0;
/// The same where routers answer, in each round trip. Feedback holds the shares of paths that
/// differ against it, which costs a part of their rates: less than 1 % in `any-weights`, and 4 %
/// with four times this value.
const EVENING_WITH_ROUTERS: f64 = 1.0 / 1024.0;
/// The time by which a round trip is longer than the shortest one if a queue stands: this part of
/// the shortest one, and at least `NOISE`.
const QUEUE: f64 = 0.25;
const NOISE: Duration = Duration::from_millis(2);
/// The growth of the shortest round trip in each one, so that a longer path is believed some time.
const AGEING: f64 = 1.0 + 1.0 / 1024.0;
/// The part of its share that a member keeps after a loss. Any factor has the same equilibrium; a
/// smaller one finds it sooner, with shares that vary more.
const LOSS: f64 = 0.75;
/// The smallest share of a member relative to the mean. It is so small that a path which carries
/// hardly anything does not limit the others; `PROBE` finds out when it carries more.
const LEAST: f64 = 1.0 / 1024.0;
/// The number of frames after which a member without an unanswered frame gets one, whatever its
/// share: nobody knows what a path carries that no frame takes.
const PROBE: u32 = 64;
/// The multiple of its share of all unanswered frames from which a member is passed over.
const BACKLOG: f64 = 2.0;
/// The unanswered frames that are never a backlog: answers come in bursts.
const BURST: f64 = 4.0;

/// A member, as the policy knows it.
#[derive(Copy, Clone, Debug, Default)]
struct Known {
    /// The member's share of the frames, relative to the others'; 0 before it is a candidate.
    share: f64,
    /// The frames that the member is owed (smooth weighted round robin).
    owed: f64,
    /// The member's unanswered frames when the policy last chose.
    outstanding: u32,
    /// The answers until the next loss counts.
    until_loss: u32,
    /// The frames that others got since the member's last one.
    passed: u32,
    /// Whether a router has answered the member's latest frame.
    has_router: bool,
    /// The shortest round trip, in seconds; 0 before the first.
    shortest: f64,
    /// The answers per second in the latest round trip.
    rate: f64,
    /// Whether a queue stood in the latest round trip. With a router it is unknown, and false.
    is_full: bool,
}

/// Chooses members in proportion to the rates that their paths and servers carry, which it learns
/// from their answers: `rate_aware.rs` has the rules. It ignores keys.
#[derive(Debug, Default)]
pub struct RateAware {
    /// The state of each member, by its number.
    known: Vec<Known>,
    /// The sum of the candidates' shares when the policy last chose.
    total: f64,
    /// The candidates' unanswered frames when the policy last chose.
    waiting: f64,
    /// The sum of the candidates' rates. Members that are gone must not count.
    rates: f64,
    /// The mean share of the candidates when the policy last chose.
    mean: f64,
    /// Whether a candidate's path was full when the policy last chose.
    has_full: bool,
    /// The peer's window in bytes, as its latest frame states it.
    window: f64,
    /// The knowledge of all connections of the switch; `None` if this one learns alone.
    shared: Option<Shared>,
}

impl RateAware {
    /// Creates the policy of a connection that shares what it learns with others, by the metrics of
    /// [`share_metrics`](RateAware::share_metrics). Each connection should have another `seed`.
    pub fn shared(seed: u64) -> RateAware {
        RateAware {
            shared: Some(Shared::new(seed)),
            ..RateAware::default()
        }
    }

    /// Sets the metrics of a member, which connections have in common. A member without them has
    /// its own in this connection. Does nothing if this connection learns alone.
    pub fn share_metrics(&mut self, member: MemberId, metrics: Arc<MemberMetrics>) {
        if let Some(shared) = &mut self.shared {
            shared.share_metrics(member, metrics);
        }
    }

    /// Returns a member's share of the frames, 0 to 1; 0 for a member that was never a candidate.
    pub fn share(&self, member: MemberId) -> f64 {
        let known = self.known.get(member.index());
        known.map_or(0.0, |known| known.share / self.total)
    }

    /// Looks at the candidates. New ones get the mean share.
    fn look(&mut self, candidates: &[Candidate]) {
        let last = candidates.last().map_or(0, |last| last.member.index());
        if self.known.len() <= last {
            self.known.resize(last + 1, Known::default());
        }
        self.take_weights(candidates);
        let (mut total, mut known, mut waiting) = (0.0, 0.0, 0.0);
        for candidate in candidates {
            let member = &mut self.known[candidate.member.index()];
            member.outstanding = candidate.outstanding;
            total += member.share;
            known += f64::from(u8::from(member.share > 0.0));
            waiting += f64::from(candidate.outstanding);
        }
        let mean = if known > 0.0 { total / known } else { 1.0 };
        let least = LEAST * mean;
        (self.total, self.rates, self.has_full) = (0.0, 0.0, false);
        for candidate in candidates {
            let member = &mut self.known[candidate.member.index()];
            self.rates += member.rate;
            self.has_full |= member.is_full;
            member.share = match member.share {
                0.0 => mean,
                share => share.max(least),
            };
            self.total += member.share;
        }
        self.waiting = waiting;
        // Growth that all members have in common says nothing about shares.
        if !(1e-3..1e3).contains(&self.total) {
            let total = core::mem::replace(&mut self.total, 1.0);
            let shares = self.known.iter_mut();
            shares.for_each(|known| known.share /= total);
        }
        self.mean = self.total / candidates.len() as f64;
    }

    /// Takes the shares that all connections have learnt, if this one is new. Its own are better
    /// later: the common ones follow them with a delay.
    fn take_weights(&mut self, candidates: &[Candidate]) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        shared.note_candidates(candidates);
        let share = |candidate: &Candidate| self.known[candidate.member.index()].share;
        if candidates.iter().all(|candidate| share(candidate) == 0.0) {
            for candidate in candidates {
                let weight = shared.weight(candidate.member);
                self.known[candidate.member.index()].share = weight;
            }
        }
    }

    /// Returns whether a candidate keeps more frames than its share allows.
    fn is_behind(&self, candidate: &Candidate) -> bool {
        let share = self.known[candidate.member.index()].share / self.total;
        f64::from(candidate.outstanding) > BACKLOG * share * self.waiting + BURST
    }

    /// Counts a frame for all candidates, and returns the first whose probe is due. The frames that
    /// members are owed do not change.
    fn take_probe(&mut self, candidates: &[Candidate]) -> Option<usize> {
        let mut due = None;
        for (place, candidate) in candidates.iter().enumerate() {
            let member = &mut self.known[candidate.member.index()];
            member.passed = member.passed.saturating_add(1);
            if due.is_none() && member.passed > PROBE && candidate.outstanding == 0 {
                due = Some(place);
            }
        }
        due
    }

    /// Returns the candidate that gets the next frame.
    fn choose(&mut self, candidates: &[Candidate]) -> usize {
        match &mut self.shared {
            Some(shared) if self.waiting == 0.0 => shared.choose_of_two(candidates),
            _ => self.choose_in_turn(candidates),
        }
    }

    /// Returns the candidate that is owed most among those that are not behind, after each of them
    /// has got its part of one frame (smooth weighted round robin). If all are behind, none is.
    fn choose_in_turn(&mut self, candidates: &[Candidate]) -> usize {
        let all_behind = candidates.iter().all(|c| self.is_behind(c));
        let takes = |policy: &RateAware, c: &Candidate| all_behind || !policy.is_behind(c);
        let takers = candidates.iter().filter(|c| takes(self, c));
        let total: f64 = takers.map(|c| self.known[c.member.index()].share).sum();
        let (mut chosen, mut most) = (0, f64::NEG_INFINITY);
        for (place, candidate) in candidates.iter().enumerate() {
            if !takes(self, candidate) {
                continue;
            }
            let member = &mut self.known[candidate.member.index()];
            member.owed += member.share / total;
            if member.owed > most {
                (chosen, most) = (place, member.owed);
            }
        }
        self.known[candidates[chosen].member.index()].owed -= 1.0;
        chosen
    }

    /// Changes a member's share by `change`, but leaves it more than 0.
    fn move_share(&mut self, member: MemberId, change: f64) {
        let known = &mut self.known[member.index()];
        let share = (known.share + change).max(known.share * 1e-3);
        self.total += share - known.share;
        known.share = share;
    }
}

impl<P> Policy<P> for RateAware {
    /// Chooses a member whose probe is due. Otherwise chooses by the shares: the less loaded one of
    /// two members, if connections share what they learn and this one has no unanswered frame, or
    /// else in turn.
    fn route(&mut self, frame: &Data, _payload: &P, candidates: &[Candidate]) -> usize {
        self.window = f64::from(frame.congestion.cwnd);
        self.look(candidates);
        let chosen = match self.take_probe(candidates) {
            Some(probed) => probed,
            None => self.choose(candidates),
        };
        let member = candidates[chosen].member;
        self.known[member.index()].passed = 0;
        if let Some(shared) = &mut self.shared {
            shared.note_sent(member);
        }
        chosen
    }

    fn note_answer(&mut self, member: MemberId, feedback: Feedback) {
        let Some(known) = self.known.get_mut(member.index()) else {
            return;
        };
        known.until_loss = known.until_loss.saturating_sub(1);
        known.has_router = feedback.answered;
        if self.window == 0.0 {
            return;
        }
        // Without a router, the change is what the peer asked for unless the member lowered it.
        let change = feedback.change.bytes();
        let change = change.min(if feedback.answered { change } else { 0.0 });
        // An answer changes at most its own frame's part: a share doubles, or falls to nothing, in
        // a round trip.
        let bound = known.share / f64::from(known.outstanding.max(1));
        let moved = change / self.window * self.total;
        self.move_share(member, moved.clamp(-bound, bound));
    }

    fn note_round(&mut self, member: MemberId, round: Round) {
        let Some(known) = self.known.get_mut(member.index()) else {
            return;
        };
        let rtt = round.rtt.as_secs_f64().max(1e-6);
        let rate = f64::from(round.answers) / rtt;
        if let Some(shared) = &mut self.shared {
            shared.teach(member, known.share / self.total, self.waiting);
        }
        self.rates += rate - core::mem::replace(&mut known.rate, rate);
        known.shortest = match known.shortest {
            0.0 => rtt,
            shortest => (shortest * AGEING).min(rtt),
        };
        let queue = rtt - known.shortest;
        let has_queue = queue > (QUEUE * known.shortest).max(NOISE.as_secs_f64());
        known.is_full = has_queue && !known.has_router;
        let share = known.share;
        let change = match (known.has_router, known.is_full, self.has_full) {
            (true, ..) => EVENING_WITH_ROUTERS * (self.mean - share),
            (false, true, _) => (rate / self.rates * self.total - share).min(0.0),
            (false, false, true) => (GROWTH - 1.0) * share,
            (false, false, false) => EVENING * (self.mean - share),
        };
        self.move_share(member, change);
    }

    fn note_acknowledged(&mut self, member: MemberId) {
        if let Some(shared) = &mut self.shared {
            shared.note_acknowledged(member);
        }
    }

    fn note_loss(&mut self, member: MemberId) {
        let Some(known) = self.known.get_mut(member.index()) else {
            return;
        };
        if known.until_loss == 0 {
            known.until_loss = known.outstanding;
            let lost = (1.0 - LOSS) * known.share;
            self.move_share(member, -lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use manyflow_core::xcp::{Congestion, WindowChange};
    use proptest::prelude::*;

    use super::*;
    use crate::Length;

    const WINDOW: u32 = 40_000;

    fn route(policy: &mut RateAware, outstanding: &[u32]) -> usize {
        let candidate = |(place, outstanding): (usize, &u32)| Candidate {
            member: MemberId(place as u16),
            outstanding: *outstanding,
        };
        let candidates: Vec<_> = outstanding.iter().enumerate().map(candidate).collect();
        let congestion = Congestion {
            cwnd: WINDOW,
            ..Congestion::default()
        };
        let frame = Data {
            sequence: 0,
            key: 0,
            congestion,
        };
        Policy::<Length>::route(policy, &frame, &Length(1), &candidates)
    }

    fn answer(policy: &mut RateAware, member: usize, bytes: f64) {
        let feedback = Feedback {
            change: WindowChange::from_bytes(bytes),
            answered: true,
            averaged: false,
        };
        Policy::<Length>::note_answer(policy, MemberId(member as u16), feedback);
    }

    fn lose(policy: &mut RateAware, member: usize) {
        Policy::<Length>::note_loss(policy, MemberId(member as u16));
    }

    fn shares(policy: &RateAware, members: u16) -> Vec<f64> {
        let members = 0..members;
        members
            .map(|member| policy.share(MemberId(member)))
            .collect()
    }

    #[test]
    fn shares_begin_equal_and_remain_so_while_all_answer_alike() {
        let mut policy = RateAware::default();
        let mut frames = [0; 4];
        for round in 0..4000 {
            let member = route(&mut policy, &[10; 4]);
            frames[member] += 1;
            answer(&mut policy, member, f64::from(round % 7) - 3.0);
        }
        assert_eq!(frames, [1000; 4]);
        let shares = shares(&policy, 4);
        assert!(
            shares.iter().all(|share| (0.24..0.26).contains(share)),
            "{shares:?}"
        );
    }

    #[test]
    fn a_path_that_takes_less_than_its_share_gets_less_until_all_answer_alike() {
        // In units of a window: what each path carries. A path grants what is left of it.
        let capacities = [0.05, 0.25, 0.25, 0.45];
        let mut policy = RateAware::default();
        for _ in 0..20_000 {
            let member = route(&mut policy, &[10; 4]);
            let share = policy.share(MemberId(member as u16));
            let left = 0.1 * (capacities[member] - share) / share;
            answer(&mut policy, member, left * 1000.0);
        }
        for (share, capacity) in shares(&policy, 4).iter().zip(capacities) {
            assert!((share - capacity).abs() < 0.01, "{share} of {capacity}");
        }
    }

    #[test]
    fn without_routers_queues_tell_which_paths_are_full_and_others_grow() {
        let mut policy = RateAware::default();
        route(&mut policy, &[10; 2]);
        let round = |policy: &mut RateAware, member, milliseconds, answers| {
            let rtt = Duration::from_millis(milliseconds);
            let round = Round { rtt, answers };
            Policy::<Length>::note_round(policy, MemberId(member), round);
        };
        // Neither has a queue.
        (0..2).for_each(|member| round(&mut policy, member, 20, 20));
        assert_eq!(policy.share(MemberId(0)), 0.5);
        // A queue of 20 ms stands before member 0, whose path carries 250 frames/s. Member 1 has
        // answered 1000 frames/s.
        for _ in 0..10 {
            round(&mut policy, 0, 40, 10);
        }
        assert!((policy.share(MemberId(0)) - 0.2).abs() < 0.01);
        // Without member 1, these rates are all there are.
        route(&mut policy, &[10]);
        round(&mut policy, 0, 40, 10);
        assert_eq!(policy.share(MemberId(0)), 1.0);
        route(&mut policy, &[10; 2]);
        (0..20).for_each(|_| round(&mut policy, 1, 20, 20));
        assert!(
            policy.share(MemberId(0)) < 0.05,
            "member 1 has no queue yet"
        );
    }

    #[test]
    fn members_that_answer_alike_come_to_equal_shares() {
        for has_router in [true, false] {
            let mut policy = RateAware::default();
            route(&mut policy, &[10; 4]);
            (0..3).for_each(|_| {
                policy.known[0].until_loss = 0;
                lose(&mut policy, 0);
            });
            let mut rounds = [0; 4];
            for _ in 0..40_000 {
                // A member has a round trip with each of its frames: fewer than one is on its way.
                let member = route(&mut policy, &[0; 4]);
                rounds[member] += 1;
                if has_router {
                    answer(&mut policy, member, 0.0);
                }
                let rtt = Duration::from_millis(20);
                let round = Round { rtt, answers: 1 };
                Policy::<Length>::note_round(&mut policy, MemberId(member as u16), round);
            }
            let shares = shares(&policy, 4);
            let is_even = shares.iter().all(|share| (0.23..0.27).contains(share));
            assert!(
                is_even,
                "with routers: {has_router}, {shares:?}, {rounds:?}"
            );
        }
    }

    #[test]
    fn losses_take_from_a_share_once_in_a_window_of_frames() {
        let mut policy = RateAware::default();
        route(&mut policy, &[10; 2]);
        lose(&mut policy, 0);
        lose(&mut policy, 0);
        let once = LOSS / (1.0 + LOSS);
        assert!((policy.share(MemberId(0)) - once).abs() < 1e-9);
        (0..10).for_each(|_| answer(&mut policy, 0, 0.0));
        lose(&mut policy, 0);
        let twice = LOSS * LOSS / (1.0 + LOSS * LOSS);
        assert!((policy.share(MemberId(0)) - twice).abs() < 1e-9);
    }

    #[test]
    fn a_member_that_keeps_its_frames_is_passed_over_until_it_answers() {
        let mut policy = RateAware::default();
        let chosen: Vec<_> = (0..9).map(|_| route(&mut policy, &[60, 9, 8])).collect();
        assert!(chosen.iter().all(|member| *member != 0), "{chosen:?}");
        let after: Vec<_> = (0..9).map(|_| route(&mut policy, &[9, 9, 8])).collect();
        let first = after.iter().filter(|member| **member == 0).count();
        assert!(
            (2..=4).contains(&first),
            "its share again, and no more: {after:?}"
        );
    }

    #[test]
    fn a_member_that_joins_gets_the_mean_share() {
        let mut policy = RateAware::default();
        route(&mut policy, &[10; 2]);
        lose(&mut policy, 0);
        route(&mut policy, &[10, 10, 0]);
        let third = policy.share(MemberId(2));
        assert!((third - 1.0 / 3.0).abs() < 1e-9, "{third}");
    }

    #[test]
    fn a_new_connection_begins_with_the_shares_that_another_one_has_learnt() {
        let metrics: [Arc<MemberMetrics>; 4] = Default::default();
        let connection = |seed| {
            let mut policy = RateAware::shared(seed);
            for (member, metrics) in (0..).zip(&metrics) {
                policy.share_metrics(MemberId(member), Arc::clone(metrics));
            }
            policy
        };
        let capacities = [0.05, 0.25, 0.25, 0.45];
        let mut first = connection(1);
        for frame in 0..20_000 {
            let member = route(&mut first, &[10; 4]);
            let share = first.share(MemberId(member as u16));
            let left = 0.1 * (capacities[member] - share) / share;
            answer(&mut first, member, left * 1000.0);
            if frame % 10 == 0 {
                let rtt = Duration::from_millis(20);
                let round = Round { rtt, answers: 10 };
                Policy::<Length>::note_round(&mut first, MemberId(member as u16), round);
            }
        }
        let mut second = connection(2);
        route(&mut second, &[0; 4]);
        for (share, capacity) in shares(&second, 4).iter().zip(capacities) {
            assert!((share - capacity).abs() < 0.02, "{share} of {capacity}");
        }
    }

    proptest! {
        #[test]
        fn no_answers_make_a_share_vanish_or_the_sum_differ_from_one(
            steps in prop::collection::vec((0..5usize, -1e7..1e7f64, any::<bool>()), 1..2000),
        ) {
            let mut policy = RateAware::default();
            for (member, bytes, is_lost) in steps {
                route(&mut policy, &[3, 0, 100, 7, 1]);
                answer(&mut policy, member, bytes);
                if is_lost {
                    lose(&mut policy, member);
                }
                route(&mut policy, &[3, 0, 100, 7, 1]);
                let shares = shares(&policy, 5);
                let sum: f64 = shares.iter().sum();
                prop_assert!((sum - 1.0).abs() < 1e-6, "{shares:?}");
                prop_assert!(shares.iter().all(|share| *share > 1e-4), "{shares:?}");
            }
        }
    }
}
