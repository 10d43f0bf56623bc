//! Any bytes are refused or are a message of a layered session that reads the same when written again.
#![cfg_attr(fuzzing, no_main)]

use manyflow_layered::Message;

manyflow_fuzz::target!(|bytes: &[u8]| {
    // Most inputs would be of no known kind; these are of one.
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
