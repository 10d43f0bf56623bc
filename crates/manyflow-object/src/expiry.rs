//! The time at which a table of files expires (RFC 6726 section 3.3).
//!
//! Tables give 32 bits of seconds since 1900, which overflow on 2036-02-07. A value belongs to the
//! 136-year era in which it is closest to the present time.

/// Length of an era in seconds.
const ERA: u64 = 1 << 32;
/// Minimum time for which a new table is valid, in seconds: about a year.
const VALID: u64 = 1 << 25;
/// Tables expire at the ends of spans of this length, in seconds: about 17 years. So a sender that
/// is started again with the same files sends the same table.
const SPAN: u64 = 1 << 29;
/// 2026-01-01. A sender's clock that is earlier was never set.
const EARLIEST: u64 = 3_976_214_400;

/// Returns the time at which a table that is created now expires, as tables give it. `ntp_seconds`
/// is the present time, in seconds since 1900.
///
/// Until 2035 this is the end of the era, which is the latest time for receivers that do not know
/// eras.
pub fn expires(ntp_seconds: u64) -> u32 {
    let at_least = ntp_seconds.max(EARLIEST) + VALID;
    ((at_least | (SPAN - 1)) % ERA) as u32
}

/// Whether a table that gives this time has expired at `ntp_seconds`, in seconds since 1900. Some
/// senders write more than 32 bits, which are compared directly.
pub fn has_expired(expires: u64, ntp_seconds: u64) -> bool {
    if expires >= ERA {
        return expires < ntp_seconds;
    }
    // The difference within half an era before or after the present.
    let ahead = (expires as u32)
        .wrapping_sub(ntp_seconds as u32)
        .cast_signed();
    ahead < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2036-02-07 00:00:00.
    const FEBRUARY_7TH: u64 = 4_294_944_000;
    const DAY: u64 = 86_400;
    const YEAR: u64 = 365 * DAY;

    #[test]
    fn the_example_of_the_rfc_is_valid_for_two_days() {
        let expires = 149_504;
        assert!(!has_expired(expires, FEBRUARY_7TH));
        assert!(!has_expired(expires, FEBRUARY_7TH + DAY));
        assert!(!has_expired(expires, FEBRUARY_7TH + 2 * DAY));
        assert!(has_expired(expires, FEBRUARY_7TH + 2 * DAY + 1));
    }

    #[test]
    fn a_new_table_is_valid_for_a_year_in_every_era() {
        for now in (EARLIEST..EARLIEST + 300 * YEAR).step_by(DAY as usize * 100) {
            let expires = expires(now).into();
            assert!(!has_expired(expires, now), "{now}");
            assert!(!has_expired(expires, now + YEAR), "{now}");
            assert!(has_expired(expires, now + 19 * YEAR), "{now}");
        }
    }

    #[test]
    fn tables_of_today_expire_at_the_end_of_the_era() {
        assert_eq!(expires(EARLIEST), u32::MAX);
        assert_eq!(expires(EARLIEST + 8 * YEAR), u32::MAX);
    }

    #[test]
    fn a_sender_whose_clock_was_never_set_sends_a_table_of_today() {
        assert_eq!(expires(0), u32::MAX);
    }

    #[test]
    fn values_of_more_than_32_bits_need_no_era() {
        assert!(!has_expired(ERA + 10, ERA + 10));
        assert!(has_expired(ERA + 10, ERA + 11));
    }
}
