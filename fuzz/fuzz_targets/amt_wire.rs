//! Any input is refused, or is an AMT message with a tunnelled datagram that decodes to the same
//! value when it is encoded again.
#![cfg_attr(fuzzing, no_main)]

use manyflow_amt::ip::{decode_udp, encode_udp};
use manyflow_amt::wire::Message;

manyflow_fuzz::target!(|bytes: &[u8]| {
    if let Ok(message) = Message::decode(bytes) {
        let mut written = Vec::new();
        message.encode(&mut written);
        assert_eq!(Message::decode(&written), Ok(message));
    }
    if let Ok((flow, payload)) = decode_udp(bytes) {
        let mut written = Vec::new();
        encode_udp(&flow, payload, &mut written).expect("what was read can be written");
        assert_eq!(decode_udp(&written), Ok((flow, payload)));
    }
});
