//! Parameters of the order.

use core::time::Duration;

use manyflow_core::ConfigError;

/// The parameters of an [`Orderer`](crate::Orderer).
#[derive(Clone, Debug, PartialEq)]
pub struct OrderConfig {
    /// The shortest time between two marks of a daemon. Between this and
    /// [`pace_max`](OrderConfig::pace_max), the time is an eighth of the time that a round takes.
    pub pace_min: Duration,
    /// The longest time between two marks of a daemon whose messages wait; at least
    /// [`pace_min`](OrderConfig::pace_min).
    pub pace_max: Duration,
    /// How long an acknowledgement waits for which no client waits; it only frees memory.
    pub idle: Duration,
    /// The time after which an exchange without a result begins again; it doubles up to 16 times
    /// this value. At least 1 ms.
    pub retry: Duration,
    /// Bytes of the longest record in a stream, 256 to 65,000. Longer ones are sent in parts.
    pub record_bytes: usize,
    /// Bytes of messages that not all daemons have acknowledged. From this on, clients' messages
    /// wait until half of them are.
    pub backlog_bytes: usize,
}

impl Default for OrderConfig {
    /// Returns a pace of 0.2 to 20 ms, idle acknowledgements after 100 ms, exchanges that begin
    /// again after 1 s, records of 48 KiB, and 32 MiB.
    fn default() -> OrderConfig {
        OrderConfig {
            pace_min: Duration::from_micros(200),
            pace_max: Duration::from_millis(20),
            idle: Duration::from_millis(100),
            retry: Duration::from_secs(1),
            record_bytes: 48 << 10,
            backlog_bytes: 32 << 20,
        }
    }
}

impl OrderConfig {
    /// Checks each parameter.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let shortest = Duration::from_millis(1);
        ConfigError::first_of([
            (
                "the longest pace of marks",
                "at least the shortest one",
                self.pace_max >= self.pace_min,
            ),
            (
                "the time after which an exchange begins again",
                "at least 1 ms",
                self.retry >= shortest,
            ),
            (
                "the longest record",
                "256 to 65,000 bytes",
                (256..=65_000).contains(&self.record_bytes),
            ),
            (
                "the backlog",
                "at least 64 KiB",
                self.backlog_bytes >= 64 << 10,
            ),
        ])
    }
}
