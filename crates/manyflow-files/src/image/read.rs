//! The thread that reads the input of a sender, and seals its sections.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use manyflow_net::keys::SigningKey;
use manyflow_object::error::{ReadError, SendError};
use manyflow_object::fdt::Section;
use manyflow_object::sender::{SealedSection, SenderConfig};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::mpsc;

use super::ImageInput;
use super::cutter::{Cut, Cutter};
use crate::files::{FileError, Part, check_room};

/// The number of bytes to read at a time.
const READ_BYTES: usize = 1 << 18;
/// The time from the first byte of a section to its end, if the input is slow.
const SECTION_TIME: Duration = Duration::from_millis(100);
/// Sealed sections that wait until the sender takes them.
const SEALED_MAX: usize = 4;
/// The room that the scratch folder's disk keeps for others.
const ROOM_KEPT: u64 = 64 << 20;
/// The time between two looks whether the scratch folder has room, or the sender has ended.
const PAUSE: Duration = Duration::from_millis(500);

/// The sections of an input, as they are sealed.
#[derive(Debug)]
pub(crate) struct Reading(mpsc::Receiver<Result<SealedSection, SendError>>);

impl Reading {
    /// Returns the next section if it is sealed.
    pub(crate) fn poll(&mut self) -> Option<Result<SealedSection, SendError>> {
        self.0.try_recv().ok()
    }
}

/// Seals the first section of an image, which is empty, and starts the thread that reads the
/// others. Copies of a pipe's content are in a file without a name in `scratch`.
pub(crate) fn read_sections(
    input: ImageInput,
    scratch: &Path,
    config: SenderConfig,
    key: SigningKey,
) -> Result<(SealedSection, Reading), crate::sending::OpenError> {
    let copy = match input.length {
        Some(_) => None,
        None => Some(
            tempfile::tempfile_in(scratch).map_err(|error| FileError::Folder {
                folder: scratch.to_owned(),
                error,
            })?,
        ),
    };
    let (sections, sealed) = mpsc::channel(SEALED_MAX);
    let mut reader = Reader {
        content: copy.map_or_else(|| Arc::clone(&input.file), Arc::new),
        is_copied: input.length.is_none(),
        input,
        scratch: scratch.to_owned(),
        room_kept: ROOM_KEPT,
        config,
        key,
        number: 0,
        copied: 0,
        started: Instant::now(),
        sections,
        has_warned: false,
    };
    let first = reader.seal(Cut::default(), false)?;
    thread::spawn(move || {
        let result = reader.read();
        if let Err(error) = result {
            // A sender that has ended needs no reason.
            let _ = reader.sections.blocking_send(Err(error));
        }
    });
    Ok((first, Reading(sealed)))
}

struct Reader {
    input: ImageInput,
    /// The file that has the contents of sections: the device, or the copy of a pipe.
    content: Arc<File>,
    is_copied: bool,
    scratch: PathBuf,
    /// The room that copies leave free, in bytes.
    room_kept: u64,
    config: SenderConfig,
    key: SigningKey,
    /// The number of the next section.
    number: u32,
    /// The length of the copy.
    copied: u64,
    started: Instant,
    sections: mpsc::Sender<Result<SealedSection, SendError>>,
    /// Whether the log has the sentence about the scratch folder.
    has_warned: bool,
}

impl Reader {
    fn read(&mut self) -> Result<(), SendError> {
        let (mut cutter, mut buffer) = (Cutter::default(), vec![0; READ_BYTES]);
        let (mut position, mut deadline) = (0, None);
        loop {
            if self.sections.is_closed() {
                return Ok(());
            }
            if !self
                .wait(deadline)
                .map_err(|error| self.read_error(error))?
            {
                cutter.flush(|cut| self.push(cut))?;
                deadline = None;
                continue;
            }
            let read = self.read_part(&mut buffer, position);
            match read.map_err(|error| self.read_error(error))? {
                0 => break,
                length => {
                    cutter.add(&buffer[..length], |cut| self.push(cut))?;
                    position += length as u64;
                }
            }
            match cutter.pending() {
                0 => deadline = None,
                _ => deadline = deadline.or_else(|| Some(Instant::now() + self.section_time())),
            }
        }
        cutter.flush(|cut| self.push(cut))?;
        // The section that marks the end.
        let end = Cut {
            offset: position,
            ..Cut::default()
        };
        let last = self.seal(end, true)?;
        let _ = self.sections.blocking_send(Ok(last));
        Ok(())
    }

