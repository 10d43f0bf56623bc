//! The options of `send` and `serve`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::AudienceArgs;
use manyflow_core::units::{Bytes, Rate, parse_duration};
use manyflow_net::multicast::GroupRange;
use manyflow_terminal::completion::interfaces;

pub(super) const SEND_EXAMPLES: &str = "\
Examples:
  # Receivers connect to this host, and type what this prints
  manyflow send image.iso

  # On a network with multicast
  manyflow send image.iso docs/ --multicast 232.1.2.0/24 --interface eth0 --publish 0.0.0.0:8080 --for 10min

  # Write the session description to a file instead of serving it over HTTP
  manyflow send image.iso --multicast 232.1.2.0/24 --interface eth0 --session image.sdp

  # Stop when 200 receivers have everything
  manyflow send image.iso --listen 0.0.0.0:2268 --publish 0.0.0.0:8080 --until-done 200

  # Stop when the receivers of a list have everything, and show how far each is at http://192.0.2.1:9464/
  manyflow send image.iso --listen 0.0.0.0:2268 --publish 0.0.0.0:8080 --expect hosts.txt --until-done --metrics 192.0.2.1:9464

  # Continue that session after a restart
  manyflow send image.iso --multicast 232.1.2.0/24 --interface eth0 --resume image.sdp

  # Serve the session description over HTTPS
  manyflow send image.iso --listen 0.0.0.0:2268 --publish 0.0.0.0:8443 --tls-cert server.crt --tls-key server.key

  # Let receivers drop packets of other senders (make the key with: openssl rand -base64 32)
  manyflow send image.iso --multicast 232.1.2.0/24 --interface eth0 --group-key group.key

  # Let only members of the group read the files
  manyflow send image.iso --listen 0.0.0.0:2268 --publish 0.0.0.0:8080 --group-key group.key --encrypt

  # Sign the session description with a key of `manyflow keygen`
  manyflow send image.iso --listen 0.0.0.0:2268 --publish 0.0.0.0:8080 --sign builds.key

  # Leave out a folder, and files with some endings
  manyflow send project --exclude .git --exclude '*.{o,tmp}' --listen 0.0.0.0:2268 --publish 0.0.0.0:8080

  # Keep modes and times of files
  manyflow send project --archive --listen 0.0.0.0:2268 --publish 0.0.0.0:8080

  # Send the output of a command, or a block device
  partclone.ext4 -c -s /dev/sda1 | manyflow send - --name root.pcl --listen 0.0.0.0:2268 --publish 0.0.0.0:8080
  manyflow send /dev/sda --multicast 232.1.2.0/24 --interface eth0 --publish 0.0.0.0:8080

  # Let Prometheus watch the session at http://127.0.0.1:9464/metrics
  manyflow send image.iso --listen 0.0.0.0:2268 --publish 0.0.0.0:8080 --metrics 127.0.0.1:9464";

pub(super) const SERVE_EXAMPLE: &str = r#"Example:
  manyflow serve /etc/manyflow/sessions.toml

  # sessions.toml
  publish = "0.0.0.0:8080"     # descriptions: http://HOST:8080/firmware.sdp; / lists them
  metrics = "127.0.0.1:9464"   # each sample has the label session="firmware"

  [defaults]                   # options of all sessions that have none of their own
  sign = "builds.key"

  [session.firmware]
  paths = ["/srv/firmware"]
  listen = "0.0.0.0:2268"

  [session.images]
  paths = ["/srv/images"]
  multicast = "232.1.2.0/24"
  interface = "eth0"
  exclude = ["*.tmp", ".git"]
  archive = true

The keys of a session are paths and the long options of `manyflow send`. The options publish, tls-cert, tls-key and
metrics belong above the first table. Relative paths are relative to the file's folder."#;

