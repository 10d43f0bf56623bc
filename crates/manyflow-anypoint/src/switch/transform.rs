//! The four transforms of XCP's headers (sections III and IV, figures 2 and 3).
//!
//! Windows are added, and split by receive ratios, so that on each leg rate = cwnd / rtt is the
//! rate that the leg carries. Where a round-trip time is unknown (0), the formulas cannot be
//! computed, and feedback passes unchanged.

use super::Scaling;
use manyflow_core::xcp::{Congestion, WindowChange};

/// The share of the service's traffic that is moved between members in a round trip: gamma of XCP's
/// routers.
const SHUFFLE: f64 = 0.1;

/// The state of a member's path, as its latest frames report it.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(super) struct Sending {
    /// The header of its latest frame.
    pub(super) header: Congestion,
    /// The average change of its rate in a round trip that the member wants and its own path
    /// allows, as a share of the rate. About 0 if the path is the limit.
    pub(super) offered: f64,
}

/// The sum of the headers of the sending members.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(super) struct Aggregate {
    /// sum cwnd_i, in bytes.
    pub(super) cwnd: f64,
    /// sum fdbk_i, in bytes.
    pub(super) feedback: f64,
    /// bw = sum cwnd_i / rtt_i, in bytes per microsecond.
    pub(super) bandwidth: f64,
    /// N: the number of sending members.
    pub(super) members: u32,
    /// The rate towards which traffic is moved, in bytes per microsecond: the mean rate of the
    /// members between which it is moved.
    pub(super) level: f64,
}

impl Aggregate {
    /// Adds the latest headers of the sending members. Ignores members that do not know their
    /// round-trip time.
    pub(super) fn of(sending: impl Iterator<Item = Sending> + Clone) -> Aggregate {
        let known = sending.filter(|member| member.header.rtt_us > 0);
        let mut sum = Aggregate::default();
        for Sending { header, .. } in known.clone() {
            sum.cwnd += f64::from(header.cwnd);
            sum.feedback += header.feedback.bytes();
            sum.bandwidth += rate(header);
            sum.members += 1;
        }
        sum.find_level(known);
        sum
    }

    /// Finds the level: first the mean rate of all members, then of those that can move towards the
    /// last level, until it does not rise. A higher level leaves out more members, so each round
    /// but the last leaves out at least one.
    fn find_level(&mut self, members: impl Iterator<Item = Sending> + Clone) {
        loop {
            let (mut rates, mut count) = (0.0, 0.0);
            for member in members.clone().filter(|member| self.moves(member)) {
                rates += rate(member.header);
                count += 1.0;
            }
            if count == 0.0 || rates / count <= self.level * (1.0 + 1e-9) {
                return;
            }
            self.level = rates / count;
        }
    }

    /// Returns whether other members give up traffic for the member, or the member for others. None
    /// is given up for a member whose own path, or application, would not take it.
    fn moves(&self, member: &Sending) -> bool {
        let rate = rate(member.header);
        let longer = f64::from(member.header.rtt_us) / self.rtt_us();
        rate >= self.level || member.offered >= SHUFFLE * (self.level / rate - 1.0) * longer
    }

    /// Returns rtt = cwnd / bw, in microseconds (section IV).
    pub(super) fn rtt_us(&self) -> f64 {
        self.cwnd / self.bandwidth
    }

    /// Returns whether any member has a known rate.
    pub(super) fn is_known(&self) -> bool {
        self.bandwidth > 0.0
    }
}

/// Returns rate_i = cwnd_i / rtt_i, in bytes per microsecond.
fn rate(header: Congestion) -> f64 {
    f64::from(header.cwnd) / f64::from(header.rtt_us)
}

/// Merges the headers of outbound data (section IV): cwnd = sum cwnd_i, fdbk = sum fdbk_i, rtt =
/// cwnd / bw. With [`Scaling::PerPacket`], each packet keeps its own feedback: fdbk = fdbk_i * rtt
/// / rtt_i.
pub(super) fn merge_data(own: Congestion, all: &Aggregate, scaling: Scaling) -> Congestion {
    if own.rtt_us == 0 || !all.is_known() {
        return own;
    }
    let rtt = all.rtt_us();
    let feedback = match scaling {
        Scaling::Paper => all.feedback,
        Scaling::PerPacket => own.feedback.bytes() * rtt / f64::from(own.rtt_us),
    };
    Congestion {
        cwnd: libm::round(all.cwnd) as u32,
        rtt_us: libm::round(rtt) as u32,
        feedback: WindowChange::from_bytes(feedback),
        answered: own.answered,
    }
}

