//! The parameters of a receiver.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use manyflow_net::group_key::GroupKey;
use manyflow_net::inlet::Route;
use manyflow_webrc as webrc;

use crate::files::Existing;
use crate::image::ImageOutput;
use crate::sdp::SessionDescription;

/// The memory of a receiver, unless the caller chooses another, in bytes.
const MEMORY_MAX: u64 = 256 << 20;
/// Duration without a useful packet after which a session is given up, unless the caller chooses
/// another.
const PATIENCE: Duration = Duration::from_secs(30);

/// The parameters of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiveConfig {
    /// The session to receive.
    pub description: SessionDescription,
    /// The way that packets take.
    pub route: Route,
    /// The rate control's own parameters. If they give no epoch, the description's is used.
    pub webrc: webrc::ReceiverConfig,
    /// The folder for received files.
    pub output: PathBuf,
    /// The output of a session that has an image instead of files. Its spool is in `output`.
    pub image: ImageOutput,
    /// The treatment of existing files that have the names of received ones.
    pub existing: Existing,
    /// Whether to receive a session whose description does not give the digest of the table of
    /// files. Anyone who can send packets of such a session can choose names and contents.
    pub allow_unverified: bool,
    /// The key with which the sender seals its packets. Others are dropped.
    pub group_key: Option<GroupKey>,
    /// Maximum memory for tables of files, for the bookkeeping of symbols and for early symbols, in
    /// bytes. Symbols themselves are on the disk of the output folder.
    pub memory_max: u64,
    /// Maximum number of blocks that are decoded at a time, each by a thread.
    pub threads: usize,
    /// Duration without a useful packet after which the session is given up. Until then it is
    /// joined again and again.
    pub patience: Duration,
}

impl ReceiveConfig {
    /// Returns a receiver that stores files in `output`, with default values: existing files are
    /// kept, at most 256 MiB of memory, a thread for each processor, and a patience of 30 s.
    pub fn new(description: SessionDescription, route: Route, output: PathBuf) -> ReceiveConfig {
        ReceiveConfig {
            description,
            route,
            webrc: webrc::ReceiverConfig::live(),
            output,
            image: ImageOutput::default(),
            existing: Existing::Keep,
            allow_unverified: false,
            group_key: None,
            memory_max: MEMORY_MAX,
            threads: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            patience: PATIENCE,
        }
    }
}
