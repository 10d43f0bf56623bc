//! The attribute `completion`: where and when receivers report.

use std::fmt;
use std::time::Duration;

use manyflow_net::description::HostPort;
use manyflow_net::description::error::{DescriptionError, in_range, invalid, number};

/// The longest window for completion reports: a year.
const WINDOW_S_MAX: u64 = 366 * 24 * 3600;

/// Where receivers report that they have all files: `a=completion:HOST:PORT SECONDS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The sender's address for reports.
    pub server: HostPort,
    /// The window in which each receiver reports once, in whole seconds: 1 s to 366 days.
    pub window: Duration,
}

impl Completion {
    pub(super) fn parse(text: &str) -> Result<Self, DescriptionError> {
        let (server, window) = text
            .split_once(' ')
            .ok_or_else(|| invalid("a=completion", text, "HOST:PORT SECONDS"))?;
        let completion = Self {
            server: HostPort::parse("a=completion", server)?,
            window: Duration::from_secs(number("the window of a=completion", window)?),
        };
        completion.check()?;
        Ok(completion)
    }

    pub(super) fn check(&self) -> Result<(), DescriptionError> {
        self.server.check("a=completion")?;
        let seconds = self.window.as_secs();
        in_range("the window of a=completion", seconds, 1..=WINDOW_S_MAX)
    }
}

impl fmt::Display for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.server.authority(), self.window.as_secs())
    }
}