/// Splits the header of inbound data (section IV): cwnd_k = cwnd * b_k, fdbk_k = fdbk * b_k, rtt_k
/// = rtt. With [`Scaling::PerPacket`], fdbk_k = fdbk.
pub(super) fn split_data(peer: Congestion, ratio: f64, scaling: Scaling) -> Congestion {
    if peer.rtt_us == 0 {
        return peer;
    }
    let feedback = match scaling {
        Scaling::Paper => WindowChange::from_bytes(peer.feedback.bytes() * ratio),
        Scaling::PerPacket => peer.feedback,
    };
    Congestion {
        cwnd: libm::round(f64::from(peer.cwnd) * ratio) as u32,
        rtt_us: peer.rtt_us,
        feedback,
        answered: peer.answered,
    }
}

/// Merges the feedback of inbound acknowledgements (equation 1, section IV): fdbk = min(fdbk_src,
/// min_i fdbk_i / b_i), over the members with a receive ratio above 0. With [`Scaling::PerPacket`],
/// min_i fdbk_i, each of which was limited by the fdbk_src of its own packet.
///
/// `source` is the last header from the peer, `members` holds the feedback of each member and its
/// receive ratio, and `own` is the feedback of the acknowledgement itself.
pub(super) fn merge_acks(
    source: Congestion,
    own: WindowChange,
    members: impl Iterator<Item = (WindowChange, f64)>,
    scaling: Scaling,
) -> WindowChange {
    if source.rtt_us == 0 {
        return own;
    }
    let used = members.filter(|(_, ratio)| *ratio > 0.0);
    match scaling {
        Scaling::Paper => used
            .map(|(feedback, ratio)| WindowChange::from_bytes(feedback.bytes() / ratio))
            .fold(source.feedback, WindowChange::min),
        Scaling::PerPacket => used.map(|(feedback, _)| feedback).min().unwrap_or(own),
    }
}

