//! What is wrong with a protocol's parameters.

/// A parameter is outside its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} must be {range}")]
pub struct ConfigError {
    name: &'static str,
    range: &'static str,
}

/// A parameter's name, its range, and whether it is inside it.
pub(crate) type Check = (&'static str, &'static str, bool);

impl ConfigError {
    /// Returns the first check that does not hold as an error. A check is a parameter's name, its range as words, and
    /// whether the parameter is inside the range.
    ///
    /// # Errors
    /// If a check does not hold.
    pub fn first_of<const N: usize>(checks: [Check; N]) -> Result<(), ConfigError> {
        match checks.into_iter().find(|(_, _, holds)| !holds) {
            Some((name, range, _)) => Err(ConfigError { name, range }),
            None => Ok(()),
        }
    }
}
