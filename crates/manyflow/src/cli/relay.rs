//! The options of `relay`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use manyflow_amt::{DownstreamLink, Prefix};
use manyflow_core::units::{Bytes, Rate};
use manyflow_net::multicast::GroupRange;
use manyflow_terminal::completion::interfaces;

pub(super) const RELAY_EXAMPLES: &str = "\
Examples:
  # On a site's own host: receivers there share one stream from the sender
  manyflow relay --session http://192.0.2.1:8080/session.sdp --listen 0.0.0.0:2268
  manyflow recv http://192.0.2.1:8080/session.sdp --relay relay.example.net:2268

  # In a chain: take packets from another relay, or from a second one if the first is silent
  manyflow relay --session session.sdp --relay one.example.net,two.example.net --listen 0.0.0.0:2268

  # From a network with multicast to receivers without it
  manyflow relay --session session.sdp --interface eth0 --listen 0.0.0.0:2268

  # To the hosts of a network with multicast, from a sender that multicast does not reach
  manyflow relay --session http://192.0.2.1:8080/session.sdp --multicast-interface eth1
  manyflow recv http://192.0.2.1:8080/session.sdp --interface eth0

  # A stream: the relay finds the rate of each receiver's path, or takes the one of --link
  manyflow relay --session http://192.0.2.1:8080/session.sdp --listen 0.0.0.0:2268 --link 10.0.0.7/32=3Mbit/s

  # Packets of any kind from one source
  manyflow relay --source 192.0.2.1 --groups 232.1.2.0/24 --interface eth0 --listen 0.0.0.0:2268

  # All receivers of a branch share 20 Mbit/s, with a queue of 200 kB
  manyflow relay --session session.sdp --listen 0.0.0.0:2268 --link 10.0.0.0/24=20Mbit/s,queue=200kB";

/// Arguments of `relay`.
#[derive(Debug, Args)]
pub(crate) struct RelayArgs {
    /// The description of a session to forward: an http:// or https:// address, a file, or - for
    /// standard input; can be repeated. Packets of other sessions are not forwarded
    #[arg(long, value_name = "FILE|URL", required_unless_present = "groups")]
    pub(crate) session: Vec<String>,
    /// Forward packets to any of these multicast groups, too, whatever they contain: at most 4,096
    #[arg(long, value_name = "GROUP/PREFIX", requires = "source")]
    pub(crate) groups: Option<GroupRange>,
    /// The source address of the packets to --groups
    #[arg(long, value_name = "ADDRESS", requires = "groups")]
    pub(crate) source: Option<IpAddr>,
    /// The UDP port of the packets to --groups
    #[arg(long, default_value_t = 5445, requires = "groups")]
    pub(crate) port: u16,
    /// Accept a session description only if this key has signed it: a file with a public key, or
    /// the key itself as keygen prints it; can be repeated
    #[arg(long, value_name = "FILE|KEY")]
    pub(crate) trust: Vec<String>,
    /// Accept HTTPS servers only of the certificate authorities in this file (PEM), instead of
    /// those that this machine trusts
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Take packets by multicast on this interface: its name or address. Without it, and without a
    /// relay in the description, the route to the source decides
    #[arg(long, value_name = "NAME|ADDRESS", add = interfaces(), conflicts_with = "relay")]
    pub(crate) interface: Option<String>,
    /// Take packets from the first of these relays or senders that answers, even if a description
    /// names another: --relay one.example.net,two.example.net:2268
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',', value_parser = crate::address::connect::<2268>)]
    pub(crate) relay: Vec<String>,
    /// Serve receivers and other relays on this address
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        required_unless_present = "multicast_interface", value_parser = crate::address::listen::<2268>)]
    pub(crate) listen: Option<SocketAddr>,
    /// Send packets by multicast to the hosts on this interface that have joined their channel,
    /// with the original source: its name or address. IPv4 only; needs root, or the capabilities
    /// CAP_NET_RAW and CAP_NET_ADMIN
    #[arg(long, value_name = "NAME|ADDRESS", add = interfaces())]
    pub(crate) multicast_interface: Option<String>,
    /// The time to live of multicast packets: the maximum number of hops
    #[arg(long, default_value_t = 1, requires = "multicast_interface")]
    pub(crate) ttl: u8,
    /// The maximum rate to all receivers together: packets above it are dropped, so receivers slow
    /// down [default: what the interface carries]
    #[arg(long, value_name = "RATE")]
    pub(crate) relay_rate_max: Option<Rate>,
    /// The maximum number of receivers; others wait
    #[arg(long, value_name = "NUMBER", default_value_t = 1024)]
    pub(crate) relay_gateways: usize,
    /// The maximum number of receivers behind one IPv4 address or in one IPv6 /64; others wait
    #[arg(long, value_name = "NUMBER", default_value_t = 16)]
    pub(crate) relay_gateways_per_address: usize,
    /// The rate of a link that all receivers in a range of addresses share, and the length of its
    /// queue (default 100 ms of the rate), which drops packets that it has no room for; can be
    /// repeated. The longest prefix counts
    #[arg(long, value_name = "ADDRESS/BITS=RATE[,queue=SIZE]")]
    pub(crate) link: Vec<LinkArg>,
    /// Seal reports of streams with this key, if a stream needs one: 32 bytes in base64
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Serve a status page over HTTP on this address, and metrics for Prometheus (OpenMetrics text)
    /// at /metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<9464>)]
    pub(crate) metrics: Option<SocketAddr>,
}

