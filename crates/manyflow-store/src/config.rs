//! Parameters of a client of the store.

use core::time::Duration;

use manyflow_core::ConfigError;

use crate::RANKS;

/// The parameters of [`Upload`](crate::Upload), [`Download`](crate::Download) and
/// [`Lookup`](crate::Lookup).
#[derive(Clone, Debug, PartialEq)]
pub struct StoreConfig {
    /// The number of distinct members that must have stored a chunk, 1 to 16.
    pub copies: u8,
    /// The maximum of bytes in flight: of chunks in requests, or of chunks that were asked for. At
    /// least 1; one request is always allowed.
    pub window_bytes: u32,
    /// The shortest time after which a request is sent again; at least 1 ms. The time-out follows
    /// the time that answers take (RFC 6298).
    pub minimum_timeout: Duration,
    /// The number of times that a put is sent to one rank before another rank is asked, at least 1.
    pub attempts: u8,
    /// The number of times that all members are asked for a chunk before the transfer fails, 1 to
    /// 100.
    pub rounds: u8,
    /// The time between two rounds; the second wait is twice as long, and so on.
    pub round_delay: Duration,
    /// The time without any answer after which the transfer fails; at least 1 ms.
    pub silence_max: Duration,
}

impl Default for StoreConfig {
    /// Returns 2 copies, a window of 8 MiB, time-outs from 2 s on, 3 attempts, 4 rounds with 1 s, 2
    /// s and 3 s between them, and failure after a minute of silence.
    fn default() -> StoreConfig {
        StoreConfig {
            copies: 2,
            window_bytes: 8 << 20,
            minimum_timeout: Duration::from_secs(2),
            attempts: 3,
            rounds: 4,
            round_delay: Duration::from_secs(1),
            silence_max: Duration::from_secs(60),
        }
    }
}

impl StoreConfig {
    /// Checks each parameter.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let shortest = Duration::from_millis(1);
        ConfigError::first_of([
            ("the copies", "1 to 16", (1..=RANKS).contains(&self.copies)),
            ("the window", "at least 1 byte", self.window_bytes >= 1),
            (
                "the minimum time-out",
                "at least 1 ms",
                self.minimum_timeout >= shortest,
            ),
            ("the attempts", "at least 1", self.attempts >= 1),
            ("the rounds", "1 to 100", (1..=100).contains(&self.rounds)),
            ("the silence", "at least 1 ms", self.silence_max >= shortest),
        ])
    }
}
