//! The places where a switch finds the addresses of its members.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use manyflow_net::address::{Address, AddressError, Host};
use manyflow_net::dns::{DnsError, Nameservers};

/// The maximum number of members that one name stands for.
const MEMBERS_MAX: usize = 255;

/// The text before a name with several addresses, and before the name of a service.
const EACH: &str = "dns:";
const SERVICE: &str = "srv:";

/// A member, or several under one name, as a user writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberSource {
    /// `HOST:PORT`: one member, at the first address of the host.
    One(Address),
    /// `dns:HOST:PORT`: a member at each address of the host.
    Each(Address),
    /// `srv:NAME`: a member at each host and port of a service, such as `_web._udp.example.net`.
    /// All priorities count the same, because the switch finds out which members are down.
    Service(String),
}

/// The reason why the addresses of members are not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The name of a host cannot be resolved.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The nameservers do not say which hosts the service has.
    #[error("cannot find {0}: {1}; check the name, and the name servers of this machine")]
    Service(String, DnsError),
    /// The service has no hosts.
    #[error("{0} has no records SRV: check the name")]
    None(String),
}

impl FromStr for MemberSource {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<MemberSource, AddressError> {
        if let Some(service) = text.strip_prefix(SERVICE) {
            return Ok(MemberSource::Service(service.to_owned()));
        }
        match text.strip_prefix(EACH) {
            Some(host) => Address::parse(host, None).map(MemberSource::Each),
            None => Address::parse(text, None).map(MemberSource::One),
        }
    }
}

impl fmt::Display for MemberSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemberSource::One(address) => write!(formatter, "{address}"),
            MemberSource::Each(address) => write!(formatter, "{EACH}{address}"),
            MemberSource::Service(name) => write!(formatter, "{SERVICE}{name}"),
        }
    }
}

impl MemberSource {
    /// Looks the members up. Returns their names and addresses: `name` for a single address, and
    /// otherwise `name@ADDRESS`, in the order of the addresses. Where a host has addresses of IPv4
    /// and of IPv6, those of IPv4 are taken.
    ///
    /// # Errors
    /// If a name cannot be resolved.
    pub async fn look_up(
        &self,
        name: &str,
        nameservers: &Nameservers,
    ) -> Result<Vec<(String, SocketAddr)>, SourceError> {
        let mut found = match self {
            MemberSource::One(address) => {
                let first = address.resolve().await?.swap_remove(0);
                return Ok(vec![(name.to_owned(), first)]);
            }
            MemberSource::Each(address) => address.resolve().await?,
            MemberSource::Service(service) => {
                let hosts = nameservers.hosts_of(service).await;
                let hosts = hosts.map_err(|cause| SourceError::Service(service.clone(), cause))?;
                let mut found = Vec::new();
                for host in hosts.into_iter().take(MEMBERS_MAX) {
                    let address = Address::new(host_of(host.host), host.port);
                    found.extend(address.resolve().await?);
                }
                found
            }
        };
        if found.is_empty() {
            return Err(SourceError::None(self.to_string()));
        }
        if found.iter().any(SocketAddr::is_ipv4) {
            found.retain(SocketAddr::is_ipv4);
        }
        found.sort();
        found.dedup();
        found.truncate(MEMBERS_MAX);
        let named = found
            .into_iter()
            .map(|address| (format!("{name}@{address}"), address));
        Ok(named.collect())
    }
}

fn host_of(text: String) -> Host {
    match text.parse() {
        Ok(ip) => Host::Ip(ip),
        Err(_) => Host::Name(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manyflow_testing::nameserver::{Nameserver, Reply};

    async fn look_up(text: &str, nameservers: &Nameservers) -> Result<Vec<String>, String> {
        let source: MemberSource = text.parse().unwrap();
        assert_eq!(source.to_string(), text);
        let found = source.look_up("web", nameservers).await;
        let found = found.map_err(|error| error.to_string())?;
        Ok(found
            .into_iter()
            .map(|(name, address)| {
                assert!(name == "web" || name == format!("web@{address}"), "{name}");
                name
            })
            .collect())
    }

    #[tokio::test]
    async fn a_name_stands_for_one_member_for_each_address_or_for_a_service() {
        let nobody = Nameservers::new(Vec::new());
        assert_eq!(look_up("127.0.0.1:7000", &nobody).await.unwrap(), ["web"]);
        let each = look_up("dns:127.0.0.1:7000", &nobody).await.unwrap();
        assert_eq!(each, ["web@127.0.0.1:7000"]);

        // Hosts by number, so that the test needs no further nameserver.
        let record =
            |port: u16, host: &[u8]| [&[0, 0, 0, 0][..], &port.to_be_bytes(), host].concat();
        let server = Nameserver::start(
            "127.0.0.1:0",
            Reply {
                kind: 33,
                records: vec![
                    record(7001, b"\x03127\x010\x010\x012\x00"),
                    record(7000, b"\x03127\x010\x010\x011\x00"),
                ],
                ..Reply::default()
            },
        );
        let nameservers = Nameservers::new(vec![server.address]);
        let found = look_up("srv:_web._udp.example.net", &nameservers).await;
        assert_eq!(found.unwrap(), ["web@127.0.0.1:7000", "web@127.0.0.2:7001"]);

        let empty = Nameserver::start("127.0.0.1:0", Reply::default());
        let nameservers = Nameservers::new(vec![empty.address]);
        let refused = look_up("srv:_web._udp.example.net", &nameservers).await;
        assert!(refused.unwrap_err().contains("has no records SRV"));
        let refused = look_up("srv:_web._udp.example.net", &nobody).await;
        assert!(refused.unwrap_err().contains("_web._udp.example.net"));
        assert!("dns:example.net".parse::<MemberSource>().is_err());
    }
}
