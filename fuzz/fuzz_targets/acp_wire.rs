//! Any input is refused, or is a segment of ACP that encodes to the same bytes.
#![cfg_attr(fuzzing, no_main)]

use manyflow_anypoint::Segment;

manyflow_fuzz::target!(|bytes: &[u8]| {
    // Few inputs have a known version and type, so set these.
    let mut known = bytes.to_vec();
    if let [version, kind, reason, reserved, ..] = known.as_mut_slice() {
        (*version, *kind, *reserved) = (1, 1 + *kind % 8, 0);
        *reason = if *kind == 8 { 1 + *reason % 4 } else { 0 };
    }
    // Only a frame may follow its header; any other segment fills its datagram.
    let lengths = [8, 12, 36, known.len()].map(|length| length.min(known.len()));
    for bytes in lengths
        .iter()
        .map(|&length| &known[..length])
        .chain([bytes])
    {
        if let Ok((segment, header)) = Segment::decode(bytes) {
            assert_eq!(segment.encode().as_bytes(), &bytes[..header]);
        }
    }
});
