//! The symbols that a receiver lacks, in a form short enough for a report to the sender.
//!
//! Any repair symbol replaces any symbol that a block lacks (RFC 6330). So a receiver names only
//! the number of symbols for each block, and one symbol of the sender serves receivers that lack
//! different parts of a block.

/// The numbers of symbols that blocks lack. Blocks that lack none are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// In the order of objects and blocks, without overlap.
    runs: Vec<Run>,
}

/// Consecutive blocks of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) toi: u32,
    /// The number of the first block.
    pub(crate) first: u32,
    /// The number of blocks, at least 1.
    pub(crate) blocks: u32,
    /// The number of symbols that each of the blocks lacks at most, at least 1.
    pub(crate) symbols: u32,
}

impl Run {
    fn end(&self) -> u32 {
        self.first + self.blocks
    }
}

impl Needs {
    /// Adds a block, which comes after those that were added before.
    pub(crate) fn push(&mut self, toi: u32, sbn: u32, symbols: u32) {
        if symbols == 0 {
            return;
        }
        match self.runs.last_mut() {
            Some(run) if (run.toi, run.end(), run.symbols) == (toi, sbn, symbols) => {
                run.blocks += 1;
            }
            _ => self.runs.push(Run {
                toi,
                first: sbn,
                blocks: 1,
                symbols,
            }),
        }
    }

    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Whether nothing is lacking.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The number of symbols that are lacking in all.
    pub fn symbols(&self) -> u64 {
        let symbols = |run: &Run| u64::from(run.blocks) * u64::from(run.symbols);
        self.runs.iter().map(symbols).fold(0, u64::saturating_add)
    }

    /// Encodes the needs in at most `bytes_max` bytes. If they do not fit, neighbouring blocks are
    /// taken together, so that some seem to lack more than they do. Returns `None` if that does not
    /// help.
    pub fn encode(&self, bytes_max: usize) -> Option<Vec<u8>> {
        let mut bytes = encode(&self.runs);
        let mut gap = 0;
        while bytes.len() > bytes_max {
            bytes = encode(&self.merge(gap));
            if gap == u32::MAX {
                break;
            }
            gap = gap.saturating_mul(2).saturating_add(1);
        }
        (bytes.len() <= bytes_max).then_some(bytes)
    }

    /// Decodes the needs of a receiver; `None` if no receiver has such.
    pub fn decode(mut bytes: &[u8]) -> Option<Needs> {
        let mut needs = Needs::default();
        while !bytes.is_empty() {
            let last = needs.runs.last();
            let skipped = read_varint(&mut bytes)?;
            let toi = last.map_or(0, |run| run.toi).checked_add(skipped)?;
            let from = last.filter(|run| run.toi == toi).map_or(0, Run::end);
            let first = from.checked_add(read_varint(&mut bytes)?)?;
            let [blocks, symbols] = [read_varint(&mut bytes)?, read_varint(&mut bytes)?];
            first.checked_add(blocks)?;
            if toi == 0 || blocks == 0 || symbols == 0 {
                return None;
            }
            needs.runs.push(Run {
                toi,
                first,
                blocks,
                symbols,
            });
        }
        Some(needs)
    }

    /// Returns the runs, with those together that are at most `gap` blocks apart.
    fn merge(&self, gap: u32) -> Vec<Run> {
        let mut merged: Vec<Run> = Vec::new();
        for run in &self.runs {
            match merged.last_mut() {
                Some(last) if last.toi == run.toi && run.first - last.end() <= gap => {
                    last.blocks = run.end() - last.first;
                    last.symbols = last.symbols.max(run.symbols);
                }
                _ => merged.push(*run),
            }
        }
        merged
    }
}

fn encode(runs: &[Run]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut toi, mut end) = (0, 0);
    for run in runs {
        let from = if run.toi == toi { end } else { 0 };
        for number in [run.toi - toi, run.first - from, run.blocks, run.symbols] {
            push_varint(&mut bytes, number);
        }
        (toi, end) = (run.toi, run.end());
    }
    bytes
}

/// Appends a number in groups of 7 bits, the lowest first; each but the last has the highest bit.
fn push_varint(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn read_varint(bytes: &mut &[u8]) -> Option<u32> {
    let mut number = 0_u32;
    for shift in (0..32).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let group = u32::from(byte & 0x7f);
        let shifted = group << shift;
        if shifted >> shift != group {
            return None;
        }
        number |= shifted;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The symbols that a block lacks.
    fn of_block(needs: &Needs, toi: u32, sbn: u32) -> u32 {
        let has = |run: &&Run| run.toi == toi && (run.first..run.end()).contains(&sbn);
        needs.runs.iter().find(has).map_or(0, |run| run.symbols)
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_and_never_less(
            blocks in proptest::collection::btree_map((1_u32..5, 0_u32..300), 1_u32..60_000, 0..100), bytes_max in 40_usize..500,
        ) {
            let mut needs = Needs::default();
            for (&(toi, sbn), &symbols) in &blocks {
                needs.push(toi, sbn, symbols);
            }
            prop_assert_eq!(Needs::decode(&needs.encode(usize::MAX).unwrap()), Some(needs.clone()));
            let bytes = needs.encode(bytes_max).unwrap();
            prop_assert!(bytes.len() <= bytes_max);
            let short = Needs::decode(&bytes).unwrap();
            for (&(toi, sbn), &symbols) in &blocks {
                prop_assert!(of_block(&short, toi, sbn) >= symbols);
            }
        }

        #[test]
        fn any_bytes_give_needs_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(needs) = Needs::decode(&bytes) {
                prop_assert_eq!(Needs::decode(&needs.encode(usize::MAX).unwrap()), Some(needs));
            }
        }
    }

    #[test]
    fn needs_that_no_receiver_has_are_refused() {
        for bytes in [
            &[0, 0, 1, 1][..],
            &[1, 0, 0, 1],
            &[1, 0, 1, 0],
            &[1, 0, 1],
            &[1, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, 1],
            &[1, 0xff, 0xff, 0xff, 0xff, 0x1f, 1, 1],
            &[1, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1],
        ] {
            assert_eq!(Needs::decode(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn needs_of_too_many_objects_do_not_fit() {
        let mut needs = Needs::default();
        (1..200).for_each(|toi| needs.push(toi, 0, 1));
        assert_eq!(needs.encode(400), None);
        assert_eq!(needs.symbols(), 199);
    }
}
