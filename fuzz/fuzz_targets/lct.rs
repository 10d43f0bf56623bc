//! Any bytes give an LCT header or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use manyflow_object::lct::Header;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((header, rest)) = Header::decode(bytes) {
        assert!(header.cci.len() + rest.len() < bytes.len());
        for het in 0..=255 {
            assert!(
                header
                    .extension(het)
                    .is_none_or(|content| content.len() < bytes.len())
            );
        }
    }
});
