//! Texts that people write into files.

/// The byte order mark, which some editors write before a text in UTF-8. It is no part of the text.
pub const BYTE_ORDER_MARK: &str = "\u{feff}";