/// Splits the feedback of outbound acknowledgements (sections III-C and IV, figure 3): an increase
/// is spread evenly, fdbk / N * rtt_i / rtt, and a decrease by contribution, fdbk * rate_i / rate *
/// rtt_i / rtt; the result never exceeds fdbk_src_i. With [`Scaling::PerPacket`], both are
/// multiplied by rate / rate_i, because member i sends the share rate_i / rate of the packets.
///
/// With the peer's feedback near 0, this alone would leave the members as unequal as they are, and
/// a member that joins later would get nothing. So a part of the traffic is taken by contribution
/// and spread evenly, as XCP's fairness controller does among flows (see [`manyflow_core::link`]);
/// the routers cannot do it, because they see the service as one flow. A member below the common
/// level that its own path limits may take the same, but others give up nothing for it.
///
/// `member` has the last header from the member, with the feedback of the frame that is answered.
/// The feedback of another frame, which had another part of a router's budget, would too often be
/// the lower one. `bytes` is the length of the answered frame.
pub(super) fn split_ack(
    feedback: WindowChange,
    bytes: u32,
    member: &Sending,
    all: &Aggregate,
    scaling: Scaling,
) -> WindowChange {
    let own = member.header;
    if own.rtt_us == 0 || own.cwnd == 0 || !all.is_known() {
        return feedback;
    }
    let share = rate(own) / all.bandwidth;
    let even = 1.0 / f64::from(all.members);
    let level = all.level / all.bandwidth;
    let (spread, contributed, level) = match scaling {
        Scaling::Paper => (even, share, level),
        Scaling::PerPacket => (even / share, 1.0, level / share),
    };
    let feedback = feedback.bytes();
    let part = if feedback >= 0.0 { spread } else { contributed };
    let moved = (SHUFFLE * f64::from(bytes) - feedback.abs()).max(0.0);
    let change = feedback * part + moved * (level - contributed);
    let scaled = change * f64::from(own.rtt_us) / all.rtt_us();
    WindowChange::from_bytes(scaled).min(own.feedback)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Scaling::{Paper, PerPacket};
    use super::*;

    fn header(cwnd: u32, rtt_us: u32, feedback: f64) -> Congestion {
        Congestion {
            cwnd,
            rtt_us,
            feedback: WindowChange::from_bytes(feedback),
            answered: false,
        }
    }

    /// Returns two members with rates of 1 and 3 bytes per microsecond: together 40,000 bytes at 4
    /// bytes per microsecond, in 10 ms.
    fn two_members() -> ([Sending; 2], Aggregate) {
        let members = [header(10_000, 10_000, 8.0), header(30_000, 10_000, 4.0)].map(unlimited);
        (members, Aggregate::of(members.into_iter()))
    }

    /// Returns a member whose own path is no limit.
    fn unlimited(header: Congestion) -> Sending {
        let offered = f64::INFINITY;
        Sending { header, offered }
    }

    #[test]
    fn outbound_headers_add_up() {
        // 10,000 / 5 ms + 30,000 / 20 ms = 3.5 bytes per microsecond; 40,000 / 3.5 = 11,429 us.
        let headers = [header(10_000, 5_000, 8.0), header(30_000, 20_000, 4.0)];
        let all = Aggregate::of(headers.map(unlimited).into_iter());
        assert_eq!(
            merge_data(headers[0], &all, Paper),
            header(40_000, 11_429, 12.0)
        );
        let merged = merge_data(headers[0], &all, PerPacket);
        assert_eq!((merged.cwnd, merged.rtt_us), (40_000, 11_429));
        // 8 * 11,428.57 / 5,000
        assert!((merged.feedback.bytes() - 18.2857).abs() < 0.01);
    }

    #[test]
    fn inbound_headers_are_split_by_receive_ratios() {
        let peer = header(40_000, 10_000, 8.0);
        assert_eq!(split_data(peer, 0.25, Paper), header(10_000, 10_000, 2.0));
        assert_eq!(
            split_data(peer, 0.25, PerPacket),
            header(10_000, 10_000, 8.0)
        );
    }

    #[test]
    fn the_most_constrained_used_path_decides() {
        let source = header(40_000, 10_000, 100.0);
        let bytes = WindowChange::from_bytes;
        // 9 / 0.25 = 36 and 30 / 0.75 = 40. The member with ratio 0 does not count.
        let members = [(bytes(9.0), 0.25), (bytes(30.0), 0.75), (bytes(-5.0), 0.0)];
        let merged = |source, scaling| merge_acks(source, bytes(9.0), members.into_iter(), scaling);
        assert_eq!(merged(source, Paper), bytes(36.0));
        assert_eq!(merged(source, PerPacket), bytes(9.0));
        let modest = header(40_000, 10_000, 2.0);
        assert_eq!(
            merged(modest, Paper),
            bytes(2.0),
            "at most the feedback that the source asked for"
        );
        assert_eq!(
            merge_acks(source, bytes(9.0), core::iter::empty(), PerPacket),
            bytes(9.0)
        );
    }

    #[test]
    fn increases_are_spread_evenly_and_decreases_by_contribution() {
        let (members, all) = two_members();
        let split = |feedback, member: usize, scaling| {
            split_ack(
                WindowChange::from_bytes(feedback),
                0,
                &members[member],
                &all,
                scaling,
            )
            .bytes()
        };
        assert_eq!(split(4.0, 0, Paper), 2.0);
        assert_eq!(split(4.0, 1, Paper), 2.0);
        assert_eq!(
            split(20.0, 1, Paper),
            4.0,
            "at most the feedback that the member asked for"
        );
        assert_eq!(split(-4.0, 0, Paper), -1.0);
        assert_eq!(split(-4.0, 1, Paper), -3.0);
        // Member 0 has a quarter of the packets.
        assert_eq!(split(3.0, 0, PerPacket), 6.0);
        assert_eq!(split(3.0, 1, PerPacket), 2.0);
        assert_eq!(split(-4.0, 0, PerPacket), -4.0);
    }

    #[test]
    fn steady_feedback_moves_traffic_between_members() {
        let (members, all) = two_members();
        for scaling in [Paper, PerPacket] {
            let moved = |member: usize, feedback| {
                let feedback = WindowChange::from_bytes(feedback);
                let split = |bytes| split_ack(feedback, bytes, &members[member], &all, scaling);
                split(1000).bytes() - split(0).bytes()
            };
            // In a round trip, member 0 has one packet and member 1 has three.
            let (small, large): (f64, f64) = match scaling {
                Paper => (25.0, -25.0),
                PerPacket => (100.0, -100.0 / 3.0),
            };
            assert!((moved(1, 0.0) - large).abs() < 0.01, "{}", moved(1, 0.0));
            assert_eq!(
                moved(1, -100.0),
                0.0,
                "a large change moves no more traffic"
            );
            assert_eq!(
                moved(0, 0.0),
                small.min(8.0),
                "at most the feedback that the member asked for"
            );
        }
    }

    #[test]
    fn no_traffic_is_moved_to_members_that_their_own_paths_limit() {
        // 2, 4, 6 and 38 bytes per microsecond.
        let sending = |[small, middle]: [f64; 2]| {
            let member = |rate: u32, offered: f64| Sending {
                header: header(rate * 10_000, 10_000, offered.min(1000.0)),
                offered,
            };
            [
                member(2, small),
                member(4, middle),
                member(6, f64::INFINITY),
                member(38, 0.0),
            ]
        };
        let moved = |offered| {
            let members = sending(offered);
            let all = Aggregate::of(members.into_iter());
            let zero = WindowChange(0);
            members.map(|member| {
                let change = split_ack(zero, 1000, &member, &all, PerPacket).bytes();
                // The sum over the packets of a round trip, to the nearest 10 bytes.
                libm::round(change * f64::from(member.header.cwnd) / 10_000.0) * 10.0
            })
        };
        let unlimited = f64::INFINITY;
        // In 10 ms, a tenth of the distance to the level: 12.5, 16 and 22 bytes per microsecond.
        assert_eq!(
            moved([unlimited, unlimited]),
            [10_500.0, 8_500.0, 6_500.0, -25_500.0]
        );
        assert_eq!(
            moved([0.0, unlimited]),
            [0.0, 12_000.0, 10_000.0, -22_000.0]
        );
        assert_eq!(moved([0.0, 0.0]), [0.0, 0.0, 16_000.0, -16_000.0]);
    }

    #[test]
    fn a_longer_round_trip_needs_a_larger_window_for_the_same_rate() {
        // 1 byte per microsecond each: 30,000 bytes in 15 ms.
        let headers = [header(10_000, 10_000, 50.0), header(20_000, 20_000, 50.0)];
        let all = Aggregate::of(headers.map(unlimited).into_iter());
        let split = |member: usize| {
            split_ack(
                WindowChange::from_bytes(6.0),
                0,
                &unlimited(headers[member]),
                &all,
                Paper,
            )
        };
        assert_eq!((split(0).bytes(), split(1).bytes()), (2.0, 4.0));
    }

    #[test]
    fn feedback_passes_unchanged_without_a_round_trip_time() {
        let unknown = header(10_000, 0, 8.0);
        let (_, all) = two_members();
        let feedback = WindowChange::from_bytes(-3.0);
        for scaling in [Paper, PerPacket] {
            assert_eq!(merge_data(unknown, &all, scaling), unknown);
            assert_eq!(split_data(unknown, 0.5, scaling), unknown);
            assert_eq!(
                split_ack(feedback, 1024, &unlimited(unknown), &all, scaling),
                feedback
            );
            let none = core::iter::empty();
            assert_eq!(merge_acks(unknown, feedback, none, scaling), feedback);
        }
    }

    proptest! {
        #[test]
        fn one_member_leaves_every_header_unchanged(cwnd in 1u32..1 << 30, rtt_us in 0u32..60_000_000, asked: i32, cut in 0u32..1 << 30) {
            let own = Congestion { cwnd, rtt_us, feedback: WindowChange(asked), answered: false };
            // Routers only lower feedback.
            let answer = WindowChange(asked.saturating_sub_unsigned(cut));
            let all = Aggregate::of([unlimited(own)].into_iter());
            for scaling in [Paper, PerPacket] {
                prop_assert_eq!(merge_data(own, &all, scaling), own);
                prop_assert_eq!(split_data(own, 1.0, scaling), own);
                prop_assert_eq!(merge_acks(own, answer, [(answer, 1.0)].into_iter(), scaling), answer);
                prop_assert_eq!(split_ack(answer, 1024, &unlimited(own), &all, scaling), answer);
            }
        }
    }
}
