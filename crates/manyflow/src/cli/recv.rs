//! The options of `recv`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::IdentityArgs;
use manyflow_core::units::{Bytes, Rate, parse_duration};
use manyflow_terminal::completion::interfaces;

use super::follow::FollowArgs;

pub(super) const RECV_EXAMPLES: &str = "\
Examples:
  manyflow recv http://192.0.2.1:8080/session.sdp
  manyflow recv http://192.0.2.1:8080/session.sdp --output downloads --max-rate 20Mbit/s
  manyflow recv image.sdp --interface eth0

  # Run a command when all files are there
  manyflow recv image.sdp --output downloads --post-receive ./install.sh

  # Report to the sender under a name, and sign the reports
  manyflow recv http://192.0.2.1:8080/session.sdp --name lab-07 --identity lab-07.key

  # Pass an image to a command while it arrives, or write it to a block device
  manyflow recv http://192.0.2.1:8080/session.sdp --pipe 'partclone.restore -o /dev/sda1'
  manyflow recv http://192.0.2.1:8080/session.sdp --to /dev/sda

  # Over HTTPS, from a server whose certificate a private authority has issued
  manyflow recv https://builds.example.net:8443/session.sdp --ca authority.crt

  # Drop packets that were not sealed with the group's key, and decrypt the others
  manyflow recv image.sdp --interface eth0 --group-key group.key

  # Accept only what the owner of a key has signed
  manyflow recv http://192.0.2.1:8080/session.sdp --trust builds.key.pub

  # Stand by, and receive each session that the owner of the key announces
  manyflow recv --follow sap --trust builds.key.pub --output images
  manyflow recv --follow https://builds.example.net:8443 --trust builds.key.pub --only 'fw-*' --max-size 2GB";

/// Arguments of `recv`.
#[derive(Debug, Args)]
pub(crate) struct RecvArgs {
    /// The session description: an http:// or https:// address, a file, or - for standard input
    #[arg(required_unless_present = "follow")]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) follow: FollowArgs,
    /// The folder for received files; a file appears when it is complete
    #[arg(long, default_value = ".", value_parser = super::folder())]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) image: super::ImageRecvArgs,
    /// Replace existing files, and take from them what has not changed if the sender has --expect;
    /// without this option they are kept, and recv fails at its end
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Receive a session of another program, whose description gives no digest of the table of
    /// files: anyone who can send packets can then choose names and contents of files. With
    /// --follow, also accept announcements that no trusted key has signed
    #[arg(long)]
    pub(crate) allow_unverified: bool,
    /// Accept the session description only if this key has signed it: a file with a public key, or
    /// the key itself as keygen prints it; can be repeated
    #[arg(long, value_name = "FILE|KEY")]
    pub(crate) trust: Vec<String>,
    /// Drop packets that were not sealed with this key, which the sender has, too, and decrypt the
    /// others if the session is encrypted
    #[arg(long, value_name = "FILE")]
    pub(crate) group_key: Option<PathBuf>,
    /// Accept HTTPS servers only of the certificate authorities in this file (PEM), instead of
    /// those that this machine trusts
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// The maximum rate to receive at
    #[arg(long)]
    pub(crate) max_rate: Option<Rate>,
    /// Control the rate exactly as RFC 3738 does, without the options rtt=spacing, capacity-check,
    /// delay-check, loss-filter=measured, falling-rate-reset=no, minimum-rto=200ms,
    /// equation-factor=mean and loss-event-rtts=2, which it has otherwise
    #[arg(long)]
    pub(crate) strict_rfc3738: bool,
    /// Receive by multicast on this interface: its name or address. Without it, and without a relay
    /// in the description, the route to the source decides
    #[arg(long, value_name = "NAME|ADDRESS", add = interfaces(), conflicts_with = "relay")]
    pub(crate) interface: Option<String>,
    /// Receive through the first of these AMT relays that answers, even if the description names
    /// another: --relay one.example.net,two.example.net:2268
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',', value_parser = crate::address::connect::<2268>)]
    pub(crate) relay: Vec<String>,
    /// Give up after this time without useful packets
    #[arg(long, default_value = "30s", value_parser = parse_duration)]
    pub(crate) patience: Duration,
    /// Maximum memory for tables of files and the bookkeeping of symbols. Symbols of incomplete
    /// files are in the output folder
    #[arg(long, default_value = "256MiB")]
    pub(crate) memory: Bytes,
    /// The number of threads that decode; by default the number of cores
    #[arg(long, value_name = "NUMBER")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Run this command with `sh -c` when all files are stored. MANYFLOW_OUTPUT is the folder,
    /// MANYFLOW_FILES and MANYFLOW_BYTES are the number and length of the files that this run
    /// stored. If the command fails, recv exits with 1
    #[arg(long, value_name = "COMMAND")]
    pub(crate) post_receive: Option<String>,
    #[command(flatten)]
    pub(crate) identity: IdentityArgs,
    /// Serve a status page over HTTP on this address, and metrics for Prometheus (OpenMetrics text)
    /// at /metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<9464>)]
    pub(crate) metrics: Option<std::net::SocketAddr>,
    /// A parameter of WEBRC by its name in RFC 3738: EL=50ms, Nu=0.3, Delta=0.3, Alpha=0.25,
    /// target=paper, ...
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) parameters: Vec<String>,
}
