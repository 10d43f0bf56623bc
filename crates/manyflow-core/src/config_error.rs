//! The error for a protocol's parameter that is outside its range.

use core::error::Error;
use core::fmt;

/// A parameter is outside its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    name: &'static str,
    range: &'static str,
}

// Written by hand, like the other errors of this crate: a derive would double the crates that a
// protocol depends on.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}", self.name, self.range)
    }
}

impl Error for ConfigError {}

/// A parameter's name, its range in words, and whether its value is inside the range.
pub type Check = (&'static str, &'static str, bool);

impl ConfigError {
    /// Checks parameters in the order of `checks`.
    ///
    /// # Errors
    /// Returns an error that names the first parameter outside its range.
    pub fn first_of<const N: usize>(checks: [Check; N]) -> Result<(), ConfigError> {
        match checks.into_iter().find(|(_, _, holds)| !holds) {
            Some((name, range, _)) => Err(ConfigError { name, range }),
            None => Ok(()),
        }
    }
}
