//! Any input is refused, or is a packet of SAP that decodes to the same value when it is encoded
//! again. Authentication data, and a missing payload type, are not kept.
#![cfg_attr(fuzzing, no_main)]

use manyflow_net::sap::Packet;

manyflow_fuzz::target!(|bytes: &[u8]| {
    if let Ok(packet) = Packet::decode(bytes) {
        let written = packet.encode();
        // The payload type may have made it too long.
        if written.len() <= manyflow_net::sap::PACKET_BYTES_MAX {
            assert_eq!(Packet::decode(&written), Ok(packet));
        }
    }
});
