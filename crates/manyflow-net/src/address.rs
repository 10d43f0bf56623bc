//! Addresses as users write them: a host and a port. This is the one parser of all options, files
//! and URLs that name a host.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs as _};
use std::str::FromStr;

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use rustls_pki_types::{InvalidDnsNameError, ServerName};
use tokio::net::lookup_host;

/// The maximum length of a domain name in bytes (RFC 1123 section 2.1).
const NAME_BYTES_MAX: usize = 253;

/// A host and a port, such as `192.0.2.1:4222`, `[2001:db8::1]:4222`, `[fe80::1%eth0]:4222` or
/// `b.example.net:4222`.
///
/// ```
/// use manyflow_net::address::Address;
///
/// let address = Address::parse("[fe80::1%eth0]", Some(4222))?;
/// assert_eq!(address.to_string(), "[fe80::1%eth0]:4222");
/// assert!(Address::parse("b.example.net", None).is_err());
/// # Ok::<(), manyflow_net::address::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: Host,
    port: u16,
}

/// A host as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address of IPv4 or IPv6.
    Ip(IpAddr),
    /// A link-local address of IPv6 and the interface to its network, by name or number (RFC 4007
    /// section 11).
    Zoned(Ipv6Addr, String),
    /// A domain name.
    Name(String),
}

/// The reason why a text is not an address, or has none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The text is not a host and a port.
    #[error("`{text}` {problem}: write HOST:PORT, such as {}", examples(.port))]
    Invalid {
        /// The text.
        text: String,
        /// A verb phrase that follows the text.
        problem: &'static str,
        /// A port for the examples.
        port: u16,
    },
    /// The name cannot be resolved at the moment.
    #[error("cannot find {address}: {cause}; check the name, and the name servers of this machine")]
    Unresolved {
        /// The address.
        address: String,
        /// The resolver's reason.
        cause: io::Error,
    },
    /// There is no interface with the name or number behind `%`.
    #[error("this machine has no interface `{0}`: `ip link` lists the names to write after %")]
    NoInterface(String),
    /// No Unix socket can have the path.
    #[error(
        "`{text}` {problem}: write unix: and an absolute path of at most 107 bytes, such as unix:/run/manyflow.sock"
    )]
    UnixPath {
        /// The text.
        text: String,
        /// A verb phrase that follows the text.
        problem: &'static str,
    },
    /// There is no Unix socket at the path, and none can be made.
    #[error("{path} {problem}, or choose another path")]
    NoSocket {
        /// The path.
        path: String,
        /// A verb phrase that follows the path, and advice.
        problem: String,
    },
}

fn examples(port: &u16) -> String {
    format!(
        "192.0.2.1:{port}, [2001:db8::1]:{port}, [fe80::1%eth0]:{port} or host.example.net:{port}"
    )
}

impl AddressError {
    /// Whether a later attempt may succeed without another text: a name server that does not
    /// answer, or an interface that is not there yet.
    pub fn may_pass(&self) -> bool {
        !matches!(
            self,
            AddressError::Invalid { .. } | AddressError::UnixPath { .. }
        )
    }
}

impl FromStr for Address {
    type Err = AddressError;

    /// Parses an address with a port.
    fn from_str(text: &str) -> Result<Address, AddressError> {
        Address::parse(text, None)
    }
}

