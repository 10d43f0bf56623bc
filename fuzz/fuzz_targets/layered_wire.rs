//! Any input is refused, or is a message of a layered session that decodes to the same value when
//! it is encoded again.
#![cfg_attr(fuzzing, no_main)]

use manyflow_layered::Message;

manyflow_fuzz::target!(|bytes: &[u8]| {
    // Few inputs have a known kind, so set it.
    let mut known = bytes.to_vec();
    if let [kind, group, ..] = known.as_mut_slice() {
        (*kind, *group) = (1 + *kind % 3, *group % 33);
    }
    for bytes in [bytes, &known] {
        if let Ok(message) = Message::decode(bytes) {
            let encoded = message.encode();
            assert!(encoded.as_bytes().len() <= bytes.len());
            assert_eq!(Message::decode(encoded.as_bytes()), Ok(message));
        }
    }
});
