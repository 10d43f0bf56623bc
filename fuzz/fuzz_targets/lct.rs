//! Any input decodes to an LCT header or an error.
#![cfg_attr(fuzzing, no_main)]

use manyflow_object::ext_auth::{GroupMac, MAC_BYTES, SEQUENCE_MAX};
use manyflow_object::lct::Header;

manyflow_fuzz::target!(|bytes: &[u8]| {
    if let Ok((header, rest)) = Header::decode(bytes) {
        assert!(header.cci.len() + rest.len() < bytes.len());
        if let Some(group_mac) = GroupMac::find(&header) {
            assert!(group_mac.sequence <= SEQUENCE_MAX);
            assert_eq!(bytes[group_mac.mac].len(), MAC_BYTES);
        }
        for het in 0..=255 {
            assert!(
                header
                    .extension(het)
                    .is_none_or(|content| content.len() < bytes.len())
            );
        }
    }
});
