//! The seven AMT messages on the wire (RFC 7450, section 5.1).
//!
//! Encapsulated IP datagrams remain borrowed bytes, which [`membership`](super::membership) and
//! [`ip`](super::ip) decode.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

use super::Family;

/// UDP port assigned to AMT relays (RFC 7450, section 7.2).
pub const AMT_PORT: u16 = 2268;

/// Bytes before the IP datagram in a Multicast Data message (RFC 7450, section 5.1.6).
pub const DATA_HEADER_LEN: usize = 2;

const GATEWAY_ADDRESS_LEN: usize = 18;

/// The 48-bit value by which a relay recognises answers to its own Membership Query (RFC 7450,
/// section 5.1.4.6). It is opaque to a gateway.
pub type ResponseMac = [u8; 6];

/// A gateway's address as its relay sees it (RFC 7450, section 5.1.4.9).
///
/// An IPv4 address is kept in the IPv4-compatible IPv6 form that the wire uses. There is no
/// conversion back to a socket address, which would be ambiguous: `::1` and `0.0.0.1` have the same
/// form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GatewayAddress {
    /// IPv6 address, or an IPv4 address after 96 zero bits.
    pub ip: Ipv6Addr,
    /// UDP port.
    pub port: u16,
}

impl From<SocketAddr> for GatewayAddress {
    fn from(address: SocketAddr) -> Self {
        let ip = match address.ip().to_canonical() {
            IpAddr::V4(ip) => Ipv6Addr::from(u128::from(ip.to_bits())),
            IpAddr::V6(ip) => ip,
        };
        Self {
            ip,
            port: address.port(),
        }
    }
}

impl GatewayAddress {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.port.to_be_bytes());
        out.extend_from_slice(&self.ip.octets());
    }

    fn decode(field: &[u8; GATEWAY_ADDRESS_LEN]) -> Self {
        let [p0, p1, ip @ ..] = *field;
        Self {
            ip: Ipv6Addr::from(ip),
            port: u16::from_be_bytes([p0, p1]),
        }
    }
}

/// One AMT message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Gateway to relay: asks for the relay's unicast address (section 5.1.1).
    RelayDiscovery {
        /// Discovery Nonce, echoed by the relay.
        nonce: u32,
    },
    /// Relay to gateway: gives the relay's unicast address (section 5.1.2).
    RelayAdvertisement {
        /// Discovery Nonce of the Relay Discovery.
        nonce: u32,
        /// The relay's unicast address.
        relay: IpAddr,
    },
    /// Gateway to relay: asks for a Membership Query (section 5.1.3).
    Request {
        /// Request Nonce, echoed by the relay.
        nonce: u32,
        /// P flag: whether the gateway wants an IGMPv3 (V4) or MLDv2 (V6) query.
        family: Family,
    },
    /// Relay to gateway: a general query, and the MAC that authorises the answer (section 5.1.4).
    MembershipQuery {
        /// L flag: whether the relay refuses new gateways.
        limit: bool,
        /// MAC that a Membership Update must contain.
        mac: ResponseMac,
        /// Request Nonce of the Request.
        nonce: u32,
        /// IP datagram with the IGMPv3 or MLDv2 general query, and all bytes after it.
        query: &'a [u8],
        /// The gateway's address, from a relay that accepts Teardown messages (G flag).
        gateway: Option<GatewayAddress>,
    },
    /// Gateway to relay: reports joins and leaves (section 5.1.5).
    MembershipUpdate {
        /// Response MAC of the Membership Query.
        mac: ResponseMac,
        /// Request Nonce of the Membership Query.
        nonce: u32,
        /// IP datagram with the IGMP or MLD report.
        report: &'a [u8],
    },
    /// Relay to gateway: carries one multicast packet (section 5.1.6).
    MulticastData {
        /// The complete IP datagram.
        datagram: &'a [u8],
    },
    /// Gateway to relay: ends a tunnel (section 5.1.7).
    Teardown {
        /// Response MAC of the last Membership Query.
        mac: ResponseMac,
        /// Request Nonce of the last Membership Query.
        nonce: u32,
        /// Gateway address of the tunnel to end, from the last Membership Query.
        gateway: GatewayAddress,
    },
}

