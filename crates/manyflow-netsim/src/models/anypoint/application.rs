//! The interface of an application above an end.

use core::time::Duration;

use manyflow_core::{Contents, Time};

use manyflow_anypoint::Frame;

/// An application, which produces frames and reads frames. Its frames may have contents, or only a
/// length.
pub trait Application: Send {
    /// Returns when the next frame is ready; `None` if there is none for now.
    fn next_frame_at(&self) -> Option<Time>;

    /// Returns the length of the next frame in bytes. The frame is taken when the send buffer has
    /// room for it.
    fn next_frame_bytes(&self) -> u32;

    /// Takes the next frame, which is ready, to send it at `now`. Returns `None` if the frame is
    /// not to be sent after all.
    fn take_frame(&mut self, now: Time) -> Option<Frame<Contents>>;

    /// Returns whether no frame follows. The end then closes its direction.
    fn has_sent_all(&self) -> bool;

    /// Reads a frame at `now`. Returns the time that the application spends on it before it reads
    /// the next one.
    fn read_frame(&mut self, now: Time, frame: Frame<Contents>) -> Duration;

    /// Stops sending: [`has_sent_all`](Application::has_sent_all) becomes true.
    fn stop_sending(&mut self);
}
