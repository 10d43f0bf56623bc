//! Receive ratios: the share of the peer's bytes that each member gets (section III-A; "a simple
//! histogram", section V).

use super::MemberId;

/// Bytes by member over the last frames.
#[derive(Debug)]
pub(super) struct Ratios {
    /// The member and the bytes of each frame. The oldest frame is overwritten.
    frames: Vec<(MemberId, u32)>,
    /// The number of frames that count.
    window: usize,
    oldest: usize,
    /// The bytes of each member's frames.
    bytes: Vec<u64>,
    total: u64,
}

impl Ratios {
    /// Creates empty ratios over the last `window` frames.
    pub(super) fn new(window: u32) -> Ratios {
        Ratios {
            frames: Vec::with_capacity(window as usize),
            window: window as usize,
            oldest: 0,
            bytes: Vec::new(),
            total: 0,
        }
    }

    /// Adds the member with the next number.
    pub(super) fn add_member(&mut self) {
        self.bytes.push(0);
    }

    /// Counts a frame of `bytes` that goes to a member.
    pub(super) fn count(&mut self, member: MemberId, bytes: u32) {
        if self.frames.len() < self.window {
            self.frames.push((member, bytes));
        } else {
            let gone = core::mem::replace(&mut self.frames[self.oldest], (member, bytes));
            self.bytes[gone.0.index()] -= u64::from(gone.1);
            self.total -= u64::from(gone.1);
            self.oldest += 1;
            if self.oldest == self.window {
                self.oldest = 0;
            }
        }
        self.bytes[member.index()] += u64::from(bytes);
        self.total += u64::from(bytes);
        debug_assert!(self.bytes[member.index()] <= self.total);
    }

    /// Drops a member and its share of the histogram.
    pub(super) fn forget(&mut self, member: MemberId) {
        let its_own = |frame: &&mut (MemberId, u32)| frame.0 == member;
        for frame in self.frames.iter_mut().filter(its_own) {
            frame.1 = 0;
        }
        self.total -= core::mem::take(&mut self.bytes[member.index()]);
    }

    /// Returns a member's share, 0 to 1; 0 if no frame counts.
    pub(super) fn of(&self, member: MemberId) -> f64 {
        match self.total {
            0 => 0.0,
            total => self.bytes[member.index()] as f64 / total as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_count_bytes_of_the_last_frames() {
        let (first, second) = (MemberId(0), MemberId(1));
        let mut ratios = Ratios::new(4);
        (0..2).for_each(|_| ratios.add_member());
        let shares = |ratios: &Ratios| (ratios.of(first), ratios.of(second));
        assert_eq!(ratios.of(first), 0.0);
        ratios.count(first, 300);
        ratios.count(second, 100);
        assert_eq!(shares(&ratios), (0.75, 0.25));
        for _ in 0..3 {
            ratios.count(second, 100);
        }
        assert_eq!(
            shares(&ratios),
            (0.0, 1.0),
            "the frame of 300 bytes no longer counts"
        );
        ratios.count(first, 200);
        assert_eq!(ratios.of(first), 0.4);
        ratios.forget(first);
        assert_eq!(shares(&ratios), (0.0, 1.0));
    }
}
