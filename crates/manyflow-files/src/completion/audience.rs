//! The receivers whose reports a sender takes.

use std::str::FromStr;
use std::time::Duration;

use super::expected::Expected;
use super::{progress_window, window};

/// The maximum number of receivers to wait for.
const UNTIL_DONE_MAX: u32 = 1_000_000;

/// The receivers whose reports a sender takes, and the number of them that ends the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Any receivers: the session ends when this number of them, at least 1, have all files.
    /// They report nothing else.
    Number(u32),
    /// The receivers of a list, which also report their progress, and how they fail.
    Listed {
        /// The list, which is not empty.
        receivers: Vec<Expected>,
        /// The session ends when this number of the listed receivers, at least 1, have all files;
        /// `None` if it does not end for that reason.
        ends_after: Option<u32>,
    },
}

impl Audience {
    /// Returns the audience of a list, of a number of receivers that ends the session, or of both;
    /// `None` of neither.
    ///
    /// # Errors
    /// If `until_done` is `all` and there is no list, or is a number above the length of the list.
    pub fn new(
        listed: Option<Vec<Expected>>,
        until_done: Option<UntilDone>,
    ) -> Result<Option<Audience>, AudienceError> {
        let Some(receivers) = listed else {
            return match until_done {
                None => Ok(None),
                Some(UntilDone::Number(number)) => Ok(Some(Audience::Number(number))),
                Some(UntilDone::All) => Err(AudienceError::NoList),
            };
        };
        let listed = receivers.len() as u32;
        let ends_after = match until_done {
            None => None,
            Some(UntilDone::All) => Some(listed),
            Some(UntilDone::Number(number)) if number <= listed => Some(number),
            Some(UntilDone::Number(number)) => {
                return Err(AudienceError::ShortList { number, listed });
            }
        };
        Ok(Some(Audience::Listed {
            receivers,
            ends_after,
        }))
    }

    /// The window in which each receiver reports once.
    pub fn window(&self) -> Duration {
        match self {
            Audience::Number(receivers) => window(*receivers),
            Audience::Listed { receivers, .. } => progress_window(receivers.len() as u32),
        }
    }

    /// Whether receivers report their progress, and how they fail.
    pub fn reports_progress(&self) -> bool {
        matches!(self, Audience::Listed { .. })
    }

    /// The number of receivers with all files that ends the session.
    pub fn ends_after(&self) -> Option<u32> {
        match self {
            Audience::Number(receivers) => Some(*receivers),
            Audience::Listed { ends_after, .. } => *ends_after,
        }
    }
}

/// A number of receivers and a list of them contradict each other.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AudienceError {
    /// The session ends when all of a list are done, and there is no list.
    #[error(
        "--until-done without a number needs a list of receivers: add --expect FILE, or a number"
    )]
    NoList,
    /// The session ends when more receivers are done than the list has.
    #[error(
        "--until-done {number}: --expect lists {listed} receivers, which is less: give no number to wait for all"
    )]
    ShortList {
        /// The number to wait for.
        number: u32,
        /// The number in the list.
        listed: u32,
    },
}

/// The number of receivers that ends a session, which is written as itself or as `all`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum UntilDone {
    /// All that are listed.
    All,
    /// This number, 1 to 1,000,000.
    Number(u32),
}

impl FromStr for UntilDone {
    type Err = UntilDoneError;

    fn from_str(text: &str) -> Result<UntilDone, UntilDoneError> {
        if text == "all" {
            return Ok(UntilDone::All);
        }
        let number = text.parse().ok();
        let number = number.filter(|number| (1..=UNTIL_DONE_MAX).contains(number));
        number.map(UntilDone::Number).ok_or(UntilDoneError)
    }
}

/// A text is no number of receivers.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give a number of receivers, 1 to {UNTIL_DONE_MAX}, or `all` with --expect")]
pub struct UntilDoneError;

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Option<Vec<Expected>> {
        let names = names.iter().map(|name| Expected {
            name: name.parse().unwrap(),
            key: None,
        });
        Some(names.collect())
    }

    #[test]
    fn a_list_and_a_number_make_an_audience_together() {
        let ends_after = |listed, until_done| {
            let audience = Audience::new(listed, until_done).unwrap();
            audience.and_then(|audience| audience.ends_after())
        };
        let number = Some(UntilDone::Number(2));
        assert_eq!(Audience::new(None, None), Ok(None));
        assert_eq!(ends_after(None, number), Some(2));
        assert_eq!(ends_after(list(&["a", "b", "c"]), None), None);
        assert_eq!(ends_after(list(&["a", "b", "c"]), number), Some(2));
        assert_eq!(
            ends_after(list(&["a", "b", "c"]), Some(UntilDone::All)),
            Some(3)
        );
    }

    #[test]
    fn a_number_that_the_list_cannot_reach_is_refused() {
        let refused = Audience::new(list(&["a"]), Some(UntilDone::Number(2)));
        let (number, listed) = (2, 1);
        assert_eq!(refused, Err(AudienceError::ShortList { number, listed }));
        let refused = Audience::new(None, Some(UntilDone::All));
        assert_eq!(refused, Err(AudienceError::NoList));
    }

    #[test]
    fn a_number_of_receivers_is_written_as_itself_or_as_all() {
        assert_eq!("all".parse(), Ok(UntilDone::All));
        assert_eq!("1000000".parse(), Ok(UntilDone::Number(1_000_000)));
        for text in ["0", "1000001", "-1", "many", ""] {
            assert_eq!(text.parse::<UntilDone>(), Err(UntilDoneError), "{text}");
        }
    }
}
