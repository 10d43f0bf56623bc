//! The format of announcements (RFC 2974 section 6).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! | V=1 |A|R|T|E|C|   auth len    |         msg id hash           |
//! |                originating source (32 or 128 bits)            |
//! |                  authentication data, auth len words          |
//! |    payload type, for example application/sdp, and a zero byte |
//! |                            payload                            |
//! ```

use std::net::IpAddr;

use sha2::{Digest as _, Sha256};

use super::PACKET_BYTES_MAX;
use crate::publish::DESCRIPTION_TYPE;

const VERSION: u8 = 1;
/// The bits of the first byte.
const IPV6: u8 = 1 << 4;
const DELETION: u8 = 1 << 2;
const ENCRYPTED: u8 = 1 << 1;
const COMPRESSED: u8 = 1;

/// The reason why bytes are not an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The packet ends before its payload.
    #[error("the packet is cut")]
    Cut,
    /// The packet is longer than [`PACKET_BYTES_MAX`].
    #[error("the packet is longer than {PACKET_BYTES_MAX} bytes")]
    TooLong,
    /// The version is not 1, the only one.
    #[error("version {0} of SAP is unknown")]
    Version(u8),
    /// The payload is encrypted.
    #[error("the payload is encrypted")]
    Encrypted,
    /// The payload is compressed.
    #[error("the payload is compressed")]
    Compressed,
    /// The payload is not a session description in SDP.
    #[error("the payload is not SDP")]
    PayloadType,
}

/// The purpose of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// A session exists: the payload describes it.
    Announcement,
    /// A session no longer exists.
    Deletion,
}

/// A packet of SAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The purpose.
    pub kind: PacketKind,
    /// A hash of the payload: with `origin`, it identifies a version of the announcement.
    pub hash: u16,
    /// The address of the announcer, as it says itself.
    pub origin: IpAddr,
    /// The description.
    pub payload: &'a str,
}

impl<'a> Packet<'a> {
    /// Returns the announcement of a description by the host with this address.
    pub fn announcement(origin: IpAddr, description: &'a str) -> Packet<'a> {
        let digest = Sha256::digest(description);
        Packet {
            kind: PacketKind::Announcement,
            // Zero once meant that there is no hash.
            hash: u16::from_be_bytes([digest[0], digest[1]]).max(1),
            origin,
            payload: description,
        }
    }

    /// Returns the bytes of the packet.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION << 5, 0];
        if self.kind == PacketKind::Deletion {
            bytes[0] |= DELETION;
        }
        bytes.extend(self.hash.to_be_bytes());
        match self.origin {
            IpAddr::V4(origin) => bytes.extend(origin.octets()),
            IpAddr::V6(origin) => {
                bytes[0] |= IPV6;
                bytes.extend(origin.octets());
            }
        }
        bytes.extend(DESCRIPTION_TYPE.bytes().chain([0]));
        bytes.extend(self.payload.bytes());
        bytes
    }

    /// Reads a packet. Authentication data is skipped.
    ///
    /// # Errors
    /// See [`PacketError`].
    pub fn decode(bytes: &'a [u8]) -> Result<Packet<'a>, PacketError> {
        if bytes.len() > PACKET_BYTES_MAX {
            return Err(PacketError::TooLong);
        }
        let (head, rest) = bytes.split_first_chunk::<4>().ok_or(PacketError::Cut)?;
        let [flags, words, hash @ ..] = *head;
        if flags >> 5 != VERSION {
            return Err(PacketError::Version(flags >> 5));
        }
        let (origin, rest) = split_origin(rest, flags).ok_or(PacketError::Cut)?;
        let rest = rest.get(4 * usize::from(words)..).ok_or(PacketError::Cut)?;
        match flags {
            _ if flags & ENCRYPTED != 0 => return Err(PacketError::Encrypted),
            _ if flags & COMPRESSED != 0 => return Err(PacketError::Compressed),
            _ => {}
        }
        Ok(Packet {
            kind: match flags & DELETION {
                0 => PacketKind::Announcement,
                _ => PacketKind::Deletion,
            },
            hash: u16::from_be_bytes(hash),
            origin,
            payload: sdp_of(rest).ok_or(PacketError::PayloadType)?,
        })
    }
}

fn split_origin(bytes: &[u8], flags: u8) -> Option<(IpAddr, &[u8])> {
    match flags & IPV6 {
        0 => bytes
            .split_first_chunk::<4>()
            .map(|(origin, rest)| ((*origin).into(), rest)),
        _ => bytes
            .split_first_chunk::<16>()
            .map(|(origin, rest)| ((*origin).into(), rest)),
    }
}

/// Returns the payload behind its type. The type may be missing, since SDP begins with `v=0`; so
/// may the description of a deletion, whose payload is an `o=` line.
fn sdp_of(bytes: &[u8]) -> Option<&str> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    if bytes.starts_with(b"v=0") || bytes.starts_with(b"o=") {
        return text(bytes);
    }
    let behind = bytes.strip_prefix(DESCRIPTION_TYPE.as_bytes())?;
    text(behind.strip_prefix(&[0])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "v=0\r\ns=news\r\n";

    #[test]
    fn a_packet_is_read_as_it_was_written() {
        for origin in ["192.0.2.1", "2001:db8::1"] {
            let mut packet = Packet::announcement(origin.parse().unwrap(), TEXT);
            let bytes = packet.encode();
            assert_eq!(Packet::decode(&bytes), Ok(packet));
            packet.kind = PacketKind::Deletion;
            assert_eq!(Packet::decode(&packet.encode()), Ok(packet));
            // 28 bytes of header in all: none of them may be missing.
            for length in 0..bytes.len() - TEXT.len() {
                assert!(Packet::decode(&bytes[..length]).is_err(), "{length}");
            }
        }
    }

    /// The bytes of section 6, written by hand.
    #[test]
    fn the_format_is_that_of_the_rfc() {
        let packet = Packet::announcement("192.0.2.1".parse().unwrap(), TEXT);
        let hash = packet.hash.to_be_bytes();
        let head = [0x20, 0, hash[0], hash[1], 192, 0, 2, 1];
        let expected = [&head[..], b"application/sdp\0v=0\r\ns=news\r\n"].concat();
        assert_eq!(packet.encode(), expected);
        // Two words of authentication data, and no payload type.
        let head = [
            0x20, 2, hash[0], hash[1], 192, 0, 2, 1, 1, 2, 3, 4, 5, 6, 7, 8,
        ];
        let bytes = [&head[..], TEXT.as_bytes()].concat();
        assert_eq!(Packet::decode(&bytes), Ok(packet));
    }

    #[test]
    fn packets_that_cannot_be_read_are_refused() {
        let packet = Packet::announcement("192.0.2.1".parse().unwrap(), TEXT).encode();
        for (flags, expected) in [
            (0x40, PacketError::Version(2)),
            (0x20 | ENCRYPTED, PacketError::Encrypted),
            (0x20 | COMPRESSED, PacketError::Compressed),
        ] {
            let mut changed = packet.clone();
            changed[0] = flags;
            assert_eq!(Packet::decode(&changed), Err(expected));
        }
        let long = [&packet[..], &[b' '; PACKET_BYTES_MAX]].concat();
        assert_eq!(Packet::decode(&long), Err(PacketError::TooLong));
        let text = [&packet[..8], b"text/plain\0v=0"].concat();
        assert_eq!(Packet::decode(&text), Err(PacketError::PayloadType));
        let binary = [&packet[..8], b"v=0\xff"].concat();
        assert_eq!(Packet::decode(&binary), Err(PacketError::PayloadType));
    }
}
