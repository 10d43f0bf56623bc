//! The traffic of a link, and the state of its connection.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use manyflow_tcp_info::TcpInfo;
use tokio::net::TcpStream;

/// Reads the round-trip time and the retransmissions of a link's connection.
///
/// The descriptor is a copy, because the socket is inside a TLS stream. The connection ends when
/// its own descriptor has been shut down and both have been closed.
#[derive(Debug)]
pub(super) struct LinkMeter(Option<OwnedFd>);

impl LinkMeter {
    /// Returns the meter of a TCP connection. It has no values if the process may open no more
    /// files.
    pub(super) fn of(socket: &TcpStream) -> LinkMeter {
        LinkMeter(socket.as_fd().try_clone_to_owned().ok())
    }

    /// Returns the present state; `None` where the system does not report it.
    fn read(&self) -> Option<TcpInfo> {
        TcpInfo::of(self.0.as_ref()?).ok()
    }
}

/// The traffic of a link since it was added to the overlay.
#[derive(Debug, Default)]
pub(super) struct LinkTraffic {
    /// The meter of the present connection.
    meter: Option<LinkMeter>,
    /// Retransmissions of earlier connections; `None` if they are not known.
    earlier_retransmissions: Option<u64>,
    /// Bytes of frames for the neighbour, before TLS.
    pub(super) sent_bytes: u64,
    /// Bytes of frames from the neighbour, after TLS.
    pub(super) received_bytes: u64,
    /// Frames with messages of clients, retransmitted ones included.
    pub(super) sent_messages: u64,
    /// Frames with messages of clients, duplicates included.
    pub(super) received_messages: u64,
}

impl LinkTraffic {
    /// Begins with a new connection.
    pub(super) fn attach(&mut self, meter: Option<LinkMeter>) {
        self.detach();
        self.meter = meter;
    }

    /// Ends with the present connection, whose retransmissions remain counted.
    pub(super) fn detach(&mut self) {
        self.earlier_retransmissions = self.retransmissions();
        self.meter = None;
    }

    /// Returns the round-trip time of the present connection; `None` before it is measured.
    pub(super) fn rtt(&self) -> Option<Duration> {
        let info = self.meter.as_ref()?.read()?;
        Some(info.rtt).filter(|rtt| !rtt.is_zero())
    }

    /// Returns the number of segments that were retransmitted on all connections of the link.
    pub(super) fn retransmissions(&self) -> Option<u64> {
        let present = self.meter.as_ref().and_then(LinkMeter::read);
        let present = present.map(|info| u64::from(info.retransmissions));
        match (self.earlier_retransmissions, present) {
            (None, None) => None,
            (earlier, present) => Some(earlier.unwrap_or(0) + present.unwrap_or(0)),
        }
    }
}
