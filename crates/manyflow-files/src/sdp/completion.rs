//! The attribute `completion`: where and when receivers report.

use std::fmt;
use std::time::Duration;

use manyflow_net::description::HostPort;
use manyflow_net::description::error::{DescriptionError, in_range, invalid, number};

use crate::completion::WINDOW_MAX;

/// The word at the end of the attribute.
const PROGRESS: &str = "progress";
const FORMAT: &str = "HOST:PORT SECONDS, and `progress` or nothing";

/// Where receivers report that they have all files: `a=completion:HOST:PORT SECONDS`, or, if they
/// report their progress, too, `a=completion:HOST:PORT SECONDS progress`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The sender's address for reports.
    pub server: HostPort,
    /// The window in which each receiver reports once, in whole seconds: 1 s to 366 days.
    pub window: Duration,
    /// Whether receivers report in each window how far they are, and how they fail.
    pub progress: bool,
}

impl Completion {
    pub(super) fn parse(text: &str) -> Result<Self, DescriptionError> {
        let mut words = text.split(' ');
        let (Some(server), Some(window), progress, None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(invalid("a=completion", text, FORMAT));
        };
        if progress.is_some_and(|word| word != PROGRESS) {
            return Err(invalid("a=completion", text, FORMAT));
        }
        let completion = Self {
            server: HostPort::parse("a=completion", server)?,
            window: Duration::from_secs(number("the window of a=completion", window)?),
            progress: progress.is_some(),
        };
        completion.check()?;
        Ok(completion)
    }

    pub(super) fn check(&self) -> Result<(), DescriptionError> {
        self.server.check("a=completion")?;
        let seconds = self.window.as_secs();
        in_range(
            "the window of a=completion",
            seconds,
            1..=WINDOW_MAX.as_secs(),
        )
    }
}

impl fmt::Display for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.server.authority(), self.window.as_secs())?;
        match self.progress {
            true => write!(f, " {PROGRESS}"),
            false => Ok(()),
        }
    }
}