/// Arguments of `send`.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// Files and folders; or a block device, or - for standard input, alone
    #[arg(required = true)]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) image: super::ImageSendArgs,
    /// Send only files whose paths match this glob pattern, as receivers see the paths: *.md in any
    /// folder, docs/*.md in docs, docs with all that is in it; can be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) include: Vec<String>,
    /// Leave out files and folders that match this glob pattern, even if they are included; can be
    /// repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Send modes (permission bits only) and times of modification, too; receivers set them
    #[arg(long)]
    pub(crate) archive: bool,
    /// The maximum total rate of all channels, which no receiver can exceed [default: nine tenths
    /// of the interface's speed, or less on a machine that sends more slowly]
    #[arg(long)]
    pub(crate) rate: Option<Rate>,
    /// Time slots and base rate, for local networks or for wide-area paths
    #[arg(long, value_enum, default_value_t = Profile::Lan)]
    pub(crate) profile: Profile,
    /// Let routers mark packets instead of dropping them (ECN); receivers take marks as losses
    #[arg(long, conflicts_with = "l4s")]
    pub(crate) ecn: bool,
    /// The same with ECT(1), for queues of L4S, whose frequent marks receivers then follow
    #[arg(long)]
    pub(crate) l4s: bool,
    /// Send to consecutive multicast groups from this range
    #[arg(long, value_name = "GROUP[/PREFIX]")]
    pub(crate) multicast: Option<GroupRange>,
    /// The interface for outgoing multicast: its name or address [default: that of the route to
    /// the groups]
    #[arg(long, value_name = "NAME|ADDRESS", add = interfaces(), requires = "multicast")]
    pub(crate) interface: Option<String>,
    /// The time to live of multicast packets: the maximum number of hops
    #[arg(long, default_value_t = 1, requires = "multicast")]
    pub(crate) ttl: u8,
    /// The UDP port of the multicast groups
    #[arg(long, default_value_t = 5445)]
    pub(crate) port: u16,
    /// Run an AMT relay on this address, for receivers that multicast does not reach [default
    /// without --multicast: port 2268 on all addresses, or any free port]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<2268>)]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// The maximum rate of the relay to all receivers together: packets above it are dropped, so
    /// receivers slow down. For example, 200Mbit/s leaves room on a line of 250 Mbit/s [default:
    /// what the interface carries]
    #[arg(long, value_name = "RATE")]
    pub(crate) relay_rate_max: Option<Rate>,
    /// The maximum number of receivers behind one IPv4 address or in one IPv6 /64; others wait
    #[arg(long, value_name = "NUMBER", default_value_t = 16)]
    pub(crate) relay_gateways_per_address: usize,
    #[command(flatten)]
    pub(crate) servers: ServerArgs,
    /// Write the session description to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) session: Option<PathBuf>,
    /// Continue the session of this description after a crash or a restart: the same files with the
    /// same options. Receivers need no new description
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tsi", "group_key"])]
    pub(crate) resume: Option<String>,
    /// Sign the session description with this private key (Ed25519, PKCS#8 in PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) sign: Option<PathBuf>,
    /// Add a MAC to each packet, with this key that all receivers share: 32 bytes in base64
    #[arg(long, value_name = "FILE")]
    pub(crate) group_key: Option<PathBuf>,
    /// Encrypt packets with the group key, names and contents of files included
    #[arg(long, requires = "group_key")]
    pub(crate) encrypt: bool,
    /// The forward error correction scheme
    #[arg(long, value_enum, default_value_t = Fec::Raptorq)]
    pub(crate) fec: Fec,
    /// Length of a packet in bytes, from the LCT header on: the path's MTU minus 28 (minus 48 for
    /// IPv6), and minus another 30 in a tunnel [default: 1400, or what fits the interfaces; with
    /// --listen, what fits any path of 1280]
    #[arg(long, value_parser = clap::value_parser!(u16).range(128..=65_000))]
    pub(crate) packet: Option<u16>,
    /// Give the MD5 of each file, besides its SHA-256, for receivers that know FLUTE only
    #[arg(long)]
    pub(crate) content_md5: bool,
    /// Stop after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, conflicts_with = "forever")]
    pub(crate) duration: Option<Duration>,
    /// Send until Ctrl-C; this is the default without --for and --until-done
    #[arg(long)]
    pub(crate) forever: bool,
    #[command(flatten)]
    pub(crate) audience: AudienceArgs,
    /// The transport session identifier; random by default
    #[arg(long)]
    pub(crate) tsi: Option<u32>,
    /// Maximum memory for encoded symbols; above it, they are in a temporary file
    #[arg(long, default_value = "256MiB")]
    pub(crate) memory: Bytes,
    /// The number of threads that encode; by default the number of cores
    #[arg(long, value_name = "NUMBER")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// The folder for temporary files [default: /var/tmp, or the value of TMPDIR]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) scratch: Option<PathBuf>,
    /// Send files of up to this size in bundles, if there are more than a hundred of them; 0B sends
    /// each file alone
    #[arg(long, value_name = "SIZE", default_value = "64KiB")]
    pub(crate) bundle: Bytes,
    /// A parameter of WEBRC by its name in RFC 3738: TSD=1s, BCR=4, QD=10s, P=0.75, N=20, CCI=long,
    /// constant=no; or trains=16, the packets of a train on the base channel (0: no trains)
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) parameters: Vec<String>,
}

/// Options for the HTTP servers of a process that sends one session or several.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Serve the session description over HTTP on this address [default of send
    /// and stream send without --multicast and --listen: port 8080 on all addresses, or any free
    /// port]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<8080>)]
    pub(crate) publish: Option<std::net::SocketAddr>,
    /// Serve the session description over HTTPS, with this certificate and those between it and
    /// its authority (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["publish", "tls_key"])]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Serve a status page over HTTP on this address, and metrics for Prometheus (OpenMetrics text)
    /// at /metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<9464>)]
    pub(crate) metrics: Option<std::net::SocketAddr>,
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The file that describes the sessions, in TOML
    pub(crate) file: PathBuf,
}

/// Profiles: ready-made session parameters.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// Slots of 1 s and a base rate of 4 packets/s: reaches 200 Mbit/s in seconds.
    Lan,
    /// The paper's values: slots of 10 s and a base rate of 1 packet/s.
    Wan,
}

/// Forward error correction schemes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fec {
    /// RaptorQ (RFC 6330): any packets will do, hardly more than the file has.
    Raptorq,
    /// No code: every single packet is needed.
    None,
}
