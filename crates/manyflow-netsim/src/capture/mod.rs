//! Captures: what crosses a link, in wire format, as other tools read it.
//!
//! ```text
//!   WEBRC:  IPv4 | UDP | LCT with the CCI | FEC Payload ID | zeros        TCP:  IPv4 | TCP with SACK | zeros
//!   CBR:    IPv4 | UDP | sequence number  | zeros
//!
//!   an overlay's streams:            IPv4 | TCP | length | the message's header | zeros
//!   its datagrams, and its clients:  IPv4 | UDP | the frame's header | zeros
//! ```
//!
//! A frame has the length that links charge for the packet. TCP and CBR count their headers apart
//! from the payload; of WEBRC's packet length they are a part (LENP of RFC 3738 is what links
//! charge here), so IP, UDP and LCT take their bytes from the payload. An overlay's streams number
//! their segments, as these have all lengths: tools that take the numbers for bytes will think that
//! they overlap.
//!
//! | file | what it holds |
//! |---|---|
//! | `addresses.rs` | nodes, endpoints and channels as addresses and ports |
//! | `frame.rs` | a packet as bytes |
//! | `pcap.rs` | the file's format |

mod addresses;
mod frame;
mod pcap;

use std::collections::BTreeSet;
use std::io::{self, Write};

pub use addresses::{Addresses, End, Flow, PortsExhausted};
pub use frame::{Framed, encode};
use manyflow_core::{Header, Packet, Time};
use pcap::PcapWriter;

use crate::LinkId;

/// Writes the packets that some links deliver to a capture file.
pub struct Capture<'a> {
    links: BTreeSet<LinkId>,
    addresses: Addresses,
    writer: PcapWriter<&'a mut dyn Write>,
    /// The present frame; kept so that no packet needs memory of its own.
    frame: Vec<u8>,
}

impl<'a> Capture<'a> {
    /// Begins a capture of what `links` deliver. They have to be
    /// [tapped](crate::Network::tap).
    ///
    /// # Errors
    /// Those of the output.
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

    /// Writes a packet that `link` delivers. Ignores links that are not captured.
    ///
    /// # Errors
    /// Those of the output.
    pub fn on_tapped<H: Header + Framed>(
        &mut self,
        now: Time,
        link: LinkId,
        packet: &Packet<H>,
    ) -> io::Result<()> {
        if !self.links.contains(&link) {
            return Ok(());
        }
        let flow = self.addresses.flow_of(packet);
        frame::encode(packet, &flow, &mut self.frame);
        self.writer.write(now, &self.frame)
    }

    /// Writes what is left in buffers.
    ///
    /// # Errors
    /// Those of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}
