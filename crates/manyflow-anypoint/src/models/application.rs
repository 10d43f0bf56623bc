//! What an application above an end does.

use core::time::Duration;

use manyflow_core::{Contents, Time};

use crate::Frame;

/// An application: a source of frames, and a reader. It may give its frames
/// contents, or only a length.
pub trait Application: Send {
    /// When the next frame is ready; `None` if there is none for now.
    fn next_frame_at(&self) -> Option<Time>;

    /// The length of the next frame in bytes: it is taken when the send buffer has room for it.
    fn next_frame_bytes(&self) -> u32;

    /// Takes the next frame, which is ready, to send it at `now`. `None` if it is not to be sent
    /// after all.
    fn take_frame(&mut self, now: Time) -> Option<Frame<Contents>>;

    /// Whether no frame follows: then the end closes its direction.
    fn has_sent_all(&self) -> bool;

    /// Reads a frame at `now`. Returns how long the application works on it before it reads the
    /// next.
    fn read_frame(&mut self, now: Time, frame: Frame<Contents>) -> Duration;

    /// Sends no frame from now on. [`has_sent_all`](Application::has_sent_all) becomes true.
    fn stop_sending(&mut self);
}
