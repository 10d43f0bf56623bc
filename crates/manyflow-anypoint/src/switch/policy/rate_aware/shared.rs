//! The knowledge that all connections of a switch share, as one of them uses it.
//!
//! A connection of a few frames ends before it has learnt anything. So each connection moves the
//! members' common weights towards its own shares, by as much as it has frames on their way, and a
//! new one begins with the common weights. They are soft state: single frames, which teach
//! nothing, move them back towards the mean, so that a path that has come back gets frames again
//! although no connection of many frames has found it.
//!
//! A single frame goes to the less loaded one of two members that are drawn by their weights
//! (Mitzenmacher 2001, "The Power of Two Choices in Randomized Load Balancing"). In turn, the first
//! frames of all connections would go to the same member.

use std::sync::Arc;

use super::super::metrics::Load;
use super::super::{Candidate, MemberMetrics, mix};
use crate::switch::MemberId;

/// The frames on their way with which a connection moves a common weight by half of the difference
/// in a round trip.
const HISTORY: f64 = 256.0;
/// The part of its distance from the mean that a weight loses with each single frame.
const FORGETTING: f64 = 1.0 / 4096.0;

/// The common knowledge, and this connection's part in it.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// This connection's frames at each member, by the member's number.
    loads: Vec<Load>,
    /// The sum of the candidates' weights.
    total: f64,
    /// The state of the random draws.
    draws: u64,
}

impl Shared {
    /// Begins without metrics. Random draws come from `seed`.
    pub(super) fn new(seed: u64) -> Shared {
        Shared {
            draws: mix(seed),
            ..Shared::default()
        }
    }

    /// Sets the metrics of a member.
    pub(super) fn share_metrics(&mut self, member: MemberId, metrics: Arc<MemberMetrics>) {
        self.make_room(member.index() + 1);
        self.loads[member.index()] = Load::new(metrics);
    }

    fn make_room(&mut self, members: usize) {
        if self.loads.len() < members {
            self.loads.resize_with(members, Load::default);
        }
    }

    fn metrics(&self, member: MemberId) -> &MemberMetrics {
        self.loads[member.index()].metrics()
    }

    /// Returns the weight of a member that was a candidate.
    pub(super) fn weight(&self, member: MemberId) -> f64 {
        self.metrics(member).weight().unwrap_or(1.0)
    }

    /// Counts this connection's outstanding frames. Candidates without a weight get the mean one.
    pub(super) fn note_candidates(&mut self, candidates: &[Candidate]) {
        let last = candidates.last().map_or(0, |last| last.member.index());
        self.make_room(last + 1);
        let mut listed = candidates.iter().peekable();
        let (mut total, mut known) = (0.0, 0.0);
        for (number, load) in self.loads.iter_mut().enumerate() {
            let candidate = listed.next_if(|candidate| candidate.member.index() == number);
            load.set(candidate.map_or(0, |candidate| candidate.outstanding));
            if let (Some(_), Some(weight)) = (candidate, load.metrics().weight()) {
                total += weight;
                known += 1.0;
            }
        }
        self.total = total;
        let candidates_count = candidates.len() as f64;
        if known < candidates_count {
            let mean = if known > 0.0 { total / known } else { 1.0 };
            for candidate in candidates {
                let metrics = self.metrics(candidate.member);
                metrics.set_weight(metrics.weight().unwrap_or(mean));
            }
            self.total = mean * candidates_count;
        }
    }

    /// Counts a frame that the member gets.
    pub(super) fn note_sent(&mut self, member: MemberId) {
        self.loads[member.index()].add();
    }

    /// Counts a frame that the member has acknowledged.
    pub(super) fn note_acknowledged(&mut self, member: MemberId) {
        if let Some(load) = self.loads.get_mut(member.index()) {
            load.acknowledge();
        }
    }

    /// Moves the weight of a member towards the share that it has in this connection, which has
    /// `frames` on their way to all members.
    pub(super) fn teach(&mut self, member: MemberId, share: f64, frames: f64) {
        let weight = self.weight(member);
        let moved = frames / (frames + HISTORY) * (share * self.total - weight);
        self.metrics(member).set_weight(weight + moved);
    }

