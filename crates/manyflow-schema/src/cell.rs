//! A cell: the tables with one value of each axis.

use manyflow_model::{CellOutline, Environment};

use crate::Schema;

/// One combination of values of all axes.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The number of the cell. The last axis varies fastest.
    pub index: usize,
    /// The value of each axis, as written in the file.
    pub labels: Vec<String>,
    /// The values of the parameters.
    pub parameters: Environment,
    /// The tables, with these values in place.
    pub schema: Schema,
}

impl Cell {
    /// Returns the cell as its results show it.
    pub fn outline(self) -> CellOutline {
        CellOutline {
            index: self.index,
            labels: self.labels,
            parameters: self.parameters,
            duration: self.schema.run.duration,
            measure: self.schema.measure,
            plots: self.schema.plots,
            expect: self.schema.expect,
        }
    }
}
