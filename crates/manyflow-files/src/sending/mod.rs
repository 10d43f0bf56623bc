//! Opens sessions that send files: sockets, description, table of files.
//!
//! ```text
//! SendConfig --open--> Opened --prepare--> Prepared --run--> SendProgress
//! ```
//!
//! Opening takes no time, so errors of sockets show before files are read. Preparing reads all
//! files for their digests.

mod conflict;
mod open;
pub mod place;
mod prepare;
mod resume;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use manyflow_amt::RelayConfig;
use manyflow_core::units::Rate;
use manyflow_net::description::DescriptionError;
use manyflow_net::group_key::GroupKey;
use manyflow_net::keys::SigningKey;
use manyflow_net::multicast::{Groups, MulticastError};
use manyflow_object::error::{OtiError, SendError};
use manyflow_object::fec::FecScheme;
use manyflow_webrc::{SessionConfig, SessionError};

use super::completion::Audience;
use super::files::{FileError, Selection, SourceOptions, default_scratch};
use super::image::ImageInput;
use super::sdp::SessionDescription;

pub use conflict::Conflict;
pub use open::Opened;
pub use prepare::{Prepared, ReceiverMemory};
pub use resume::{Difference, ResumeError};

/// Files of up to this length are sent in bundles, if there are many.
const BUNDLE_MAX: u64 = 64 << 10;
/// The UDP port of groups.
const GROUP_PORT: u16 = 5445;
/// The maximum memory for encoded symbols, in bytes.
const MEMORY_MAX: u64 = 256 << 20;

/// A session to send.
#[derive(Debug)]
pub struct SendConfig {
    /// The image to send instead of files.
    pub image: Option<ImageInput>,
    /// Files and folders; at least one, unless there is an image.
    pub paths: Vec<PathBuf>,
    /// The choice of files below `paths`, and the folder for temporary files.
    pub sources: SourceOptions,
    /// The parameters of the rate control. `packet_bytes` is the maximum length of a packet from
    /// its LCT header on, 128 to 65,000; packets may be some bytes shorter.
    pub webrc: SessionConfig,
    /// Whether packets are shortened to the MTU of the interfaces by which they leave. Those of a
    /// continued session have its length instead.
    pub fits_mtu: bool,
    /// Whether time slots get the length of this session ([`SessionConfig::with_slots_of`]). A
    /// continued session keeps its own.
    pub varies_slots: bool,
    /// The transport session identifier. A continued session has that of `resume` instead.
    pub tsi: u32,
    /// The description of a session to continue after its sender has ended. All else is as it was.
    pub resume: Option<SessionDescription>,
    /// The groups to send to; `None` without multicast.
    pub multicast: Option<Groups>,
    /// The UDP port of the groups.
    pub port: u16,
    /// The address of an AMT relay for receivers without multicast.
    pub relay: Option<RelayAddress>,
    /// The address for the reports of receivers, and the receivers that shall report.
    pub reports: Option<(SocketAddr, Audience)>,
    /// The key that signs the description.
    pub signing: Option<SigningKey>,
    /// The key that seals packets, and whether it also encrypts them.
    pub group: Option<(GroupKey, bool)>,
    /// The forward error correction scheme.
    pub scheme: FecScheme,
    /// Whether files are sent from begin to end, in windows of 4 to 16 MB, instead of all together;
    /// `None` chooses by the session's rate and the length of the files.
    pub in_order: Option<bool>,
    /// Whether the table of files has the MD5 of each file, besides its SHA-256.
    pub content_md5: bool,
    /// Maximum memory for encoded symbols, in bytes; above it, they are in a temporary file.
    pub memory_max: u64,
    /// The number of threads that encode.
    pub threads: NonZeroUsize,
}

