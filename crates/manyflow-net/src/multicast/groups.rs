//! The groups of a session, and the way to them.

use super::{GroupRange, Interface, MulticastError, MulticastSender, SenderConfig};

/// A range of multicast groups, and the way to them.
#[derive(Clone, Debug)]
pub struct Groups {
    /// The groups. Those of a session are consecutive, from the first one.
    pub range: GroupRange,
    /// The interface towards receivers; `None` takes the interface of the route.
    pub interface: Option<Interface>,
    /// The maximum number of hops (IPv4's TTL).
    pub hop_limit: u8,
}

impl Groups {
    /// Opens the socket that sends to this UDP port of the groups.
    ///
    /// # Errors
    /// If the interface does not exist, or the system refuses the socket.
    pub fn open(&self, port: u16) -> Result<MulticastSender, MulticastError> {
        let mut config = SenderConfig::new(self.range.first, port);
        config.hop_limit = self.hop_limit;
        config.interface.clone_from(&self.interface);
        MulticastSender::open(&config)
    }
}
