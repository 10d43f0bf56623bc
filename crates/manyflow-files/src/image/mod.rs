//! Images: the output of a command or the content of a block device, cut in sections.
//!
//! ```text
//! input --cut--> sections --seal--> ImageSender
//!
//! ObjectReceiver --sections--> a device or file (compared, then written), or a command, in order
//! ```
//!
//! docs/imaging.md describes the formats and the reasons.

mod cutter;
mod device;
mod input;
mod pace;
mod pipe;
mod read;
mod store;
mod target;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

pub use input::ImageInput;
pub(crate) use pace::{Pace, Waiting};
pub(crate) use read::{Reading, read_sections};
pub(crate) use store::{ImageStore, place_of};
pub(crate) use target::Target;

/// The place to which a receiver writes an image.
#[derive(Clone, Debug, Default)]
pub enum ImageOutput {
    /// A file in the output folder, with the name that the sender gives the image.
    #[default]
    Folder,
    /// The writing end of a pipe, such as the standard input of a command. It is closed when the
    /// whole image is written, and the caller has no other copy of it.
    Pipe(Arc<File>),
    /// A block device, or an existing file, whose content is replaced.
    Device(PathBuf),
}
