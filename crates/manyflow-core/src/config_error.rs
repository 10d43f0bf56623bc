//! The error for a protocol's parameter that is outside its range.

/// A parameter is outside its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} must be {range}")]
pub struct ConfigError {
    name: &'static str,
    range: &'static str,
}

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
