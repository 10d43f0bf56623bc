//! Any input is refused, or is a message between gateway and member that encodes to a message of
//! the same contents.
#![cfg_attr(fuzzing, no_main)]

use bytes::Bytes;
use manyflow_ensembles::http::wire::{FromMember, ToMember};

manyflow_fuzz::target!(|bytes: &[u8]| {
    // Few inputs have a known version and type, so set these.
    let mut known = bytes.to_vec();
    if let [version, kind, flags, reserved, ..] = known.as_mut_slice() {
        (*version, *kind, *reserved) = (2, 1 + *kind % 12, 0);
        *flags %= 4;
    }
    for message in [Bytes::from(known), Bytes::copy_from_slice(bytes)] {
        if let Ok(decoded) = ToMember::decode(&message) {
            assert_eq!(ToMember::decode(&decoded.encode()), Ok(decoded));
        }
        if let Ok(decoded) = FromMember::decode(&message) {
            assert_eq!(FromMember::decode(&decoded.encode()), Ok(decoded));
        }
    }
});
