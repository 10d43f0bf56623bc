//! The rate traces that a scenario names, which travel with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use manyflow_core::link::RateTrace;

use crate::schema::Schema;
use manyflow_model::error::{Fault, Problem};

/// The maximum length of a file. A trace of an hour at 100 Mbit/s is shorter.
const BYTES_MAX: u64 = 256 << 20;

/// The traces of a scenario by the paths with which it names them.
#[derive(Clone, Debug, Default)]
pub(super) struct Traces {
    texts: BTreeMap<String, String>,
    traces: BTreeMap<String, Arc<RateTrace>>,
}

impl Traces {
    /// Begins with the texts that came with the scenario. Files of the same paths are not read.
    pub(super) fn new(texts: BTreeMap<String, String>) -> Traces {
        Traces {
            texts,
            traces: BTreeMap::new(),
        }
    }

    /// Returns the texts by their paths.
    pub(super) fn texts(&self) -> &BTreeMap<String, String> {
        &self.texts
    }

    /// Reads the traces of a cell that are not known yet. Relative paths begin in the folder of
    /// `scenario`.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or is not a trace.
    pub(super) fn read(&mut self, scenario: &str, schema: &mut Schema) -> Result<(), Fault> {
        let folder = Path::new(scenario).parent().unwrap_or(Path::new(""));
        for (path, file) in schema.trace_files() {
            if self.traces.contains_key(&file.path) {
                continue;
            }
            let place = folder.join(&file.path);
            let text = match self.texts.get(&file.path) {
                Some(text) => Ok(text.clone()),
                None => read_text(&place),
            };
            let trace = text.and_then(|text| match text.parse::<RateTrace>() {
                Ok(trace) => Ok((text, trace)),
                Err(error) => Err(error.in_file(&place.display().to_string())),
            });
            let (text, trace) = trace.map_err(|message| Fault {
                path,
                span: None,
                problem: Problem::Value(message),
            })?;
            self.texts.insert(file.path.clone(), text);
            self.traces.insert(file.path.clone(), Arc::new(trace));
        }
        Ok(())
    }

    /// Gives a cell the traces that it names.
    pub(super) fn fill(&self, schema: &mut Schema) {
        for (_, file) in schema.trace_files() {
            file.trace = self.traces.get(&file.path).cloned();
        }
    }
}

/// Reads a file. Pipes and devices are refused, since they may have no end.
fn read_text(path: &Path) -> Result<String, String> {
    let named = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let found = fs::metadata(path).map_err(|error| named(&error))?;
    if !found.is_file() || found.len() > BYTES_MAX {
        return Err(named(&"a trace is a file of at most 256 MB"));
    }
    fs::read_to_string(path).map_err(|error| named(&error))
}