/// The reason why a UDP payload is not an AMT message. The receiver ignores the payload (RFC 7450,
/// sections 5.2.3.2 and 5.3.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// The message ends within its fixed fields.
    #[error("an AMT message of {len} bytes is cut short: ignore it")]
    Truncated {
        /// Length of the UDP payload in bytes.
        len: usize,
    },
    /// The message has a version other than 0.
    #[error("AMT version {0} is unknown, only 0 is defined: ignore the message")]
    Version(u8),
    /// The message has an undefined type.
    #[error("AMT message type {0} is unknown, 1 to 7 are defined: ignore the message")]
    Type(u8),
    /// The address in a Relay Advertisement is neither IPv4 nor IPv6.
    #[error("a relay address has 4 or 16 bytes, not {0}: ignore the advertisement")]
    RelayAddressLength(usize),
}

impl<'a> Message<'a> {
    /// Decodes the message in one UDP payload. Ignores bytes after the fixed fields of messages
    /// without a body.
    pub fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut fields = Fields {
            rest: payload,
            len: payload.len(),
        };
        let [first, flags] = fields.take()?;
        if first >> 4 != 0 {
            return Err(WireError::Version(first >> 4));
        }
        match first & 0x0f {
            1 => fields.reserved().and_then(|()| {
                Ok(Self::RelayDiscovery {
                    nonce: fields.nonce()?,
                })
            }),
            2 => fields
                .reserved()
                .and_then(|()| fields.relay_advertisement()),
            3 => fields.reserved().and_then(|()| {
                Ok(Self::Request {
                    nonce: fields.nonce()?,
                    family: Family::from_p_flag(flags & 1 != 0),
                })
            }),
            4 => fields.membership_query(flags),
            5 => Ok(Self::MembershipUpdate {
                mac: fields.take()?,
                nonce: fields.nonce()?,
                report: fields.rest,
            }),
            6 => Ok(Self::MulticastData {
                datagram: fields.rest,
            }),
            7 => Ok(Self::Teardown {
                mac: fields.take()?,
                nonce: fields.nonce()?,
                gateway: GatewayAddress::decode(&fields.take()?),
            }),
            other => Err(WireError::Type(other)),
        }
    }

    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::RelayDiscovery { nonce } => put(out, &[&[1, 0, 0, 0], &nonce.to_be_bytes()]),
            Self::RelayAdvertisement { nonce, relay } => {
                put(out, &[&[2, 0, 0, 0], &nonce.to_be_bytes()]);
                match relay {
                    IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
                    IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
                }
            }
            Self::Request { nonce, family } => put(
                out,
                &[&[3, u8::from(family.p_flag()), 0, 0], &nonce.to_be_bytes()],
            ),
            Self::MembershipQuery {
                limit,
                mac,
                nonce,
                query,
                gateway,
            } => {
                let flags = u8::from(*limit) << 1 | u8::from(gateway.is_some());
                put(out, &[&[4, flags], mac, &nonce.to_be_bytes(), query]);
                gateway.iter().for_each(|gateway| gateway.encode(out));
            }
            Self::MembershipUpdate { mac, nonce, report } => {
                put(out, &[&[5, 0], mac, &nonce.to_be_bytes(), report])
            }
            Self::MulticastData { datagram } => put(out, &[&data_header(), datagram]),
            Self::Teardown {
                mac,
                nonce,
                gateway,
            } => {
                put(out, &[&[7, 0], mac, &nonce.to_be_bytes()]);
                gateway.encode(out);
            }
        }
    }
}

/// Returns the bytes before the IP datagram in a Multicast Data message, for a relay that builds
/// the datagram in place.
pub const fn data_header() -> [u8; DATA_HEADER_LEN] {
    [6, 0]
}

fn put(out: &mut Vec<u8>, fields: &[&[u8]]) {
    fields.iter().for_each(|field| out.extend_from_slice(field));
}

