//! Congestion controls of the caller, which sessions of TCP use by their names.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use manyflow_tcp::Control;

use manyflow_model::error::{Fault, Problem};

/// Makes the control of one connection.
type Maker = Arc<dyn Fn() -> Box<dyn Control> + Send + Sync>;

/// Congestion controls by their names.
#[derive(Clone, Default)]
pub struct Controls(BTreeMap<String, Maker>);

impl Controls {
    /// Adds a control for `tcp.control = "name"`. `make` is called for each connection of each run,
    /// in the run's thread.
    pub fn add(&mut self, name: &str, make: impl Fn() -> Box<dyn Control> + Send + Sync + 'static) {
        self.0.insert(name.to_owned(), Arc::new(make));
    }

    /// Returns whether the caller has given no controls.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes the control of one connection.
    ///
    /// # Errors
    /// Returns an error if there is no control with this name.
    pub(crate) fn make(&self, name: &str) -> Result<Box<dyn Control>, Fault> {
        match self.0.get(name) {
            Some(make) => Ok(make()),
            None => {
                let known = self.0.keys().map(String::as_str);
                Err(Fault::at(
                    &[],
                    Problem::unknown("control of a program", name, known),
                ))
            }
        }
    }
}

impl fmt::Debug for Controls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
