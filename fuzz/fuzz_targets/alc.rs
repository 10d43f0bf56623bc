//! Any input decodes to an ALC packet or an error, and any EXT_FTI to an error or to parameters
//! that encode to the same bytes.
#![cfg_attr(fuzzing, no_main)]

use manyflow_object::alc::Packet;
use manyflow_object::fec::{FecScheme, Oti};

manyflow_fuzz::target!(|bytes: &[u8]| {
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