/// The part of a message that is not decoded yet.
struct Fields<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (field, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(WireError::Truncated { len: self.len })?;
        self.rest = rest;
        Ok(*field)
    }

    fn nonce(&mut self) -> Result<u32, WireError> {
        self.take().map(u32::from_be_bytes)
    }

    /// Skips the second half of the first word, which is reserved in three messages.
    fn reserved(&mut self) -> Result<(), WireError> {
        self.take::<2>().map(|_| ())
    }

    fn relay_advertisement(&mut self) -> Result<Message<'a>, WireError> {
        let nonce = self.nonce()?;
        let v4 = |bytes: [u8; 4]| Ipv4Addr::from(bytes).into();
        let v6 = |bytes: [u8; 16]| Ipv6Addr::from(bytes).into();
        let relay = match self.rest.len() {
            4 => v4(self.take()?),
            16 => v6(self.take()?),
            other => return Err(WireError::RelayAddressLength(other)),
        };
        Ok(Message::RelayAdvertisement { nonce, relay })
    }

    /// Decodes a Membership Query. The gateway's address is at the end of the payload, wherever the
    /// query ends (section 5.1.4.9).
    fn membership_query(&mut self, flags: u8) -> Result<Message<'a>, WireError> {
        let (mac, nonce) = (self.take()?, self.nonce()?);
        let (query, gateway) = if flags & 1 == 0 {
            (self.rest, None)
        } else {
            let (query, address) = self
                .rest
                .split_last_chunk()
                .ok_or(WireError::Truncated { len: self.len })?;
            (query, Some(GatewayAddress::decode(address)))
        };
        Ok(Message::MembershipQuery {
            limit: flags & 2 != 0,
            mac,
            nonce,
            query,
            gateway,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn family() -> impl Strategy<Value = Family> {
        prop_oneof![Just(Family::V4), Just(Family::V6)]
    }

    fn gateway() -> impl Strategy<Value = GatewayAddress> {
        any::<SocketAddr>().prop_map(GatewayAddress::from)
    }

    fn encoded(message: &Message) -> Vec<u8> {
        let mut out = Vec::new();
        message.encode(&mut out);
        out
    }

    proptest! {
        #[test]
        fn every_message_survives_the_wire(
            (nonce, relay, family) in (any::<u32>(), any::<IpAddr>(), family()),
            (mac, limit, gateway) in (any::<ResponseMac>(), any::<bool>(), gateway()),
            body in proptest::collection::vec(any::<u8>(), 0..100),
            with_gateway in any::<bool>(),
        ) {
            let messages = [
                Message::RelayDiscovery { nonce },
                Message::RelayAdvertisement { nonce, relay },
                Message::Request { nonce, family },
                Message::MembershipQuery { limit, mac, nonce, query: &body, gateway: with_gateway.then_some(gateway) },
                Message::MembershipUpdate { mac, nonce, report: &body },
                Message::MulticastData { datagram: &body },
                Message::Teardown { mac, nonce, gateway },
            ];
            for message in messages {
                let bytes = encoded(&message);
                prop_assert_eq!(Message::decode(&bytes), Ok(message));
            }
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Message::decode(&bytes);
        }
    }

    #[test]
    fn a_message_cut_within_its_fixed_fields_is_refused() {
        let gateway = GatewayAddress::from(SocketAddr::from(([192, 0, 2, 1], 7)));
        let messages = [
            Message::RelayDiscovery { nonce: 1 },
            Message::Request {
                nonce: 1,
                family: Family::V6,
            },
            Message::MembershipQuery {
                limit: false,
                mac: [1; 6],
                nonce: 1,
                query: &[],
                gateway: Some(gateway),
            },
            Message::MembershipUpdate {
                mac: [1; 6],
                nonce: 1,
                report: &[],
            },
            Message::Teardown {
                mac: [1; 6],
                nonce: 1,
                gateway,
            },
        ];
        for bytes in messages.iter().map(encoded) {
            for len in 0..bytes.len() {
                assert_eq!(
                    Message::decode(&bytes[..len]),
                    Err(WireError::Truncated { len })
                );
            }
        }
    }

    #[test]
    fn other_versions_types_and_address_lengths_are_refused() {
        assert_eq!(
            Message::decode(&[0x11, 0, 0, 0, 0, 0, 0, 0]),
            Err(WireError::Version(1))
        );
        assert_eq!(Message::decode(&[8, 0]), Err(WireError::Type(8)));
        assert_eq!(
            Message::decode(&[2, 0, 0, 0, 0, 0, 0, 1, 9, 9, 9]),
            Err(WireError::RelayAddressLength(3))
        );
    }

    #[test]
    fn an_ipv4_gateway_travels_as_ipv4_compatible_ipv6_and_a_mapped_one_alike() {
        let plain = GatewayAddress::from(SocketAddr::from(([192, 0, 2, 1], 5)));
        let mapped = GatewayAddress::from("[::ffff:192.0.2.1]:5".parse::<SocketAddr>().unwrap());
        assert_eq!(plain.ip, "::192.0.2.1".parse::<Ipv6Addr>().unwrap());
        assert_eq!(plain, mapped);
    }
}
