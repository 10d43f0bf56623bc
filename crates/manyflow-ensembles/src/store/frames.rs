//! The store's view of a connection.

use std::future::Future;
use std::io;

use bytes::Bytes;
use manyflow_anypoint::switch::Prefix;
use manyflow_net::reach::Reach;

/// One end of a connection that carries frames with a key: reliable, and in order between two ends.
/// Both functions may wait at the same time. An error means that the connection is over.
pub trait Frames: Send + Sync + 'static {
    /// Sends a frame of 1 byte to 1 MiB. Waits while the connection takes no more.
    fn send(&self, key: u32, frame: Bytes) -> impl Future<Output = io::Result<()>> + Send;

    /// Returns the number of this end among the initiators of the connection.
    fn prefix(&self) -> Prefix {
        Prefix::NONE
    }

    /// Waits for the next frame, and returns its key and its bytes.
    fn recv(&self) -> impl Future<Output = io::Result<(u32, Bytes)>> + Send;
}

/// Opens connections to a service.
pub trait Connect: Sync {
    /// The client's end of a connection.
    type Frames: Frames;

    /// Returns the source of warnings while there is no connection.
    fn reach(&self) -> Reach {
        Reach::new("the store", "do members of it run?")
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// If the service cannot be reached now.
    fn connect(&self) -> impl Future<Output = io::Result<Self::Frames>> + Send;
}
