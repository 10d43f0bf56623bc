//! Times and durations as Go writes them.

use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Returns a time in UTC, as RFC 3339 writes it.
pub(crate) fn date(time: SystemTime) -> String {
    let text = OffsetDateTime::from(time).format(&Rfc3339);
    text.expect("the clock shows a year of four digits")
}

/// Returns a duration as nats-server writes those of servers and connections, such as `1d2h3m4s`.
pub(crate) fn uptime(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let parts = [
        (seconds / (365 * 86_400), 'y'),
        (seconds / 86_400 % 365, 'd'),
        (seconds / 3600 % 24, 'h'),
        (seconds / 60 % 60, 'm'),
        (seconds % 60, 's'),
    ];
    let first = parts.iter().position(|(count, _)| *count > 0);
    let shown = &parts[first.unwrap_or(parts.len() - 1)..];
    shown
        .iter()
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect()
}

/// Returns a round-trip time in milliseconds, in a form that Go reads.
pub(crate) fn milliseconds(duration: Duration) -> String {
    format!("{:.3}ms", duration.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptimes_are_those_of_nats_server() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m0s"),
            (3661, "1h1m1s"),
            (86_400, "1d0h0m0s"),
            (366 * 86_400 + 5, "1y1d0h0m5s"),
        ] {
            assert_eq!(uptime(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn dates_are_in_utc() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_577_836_800_250);
        assert_eq!(date(time), "2020-01-01T00:00:00.25Z");
        assert_eq!(milliseconds(Duration::from_micros(1234)), "1.234ms");
    }
}
