//! Captures the packets that cross links, in wire format, for protocol analysers.
//!
//! ```text
//!   WEBRC:  IPv4 | UDP | LCT with the CCI | FEC Payload ID | zeros        TCP:  IPv4 | TCP with SACK | zeros
//!   CBR:    IPv4 | UDP | sequence number  | zeros
//!
//!   an overlay's streams:            IPv4 | TCP | length | the message's header | zeros
//!   its datagrams, and its clients:  IPv4 | UDP | the frame's header | zeros
//! ```
//!
//! A frame has the length that links count for the packet. TCP and CBR count their headers in
//! addition to the payload. WEBRC's packet length includes them (LENP of RFC 3738 is the length
//! that links count here), so IP, UDP and LCT take their bytes from the payload. An overlay's
//! streams number their segments, whose lengths differ. Analysers that take these numbers for bytes
//! will report overlapping segments.
//!
//! | file | contents |
//! |---|---|
//! | `addresses.rs` | the addresses and ports of nodes, endpoints and channels |
//! | `frame.rs` | the encoding of packets |
//! | `pcap.rs` | the format of capture files |

mod addresses;
mod frame;
mod pcap;

use std::collections::BTreeSet;
use std::io::{self, Write};

pub use addresses::{Addresses, End, Flow, PortsExhausted, node_address};
pub use frame::{Framed, encode};
use manyflow_core::{Header, Packet, Time};
use pcap::PcapWriter;

use crate::LinkId;

/// Writes the packets that some links deliver to a capture file.
pub struct Capture<'a> {
    links: BTreeSet<LinkId>,
    addresses: Addresses,
    writer: PcapWriter<&'a mut dyn Write>,
    /// The current frame. It is kept so that packets need no memory of their own.
    frame: Vec<u8>,
}

impl<'a> Capture<'a> {
    /// Begins a capture of the packets that `links` deliver. These links have to be
    /// [tapped](crate::Network::tap).
    ///
    /// # Errors
    /// Returns the errors of the output.
    pub fn new(
        links: BTreeSet<LinkId>,
        addresses: Addresses,
        out: &'a mut dyn Write,
    ) -> io::Result<Capture<'a>> {
        Ok(Capture {
            links,
            addresses,
            writer: PcapWriter::new(out)?,
            frame: Vec::new(),
        })
    }

    /// Writes a packet that `link` delivers. Ignores packets of links that are not captured.
    ///
    /// # Errors
    /// Returns the errors of the output.
    pub fn on_tapped<H: Header + Framed>(
        &mut self,
        now: Time,
        link: LinkId,
        packet: &Packet<H>,
    ) -> io::Result<()> {
        if !self.links.contains(&link) {
            return Ok(());
        }
        match packet.header.is_whole() {
            true => frame::copy_whole(packet, &mut self.frame),
            false => {
                let flow = self.addresses.flow_of(packet);
                frame::encode(packet, &flow, &mut self.frame);
            }
        }
        self.writer.write(now, &self.frame)
    }

    /// Flushes the output.
    ///
    /// # Errors
    /// Returns the errors of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}
