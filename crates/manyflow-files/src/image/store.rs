//! Writes the complete sections of an image to its output.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;

use manyflow_object::receiver::CompleteObject;
use tempfile::TempPath;

use super::pipe::Pipe;
use super::target::{Place, Target};
use super::{ImageOutput, Waiting};
use crate::files::{FileError, Staged, Store};

/// The number of bytes to write to a pipe at a time.
const PART_BYTES: usize = 1 << 16;

/// The output of an image, for the thread that stores.
#[derive(Debug)]
pub(crate) struct ImageStore {
    output: Output,
    /// The name of the image, once a section has come.
    name: Option<String>,
    /// Sections that are stored, or wait for their turn.
    sections: BTreeMap<u32, Stored>,
    /// The number of the first section that is not stored, and its position in the image.
    next: u32,
    released: u64,
    waiting: Arc<Waiting>,
}

#[derive(Debug)]
enum Output {
    Pipe(Pipe),
    Target(Arc<Target>),
}

#[derive(Debug)]
struct Stored {
    place: Place,
    sha256: [u8; 32],
    /// The content, until it is written.
    content: Option<TempPath>,
}

impl ImageStore {
    /// Opens the output. `spool` is a path for a file that the output folder gets at the end.
    /// Returns the target besides, unless the output is a pipe.
    pub(crate) fn open(
        output: ImageOutput,
        spool: PathBuf,
        waiting: Arc<Waiting>,
    ) -> Result<(ImageStore, Option<Arc<Target>>), FileError> {
        let output = match output {
            ImageOutput::Pipe(file) => Output::Pipe(Pipe::new(file)?),
            ImageOutput::Device(path) => Output::Target(Arc::new(Target::open(&path)?)),
            ImageOutput::Folder => Output::Target(Arc::new(Target::in_spool(spool)?)),
        };
        let target = match &output {
            Output::Target(target) => Some(Arc::clone(target)),
            Output::Pipe(_) => None,
        };
        let store = ImageStore {
            output,
            name: None,
            sections: BTreeMap::new(),
            next: 0,
            released: 0,
            waiting,
        };
        Ok((store, target))
    }

    /// The position up to which the image is written.
    pub(crate) fn released(&self) -> u64 {
        self.released
    }

    /// Stores a complete section; `content` is `None` if the output has it already. Returns false
    /// if `is_stopped` became true before.
    pub(crate) fn store(
        &mut self,
        object: &CompleteObject,
        content: Option<TempPath>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<bool, FileError> {
        let (Some(section), Some(place)) = (object.section, place_of(object)) else {
            return Ok(true);
        };
        let name = object
            .name
            .rsplit_once('/')
            .map_or("image", |(name, _)| name);
        self.name.get_or_insert_with(|| name.to_owned());
        let mut stored = Stored {
            place,
            sha256: object.sha256.unwrap_or_default(),
            content,
        };
        if let Output::Target(target) = &self.output
            && let Some(content) = stored.content.take()
        {
            let file = File::open(&content).map_err(|error| FileError::Target {
                path: content.to_path_buf(),
                error,
            })?;
            target.write(place, &file)?;
        }
        if let Output::Target(_) = &self.output {
            self.waiting.note_taken(place.length + place.zeros);
        }
        self.sections.insert(section.number, stored);
        self.release(is_stopped)
    }

    /// Writes the sections whose turn it is to a pipe, and moves the position on.
    fn release(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<bool, FileError> {
        while let Some(stored) = self.sections.get_mut(&self.next) {
            if let Output::Pipe(pipe) = &mut self.output {
                let note = |bytes| self.waiting.note_taken(bytes);
                let content = stored.content.take();
                if !pass(pipe, content, stored.place, is_stopped, &note)? {
                    return Ok(false);
                }
            }
            self.released = stored.place.end();
            self.next += 1;
        }
        Ok(true)
    }

    /// Ends the image, all of whose sections are stored: a file gets its name in `store`, and a
    /// device is read back. Returns the image's name and length.
    pub(crate) fn finish(self, store: &Store) -> Result<(String, u64), FileError> {
        let name = self.name.unwrap_or_default();
        let Output::Target(target) = self.output else {
            // Dropping it ends the command's input.
            return Ok((name, self.released));
        };
        target.sync(self.released)?;
        if target.grows() {
            let staged = Staged {
                content: TempPath::try_from_path(target.path()).map_err(|error| {
                    FileError::Target {
                        path: target.path().to_owned(),
                        error,
                    }
                })?,
                name: name.clone(),
                attributes: None,
            };
            for result in store.publish(vec![staged]) {
                result?;
            }
            return Ok((name, self.released));
        }
        for stored in self.sections.values() {
            if !target.has(stored.place, &stored.sha256)? {
                return Err(FileError::ReadBack {
                    path: target.path().to_owned(),
                    offset: stored.place.offset,
                });
            }
        }
        let (path, written) = (target.path().display(), target.written());
        tracing::info!("{path}: {written} bytes differed and were written; all were read back");
        Ok((name, self.released))
    }
}

/// Returns the place of a section, if the object is one.
pub(crate) fn place_of(object: &CompleteObject) -> Option<Place> {
    let section = object.section?;
    Some(Place {
        offset: section.offset,
        length: object.length,
        zeros: section.zeros,
    })
}

/// Writes a section to a pipe. Returns false if it was stopped.
fn pass(
    pipe: &mut Pipe,
    content: Option<TempPath>,
    place: Place,
    is_stopped: &dyn Fn() -> bool,
    note: &dyn Fn(u64),
) -> Result<bool, FileError> {
    let mut part = vec![0; PART_BYTES];
    if let Some(content) = content {
        let read = File::open(&content);
        let mut read = read.map_err(FileError::Pipe)?.take(place.length);
        loop {
            let length = read.read(&mut part).map_err(FileError::Pipe)?;
            if length == 0 {
                break;
            }
            if !pipe.write(&part[..length], is_stopped, note)? {
                return Ok(false);
            }
        }
    }
    part.fill(0);
    let mut zeros = place.zeros;
    while zeros > 0 {
        let length = zeros.min(PART_BYTES as u64);
        if !pipe.write(&part[..length as usize], is_stopped, note)? {
            return Ok(false);
        }
        zeros -= length;
    }
    Ok(true)
}
