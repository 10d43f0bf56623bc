//! Valid ends for the prefixes of known formats, so that common programs decode what a receiver
//! writes. The format is found by the first bytes. Other units, and units that have their end, stay
//! as they are.

mod jpeg;
mod jpeg2000;

use std::borrow::Cow;

/// Returns a prefix of a unit as a valid file of its kind, if the kind is known and enough of it
/// has come.
pub(super) fn finish(prefix: &[u8]) -> Cow<'_, [u8]> {
    let finished = if jpeg2000::is_file(prefix) {
        jpeg2000::finish_file(prefix)
    } else if jpeg2000::is_codestream(prefix) {
        jpeg2000::finish(prefix)
    } else if jpeg::is_jpeg(prefix) {
        jpeg::finish(prefix)
    } else {
        None
    };
    finished.map_or(Cow::Borrowed(prefix), Cow::Owned)
}

/// Returns the number of 2 bytes at a place.
fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes(*bytes).into())
}

/// Returns the number of 4 bytes at a place.
fn long(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk::<4>()?;
    usize::try_from(u32::from_be_bytes(*bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_keep_their_start_or_stay_as_they_are(
            start in prop_oneof![
                Just(&b"\xff\x4f\xff\x51"[..]),
                Just(&b"\xff\xd8\xff"[..]),
                Just(&b"\x00\x00\x00\x0cjP  \r\n\x87\n"[..]),
                Just(&b""[..]),
            ],
            rest in proptest::collection::vec(
                prop_oneof![Just(0xff_u8), Just(0x90), Just(0x93), Just(0), Just(12), any::<u8>()], 0..200),
        ) {
            let prefix = [start, &rest].concat();
            let finished = finish(&prefix);
            prop_assert!(finished.len() <= prefix.len() + 2);
            let kept = prefix.iter().zip(&finished[..]).take(start.len());
            prop_assert!(kept.clone().all(|(before, after)| before == after));
            prop_assert_eq!(finish(&finished), finished.clone(), "a finished unit has its end");
        }
    }

    #[test]
    fn other_units_stay_as_they_are() {
        for unit in [&b""[..], b"unit", b"\xff\xd9"] {
            assert!(matches!(finish(unit), Cow::Borrowed(same) if same == unit));
        }
    }
}
