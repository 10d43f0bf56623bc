//! Any bytes give an ALC packet or an error, and any EXT_FTI gives parameters that encode to themselves or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use manyflow_object::alc::Packet;
use manyflow_object::fec::{FecScheme, Oti};

fuzz_target!(|bytes: &[u8]| {
    let Ok(packet) = Packet::decode(bytes) else {
        return;
    };
    for scheme in [FecScheme::NoCode, FecScheme::RaptorQ] {
        if let Some(Ok(oti)) = packet
            .fti
            .map(|content| Oti::decode_extension(scheme, content))
        {
            assert_eq!(
                Oti::decode_extension(scheme, &oti.encode_extension()[2..]),
                Ok(oti)
            );
            assert!(oti.block_symbols(oti.blocks()).is_none());
        }
    }
});
