//! Any input is refused, or is a datagram of live ACP that encodes to the same bytes.
#![cfg_attr(fuzzing, no_main)]

use manyflow_ensembles::anypoint::envelope::{
    Datagram, NO_COOKIE, decode, encode, encode_admission, encode_challenge, encode_part,
    encode_path_answer, encode_path_probe,
};
use manyflow_ensembles::anypoint::fragment::{HEADER_BYTES, Header};

manyflow_fuzz::target!(|bytes: &[u8]| {
    // Few inputs have a known version and type, so set these.
    let mut known = bytes.to_vec();
    if let [version, kind, reason, reserved, ..] = known.as_mut_slice() {
        (*version, *kind) = (*version & 0x80 | 1, 1 + *kind % 12);
        (*reason, *reserved) = match *kind {
            // A part has its place here.
            11 => (*reason % 4, 2 + *reserved % 3),
            // An admission has its prefix here, of ten bits.
            12 => (*reason % 4, *reserved),
            _ => (0, 0),
        };
    }
    for bytes in [bytes, &known] {
        let encoded = match decode(bytes) {
            Err(_) => continue,
            Ok(Datagram::Challenge(number, cookie)) => encode_challenge(number, cookie),
            Ok(Datagram::Open(segment, cookie)) => encode(&segment, &cookie),
            Ok(Datagram::Segment(segment, _)) => encode(&segment, &NO_COOKIE),
            Ok(Datagram::PathProbe(number, id, _)) => encode_path_probe(number, id),
            Ok(Datagram::PathAnswer(number, id, size)) => encode_path_answer(number, id, size),
            Ok(Datagram::Admission(number, prefix, credit)) => {
                encode_admission(number, prefix, credit)
            }
            Ok(Datagram::Part(part)) => {
                assert!(part.range().end <= usize::from(part.total));
                encode_part(&part)
            }
        };
        let header = encoded.as_bytes();
        assert_eq!(header, &bytes[..header.len()]);
    }
    if let Some(header) = Header::decode(bytes) {
        assert_eq!(header.encode(), bytes[..HEADER_BYTES]);
    }
});
