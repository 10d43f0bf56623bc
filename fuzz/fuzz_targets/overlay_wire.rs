//! Any input is refused, or is a frame of the overlay that encodes to the same bytes: in a
//! datagram, on a stream between daemons or to a client, and in a segment of TCP.
#![cfg_attr(fuzzing, no_main)]

use manyflow_overlay::{ClientFrame, Frame};

manyflow_fuzz::target!(|bytes: &[u8]| {
    datagram(bytes);
    segment(bytes);
    stream(bytes);
    // Few inputs have a known version and kind, so set these, with all lengths that a header may
    // have.
    let mut known = bytes.to_vec();
    if let [first, flags, high, low, ..] = known.as_mut_slice() {
        *first = 0x20 | (*first % 26);
        *flags &= [0, 0x30, 0x40, 0xc0][usize::from(*flags % 4)];
        if *first > 0x30 && *first != 0x37 {
            (*high, *low) = (0, 0);
        }
    }
    for length in (4..=32).step_by(4).chain([known.len()]) {
        datagram(&known[..length.min(known.len())]);
    }
    for length in [bytes.len() as u8, 4, 8, 20] {
        stream(&[&[0, length], known.as_slice()].concat());
    }
});

fn datagram(bytes: &[u8]) {
    if let Ok((frame, header)) = Frame::decode(bytes) {
        let encoded = frame.encode((bytes.len() - header) as u32);
        assert_eq!(encoded.expect("it decodes").as_bytes(), &bytes[..header]);
    }
}

/// Decodes all frames of a stream from its beginning.
fn stream(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some((frame, payload))) = Frame::decode_framed(rest) {
        let encoded = frame.encode_framed(payload.len() as u32);
        let header = &rest[..payload.start];
        assert_eq!(encoded.expect("it decodes").as_bytes(), header);
        rest = &rest[payload.end..];
    }
    let mut rest = bytes;
    while let Ok(Some((frame, payload))) = ClientFrame::decode_framed(rest) {
        let encoded = frame.encode_framed(payload.len() as u32);
        let header = &rest[..payload.start];
        assert_eq!(encoded.expect("it decodes").as_bytes(), header);
        rest = &rest[payload.end..];
    }
}

fn segment(bytes: &[u8]) {
    // A header without options or with one SACK block, followed by the input.
    let mut known = bytes.to_vec();
    if let Some(header) = known.first_chunk_mut::<20>() {
        let (words, block) = if header[12] % 2 == 0 { (5, 0) } else { (8, 10) };
        (header[12], header[13]) = (words << 4, 0x10);
        header[18..].fill(0);
        if let (10, Some(option)) = (block, known.get_mut(20..24)) {
            option.copy_from_slice(&[1, 1, 5, block]);
        }
    }
    for bytes in [bytes, &known, &known[..known.len().min(20)]] {
        if let Ok((frame, header)) = Frame::decode_tcp(bytes) {
            let encoded = frame.encode((bytes.len() - header) as u32);
            let encoded = encoded.expect("it decodes");
            assert!(header >= 20 + encoded.as_bytes().len());
            assert!(bytes[..header].ends_with(encoded.as_bytes()));
        }
    }
}
