//! The common part of the descriptions of all sessions. They are SDP files (RFC 8866), which are
//! read from a file or a publisher, and may be signed.
//!
//! | file | what it holds |
//! |---|---|
//! | `load.rs` | [`load_text`](load::load_text): reads a description, and checks its signer |
//! | `error.rs` | the reasons to refuse one, and the checks for them |
//! | `lines.rs`, `addresses.rs`, `host_port.rs` | lines and values that files and streams share |
//! | `signature.rs` | the signature of a description |

mod addresses;
pub mod error;
mod host_port;
pub mod lines;
pub mod load;
pub mod signature;

use std::io::Read;
use std::time::{Duration, SystemTime};

use crate::text::BYTE_ORDER_MARK;

pub use addresses::{check_addresses, check_name, group_after};
pub use error::DescriptionError;
pub use host_port::HostPort;

/// Maximum length of a description in bytes. Longer texts are refused unread.
pub const DESCRIPTION_BYTES_MAX: usize = 64 << 10;
/// NTP's seconds count from 1900, those of [`SystemTime::UNIX_EPOCH`] from 1970.
const UNIX_EPOCH_NTP_S: u64 = 2_208_988_800;

/// Reads all of `reader`, at most 64 KiB. Errors call it `from`.
pub fn read_text(reader: impl Read, from: &str) -> Result<String, DescriptionError> {
    let mut text = String::new();
    let mut bounded = reader.take(DESCRIPTION_BYTES_MAX as u64 + 1);
    match bounded.read_to_string(&mut text) {
        Ok(_) if text.len() > DESCRIPTION_BYTES_MAX => Err(DescriptionError::TooLong),
        Ok(_) => Ok(without_mark(text)),
        Err(cause) => Err(DescriptionError::Unreadable {
            from: from.to_owned(),
            cause,
        }),
    }
}

/// Returns a text without a byte order mark, which no reader of descriptions expects.
fn without_mark(text: String) -> String {
    let marked = text.strip_prefix(BYTE_ORDER_MARK).map(str::to_owned);
    marked.unwrap_or(text)
}

/// Returns the version of a description that is written at `time`: seconds since 1900, without leap
/// seconds.
pub fn ntp_seconds(time: SystemTime) -> u64 {
    let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH);
    UNIX_EPOCH_NTP_S + since_1970.map_or(0, |duration| duration.as_secs())
}

/// Returns the time of a description's version; `None` if it is no time after 1970.
pub fn time_of_ntp(seconds: u64) -> Option<SystemTime> {
    let since_1970 = Duration::from_secs(seconds.checked_sub(UNIX_EPOCH_NTP_S)?);
    SystemTime::UNIX_EPOCH.checked_add(since_1970)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_text() {
        let read = |text: &str| read_text(text.as_bytes(), "here").unwrap();
        assert_eq!(read("\u{feff}v=0\n"), "v=0\n");
        assert_eq!(read("v=\u{feff}\n"), "v=\u{feff}\n");
    }
}
