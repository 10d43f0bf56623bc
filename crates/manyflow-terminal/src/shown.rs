//! Text of others on a terminal. Names, subjects and messages come from the network, and may have
//! characters that move the cursor, reverse the direction of writing or are invisible. Everything
//! that is printed passes through these functions.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a terminal acts on this character or does not show it: control characters (C0 and C1),
/// line and paragraph separators, the controls of bidirectional text (Unicode Standard Annex 9) and
/// invisible ones, among them the tags with which a name can carry hidden text. Joiners, which some
/// scripts need, are not among them.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{061c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Replaces each hidden character for which `keep` is false by what `escape` writes.
fn replace(
    text: &str,
    keep: impl Fn(char) -> bool,
    escape: impl Fn(&mut String, char),
) -> Cow<'_, str> {
    let is_replaced = |character: char| is_hidden(character) && !keep(character);
    if !text.contains(is_replaced) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match is_replaced(character) {
            true => escape(&mut shown, character),
            false => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

fn escape_rust(shown: &mut String, character: char) {
    shown.extend(character.escape_default());
}

/// Escapes all hidden characters, as Rust does (`\u{202e}`): the result is a part of one line.
pub fn shown(text: &str) -> Cow<'_, str> {
    replace(text, |_| false, escape_rust)
}

/// Escapes hidden characters in several lines, or in a line with tabs.
pub fn shown_lines(text: &str) -> Cow<'_, str> {
    replace(text, |kept| matches!(kept, '\n' | '\r' | '\t'), escape_rust)
}

/// Escapes hidden characters in a line of the log, which may have the escape sequences of colours.
/// The formatter of the log has escaped those in messages.
pub fn shown_log(line: &str) -> Cow<'_, str> {
    let (text, end) = match line.strip_suffix('\n') {
        Some(text) => (text, "\n"),
        None => (line, ""),
    };
    match replace(text, |kept| kept == '\x1b', escape_rust) {
        Cow::Borrowed(_) => Cow::Borrowed(line),
        Cow::Owned(text) => Cow::Owned(text + end),
    }
}

/// Escapes hidden characters in JSON, as JSON does: the meaning remains.
pub fn shown_json(text: &str) -> Cow<'_, str> {
    let keep = |kept: char| matches!(kept, '\n' | '\r' | '\t');
    replace(text, keep, |shown, character| {
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_escaped_and_others_are_not() {
        for (text, expected) in [
            ("image.iso", "image.iso"),
            ("Ünïcode/日本語.txt", "Ünïcode/日本語.txt"),
            ("👩\u{200d}💻", "👩\u{200d}💻"),
            ("a\u{202e}gpj.exe", "a\\u{202e}gpj.exe"),
            ("\x1b[2Jb\u{9b}1m", "\\u{1b}[2Jb\\u{9b}1m"),
            ("a\nb\r", "a\\nb\\r"),
            (
                "a\u{2066}\u{e0041}\u{feff}",
                "a\\u{2066}\\u{e0041}\\u{feff}",
            ),
        ] {
            assert_eq!(shown(text), expected);
        }
    }

    #[test]
    fn lines_tabs_and_the_colours_of_a_log_remain() {
        assert_eq!(shown_lines("a\tb\nc\x1bd"), "a\tb\nc\\u{1b}d");
        let line = "\x1b[33mWARN\x1b[0m a\nb\u{202e}\n";
        assert_eq!(shown_log(line), "\x1b[33mWARN\x1b[0m a\\nb\\u{202e}\n");
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let value = serde_json::json!({"name": "a\u{202e}\x1b\u{e0041}\u{9b}b"});
        let text = value.to_string();
        let shown = shown_json(&text);
        assert!(shown.is_ascii(), "{shown}");
        let read: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(read, value);
    }
}
