//! The session description: everything that a receiver must know before it joins (RFC 5775 section
//! 2.4, RFC 3738 section 3.2.1). It is an SDP file (RFC 8866) with the attributes of "SDP
//! Descriptors for FLUTE" (draft-ietf-rmt-flute-sdp-03), the source filter of RFC 4570 and
//! manyflow's own attributes `webrc`, `fdt-digest`, `fdt-key`, `ext-auth`, `amt-relay`,
//! `completion` and `signature`:
//!
//! ```text
//! v=0
//! o=- 7 3976214400 IN IP4 192.0.2.1
//! s=nightly build
//! t=0 0
//! a=source-filter: incl IN IP4 * 192.0.2.1
//! a=flute-tsi:7
//! a=flute-ch:46
//! a=FEC-declaration:0 encoding-id=6
//! a=webrc:N=15;Q=30;TSD=10;BCR=1;P=0.75;LENP=1400;SR=2000000;constant=1;CCI=short;EL=0.5
//! a=fdt-digest:sha-256 a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5
//! a=ext-auth:0 hmac-sha-256-128
//! a=amt-relay:relay.example.net:2268
//! a=completion:192.0.2.1:5446 400
//! m=application 5000 FLUTE/UDP *
//! c=IN IP4 232.1.2.0/1/46
//! a=FEC:0
//! a=signature:ed25519:KEY SIGNATURE
//! ```
//!
//! The channel with number CN (RFC 3738 section 5.1) has the address of the first group plus CN.
//! The base channel, CN = T, is the last. Other attributes are ignored.
//!
//! The signature is optional, covers all other lines, and is the last line. It proves who wrote the
//! description, but not that the description is the newest one. The version in `o=` is the time of
//! writing, so that a user can notice an old description.
//!
//! RFC 6726 permits a sender to change its table of files by new FDT Instances. A description names
//! the digest of one table, so a session of files has one: a sender with other files starts another
//! session with another description. A session of an image has an FDT Instance for each section,
//! and its description has the key that signs them instead of a digest:
//!
//! ```text
//! a=fdt-key:ed25519:tpS2AsPKAC4K+cnZSuBI6yi0YfWCkEGLy/bZ5PTHCBY=
//! ```

mod completion;
mod digest;
mod protection;
mod text;
mod webrc;

use std::net::IpAddr;
use std::time::SystemTime;

use manyflow_net::description::error::{in_range, invalid, require};
use manyflow_net::description::{
    DescriptionError, HostPort, check_addresses, check_name, group_after, time_of_ntp,
};
use manyflow_net::keys::PublicKey;

pub use completion::Completion;
pub(crate) use digest::from_digits as digest_from_digits;
pub use protection::Protection;
pub use webrc::{CciFormat, WebrcParameters};

/// Maximum of a Transport Session Identifier: 48 bits (RFC 5651 section 5.1).
const TSI_MAX: u64 = (1 << 48) - 1;

/// A session as its receivers see it.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionDescription {
    /// The session's name for people: 1 to 255 bytes without control characters.
    pub name: String,
    /// Transport Session Identifier, of at most 48 bits. Together with `source`, it identifies the
    /// session.
    pub tsi: u64,
    /// The time at which the description was written, in seconds of NTP as RFC 8866 section 5.2
    /// recommends (sess-version); see [`ntp_seconds`](manyflow_net::description::ntp_seconds).
    /// Other programs may count from 1.
    pub version: u64,
    /// The unicast source address of the packets.
    pub source: IpAddr,
    /// The group of channel 0, of the same IP version as `source`. Its range determines whether
    /// receivers join with the source
    /// ([`is_source_specific`](manyflow_net::multicast::is_source_specific)) or without it.
    pub first_group: IpAddr,
    /// The UDP port of all groups.
    pub port: u16,
    /// IPv4's time to live; `None` with IPv6, whose descriptions do not contain it (RFC 8866
    /// section 5.7).
    pub ttl: Option<u8>,
    /// FEC Encoding ID: 0 (no code, RFC 5445) or 6 (RaptorQ, RFC 6330).
    pub fec_encoding_id: u8,
    /// The SHA-256 of the session's table of files, which is the same for the whole session. It
    /// makes the description the root of trust: a receiver that trusts it can check all files.
    /// `None` for sessions of other senders.
    pub table_sha256: Option<[u8; 32]>,
    /// The key that signs the tables of the sections of an image, which a session has instead of
    /// the digest of a table of files.
    pub table_key: Option<PublicKey>,
    /// How a group key protects packets; `None` if there is no group key.
    pub protection: Option<Protection>,
    /// An AMT relay (RFC 7450) for receivers without multicast.
    pub amt_relay: Option<HostPort>,
    /// Where and when receivers report that they have all files; `None` if the sender does not
    /// count them.
    pub completion: Option<Completion>,
    /// Parameters of the rate control, which determine the number of channels.
    pub webrc: WebrcParameters,
}

impl SessionDescription {
    /// Returns the time at which the description was written; `None` if its version is no time
    /// after 1970.
    pub fn written(&self) -> Option<SystemTime> {
        time_of_ntp(self.version)
    }

    /// Returns the part of the description that identifies what is sent: the digest of the table of
    /// files, or the key of an image. `None` for sessions of other senders.
    pub fn content_id(&self) -> Option<[u8; 32]> {
        let key = self.table_key.as_ref();
        self.table_sha256.or(key.map(|key| *key.bytes()))
    }

    /// Returns the number of channels and groups of the session: T+1 (RFC 3738 section 3.1.1).
    pub fn channels(&self) -> u32 {
        self.webrc.wave_channels() + 1
    }

    /// Returns the group of a channel by its number: 0 to T-1 are the waves, T is the base channel.
    pub fn group(&self, channel: u32) -> Option<IpAddr> {
        (channel < self.channels()).then(|| group_after(self.first_group, channel))?
    }

    /// Checks the properties of every description that is written or read.
    fn check(&self) -> Result<(), DescriptionError> {
        check_name(&self.name)?;
        in_range("a=flute-tsi", self.tsi, 0..=TSI_MAX)?;
        in_range("the port in m=", self.port, 1..=u16::MAX)?;
        let id = self.fec_encoding_id;
        require(
            matches!(id, 0 | 6),
            "the FEC encoding-id",
            id,
            "0 (no code) or 6 (RaptorQ)",
        )?;
        if self.table_sha256.is_some() && self.table_key.is_some() {
            return Err(invalid(
                "a=fdt-key",
                "both",
                "either a=fdt-key or a=fdt-digest",
            ));
        }
        if let Some(relay) = &self.amt_relay {
            relay.check("a=amt-relay")?;
        }
        if let Some(completion) = &self.completion {
            completion.check()?;
        }
        self.webrc.check()?;
        check_addresses(self.source, self.first_group, self.ttl, self.channels())
    }
}
