//! Any data is refused, or is a record AMTRELAY whose relay is nothing, an address, or a name of
//! letters, digits, `-` and `_`.
#![cfg_attr(fuzzing, no_main)]

use manyflow_amt::discovery::{RelayName, RelayRecord};

manyflow_fuzz::target!(|data: &[u8]| {
    if let Ok(RelayRecord {
        relay: RelayName::Domain(name),
        ..
    }) = RelayRecord::decode(data)
    {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        assert!(name.len() < 255 && !name.split('.').any(str::is_empty));
        assert!(name.split('.').all(|label| label.chars().all(is_plain)));
    }
});