/// A link such as `10.0.0.0/24=20Mbit/s,queue=200kB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkArg(pub(crate) DownstreamLink);

impl FromStr for LinkArg {
    type Err = String;

    fn from_str(text: &str) -> Result<LinkArg, String> {
        let (gateways, link) = text.split_once('=').ok_or_else(|| {
            format!("`{text}` is not a link such as 10.0.0.0/24=20Mbit/s,queue=200kB")
        })?;
        let (rate, queue) = match link.split_once(',') {
            Some((rate, queue)) => (rate, Some(queue)),
            None => (link, None),
        };
        let rate: Rate = rate.parse().map_err(|error| format!("{error}"))?;
        if rate.bits_per_s() == 0 {
            return Err("a link without a rate carries nothing: give one such as 20Mbit/s".into());
        }
        let queue_bytes = match queue {
            Some(queue) => parse_queue(queue)?,
            None => rate.bits_per_s() / 8 / 10,
        };
        Ok(LinkArg(DownstreamLink {
            gateways: parse_prefix(gateways)?,
            rate,
            queue_bytes,
        }))
    }
}

fn parse_queue(text: &str) -> Result<u64, String> {
    let size = text
        .strip_prefix("queue=")
        .ok_or_else(|| format!("`{text}` is not the length of a queue such as queue=200kB"))?;
    let Bytes(size) = size.parse().map_err(|error| format!("{error}"))?;
    Ok(size)
}

fn parse_prefix(text: &str) -> Result<Prefix, String> {
    let wrong =
        || format!("`{text}` is not a range of addresses such as 10.0.0.0/24 or 2001:db8::/64");
    let (address, length) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let length = length.parse().ok().filter(|length| *length <= bits);
    Ok(Prefix {
        address,
        length: length.ok_or_else(wrong)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_a_prefix_a_rate_and_a_queue() {
        let LinkArg(link) = "10.0.0.0/24=20Mbit/s,queue=200kB".parse().unwrap();
        assert_eq!(link.gateways, parse_prefix("10.0.0.0/24").unwrap());
        assert_eq!(link.rate.bits_per_s(), 20_000_000);
        assert_eq!(link.queue_bytes, 200_000);
        let LinkArg(link) = "2001:db8::/64=8Mbit/s".parse().unwrap();
        assert_eq!(link.queue_bytes, 100_000, "100 ms");
    }

    #[test]
    fn a_link_that_cannot_be_read_is_refused_with_its_part() {
        for (text, part) in [
            ("10.0.0.0/24", "is not a link"),
            ("10.0.0.0=1Mbit/s", "10.0.0.0"),
            ("10.0.0.0/33=1Mbit/s", "10.0.0.0/33"),
            ("10.0.0.0/24=fast", "fast"),
            ("10.0.0.0/24=0bit/s", "carries nothing"),
            ("10.0.0.0/24=1Mbit/s,200kB", "200kB"),
            ("10.0.0.0/24=1Mbit/s,queue=long", "long"),
        ] {
            let error = text.parse::<LinkArg>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