    /// Waits for input. Returns false if there is none at the deadline.
    fn wait(&self, deadline: Option<Instant>) -> io::Result<bool> {
        if !self.is_copied {
            return Ok(true);
        }
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        loop {
            let time = deadline.map_or(PAUSE, left).min(PAUSE);
            if time.is_zero() {
                return Ok(false);
            }
            let time = PollTimeout::try_from(time.as_millis().max(1) as u32);
            let mut input = [PollFd::new(self.input.file.as_fd(), PollFlags::POLLIN)];
            if poll(&mut input, time.unwrap_or(PollTimeout::MAX))? > 0 || self.sections.is_closed()
            {
                return Ok(true);
            }
        }
    }

    fn read_part(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        if self.sections.is_closed() {
            return Ok(0);
        }
        match self.is_copied {
            true => (&*self.input.file).read(buffer),
            false => self.input.file.read_at(buffer, position),
        }
    }

    /// The time of a section. It grows with the time of the session, so that the numbers of
    /// sections suffice.
    fn section_time(&self) -> Duration {
        SECTION_TIME + self.started.elapsed() / 1_000
    }

    fn push(&mut self, cut: Cut) -> Result<(), SendError> {
        let section = self.seal(cut, false)?;
        // A sender that has ended takes no more.
        let _ = self.sections.blocking_send(Ok(section));
        Ok(())
    }

    fn seal(&mut self, cut: Cut, is_last: bool) -> Result<SealedSection, SendError> {
        let Cut {
            offset,
            content,
            zeros,
        } = cut;
        let section = Section {
            number: self.number,
            offset,
            zeros,
            image_length: match is_last {
                true => Some(offset),
                false => self.input.length,
            },
        };
        if self.number == Section::NUMBER_MAX {
            let error = "it has more than a million sections, because it has lasted too long";
            return Err(self.read_error(io::Error::other(error)));
        }
        self.number += 1;
        let length = content.len() as u64;
        let start = match self.is_copied {
            true => self
                .copy(&content)
                .map_err(|error| self.read_error(error))?,
            false => offset,
        };
        let part = Part {
            file: Arc::clone(&self.content),
            start,
            length,
        };
        let sign = |message: &[u8]| self.key.sign(message);
        SealedSection::seal(
            &self.config,
            &self.input.name,
            section,
            is_last,
            Arc::new(part),
            &sign,
        )
    }

    /// Keeps the content of a section, and returns its place. Waits while the disk has no room.
    fn copy(&mut self, content: &[u8]) -> io::Result<u64> {
        let (start, length) = (self.copied, content.len() as u64);
        // The first section is empty, and the session begins with it.
        if length == 0 {
            return Ok(start);
        }
        while let Err(error) = check_room(&self.scratch, length + self.room_kept) {
            if self.sections.is_closed() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if !std::mem::replace(&mut self.has_warned, true) {
                tracing::warn!(
                    "no more input is read until --scratch has room for a copy of it: {error}"
                );
            }
            thread::sleep(PAUSE);
        }
        self.has_warned = false;
        self.content.write_all_at(content, start)?;
        self.copied += length;
        Ok(start)
    }

    fn read_error(&self, error: io::Error) -> SendError {
        SendError::Read(ReadError {
            name: self.input.path.display().to_string(),
            error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_section_needs_no_room() {
        let (sections, sealed) = mpsc::channel(1);
        // The reader does not wait for room if there is no receiver.
        drop(sealed);
        let file = Arc::new(tempfile::tempfile().unwrap());
        let mut reader = Reader {
            input: ImageInput {
                file: Arc::clone(&file),
                path: "-".into(),
                name: "a".to_owned(),
                length: None,
            },
            content: file,
            is_copied: true,
            scratch: std::env::temp_dir(),
            // No disk has so much.
            room_kept: u64::MAX / 2,
            config: SenderConfig::new(1, 1, 1),
            key: SigningKey::ephemeral(),
            number: 0,
            copied: 0,
            started: Instant::now(),
            sections,
            has_warned: false,
        };
        assert_eq!(reader.copy(&[]).unwrap(), 0);
        let error = reader.copy(b"content").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }
}
