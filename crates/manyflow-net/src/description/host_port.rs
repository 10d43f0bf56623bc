//! The address of a server in a description.

use std::net::Ipv6Addr;

use super::error::{DescriptionError, invalid};

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
    ///
    /// # Errors
    /// If it has no port, or its host is neither a domain name nor an address.
    pub fn parse(what: &str, text: &str) -> Result<Self, DescriptionError> {
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

    /// Checks that the address can be the value of the attribute `what`.
    ///
    /// # Errors
    /// If [`parse`](Self::parse) would refuse it.
    pub fn check(&self, what: &str) -> Result<(), DescriptionError> {
        Self::parse(what, &self.authority()).map(drop)
    }
}

/// Whether a host consists of letters, digits, hyphens and dots, as domain names (RFC 1123 section
/// 2.1) and IPv4 addresses do.
fn is_domain_name(host: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    (1..=253).contains(&host.len()) && host.bytes().all(allowed)
}
