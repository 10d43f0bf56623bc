//! The input of a sender.

use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::device::check_unmounted;
use crate::files::FileError;

/// The image to send.
#[derive(Clone, Debug)]
pub struct ImageInput {
    /// The name under which receivers store the image.
    pub name: String,
    pub(super) file: Arc<File>,
    /// The path of the input, for messages.
    pub(super) path: PathBuf,
    /// The length of a device, in bytes; `None` for a pipe.
    pub(super) length: Option<u64>,
}

impl ImageInput {
    /// Whether `manyflow send` sends a path as an image: `-` or a block device.
    pub fn is_image(path: &Path) -> bool {
        path == Path::new("-")
            || fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
    }

    /// Opens a block device, or standard input if `path` is `-`. Without a `name`, the image has
    /// that of the device, or `stdin`.
    ///
    /// # Errors
    /// If it cannot be opened, if the device is mounted for writing, or if receivers would refuse
    /// the name.
    pub fn open(path: &Path, name: Option<String>) -> Result<ImageInput, FileError> {
        let is_pipe = path == Path::new("-");
        let own = match is_pipe {
            true => "stdin".to_owned(),
            false => path
                .file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        };
        let name = name.unwrap_or(own);
        manyflow_object::name::check(&name).map_err(|error| FileError::Name {
            path: path.to_owned(),
            error,
        })?;
        let failed = |error: io::Error| FileError::Unreadable {
            path: path.to_owned(),
            error,
        };
        let (file, length) = match is_pipe {
            true => {
                let file = io::stdin().as_fd().try_clone_to_owned();
                (File::from(file.map_err(failed)?), None)
            }
            false => {
                let mut file = File::open(path).map_err(failed)?;
                check_unmounted(path, &file)?;
                let length = file.seek(SeekFrom::End(0)).map_err(failed)?;
                (file, Some(length))
            }
        };
        Ok(ImageInput {
            name,
            file: Arc::new(file),
            path: path.to_owned(),
            length,
        })
    }

    /// Returns the image that a pipe or another stream gives, for programs with an input of their
    /// own.
    pub fn of_pipe(name: String, pipe: File) -> ImageInput {
        ImageInput {
            path: PathBuf::from(&name),
            name,
            file: Arc::new(pipe),
            length: None,
        }
    }

    /// The length of the image in bytes, if it is known.
    pub fn length(&self) -> Option<u64> {
        self.length
    }
}