impl SendConfig {
    /// Returns a session of these paths with a random TSI and default values. It lacks a way to
    /// receivers: `multicast`, `relay`, or both.
    pub fn new(paths: Vec<PathBuf>, webrc: SessionConfig) -> SendConfig {
        SendConfig {
            image: None,
            paths,
            sources: SourceOptions {
                bundle_max: BUNDLE_MAX,
                scratch: default_scratch(),
                selection: Selection::default(),
                archive: false,
            },
            webrc,
            fits_mtu: true,
            varies_slots: true,
            tsi: rand::random(),
            resume: None,
            multicast: None,
            port: GROUP_PORT,
            relay: None,
            reports: None,
            signing: None,
            group: None,
            scheme: FecScheme::RaptorQ,
            in_order: None,
            content_md5: false,
            memory_max: MEMORY_MAX,
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        }
    }
}

/// The address of a relay, and its limits.
#[derive(Clone, Debug)]
pub struct RelayAddress {
    /// The address. Port 0 is any free port.
    pub listen: SocketAddr,
    /// Whether the relay takes any free port if that of `listen` is taken.
    pub or_any_port: bool,
    /// The maximum rate to all gateways together.
    pub rate_max: Rate,
    /// The maximum number of gateways at one IPv4 address or in one IPv6 /64.
    pub gateways_per_address_max: usize,
}

impl RelayAddress {
    /// Returns an address with the default limits: what the interface carries, and 16 gateways for
    /// each address.
    pub fn new(listen: SocketAddr) -> RelayAddress {
        RelayAddress {
            listen,
            or_any_port: false,
            rate_max: place::relay_rate(listen.ip()),
            gateways_per_address_max: RelayConfig::default().gateways_per_address_max,
        }
    }

    /// Returns an address at which everybody reaches this machine: see [`place::relay_address`].
    pub fn anywhere() -> RelayAddress {
        RelayAddress {
            or_any_port: true,
            ..RelayAddress::new(place::relay_address())
        }
    }
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
    /// The session to continue was not one that this sender can continue.
    #[error(transparent)]
    Resume(#[from] ResumeError),
    /// The range of multicast groups is too small.
    #[error("the session has {channels} channels, more than the range has groups")]
    Range {
        /// The number of channels.
        channels: u32,
    },
    /// The multicast socket cannot be opened.
    #[error(transparent)]
    Multicast(#[from] MulticastError),
    /// The socket of the relay cannot be bound.
    #[error("cannot listen on {address}: {cause}; choose another address or port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        cause: io::Error,
    },
    /// The socket for reports of receivers cannot be bound.
    #[error("cannot listen for reports on {address}: {cause}; choose another address or port")]
    ListenForReports {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        cause: io::Error,
    },
    /// Files cannot be announced or read.
    #[error("{}{}", .0, length_advice(.0))]
    Objects(SendError),
    /// The session cannot be described.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// The thread that reads files has panicked.
    #[error("reading files failed: {0}")]
    Reading(#[from] tokio::task::JoinError),
}

impl From<SendError> for OpenError {
    fn from(error: SendError) -> OpenError {
        OpenError::Objects(error)
    }
}

/// Returns what to do about a file that is too long for a session of files, to be appended to the
/// error; empty for other errors.
fn length_advice(error: &SendError) -> &'static str {
    use OtiError::{BlockSymbols, Blocks, TransferLength};
    match error {
        SendError::Oti {
            error: BlockSymbols { .. } | Blocks { .. } | TransferLength { .. },
            ..
        } => {
            "; the file is too long: send it alone, as `manyflow send - --name NAME < FILE`, or split it"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use manyflow_object::fec::Oti;

    use super::*;

    #[test]
    fn a_file_that_is_too_long_is_refused_with_the_ways_to_send_it() {
        let refused = Oti::choose(FecScheme::RaptorQ, 20 << 30, 1_280, 300);
        let error = SendError::Oti {
            name: "disk.img".to_owned(),
            error: refused.unwrap_err(),
        };
        let text = OpenError::Objects(error).to_string();
        assert!(
            text.contains("disk.img") && text.contains("send -"),
            "{text}"
        );
    }
}
