//! The options of `stream send` and `stream recv`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use manyflow_core::units::{Rate, parse_duration};
use manyflow_net::multicast::GroupRange;
use manyflow_terminal::completion::interfaces;

use super::ServerArgs;

const STREAM_SEND_EXAMPLES: &str = "\
Examples:
  # The built-in test pattern: receivers connect to this host, and type what this prints
  manyflow stream send --pattern

  # The files of a folder, 10 in each second, again and again
  manyflow stream send --folder frames --fps 10 --repeat --listen 0.0.0.0:2268 --publish 0.0.0.0:8080

  # On a network with multicast, from a program that writes units with their lengths
  manyflow stream send --program './camera --codec jpeg2000' --multicast 232.1.3.0/24 --interface eth0 --publish 0.0.0.0:8080

  # H.264 from ffmpeg: each group of pictures is a unit; slow paths get fewer pictures per second
  ffmpeg -i /dev/video0 -g 30 -bf 3 -f mpegts - | manyflow stream send --video - --listen 0.0.0.0:2268 --publish 0.0.0.0:8080

  # From standard input, with RLM and groups of fixed rates
  ./sensor | manyflow stream send --pipe - --protocol rlm --group-rate 200kbit/s --group-rate 800kbit/s --listen 0.0.0.0:2268

  # Telemetry: a receiver writes the rows that its path carries, in order, with --pipe rows.csv
  ./sensors --csv | manyflow stream send --rows - --listen 0.0.0.0:2268 --publish 0.0.0.0:8080

  # The same, with the time and the speed of all rows first, and the other columns as far as the path carries them
  ./sensors --csv | manyflow stream send --rows - --columns time,speed --listen 0.0.0.0:2268 --publish 0.0.0.0:8080

  # Accept only reports that are sealed with a key (manyflow keygen --shared-key stream.key)
  manyflow stream send --pattern --listen 0.0.0.0:2268 --publish 0.0.0.0:8080 --key stream.key";

/// clap's own usage is one long line.
const STREAM_SEND_USAGE: &str = "\
manyflow stream send [OPTIONS] --folder <FOLDER> | --pipe <FILE|->
           | --program <COMMAND> | --rows <FILE|-> | --video <FILE|-|URL>
           | --pattern";

const STREAM_RECV_EXAMPLES: &str = "\
Examples:
  # Each unit becomes a file
  manyflow stream recv http://192.0.2.1:8080/session.sdp --folder frames --extension j2k

  # To a program, with at most 300 ms between sender and program
  manyflow stream recv http://192.0.2.1:8080/session.sdp --program './viewer' --latency 300ms

  # Video for a player on this host, or for browsers (serve the folder by HTTP)
  manyflow stream recv http://192.0.2.1:8080/session.sdp --video udp://127.0.0.1:5004
  manyflow stream recv http://192.0.2.1:8080/session.sdp --video live/

  # Through a relay, or a second one if the first is silent
  manyflow stream recv stream.sdp --relay one.example.net,two.example.net --folder frames

  # Only measure, with the quality of the built-in pattern
  manyflow stream recv http://192.0.2.1:8080/session.sdp --pattern --for 30s";

/// The subcommands of `stream`.
#[derive(Debug, Subcommand)]
pub(crate) enum StreamCommand {
    /// Send the units of an embedded bitstream, such as frames, in layers
    #[command(after_help = STREAM_SEND_EXAMPLES, override_usage = STREAM_SEND_USAGE)]
    Send(Box<StreamSendArgs>),
    /// Receive a stream at the quality that this host's path carries
    #[command(after_help = STREAM_RECV_EXAMPLES)]
    Recv(Box<StreamRecvArgs>),
}

/// Rate controls of streams.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StreamProtocolArg {
    /// The rates of groups follow the receivers' reports
    Sim,
    /// Groups have fixed rates, and receivers try them
    Rlm,
}

