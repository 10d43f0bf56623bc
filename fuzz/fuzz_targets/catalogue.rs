//! Any text is refused, or is a catalogue whose links are absolute.
#![cfg_attr(fuzzing, no_main)]

use manyflow_files::follow::catalogue::parse;

manyflow_fuzz::target!(|text: &str| {
    if let Ok(sessions) = parse("https://builds.example.net/sessions/catalogue.json", text) {
        assert!(sessions.iter().all(|session| session.url.contains("://")));
    }
});
