//! Any input is refused, or is a request, an answer or a manifest of the store that encodes to the
//! same bytes.
#![cfg_attr(fuzzing, no_main)]

use bytes::Bytes;
use manyflow_store::{Answer, Hash, Manifest, Request};

manyflow_fuzz::target!(|bytes: &[u8]| {
    // Few inputs have a known version and type, so set these.
    let mut known = bytes.to_vec();
    if let [version, kind, third, reserved, ..] = known.as_mut_slice() {
        (*version, *kind, *reserved) = (1, 1 + *kind % 38, 0);
        *third %= 24;
    }
    for frame in [Bytes::from(known), Bytes::copy_from_slice(bytes)] {
        if let Ok(request) = Request::decode(&frame) {
            assert_eq!(request.encode(), frame);
        }
        if let Ok(answer) = Answer::decode(&frame) {
            assert_eq!(answer.encode(), frame);
        }
    }
    // The digest at the end is made valid, so that the fields are read.
    let body = [b"MFS2", bytes].concat();
    let manifest = [&body[..], &Hash::of(&body).0].concat();
    if let Ok(decoded) = Manifest::decode(&manifest) {
        let encoded = decoded.encode().expect("it was decoded");
        assert_eq!(encoded[..], manifest[..]);
    }
});
