//! Opens sessions that send files: sockets, description, table of files.
//!
//! ```text
//! SendConfig --open--> Opened --prepare--> Prepared --run--> SendProgress
//! ```
//!
//! Opening takes no time, so errors of sockets show before files are read. Preparing reads all
//! files for their digests.

mod open;
mod prepare;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use manyflow_core::units::Rate;
use manyflow_object::error::SendError;
use manyflow_object::fec::FecScheme;
use manyflow_webrc::{SessionConfig, SessionError};

use super::files::{FileError, SourceOptions};
use super::keys::SigningKey;
use super::sdp::DescriptionError;
use super::session::GroupKey;
use crate::net::multicast::{Interface, MulticastError};

pub use open::{Opened, tunnel_group, tunnel_source};
pub use prepare::Prepared;

/// A session to send.
#[derive(Debug)]
pub struct SendConfig {
    /// Files and folders; at least one.
    pub paths: Vec<PathBuf>,
    /// The choice of files below `paths`, and the folder for temporary files.
    pub sources: SourceOptions,
    /// The parameters of the rate control. `packet_bytes` is the maximum length of a packet from
    /// its LCT header on, 128 to 65,000; packets may be some bytes shorter.
    pub webrc: SessionConfig,
    /// The transport session identifier.
    pub tsi: u32,
    /// The groups to send to; `None` without multicast.
    pub multicast: Option<Groups>,
    /// The UDP port of the groups.
    pub port: u16,
    /// The address of an AMT relay for receivers without multicast.
    pub relay: Option<RelayAddress>,
    /// The address for the reports of receivers, and their number, at least 1, after which the
    /// session ends.
    pub reports: Option<(SocketAddr, u32)>,
    /// The key that signs the description.
    pub signing: Option<SigningKey>,
    /// The key that seals packets, and whether it also encrypts them.
    pub group: Option<(GroupKey, bool)>,
    /// The forward error correction scheme.
    pub scheme: FecScheme,
    /// Maximum memory for encoded symbols, in bytes; above it, they are in a temporary file.
    pub memory_max: u64,
    /// The number of threads that encode.
    pub threads: NonZeroUsize,
}

/// A range of multicast groups, and the way to them.
#[derive(Clone, Debug)]
pub struct Groups {
    /// The first group.
    pub first: IpAddr,
    /// The interface towards receivers; `None` takes the interface of the route.
    pub interface: Option<Interface>,
    /// The maximum number of hops (IPv4's TTL).
    pub hop_limit: u8,
}

/// The address of a relay, and its limits.
#[derive(Clone, Debug)]
pub struct RelayAddress {
    /// The address. Port 0 is any free port.
    pub listen: SocketAddr,
    /// The maximum rate to all gateways together.
    pub rate_max: Rate,
}

/// The reason why a session cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Neither groups nor a relay are given.
    #[error("no way to reach receivers: give groups of multicast, or an address for a relay")]
    NoOutlet,
    /// A file cannot be sent.
    #[error(transparent)]
    File(#[from] FileError),
    /// The parameters of the rate control contradict each other.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Packets have no room for data.
    #[error("packets of {0} bytes leave no room for data: use 200 or more")]
    Packet(u32),
    /// The multicast socket cannot be opened.
    #[error(transparent)]
    Multicast(#[from] MulticastError),
    /// A socket cannot be bound.
    #[error("cannot listen on {address}: {cause}; choose another address or port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        cause: io::Error,
    },
    /// Files cannot be announced or read.
    #[error(transparent)]
    Objects(#[from] SendError),
    /// The session cannot be described.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// The thread that reads files has panicked.
    #[error("reading files failed: {0}")]
    Reading(#[from] tokio::task::JoinError),
}
