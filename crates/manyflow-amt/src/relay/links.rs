//! Links to gateways, each with a rate and a queue of its own.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use manyflow_core::link::{Carried, Link, LinkConfig, QueueLimit};
use manyflow_core::time::Time;
use manyflow_core::units::Rate;

use super::train::Train;

/// Headers of a message outside of AMT: IPv4 and UDP, or IPv6 and UDP.
const HEADER_BYTES_V4: usize = 28;
const HEADER_BYTES_V6: usize = 48;

/// The addresses that share the first bits of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// An address of the range. Bits after the prefix have no effect.
    pub address: IpAddr,
    /// Length of the prefix in bits, at most 32 for IPv4 and 128 for IPv6.
    pub length: u8,
}

impl Prefix {
    /// Whether the address is in this range. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (mine, other, bits) = match (self.address, address.to_canonical()) {
            (IpAddr::V4(mine), IpAddr::V4(other)) => {
                (mine.to_bits().into(), u128::from(other.to_bits()), 32)
            }
            (IpAddr::V6(mine), IpAddr::V6(other)) => (mine.to_bits(), other.to_bits(), 128),
            _ => return false,
        };
        let host_bits = bits - u32::from(self.length).min(bits);
        (mine ^ other).checked_shr(host_bits).unwrap_or(0) == 0
    }
}

/// A link that the data of all gateways in a prefix shares. Its queue drops messages that it has
/// no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DownstreamLink {
    /// Addresses of the gateways behind the link. The longest prefix that contains a gateway
    /// counts.
    pub gateways: Prefix,
    /// The link's rate, in which the outer IP and UDP headers count.
    pub rate: Rate,
    /// Maximum length of the queue in bytes, without the message in transmission.
    pub queue_bytes: u64,
}

/// The place of a message in a link's queue, whose bytes are in [`Line::bytes`].
#[derive(Clone, Copy)]
struct Queued {
    destination: SocketAddr,
    local: IpAddr,
    length: usize,
}

impl Carried for Queued {}

/// A link with the bytes of its messages. The link has no jitter, so messages leave it in the order
/// in which they entered.
struct Line {
    link: Link<Queued>,
    bytes: VecDeque<u8>,
}

/// All links of a relay.
#[derive(Default)]
pub(super) struct Links {
    gateways: Vec<Prefix>,
    lines: Vec<Line>,
    /// Messages to one gateway that leave a link together.
    train: Train,
    message: Vec<u8>,
}

impl Links {
    pub(super) fn new(links: &[DownstreamLink]) -> Self {
        let line = |link: &DownstreamLink| Line {
            link: Link::new(
                Arc::new(LinkConfig {
                    rate: Some(link.rate),
                    queue: QueueLimit::Bytes(link.queue_bytes),
                    ..LinkConfig::default()
                }),
                0,
            ),
            bytes: VecDeque::new(),
        };
        Self {
            gateways: links.iter().map(|link| link.gateways).collect(),
            lines: links.iter().map(line).collect(),
            train: Train::default(),
            message: Vec::new(),
        }
    }

    /// Returns the link to a gateway: the one with the longest prefix that contains its address.
    pub(super) fn of(&self, gateway: IpAddr) -> Option<usize> {
        let candidates = self.gateways.iter().enumerate();
        candidates
            .filter(|(_, prefix)| prefix.contains(gateway))
            .max_by_key(|(_, prefix)| prefix.length)
            .map(|(link, _)| link)
    }

    /// Queues a message on a link. Returns false if the queue has no room for it.
    pub(super) fn push(
        &mut self,
        now: Time,
        link: usize,
        destination: SocketAddr,
        local: IpAddr,
        message: &[u8],
    ) -> bool {
        let Line { link, bytes } = &mut self.lines[link];
        let queued = Queued {
            destination,
            local,
            length: message.len(),
        };
        let headers = match destination.ip().to_canonical() {
            IpAddr::V4(_) => HEADER_BYTES_V4,
            IpAddr::V6(_) => HEADER_BYTES_V6,
        };
        let taken = link.push(now, queued, (message.len() + headers) as u32);
        if taken.is_ok() {
            bytes.extend(message);
        }
        taken.is_ok()
    }

    /// Returns when the next message leaves a link.
    pub(super) fn next_time(&self) -> Option<Time> {
        let lines = self.lines.iter();
        lines.filter_map(|line| line.link.next_time()).min()
    }

    /// Passes the messages that have left their links to `emit`, those to one gateway together.
    pub(super) fn drain(
        &mut self,
        now: Time,
        mut emit: impl FnMut(SocketAddr, IpAddr, &[u8], usize),
    ) {
        let Self {
            lines,
            train,
            message,
            ..
        } = self;
        for Line { link, bytes } in lines {
            while let Some(next) = link.pop_ready(now) {
                message.clear();
                message.extend(bytes.drain(..next.length));
                train.push((next.destination, next.local), message, &mut emit);
            }
            train.flush(&mut emit);
            debug_assert!(
                link.carried() > 0 || bytes.is_empty(),
                "bytes wait only with their messages"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        let (address, length) = text.split_once('/').unwrap();
        Prefix {
            address: address.parse().unwrap(),
            length: length.parse().unwrap(),
        }
    }

    #[test]
    fn a_prefix_contains_the_addresses_with_its_first_bits() {
        for (text, address, expected) in [
            ("10.1.0.0/16", "10.1.255.255", true),
            ("10.1.0.0/16", "10.2.0.0", false),
            ("10.1.2.3/32", "10.1.2.3", true),
            ("10.1.2.3/32", "10.1.2.2", false),
            ("10.0.0.0/8", "::ffff:10.9.9.9", true),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("::/0", "2001:db8::1", true),
        ] {
            let contains = prefix(text).contains(address.parse().unwrap());
            assert_eq!(contains, expected, "{address} in {text}");
        }
    }

    #[test]
    fn the_longest_prefix_decides_about_the_link() {
        let link = |text: &str| DownstreamLink {
            gateways: prefix(text),
            rate: Rate::from_bits_per_s(1),
            queue_bytes: 0,
        };
        let links = Links::new(&[link("10.0.0.0/8"), link("10.1.0.0/16")]);
        let of = |address: &str| links.of(address.parse().unwrap());
        assert_eq!(of("10.1.2.3"), Some(1));
        assert_eq!(of("10.2.2.3"), Some(0));
        assert_eq!(of("192.0.2.1"), None);
    }
}
