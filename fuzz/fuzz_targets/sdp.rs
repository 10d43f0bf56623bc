//! Any text is refused or is a description that can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use manyflow_live::sdp::SessionDescription;

fuzz_target!(|text: &str| {
    if let Ok(description) = SessionDescription::parse(text) {
        let text = description.to_sdp().expect("what parses is valid");
        assert_eq!(SessionDescription::parse(&text).expect("what is written parses"), description);
    }
});
