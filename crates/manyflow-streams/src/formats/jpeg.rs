//! JPEG (ITU-T T.81): a prefix of a progressive picture ends with its last whole scan.

use super::word;

const START: &[u8] = b"\xff\xd8\xff";
const END_OF_IMAGE: [u8; 2] = [0xff, 0xd9];
const START_OF_SCAN: u8 = 0xda;

pub(super) fn is_jpeg(prefix: &[u8]) -> bool {
    prefix.starts_with(START)
}

/// Returns the picture with an end behind its last whole scan, or behind all that has come of the
/// first one. Returns `None` if the picture has its end, or no scan has begun.
pub(super) fn finish(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut at = 2;
    let mut whole = None;
    let mut has_scan = false;
    while let Some(marker) = marker_at(prefix, at) {
        if marker == END_OF_IMAGE[1] {
            return None;
        }
        let Some(length) = word(prefix, at + 2).filter(|length| *length >= 2) else {
            break;
        };
        at += 2 + length;
        if marker == START_OF_SCAN && at < prefix.len() {
            has_scan = true;
            at = end_of_scan(prefix, at);
            if at < prefix.len() {
                whole = Some(at);
            }
        }
    }
    let end = whole.or_else(|| has_scan.then(|| without_half_marker(prefix)))?;
    Some([&prefix[..end], &END_OF_IMAGE].concat())
}

/// Returns the second byte of a marker.
fn marker_at(bytes: &[u8], at: usize) -> Option<u8> {
    match bytes.get(at..at + 2)? {
        [0xff, marker] => Some(*marker),
        _ => None,
    }
}

/// Returns the place of the marker that ends a scan, or the end of the bytes. Stuffed zeros and
/// restart markers belong to the scan.
fn end_of_scan(bytes: &[u8], from: usize) -> usize {
    let is_end = |pair: &[u8]| pair[0] == 0xff && !matches!(pair[1], 0 | 0xd0..=0xd7 | 0xff);
    let found = bytes[from..].windows(2).position(is_end);
    found.map_or(bytes.len(), |place| from + place)
}

fn without_half_marker(bytes: &[u8]) -> usize {
    let zeros = bytes.iter().rev().take_while(|byte| **byte == 0xff);
    bytes.len() - zeros.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &[u8] = b"\xff\xd8\xff\xdb\x00\x03q";
    const SCAN: &[u8] = b"\xff\xda\x00\x03s\x01\xff\x00\xff\xd0\x02";

    #[test]
    fn a_prefix_ends_with_its_last_whole_scan() {
        let whole = [HEADER, SCAN, SCAN, &END_OF_IMAGE].concat();
        assert_eq!(finish(&whole), None);
        let one = [HEADER, SCAN, &END_OF_IMAGE].concat();
        let two = [HEADER, SCAN, SCAN, &END_OF_IMAGE].concat();
        let begin = HEADER.len() + SCAN.len();
        assert_eq!(finish(&whole[..begin + 7]), Some(one.clone()));
        assert_eq!(finish(&whole[..begin + 2]), Some(one));
        assert_eq!(
            finish(&whole[..begin + SCAN.len() + 1]).unwrap().len() + 11,
            two.len()
        );
        // The first scan counts as far as it has come.
        let begun = [HEADER, &SCAN[..6], &END_OF_IMAGE].concat();
        assert_eq!(finish(&whole[..HEADER.len() + 7]), Some(begun));
        assert_eq!(finish(&whole[..HEADER.len()]), None);
    }
}
