//! Cuts a sequence of bytes into sections.

use std::mem;

/// The unit in which zeros are found, in bytes: the block of most file systems.
const UNIT_BYTES: usize = 4_096;
/// The shortest and, up to 400 GB, the longest content of a section that is cut by length.
const CONTENT_BYTES_MIN: u64 = 4 << 10;
const CONTENT_BYTES_MAX: u64 = 4 << 20;
/// The number of sections of maximum length from which on sections become longer.
const SECTIONS: u64 = 100_000;
/// The shortest run of zeros that ends a section. It replaces some 50 packets, and costs two.
const ZEROS_MIN: u64 = 64 << 10;

/// A section that was cut: its place, its content, and the number of zeros behind that.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) offset: u64,
    pub(super) content: Vec<u8>,
    pub(super) zeros: u64,
}

impl Cut {
    fn end(&self) -> u64 {
        self.offset + self.content.len() as u64 + self.zeros
    }

    fn is_empty(&self) -> bool {
        self.content.is_empty() && self.zeros == 0
    }
}

/// Collects bytes until a section is complete.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    /// The section that is being collected.
    section: Cut,
    /// The beginning of a unit that is not complete yet.
    unit: Vec<u8>,
}

impl Cutter {
    /// Adds the next bytes, and passes complete sections to `take`.
    pub(super) fn add<E>(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(Cut) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            let position = self.section.end() + self.unit.len() as u64;
            let missing = UNIT_BYTES - (position % UNIT_BYTES as u64) as usize;
            let (now, later) = bytes.split_at(missing.min(bytes.len()));
            bytes = later;
            self.unit.extend_from_slice(now);
            if now.len() == missing {
                self.add_unit(&mut take)?;
            }
        }
        Ok(())
    }

    /// The number of bytes that are not in a complete section.
    pub(super) fn pending(&self) -> u64 {
        self.section.end() - self.section.offset + self.unit.len() as u64
    }

    /// Returns what was added since the last section, as up to two sections.
    pub(super) fn flush<E>(&mut self, mut take: impl FnMut(Cut) -> Result<(), E>) -> Result<(), E> {
        if !self.unit.is_empty() {
            self.add_unit(&mut take)?;
        }
        match self.section.is_empty() {
            true => Ok(()),
            false => take(self.cut()),
        }
    }

    fn add_unit<E>(&mut self, take: &mut impl FnMut(Cut) -> Result<(), E>) -> Result<(), E> {
        let unit = mem::take(&mut self.unit);
        if unit.iter().all(|byte| *byte == 0) {
            self.section.zeros += unit.len() as u64;
        } else {
            if self.section.zeros >= self.zeros_min() {
                take(self.cut())?;
            }
            let zeros = mem::take(&mut self.section.zeros) as usize;
            let content = &mut self.section.content;
            content.resize(content.len() + zeros, 0);
            content.extend_from_slice(&unit);
            if content.len() as u64 >= content_max(self.section.offset) {
                take(self.cut())?;
            }
        }
        self.unit = unit;
        self.unit.clear();
        Ok(())
    }

    /// Ends the present section, and begins the next.
    fn cut(&mut self) -> Cut {
        let offset = self.section.end();
        let next = Cut {
            offset,
            ..Cut::default()
        };
        mem::replace(&mut self.section, next)
    }

    /// The shortest run of zeros that ends the present section. It grows with the section, so that
    /// content with many short gaps is not cut into many sections.
    fn zeros_min(&self) -> u64 {
        let content = self.section.content.len() as u64;
        ZEROS_MIN
            .max(content / 8)
            .max(self.section.offset / SECTIONS / 8)
    }
}

/// The length at which the content of a section is cut that begins at `offset`. The first sections
/// are short, because a receiver that has just joined gets ten packets in its first second.
fn content_max(offset: u64) -> u64 {
    (offset / 2)
        .clamp(CONTENT_BYTES_MIN, CONTENT_BYTES_MAX)
        .max(offset / SECTIONS)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    /// Cuts parts, flushing behind those that say so.
    fn cut(parts: &[(Vec<u8>, bool)]) -> Vec<Cut> {
        let (mut cutter, mut cuts) = (Cutter::default(), Vec::new());
        let mut take = |cut| -> Result<(), Infallible> {
            cuts.push(cut);
            Ok(())
        };
        for (part, is_flushed) in parts {
            let Ok(()) = cutter.add(part, &mut take);
            if *is_flushed {
                let Ok(()) = cutter.flush(&mut take);
                assert_eq!(cutter.pending(), 0);
            }
        }
        let Ok(()) = cutter.flush(&mut take);
        cuts
    }

    fn part() -> impl Strategy<Value = (Vec<u8>, bool)> {
        let byte = prop_oneof![Just(0_u8), Just(0), any::<u8>()];
        (byte, 0_usize..200_000, any::<bool>())
            .prop_map(|(byte, length, is_flushed)| (vec![byte; length], is_flushed))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn sections_are_the_image_in_order(parts in proptest::collection::vec(part(), 0..12)) {
            let image: Vec<u8> = parts.iter().flat_map(|(part, _)| part.clone()).collect();
            let mut joined = Vec::new();
            for cut in cut(&parts) {
                prop_assert_eq!(cut.offset, joined.len() as u64);
                prop_assert!(!cut.is_empty());
                prop_assert!((cut.content.len() as u64) < content_max(cut.offset) + ZEROS_MIN.max(CONTENT_BYTES_MAX / 8) + 4_096);
                joined.extend_from_slice(&cut.content);
                joined.resize(joined.len() + cut.zeros as usize, 0);
            }
            prop_assert_eq!(joined, image);
        }
    }

    #[test]
    fn long_runs_of_zeros_are_not_content() {
        let cuts = cut(&[
            (vec![1; 5_000], false),
            (vec![0; 10 << 20], false),
            (vec![2; 8_192], false),
            (vec![0; 30_000], false),
            (vec![3; 1], false),
        ]);
        // Units are aligned, so the zeros begin and end with a unit.
        let gap_end = (5_000 + (10 << 20)) / 4_096 * 4_096;
        let zeros: Vec<_> = cuts.iter().filter(|cut| cut.zeros > 0).collect();
        assert_eq!(zeros.len(), 1, "the short gap is content");
        assert_eq!(zeros[0].end(), gap_end);
        assert_eq!(zeros[0].zeros, gap_end - 8_192);
        let last = cuts.last().unwrap();
        assert_eq!(
            (last.offset, last.end()),
            (gap_end, 5_000 + (10 << 20) + 8_192 + 30_001)
        );
    }

    #[test]
    fn an_image_of_any_length_has_numbers_enough() {
        let (mut offset, mut sections) = (0_u64, 0_u32);
        while offset < 1 << 50 {
            offset += content_max(offset);
            sections += 1;
        }
        assert!(
            sections < manyflow_object::fdt::Section::NUMBER_MAX,
            "{sections}"
        );
        assert_eq!((content_max(0), content_max(1 << 30)), (4 << 10, 4 << 20));
    }
}
