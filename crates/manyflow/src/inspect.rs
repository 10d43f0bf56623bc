//! `--pcap` and `--trace`: writes the packets and events of one run to files.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result};
use manyflow_netsim::LinkId;
use manyflow_scenario::{Inspection, Job, Scenario};

use crate::cli::InspectArgs;
use manyflow_terminal::Display;
use manyflow_terminal::usage;

/// The file name that means standard output.
const STANDARD_OUTPUT: &str = "-";

/// The open files; empty if neither option is given.
#[derive(Default)]
pub(crate) struct Outputs {
    capture: Option<(BTreeSet<LinkId>, Box<dyn Write>)>,
    trace: Option<Box<dyn Write>>,
    is_closed: Rc<Cell<bool>>,
}

/// Standard output, which remembers whether its reader has closed it: a run only reports that it
/// could not write.
struct StandardOutput(Rc<Cell<bool>>);

impl StandardOutput {
    fn note<T>(&self, written: io::Result<T>) -> io::Result<T> {
        let is_closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
        if written.as_ref().is_err_and(is_closed) {
            self.0.set(true);
        }
        written
    }
}

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.note(io::stdout().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.note(io::stdout().flush())
    }
}

impl Outputs {
    /// Opens the files for a run. An unknown link is refused before any file is truncated.
    pub(crate) fn open(args: &InspectArgs, scenario: &Scenario, job: Job) -> Result<Outputs> {
        let mut outputs = Outputs::default();
        if args.pcap.is_some() && args.pcap == args.trace {
            return Err(usage("--pcap and --trace need different files: name two"));
        }
        if let Some(path) = &args.pcap {
            let links = scenario.links_to_capture(job.cell, &args.pcap_link);
            let links = links.map_err(|problem| usage(format!("--pcap-link: {problem}")))?;
            outputs.capture = Some((links, outputs.create(path)?));
        }
        if let Some(path) = &args.trace {
            outputs.trace = Some(outputs.create(path)?);
        }
        Ok(outputs)
    }

    /// Whether no file is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.capture.is_none() && self.trace.is_none()
    }

    /// Returns whether standard output was to be written to and is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    fn create(&self, path: &Path) -> Result<Box<dyn Write>> {
        if is_standard_output(path) {
            let output = StandardOutput(Rc::clone(&self.is_closed));
            return Ok(Box::new(BufWriter::new(output)));
        }
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Box::new(BufWriter::new(file)))
    }

    pub(crate) fn inspection(&mut self) -> Inspection<'_> {
        let capture = self.capture.as_mut();
        Inspection {
            capture: capture.map(|(links, out)| (links.clone(), out as &mut dyn Write)),
            trace: self.trace.as_mut().map(|out| out as &mut dyn Write),
            ..Inspection::default()
        }
    }
}

/// Returns a display that leaves standard output to a capture or trace that is written there.
pub(crate) fn display_beside(args: &InspectArgs, display: &Display) -> Result<Display> {
    let taken = [&args.pcap, &args.trace]
        .into_iter()
        .flatten()
        .any(|path| is_standard_output(path));
    match (taken, display.is_json()) {
        (true, true) => Err(usage(
            "--json needs standard output: name a file instead of `-`",
        )),
        (true, false) => Ok(display.on_standard_error()),
        (false, _) => Ok(display.clone()),
    }
}

fn is_standard_output(path: &Path) -> bool {
    path == Path::new(STANDARD_OUTPUT)
}
