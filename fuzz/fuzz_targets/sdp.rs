//! Any text is refused, or is a description that can be written and parsed again.
#![cfg_attr(fuzzing, no_main)]

use manyflow_files::sdp::SessionDescription;

manyflow_fuzz::target!(|text: &str| {
    if let Ok(description) = SessionDescription::parse(text) {
        let text = description.to_sdp().expect("what parses is valid");
        assert_eq!(
            SessionDescription::parse(&text).expect("what is written parses"),
            description
        );
    }
});
