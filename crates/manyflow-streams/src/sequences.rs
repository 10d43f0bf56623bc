//! Lost packets, by the sequence numbers of each group.

use manyflow_layered::Data;

/// The sequence numbers of each group, for the count of lost packets.
#[derive(Debug)]
pub(super) struct Sequences {
    /// The next expected number of each group; `None` before the first packet after a join.
    next: Vec<Option<u32>>,
}

impl Sequences {
    pub(super) fn new(groups: u8) -> Sequences {
        Sequences {
            next: vec![None; groups.into()],
        }
    }

    /// Begins a group again, whose packets before the join are not lost.
    pub(super) fn begin(&mut self, group: u8) {
        if let Some(next) = self.next.get_mut(usize::from(group)) {
            *next = None;
        }
    }

    /// Returns the number of packets that are missing before this one. A late packet was counted as
    /// lost before.
    pub(super) fn count_lost(&mut self, data: &Data) -> u64 {
        let Some(next) = self.next.get_mut(usize::from(data.group)) else {
            return 0;
        };
        let expected = next.unwrap_or(data.sequence);
        let ahead = data.sequence.wrapping_sub(expected);
        if ahead > u32::MAX / 2 {
            return 0;
        }
        *next = Some(data.sequence.wrapping_add(1));
        ahead.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(group: u8, sequence: u32) -> Data {
        Data {
            group,
            sequence,
            request: 1,
            is_for_group: false,
            rate: 0,
            rtt_us: 0,
            next_rate: 0,
            is_pair: false,
        }
    }

    #[test]
    fn missing_numbers_of_a_group_are_lost_packets() {
        let mut sequences = Sequences::new(2);
        let lost: Vec<u64> = [u32::MAX, 0, 3, 1, 4]
            .map(|number| sequences.count_lost(&data(0, number)))
            .into();
        assert_eq!(lost, [0, 0, 2, 0, 0]);
        assert_eq!(sequences.count_lost(&data(1, 700)), 0);
        assert_eq!(sequences.count_lost(&data(9, 1)), 0, "no such group");
    }

    #[test]
    fn packets_before_a_join_are_not_lost() {
        let mut sequences = Sequences::new(1);
        sequences.count_lost(&data(0, 1));
        sequences.begin(0);
        assert_eq!(sequences.count_lost(&data(0, 1_000)), 0);
        assert_eq!(sequences.count_lost(&data(0, 1_002)), 1);
    }
}
