//! Receive ratios: which share of the peer's bytes each member gets (section III-A; "a simple histogram", section V).

/// Bytes by member, over the last frames.
#[derive(Debug)]
pub(super) struct Ratios {
    /// Member and bytes of each frame: written round and round.
    frames: Vec<(u16, u32)>,
    /// How many frames count.
    window: usize,
    oldest: usize,
    /// Of each member.
    bytes: Vec<u64>,
    total: u64,
}

impl Ratios {
    /// Over the last `window` frames.
    pub(super) fn new(window: u32) -> Ratios {
        Ratios {
            frames: Vec::with_capacity(window as usize),
            window: window as usize,
            oldest: 0,
            bytes: Vec::new(),
            total: 0,
        }
    }

    /// A member joins.
    pub(super) fn add_member(&mut self) {
        self.bytes.push(0);
    }

    /// A frame of `bytes` goes to a member.
    pub(super) fn count(&mut self, member: u16, bytes: u32) {
        if self.frames.len() < self.window {
            self.frames.push((member, bytes));
        } else {
            let gone = core::mem::replace(&mut self.frames[self.oldest], (member, bytes));
            self.bytes[usize::from(gone.0)] -= u64::from(gone.1);
            self.total -= u64::from(gone.1);
            self.oldest += 1;
            if self.oldest == self.window {
                self.oldest = 0;
            }
        }
        self.bytes[usize::from(member)] += u64::from(bytes);
        self.total += u64::from(bytes);
    }

    /// A member is gone, and what it got with it.
    pub(super) fn forget(&mut self, member: u16) {
        let its_own = |frame: &&mut (u16, u32)| frame.0 == member;
        for frame in self.frames.iter_mut().filter(its_own) {
            frame.1 = 0;
        }
        self.total -= core::mem::take(&mut self.bytes[usize::from(member)]);
    }

    /// A member's share, 0 to 1; 0 where nothing was sent.
    pub(super) fn of(&self, member: u16) -> f64 {
        match self.total {
            0 => 0.0,
            total => self.bytes[usize::from(member)] as f64 / total as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_bytes_over_the_last_frames() {
        let mut ratios = Ratios::new(4);
        (0..2).for_each(|_| ratios.add_member());
        assert_eq!(ratios.of(0), 0.0);
        ratios.count(0, 300);
        ratios.count(1, 100);
        assert_eq!((ratios.of(0), ratios.of(1)), (0.75, 0.25));
        for _ in 0..3 {
            ratios.count(1, 100);
        }
        assert_eq!((ratios.of(0), ratios.of(1)), (0.0, 1.0), "300 is gone");
        ratios.count(0, 200);
        assert_eq!(ratios.of(0), 0.4);
        ratios.forget(0);
        assert_eq!((ratios.of(0), ratios.of(1)), (0.0, 1.0));
    }
}