/// Arguments of `stream send`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("source").required(true))]
pub(crate) struct StreamSendArgs {
    /// Send the files of this folder, sorted by name: each file is a unit
    #[arg(long, value_name = "FOLDER", group = "source")]
    pub(crate) folder: Option<PathBuf>,
    /// Read units from this file or named pipe, or from standard input (-): 4 bytes with the length
    /// of a unit, most significant first, then the unit
    #[arg(long, value_name = "FILE|-", group = "source")]
    pub(crate) pipe: Option<PathBuf>,
    /// Run this shell command, and read units from its standard output as from --pipe
    #[arg(long, value_name = "COMMAND", group = "source")]
    pub(crate) program: Option<String>,
    /// Send rows of telemetry: CSV with a header, or JSON lines, of which slower receivers get
    /// every second, fourth or sixteenth row. Those of a pipe or standard input (-) are sent as
    /// they come, and 1,000 per second of a file
    #[arg(long, value_name = "FILE|-", group = "source")]
    pub(crate) rows: Option<PathBuf>,
    /// Columns of --rows, or keys of JSON objects, the most important first: slower receivers then
    /// get the first columns of all rows instead of fewer rows
    #[arg(
        long,
        value_name = "NAME,...",
        requires = "rows",
        value_delimiter = ','
    )]
    pub(crate) columns: Vec<String>,
    /// Send H.264 (Annex B or MPEG-TS), HEVC (MPEG-TS) or AV1 (IVF or OBUs) from this file or named
    /// pipe, from standard input (-), or from an address such as rtsp://HOST/PATH by ffmpeg: each
    /// group of pictures is a unit, and every prefix of it decodes
    #[arg(
        long,
        visible_alias = "h264",
        value_name = "FILE|-|URL",
        group = "source"
    )]
    pub(crate) video: Option<String>,
    /// Send the built-in moving test picture
    #[arg(long, group = "source")]
    pub(crate) pattern: bool,
    /// Units per second: 10 by default with --folder, --rows and --pattern, and as they come with
    /// --pipe and --program. Pictures per second with --video, if the video does not announce them
    #[arg(long, value_name = "NUMBER")]
    pub(crate) fps: Option<f64>,
    /// Begin the folder again at its end
    #[arg(long, requires = "folder")]
    pub(crate) repeat: bool,
    /// The number of the first unit, which names a receiver's first file. Random by default, so
    /// that receivers notice when a sender starts again
    #[arg(long, value_name = "NUMBER")]
    pub(crate) first_number: Option<u32>,
    /// The name of the stream for people
    #[arg(long, default_value = "stream")]
    pub(crate) name: String,
    /// The rate control
    #[arg(long, value_enum, default_value_t = StreamProtocolArg::Sim)]
    pub(crate) protocol: StreamProtocolArg,
    /// The number of groups with SIM, 1 to 32
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=32))]
    pub(crate) groups: u8,
    /// The rate of a group by itself with RLM, lowest first; repeated for each group
    #[arg(long, value_name = "RATE", required_if_eq("protocol", "rlm"))]
    pub(crate) group_rate: Vec<Rate>,
    /// The maximum rate of all groups together with SIM
    #[arg(long, value_name = "RATE", default_value = "50Mbit/s")]
    pub(crate) max_rate: Rate,
    /// The length of an IP packet in bytes, without those of a tunnel [default: 1400, or what fits
    /// the interfaces; with --listen, what fits any path of 1280]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(256..=9000))]
    pub(crate) packet: Option<u16>,
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
    #[arg(long, default_value_t = manyflow_streams::GROUP_PORT)]
    pub(crate) port: u16,
    /// Serve receivers and relays on this address, and take their reports there [default without
    /// --multicast: port 2268 on all addresses, or any free port]
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        value_parser = crate::address::listen::<2268>)]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) servers: ServerArgs,
    /// Write the session description to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) session: Option<PathBuf>,
    /// Sign the session description with this private key (Ed25519, PKCS#8 in PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) sign: Option<PathBuf>,
    /// Accept only reports that are sealed with this key, which relays and receivers have, too: 32
    /// bytes in base64
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Stop after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
}

/// Arguments of `stream recv`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("sink"))]
pub(crate) struct StreamRecvArgs {
    /// The session description: an http:// or https:// address, a file, or - for standard input
    pub(crate) session: String,
    /// Write each unit to a file in this folder
    #[arg(long, value_name = "FOLDER", group = "sink")]
    pub(crate) folder: Option<PathBuf>,
    /// The extension of the files in --folder
    #[arg(long, default_value = "bin", requires = "folder")]
    pub(crate) extension: String,
    /// Write units to this file or named pipe, or to standard output (-): 4 bytes with the length
    /// of a unit, most significant first, then the unit. Rows are written as their text
    #[arg(long, value_name = "FILE|-", group = "sink")]
    pub(crate) pipe: Option<PathBuf>,
    /// Run this shell command, and write units to its standard input as to --pipe
    #[arg(long, value_name = "COMMAND", group = "sink")]
    pub(crate) program: Option<String>,
    /// Write the pictures of a stream that is sent with --video: to a file or named pipe, to
    /// standard output (-), to udp://HOST:PORT, or to a folder that browsers play (FOLDER/). The
    /// format is MPEG-TS, or IVF for AV1; Annex B or OBUs if the name ends in .h264, .h265 or .obu
    #[arg(
        long,
        visible_alias = "h264",
        value_name = "FILE|-|udp://HOST:PORT|FOLDER/",
        group = "sink"
    )]
    pub(crate) video: Option<String>,
    /// Decode the built-in test picture, and report its quality
    #[arg(long, group = "sink")]
    pub(crate) pattern: bool,
    /// The time from the first possible arrival of a unit to its delivery: a duration, or "auto",
    /// which follows the path between 50 ms and 2 s
    #[arg(long, value_name = "TIME|auto", default_value = "auto")]
    pub(crate) latency: String,
    /// The maximum number of groups to join
    #[arg(long, value_name = "NUMBER", default_value_t = 32, value_parser = clap::value_parser!(u8).range(1..=32))]
    pub(crate) groups_max: u8,
    /// Accept the session description only if this key has signed it: a file with a public key, or
    /// the key itself as keygen prints it; can be repeated
    #[arg(long, value_name = "FILE|KEY")]
    pub(crate) trust: Vec<String>,
    /// Accept HTTPS servers only of the certificate authorities in this file (PEM), instead of
    /// those that this machine trusts
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Receive by multicast on this interface: its name or address. Without it, and without a relay
    /// in the description, the route to the source decides
    #[arg(long, value_name = "NAME|ADDRESS", add = interfaces(), conflicts_with = "relay")]
    pub(crate) interface: Option<String>,
    /// Receive through the first of these relays that answers, even if the description names
    /// another; --relay a --relay b is the same as --relay a,b
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',', value_parser = crate::address::connect::<2268>)]
    pub(crate) relay: Vec<String>,
    /// Seal reports with this key, if the session needs one: 32 bytes in base64
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Give up after this time without a packet
    #[arg(long, default_value = "30s", value_parser = parse_duration)]
    pub(crate) patience: Duration,
    /// Stop after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// Serve a status page over HTTP on this address, and metrics for Prometheus (OpenMetrics text)
    /// at /metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<9464>)]
    pub(crate) metrics: Option<SocketAddr>,
}
