//! One unit in the making: the runs of bytes that have arrived.

/// The maximum number of separate runs of one unit. In order, each group makes one run, and each
/// loss one more.
const RUNS_MAX: usize = 256;

/// Contiguous bytes of a unit.
#[derive(Debug)]
struct Run {
    start: usize,
    bytes: Vec<u8>,
}

impl Run {
    fn end(&self) -> usize {
        self.start + self.bytes.len()
    }

    /// Appends the part of `bytes`, which begin at `start`, behind the end of this run. Returns the
    /// number of appended bytes.
    fn extend(&mut self, start: usize, bytes: &[u8]) -> usize {
        let more = bytes.get(self.end() - start..).unwrap_or_default();
        self.bytes.extend_from_slice(more);
        more.len()
    }
}

/// The runs of a unit, sorted and with gaps between them.
#[derive(Debug, Default)]
pub(super) struct Partial {
    runs: Vec<Run>,
    /// The bytes of all runs.
    bytes: usize,
}

impl Partial {
    /// Stores bytes that begin at `start`. Beyond the maximum number of runs, the last run is
    /// dropped, which a prefix needs least.
    pub(super) fn insert(&mut self, start: usize, bytes: &[u8]) {
        // The first run that begins behind `start`.
        let after = self.runs.partition_point(|run| run.start <= start);
        let place = match after.checked_sub(1) {
            Some(before) if self.runs[before].end() >= start => {
                self.bytes += self.runs[before].extend(start, bytes);
                before
            }
            _ => {
                self.bytes += bytes.len();
                let bytes = bytes.to_vec();
                self.runs.insert(after, Run { start, bytes });
                after
            }
        };
        self.merge_behind(place);
        if self.runs.len() > RUNS_MAX {
            self.bytes -= self.runs.pop().map_or(0, |run| run.bytes.len());
        }
        debug_assert!(
            self.runs
                .windows(2)
                .all(|pair| pair[0].end() < pair[1].start),
            "runs are sorted and separate"
        );
        debug_assert!(self.bytes >= self.prefix_bytes());
    }

    /// Merges the run at `place` with the runs that it reaches.
    fn merge_behind(&mut self, place: usize) {
        let end = self.runs[place].end();
        let reached = self.runs[place + 1..]
            .iter()
            .take_while(|run| run.start <= end)
            .count();
        if reached == 0 {
            return;
        }
        let merged: Vec<Run> = self.runs.drain(place + 1..=place + reached).collect();
        for run in merged {
            self.bytes -= run.bytes.len();
            self.bytes += self.runs[place].extend(run.start, &run.bytes);
        }
    }

    /// Returns the number of bytes that are stored.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the length of the prefix without a gap.
    pub(super) fn prefix_bytes(&self) -> usize {
        match self.runs.first() {
            Some(run) if run.start == 0 => run.bytes.len(),
            _ => 0,
        }
    }

    /// Returns the prefix without a gap.
    pub(super) fn into_prefix(self) -> Vec<u8> {
        match self.runs.into_iter().next() {
            Some(run) if run.start == 0 => run.bytes,
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partial(pieces: &[(usize, &[u8])]) -> Partial {
        let mut partial = Partial::default();
        for (start, bytes) in pieces {
            partial.insert(*start, bytes);
        }
        partial
    }

    #[test]
    fn a_piece_that_fills_a_gap_joins_all_runs_that_it_reaches() {
        let pieces: [(usize, &[u8]); 4] = [(6, &[6]), (0, &[0, 1]), (4, &[4]), (2, &[2, 3, 4, 5])];
        let partial = partial(&pieces);
        assert_eq!(partial.runs.len(), 1);
        assert_eq!(partial.into_prefix(), [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn known_bytes_change_nothing() {
        let pieces: [(usize, &[u8]); 3] = [(1, &[1, 2, 3]), (2, &[9]), (1, &[9, 9, 9])];
        let partial = partial(&pieces);
        assert_eq!((partial.bytes(), partial.prefix_bytes()), (3, 0));
        assert_eq!(partial.runs[0].bytes, [1, 2, 3]);
    }

    #[test]
    fn too_many_runs_cost_the_last_ones() {
        let mut partial = Partial::default();
        for start in (0..=RUNS_MAX).rev() {
            partial.insert(2 * start, &[1]);
        }
        assert_eq!(partial.bytes(), RUNS_MAX);
        assert_eq!(partial.runs[0].start, 0);
    }
}