impl From<AddressError> for io::Error {
    fn from(error: AddressError) -> io::Error {
        let kind = match &error {
            AddressError::Invalid { .. } | AddressError::UnixPath { .. } => {
                io::ErrorKind::InvalidInput
            }
            AddressError::Unresolved { .. } | AddressError::NoInterface(_) => {
                io::ErrorKind::NotFound
            }
            AddressError::NoSocket { .. } => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

impl Address {
    /// Parses an address. One without a port has `default_port`.
    ///
    /// # Errors
    /// [`AddressError::Invalid`] if the text is not an address, if it needs a port, or if its port
    /// is 0.
    pub fn parse(text: &str, default_port: Option<u16>) -> Result<Address, AddressError> {
        let address = parse(text, default_port);
        address
            .and_then(|address| match address.port {
                0 => Err("has port 0, to which nobody can connect"),
                _ => Ok(address),
            })
            .map_err(|problem| invalid(text, problem, default_port))
    }

    /// Parses a URL with one of these schemes, or an address without a scheme, as
    /// [`parse`](Self::parse) does. A URL has no user, and no path except `/`.
    ///
    /// # Errors
    /// [`AddressError::Invalid`] if the text is neither.
    pub fn parse_url(
        text: &str,
        schemes: &[&str],
        default_port: u16,
    ) -> Result<Address, AddressError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Address::parse(text, Some(default_port));
        };
        let wrong = |problem| invalid(text, problem, Some(default_port));
        if !schemes.contains(&scheme.to_ascii_lowercase().as_str()) {
            return Err(wrong("has a scheme that is not expected here"));
        }
        if rest.contains('@') {
            return Err(wrong("has a user, which has an option of its own"));
        }
        let rest = decode_zone(rest.strip_suffix('/').unwrap_or(rest));
        Address::parse(&rest, Some(default_port)).map_err(|error| match error {
            AddressError::Invalid { problem, .. } => wrong(problem),
            error => error,
        })
    }

    /// Parses an address to listen on, with any port, and looks its name up. Blocks the thread
    /// while a name server is asked. An address of IPv4 is preferred if a name has both.
    ///
    /// # Errors
    /// If the text is not an address with a port, if the name is unknown, or if there is no such
    /// interface. `port` is the port of the examples in the message.
    pub fn parse_listen(text: &str, port: u16) -> Result<SocketAddr, AddressError> {
        let address = parse(text, None).map_err(|problem| invalid(text, problem, Some(port)))?;
        if let Some(number) = address.number()? {
            return Ok(number);
        }
        let host = address.host.to_string();
        let found = (host.as_str(), address.port).to_socket_addrs();
        Ok(address.found(found)?[0])
    }

    /// Returns the address of a port of a host.
    pub fn new(host: Host, port: u16) -> Address {
        Address { host, port }
    }

    /// Returns the host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns all addresses of the host, those of IPv4 first: at least one.
    ///
    /// # Errors
    /// If the name cannot be resolved, or the interface does not exist.
    pub async fn resolve(&self) -> Result<Vec<SocketAddr>, AddressError> {
        if let Some(number) = self.number()? {
            return Ok(vec![number]);
        }
        self.found(lookup_host((self.host.to_string(), self.port)).await)
    }

    /// Returns the address of a host that is not a name.
    fn number(&self) -> Result<Option<SocketAddr>, AddressError> {
        Ok(match &self.host {
            Host::Ip(ip) => Some((*ip, self.port).into()),
            Host::Zoned(ip, zone) => {
                Some(SocketAddrV6::new(*ip, self.port, 0, scope(zone)?).into())
            }
            Host::Name(_) => None,
        })
    }

    /// Puts the addresses of IPv4 first.
    fn found(
        &self,
        found: io::Result<impl Iterator<Item = SocketAddr>>,
    ) -> Result<Vec<SocketAddr>, AddressError> {
        let unresolved = |cause| AddressError::Unresolved {
            address: self.to_string(),
            cause,
        };
        let mut found: Vec<_> = found.map_err(unresolved)?.collect();
        if found.is_empty() {
            let cause = io::Error::other("the name has no address");
            return Err(unresolved(cause));
        }
        found.sort_by_key(SocketAddr::is_ipv6);
        Ok(found)
    }
}

impl Host {
    /// Returns the name that a TLS certificate of this host has.
    pub fn tls_name(&self) -> Result<ServerName<'static>, InvalidDnsNameError> {
        match self {
            Host::Ip(ip) => Ok(ServerName::from(*ip)),
            Host::Zoned(ip, _) => Ok(ServerName::from(IpAddr::from(*ip))),
            Host::Name(name) => ServerName::try_from(name.clone()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { host, port } = self;
        match host {
            Host::Ip(IpAddr::V6(_)) | Host::Zoned(..) => write!(f, "[{host}]:{port}"),
            _ => write!(f, "{host}:{port}"),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Ip(ip) => ip.fmt(f),
            Host::Zoned(ip, zone) => write!(f, "{ip}%{zone}"),
            Host::Name(name) => f.write_str(name),
        }
    }
}

/// Parses `address`, one without a port with `default_port`, and returns all addresses of its
/// host, those of IPv4 first.
///
/// # Errors
/// As [`Address::parse`] and [`Address::resolve`].
pub async fn lookup(address: &str, default_port: Option<u16>) -> io::Result<Vec<SocketAddr>> {
    let address = Address::parse(address, default_port)?;
    Ok(address.resolve().await?)
}

/// Returns what to do about an address that cannot be listened on, to be appended to the reason;
/// empty if the reason says it.
pub fn listen_advice(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrInUse => {
            "; end the program that has it, or choose another address or port"
        }
        io::ErrorKind::AddrNotAvailable => {
            "; this machine does not have it: choose another address (`ip address` lists those it has), or 0.0.0.0 or [::] for all"
        }
        io::ErrorKind::PermissionDenied => {
            "; choose a port from 1024 up, or give the program CAP_NET_BIND_SERVICE"
        }
        _ if cause
            .get_ref()
            .is_some_and(|cause| cause.is::<AddressError>()) =>
        {
            ""
        }
        // Every address has this error if the process may open no further file.
        _ if cause.raw_os_error() == Some(Errno::EMFILE as i32) => "",
        _ => "; choose another address or port",
    }
}

/// Returns the text of a URL's host with its zone as users write it: RFC 6874 section 2 writes
/// `%25` for `%`.
pub fn decode_zone(host: &str) -> String {
    match host.split_once("%25") {
        Some((ip, zone)) if ip.starts_with('[') && !zone.starts_with(']') => {
            format!("{ip}%{zone}")
        }
        _ => host.to_owned(),
    }
}

/// Returns an address as the header `Host` has it: without a zone, which means nothing to the
/// server (RFC 6874 section 4).
pub fn without_zone(address: &Address) -> String {
    let host = match &address.host {
        Host::Zoned(ip, _) => Host::Ip((*ip).into()),
        host => host.clone(),
    };
    Address::new(host, address.port).to_string()
}

fn invalid(text: &str, problem: &'static str, port: Option<u16>) -> AddressError {
    AddressError::Invalid {
        text: text.to_owned(),
        problem,
        port: port.unwrap_or(7000),
    }
}

/// Parses an address with any port.
fn parse(text: &str, default_port: Option<u16>) -> Result<Address, &'static str> {
    if text.is_empty() {
        return Err("is empty");
    }
    if text.contains("://") {
        return Err("is a URL, and an address is wanted");
    }
    if text.contains(|character: char| character.is_whitespace() || character.is_control()) {
        return Err("has a space or a control character");
    }
    if text.contains('/') {
        return Err("has a slash");
    }
    // An address of IPv6 that stands alone needs no brackets if there is a default port.
    let (host, port) = match parse_ipv6(text) {
        Some(host) => {
            let port =
                default_port.ok_or("has no port, and an IPv6 address before one needs brackets")?;
            return Ok(Address { host: host?, port });
        }
        None => split(text)?,
    };
    let port = match port {
        Some(port) => parse_port(port)?,
        None => default_port.ok_or("has no port")?,
    };
    Ok(Address { host, port })
}

