//! The message that opens a stream to a TCP server.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use bytes::{BufMut as _, Bytes};

use super::reader::Reader;
use super::{OPEN, RequestId, WireError, begin, take_terms};

/// Opens a stream to a TCP server behind a member.
///
/// ```text
///   | window, 4 | alive, 4 | to, 8 | client | local | name of the server, UTF-8 ...
///   client, local: | IPv6 address, or one mapped from IPv4, 16 | port, 2 |
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The number of the stream, from the same numbers as requests.
    pub id: RequestId,
    /// The bytes of the server that the member may send before it needs more credit.
    pub window: u32,
    /// The longest time between two signs of life of the stream, in milliseconds; not 0.
    pub alive_ms: u32,
    /// The number of the member that the stream is for; 0 for any member.
    pub to: u64,
    /// The address of the client, for servers that read the PROXY protocol.
    pub client: SocketAddr,
    /// The address to which the client has connected.
    pub local: SocketAddr,
    /// The server as HOST:PORT, which has to be one of the member; empty for its only one.
    pub server: String,
}

/// The longest name of a server: a domain name and a port.
const SERVER_BYTES_MAX: usize = 260;

impl Open {
    /// Encodes the message.
    pub fn encode(&self) -> Bytes {
        let mut bytes = begin(OPEN, 0, self.id.0, 64 + self.server.len());
        bytes.put_u32(self.window);
        bytes.put_u32(self.alive_ms);
        bytes.put_u64(self.to);
        for address in [self.client, self.local] {
            let ip = match address.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            bytes.put_slice(&ip.octets());
            bytes.put_u16(address.port());
        }
        super::finish(bytes, self.server.as_bytes())
    }

    pub(super) fn decode(id: RequestId, reader: &mut Reader<'_>) -> Result<Open, WireError> {
        let (window, alive_ms, to) = take_terms(reader)?;
        let (client, local) = (take_address(reader)?, take_address(reader)?);
        let server = reader.take_rest();
        let server = std::str::from_utf8(&server).ok();
        let server = server.filter(|server| server.len() <= SERVER_BYTES_MAX);
        Ok(Open {
            id,
            window,
            alive_ms,
            to,
            client,
            local,
            server: server
                .ok_or(WireError::Range("name of the server"))?
                .to_owned(),
        })
    }
}

fn take_address(reader: &mut Reader<'_>) -> Result<SocketAddr, WireError> {
    let ip = Ipv6Addr::from(reader.take_array::<16>()?).to_canonical();
    Ok(SocketAddr::new(ip, reader.take_u16()?))
}
