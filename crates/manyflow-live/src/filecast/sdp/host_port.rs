//! The addresses of servers in a description.

use std::fmt;
use std::net::Ipv6Addr;
use std::time::Duration;

use super::error::{DescriptionError, in_range, invalid, number};

/// The longest window for completion reports: a year.
const WINDOW_S_MAX: u64 = 366 * 24 * 3600;

/// The address of a server, such as an AMT relay: `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// A domain name, or an IP address without brackets.
    pub host: String,
    /// The UDP port.
    pub port: u16,
}

impl HostPort {
    /// Returns `host:port`, with an IPv6 address in brackets, as resolvers expect it.
    pub fn authority(&self) -> String {
        let Self { host, port } = self;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }

    /// Parses the value of the attribute `what`.
    pub(crate) fn parse(what: &str, text: &str) -> Result<Self, DescriptionError> {
        let expected = || invalid(what, text, "HOST:PORT, an IPv6 address in brackets");
        let (host, port) = text.rsplit_once(':').ok_or_else(expected)?;
        let bracketed = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let valid = match bracketed {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => is_domain_name(host),
        };
        match port.parse() {
            Ok(port @ 1..) if valid => Ok(Self {
                host: bracketed.unwrap_or(host).to_owned(),
                port,
            }),
            _ => Err(expected()),
        }
    }

    pub(crate) fn check(&self, what: &str) -> Result<(), DescriptionError> {
        Self::parse(what, &self.authority()).map(drop)
    }
}

/// Whether a host consists of letters, digits, hyphens and dots, as domain names (RFC 1123 section
/// 2.1) and IPv4 addresses do.
fn is_domain_name(host: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    (1..=253).contains(&host.len()) && host.bytes().all(allowed)
}

/// Where receivers report that they have all files: `a=completion:HOST:PORT SECONDS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The sender's address for reports.
    pub server: HostPort,
    /// The window in which each receiver reports once, in whole seconds: 1 s to 366 days.
    pub window: Duration,
}

impl Completion {
    pub(super) fn parse(text: &str) -> Result<Self, DescriptionError> {
        let (server, window) = text
            .split_once(' ')
            .ok_or_else(|| invalid("a=completion", text, "HOST:PORT SECONDS"))?;
        let completion = Self {
            server: HostPort::parse("a=completion", server)?,
            window: Duration::from_secs(number("the window of a=completion", window)?),
        };
        completion.check()?;
        Ok(completion)
    }

    pub(super) fn check(&self) -> Result<(), DescriptionError> {
        self.server.check("a=completion")?;
        let seconds = self.window.as_secs();
        in_range("the window of a=completion", seconds, 1..=WINDOW_S_MAX)
    }
}

impl fmt::Display for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.server.authority(), self.window.as_secs())
    }
}