/// Splits a text into host and port.
fn split(text: &str) -> Result<(Host, Option<&str>), &'static str> {
    if let Some(rest) = text.strip_prefix('[') {
        let (ip, rest) = rest.split_once(']').ok_or("has no closing bracket")?;
        let host = parse_ipv6(ip).ok_or("has no IPv6 address in its brackets")??;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err("has no colon between bracket and port"),
        };
    }
    let (host, port) = match text.split_once(':') {
        Some((_, port)) if port.contains(':') => {
            return Err("is not an address of IPv6 in brackets");
        }
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    Ok((parse_name(host)?, port))
}

fn parse_port(text: &str) -> Result<u16, &'static str> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|_| is_number);
    port.ok_or("has a port that is not a number from 1 to 65535")
}

/// Parses an address of IPv6, with a zone or without. `None` if the text is something else.
fn parse_ipv6(text: &str) -> Option<Result<Host, &'static str>> {
    let Some((ip, zone)) = text.split_once('%') else {
        let ip: Ipv6Addr = text.parse().ok()?;
        return Some(Ok(Host::Ip(ip.into())));
    };
    let ip: Ipv6Addr = ip.parse().ok()?;
    Some(match (ip.is_unicast_link_local(), zone) {
        (_, "") => Err("has no interface after %"),
        (false, _) => Err("has an interface, which only link-local addresses (fe80::/10) have"),
        (true, zone) if zone.contains(['%', '[', ']', ':']) => Err("has no interface after %"),
        (true, zone) => Ok(Host::Zoned(ip, zone.to_owned())),
    })
}

/// Parses an address of IPv4, or a domain name. A text whose last part is a number is an address:
/// the resolver would read `127.1` and `010.0.0.1` as addresses that the user may not mean.
fn parse_name(text: &str) -> Result<Host, &'static str> {
    if let Ok(ip) = text.parse::<Ipv4Addr>() {
        return Ok(Host::Ip(ip.into()));
    }
    let last = text.trim_end_matches('.').rsplit('.').next().unwrap_or("");
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if text.is_empty() {
        return Err("has no host (0.0.0.0 and [::] are all addresses of this machine)");
    }
    if is_number(last) || last.starts_with("0x") || last.starts_with("0X") {
        return Err("is not an IPv4 address of four decimal numbers from 0 to 255");
    }
    let is_part = |part: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !part.is_empty() && part.bytes().all(allowed)
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    match name.len() <= NAME_BYTES_MAX && name.split('.').all(is_part) {
        true => Ok(Host::Name(text.to_owned())),
        false => Err("is not a host name of letters, digits, hyphens and dots"),
    }
}

/// Returns the kernel's number of an interface.
fn scope(zone: &str) -> Result<u32, AddressError> {
    let named = if_nametoindex(zone).ok();
    let number = || zone.parse().ok().filter(|number| *number != 0);
    let scope = named.or_else(number);
    scope.ok_or_else(|| AddressError::NoInterface(zone.to_owned()))
}

#[cfg(test)]
mod tests;