    /// Returns the less loaded one of two candidates that are drawn by their weights, or the first
    /// if they are equally loaded. Then moves all weights towards the mean.
    pub(super) fn choose_of_two(&mut self, candidates: &[Candidate]) -> usize {
        let (first, second) = (self.draw(candidates), self.draw(candidates));
        let delay = |place: usize| {
            let metrics = self.metrics(candidates[place].member);
            f64::from(metrics.outstanding()) / metrics.weight().unwrap_or(1.0)
        };
        let chosen = if delay(second) < delay(first) {
            second
        } else {
            first
        };
        let mean = self.total / candidates.len() as f64;
        for candidate in candidates {
            let weight = self.weight(candidate.member);
            let moved = FORGETTING * (mean - weight);
            self.metrics(candidate.member).set_weight(weight + moved);
        }
        chosen
    }

    /// Draws a candidate by the weights.
    fn draw(&mut self, candidates: &[Candidate]) -> usize {
        self.draws = self.draws.wrapping_add(1);
        let mut left = self.total * (mix(self.draws) >> 11) as f64 / (1_u64 << 53) as f64;
        let weights = candidates.iter().map(|c| self.weight(c.member));
        let drawn = weights.take_while(|weight| {
            left -= weight;
            left >= 0.0
        });
        drawn.count().min(candidates.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(outstanding: &[u32]) -> Vec<Candidate> {
        let candidate = |(place, outstanding): (usize, &u32)| Candidate {
            member: MemberId(place as u16),
            outstanding: *outstanding,
        };
        outstanding.iter().enumerate().map(candidate).collect()
    }

    /// Returns a connection's part in the knowledge about members.
    fn part(seed: u64, metrics: &[Arc<MemberMetrics>]) -> Shared {
        let mut shared = Shared::new(seed);
        for (member, metrics) in (0..).zip(metrics) {
            shared.share_metrics(MemberId(member), Arc::clone(metrics));
        }
        shared
    }

    fn weights(shared: &Shared, members: u16) -> Vec<f64> {
        let members = (0..members).map(MemberId);
        members.map(|member| shared.weight(member)).collect()
    }

    #[test]
    fn single_frames_are_drawn_by_the_weights_and_go_to_the_less_loaded_of_two_members() {
        let metrics: [Arc<MemberMetrics>; 2] = Default::default();
        let mut shared = part(1, &metrics);
        let mut frames_of_first = |outstanding: &[u32]| {
            // Another connection has these frames.
            let mut other = part(2, &metrics);
            other.note_candidates(&candidates(outstanding));
            let idle = candidates(&[0, 0]);
            let chosen = (0..1000).map(|_| {
                metrics[0].set_weight(1.0);
                metrics[1].set_weight(3.0);
                shared.note_candidates(&idle);
                shared.choose_of_two(&idle)
            });
            chosen.filter(|place| *place == 0).count()
        };
        let equally_loaded = frames_of_first(&[2, 6]);
        assert!(
            (200..300).contains(&equally_loaded),
            "a quarter: {equally_loaded}"
        );
        let second_is_behind = frames_of_first(&[2, 60]);
        assert!(
            (390..490).contains(&second_is_behind),
            "7 of 16: {second_is_behind}"
        );
    }

    #[test]
    fn connections_teach_as_much_as_they_have_frames_on_their_way() {
        let metrics: [Arc<MemberMetrics>; 2] = Default::default();
        let mut shared = part(1, &metrics);
        shared.note_candidates(&candidates(&[1, 1]));
        assert_eq!(weights(&shared, 2), [1.0, 1.0]);
        shared.teach(MemberId(0), 0.25, 0.0);
        assert_eq!(
            weights(&shared, 2),
            [1.0, 1.0],
            "a single frame teaches nothing"
        );
        shared.teach(MemberId(0), 0.25, HISTORY);
        assert_eq!(
            weights(&shared, 2),
            [0.75, 1.0],
            "half of the way from 1 to 0.5"
        );
    }

    #[test]
    fn a_member_without_a_weight_gets_the_mean_one() {
        let metrics: [Arc<MemberMetrics>; 3] = Default::default();
        metrics[0].set_weight(1.0);
        metrics[1].set_weight(4.0);
        let mut shared = part(1, &metrics);
        shared.note_candidates(&candidates(&[0, 0, 0]));
        assert_eq!(weights(&shared, 3), [1.0, 4.0, 2.5]);
    }

    #[test]
    fn weights_that_nobody_confirms_become_equal() {
        let metrics: [Arc<MemberMetrics>; 2] = Default::default();
        metrics[0].set_weight(1e-3);
        metrics[1].set_weight(1.0);
        let mut shared = part(1, &metrics);
        let idle = candidates(&[0, 0]);
        for _ in 0..20_000 {
            shared.note_candidates(&idle);
            shared.choose_of_two(&idle);
        }
        let weights = weights(&shared, 2);
        assert!(weights[0] > 0.95 * weights[1], "{weights:?}");
    }
}
