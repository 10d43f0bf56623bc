//! Parameters of a client of the store.

use core::time::Duration;

use manyflow_core::ConfigError;

use crate::RANKS;

/// The parameters of [`Upload`](crate::Upload), [`Download`](crate::Download),
/// [`Lookup`](crate::Lookup) and [`Survey`](crate::Survey).
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
    /// Whether an upload asks each member if it has a chunk before it sends the chunk. This saves
    /// bytes if most members have most chunks, and costs a round trip for the others.
    pub asks_first: bool,
    /// Whether the transfer yields to others: it then has fewer bytes in flight while answers take
    /// longer than usual, down to one request.
    pub yields: bool,
}

impl Default for StoreConfig {
    /// Returns 2 copies, a window of 8 MiB, time-outs from 2 s on, 3 attempts, 4 rounds with 1 s, 2
    /// s and 3 s between them, and failure after a minute of silence. The transfer neither asks
    /// first nor yields.
    fn default() -> StoreConfig {
        StoreConfig {
            copies: 2,
            window_bytes: 8 << 20,
            minimum_timeout: Duration::from_secs(2),
            attempts: 3,
            rounds: 4,
            round_delay: Duration::from_secs(1),
            silence_max: Duration::from_secs(60),
            asks_first: false,
            yields: false,
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
