//! Subjects, and patterns of subjects.
//!
//! A subject is a list of tokens, separated by dots. In a pattern, the token `*` stands for any one
//! token, and `>` at the end for one or more tokens.

/// Returns whether a message may be published to this subject: it has no empty token, no wildcard
/// and no space.
pub fn is_subject(subject: &[u8]) -> bool {
    is_pattern(subject)
        && subject
            .split(is_dot)
            .all(|token| token != b"*" && token != b">")
}

/// Returns whether a client may subscribe to this pattern: it [is text](is_text), has no empty
/// token, and `>` is its last token, if at all.
pub fn is_pattern(pattern: &[u8]) -> bool {
    let mut tokens = pattern.split(is_dot).peekable();
    let mut is_valid = true;
    while let Some(token) = tokens.next() {
        let is_last = tokens.peek().is_none();
        is_valid &= !token.is_empty() && (token != b">" || is_last);
    }
    is_valid && is_text(pattern)
}

/// Returns whether a name is UTF-8 without spaces and control characters. Clients divide lines at
/// different ones, so a name that has one could make another client misread its line.
pub fn is_text(name: &[u8]) -> bool {
    // Nearly all names are of this kind, which needs no decoding.
    if name.iter().all(u8::is_ascii_graphic) {
        return true;
    }
    let is_part = |char: char| !char.is_whitespace() && !char.is_control();
    core::str::from_utf8(name).is_ok_and(|name| name.chars().all(is_part))
}

/// Returns whether the pattern has wildcards.
pub fn has_wildcard(pattern: &[u8]) -> bool {
    pattern
        .split(is_dot)
        .any(|token| token == b"*" || token == b">")
}

/// Returns whether a pattern contains a subject, or all subjects of another pattern.
pub fn matches(pattern: &[u8], subject: &[u8]) -> bool {
    let mut subject = subject.split(is_dot);
    for token in pattern.split(is_dot) {
        match (token, subject.next()) {
            (b">", Some(_)) => return true,
            (b"*", Some(other)) if other != b">" => {}
            (token, Some(other)) if token == other => {}
            _ => return false,
        }
    }
    subject.next().is_none()
}

/// Returns whether a subject can match both patterns.
pub fn overlap(a: &[u8], b: &[u8]) -> bool {
    let (mut a, mut b) = (a.split(is_dot), b.split(is_dot));
    loop {
        match (a.next(), b.next()) {
            (Some(b">"), Some(_)) | (Some(_), Some(b">")) => return true,
            (Some(one), Some(other)) if one == other || one == b"*" || other == b"*" => {}
            (one, other) => return one.is_none() && other.is_none(),
        }
    }
}

fn is_dot(byte: &u8) -> bool {
    *byte == b'.'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_overlap_if_a_subject_matches_both() {
        for (a, b, expected) in [
            ("a.b", "a.b", true),
            ("a.b", "a.c", false),
            ("a.b", "a", false),
            ("a.*", "*.b", true),
            ("a.*", "b.*", false),
            ("a.>", "a", false),
            ("a.>", "*.b.c", true),
            (">", "a.b", true),
            ("a.*.c", "a.b.>", true),
            ("a.*.c", "a.b.d", false),
        ] {
            let (a, b) = (a.as_bytes(), b.as_bytes());
            assert_eq!((overlap(a, b), overlap(b, a)), (expected, expected));
        }
    }

    #[test]
    fn patterns_match_whole_tokens() {
        let cases = [
            ("a.b", "a.b", true),
            ("a.b", "a.bc", false),
            ("a.b", "a", false),
            ("a", "a.b", false),
            ("a.*", "a.b", true),
            ("a.*", "a", false),
            ("a.*", "a.b.c", false),
            ("*.b", "a.b", true),
            ("a.>", "a.b.c", true),
            ("a.>", "a", false),
            (">", "a", true),
            ("a.*", "a.>", false),
            ("a.>", "a.*", true),
        ];
        for (pattern, subject, expected) in cases {
            let found = matches(pattern.as_bytes(), subject.as_bytes());
            assert_eq!(found, expected, "{pattern} {subject}");
        }
    }

    #[test]
    fn empty_tokens_and_wildcards_out_of_place_are_refused() {
        for pattern in ["", ".", "a.", ".a", "a..b", ">.a", "a b", "a\u{7}"] {
            assert!(!is_pattern(pattern.as_bytes()), "{pattern}");
        }
        for pattern in [
            &b"a\x0bb"[..],
            b"a\x0cb",
            b"a\0",
            b"\xff",
            b"a\xc2\x85b",
            b"a\xe2\x80\xa8b",
        ] {
            assert!(!is_pattern(pattern), "{}", pattern.escape_ascii());
        }
        assert!(is_subject("caf\u{e9}.\u{20ac}".as_bytes()));
        for pattern in ["a", "*", ">", "a.*.b.>", "a>", "a*b"] {
            assert!(is_pattern(pattern.as_bytes()), "{pattern}");
        }
        assert!(is_subject(b"a.b"));
        assert!(!is_subject(b"a.*"));
        assert!(!is_subject(b"a.>"));
    }
}
