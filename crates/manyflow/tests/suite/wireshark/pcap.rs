//! Capture files of datagrams and of streams, as `contrib/wireshark` reads them.

use std::net::Ipv4Addr;
use std::path::Path;

/// An address and a port.
pub(crate) type Socket = (Ipv4Addr, u16);

/// An address to which all protocols but multicast ones send.
pub(crate) const UNICAST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// An address from which packets come.
pub(crate) const SENDER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

const UDP: u8 = 17;
const TCP: u8 = 6;
/// PSH and ACK.
const PUSH: u8 = 0x18;
const IP_BYTES: usize = 20;
/// The bytes of a segment of TCP.
const SEGMENT_BYTES: usize = 1400;

/// A capture of IPv4 packets, without checksums.
pub(crate) struct Pcap {
    bytes: Vec<u8>,
    frames: u32,
}

impl Pcap {
    pub(crate) fn new() -> Pcap {
        let mut bytes = Vec::new();
        // Magic, versions 2 and 4, two reserved words, the snap length, LINKTYPE_RAW.
        for word in [0xa1b2_3c4d_u32, 4 << 16 | 2, 0, 0, 65_535, 101] {
            bytes.extend(word.to_le_bytes());
        }
        Pcap { bytes, frames: 0 }
    }

    /// Appends a datagram. Returns the number of its frame, from 1.
    pub(crate) fn udp(&mut self, from: Socket, to: Socket, payload: &[u8]) -> u32 {
        self.udp_cut(from, to, payload, usize::MAX)
    }

    /// Appends a datagram of which the capture has at most `kept` bytes of the payload.
    pub(crate) fn udp_cut(&mut self, from: Socket, to: Socket, payload: &[u8], kept: usize) -> u32 {
        let length = 8 + payload.len() as u16;
        let mut packet = ip(UDP, from.0, to.0, length);
        for half in [from.1, to.1, length, 0] {
            packet.extend(half.to_be_bytes());
        }
        packet.extend(payload);
        let kept = packet.len() - payload.len().saturating_sub(kept);
        self.frame(&packet, kept)
    }

    /// Appends bytes of a stream, in segments. `sequence` is the place of the first byte. Returns
    /// the numbers of the frames.
    pub(crate) fn tcp(
        &mut self,
        from: Socket,
        to: Socket,
        sequence: u32,
        bytes: &[u8],
    ) -> Vec<u32> {
        let mut numbers = Vec::new();
        for (place, segment) in bytes.chunks(SEGMENT_BYTES).enumerate() {
            let mut packet = ip(TCP, from.0, to.0, 20 + segment.len() as u16);
            packet.extend(from.1.to_be_bytes());
            packet.extend(to.1.to_be_bytes());
            let sequence = sequence + (place * SEGMENT_BYTES) as u32;
            packet.extend(sequence.to_be_bytes());
            packet.extend(1_u32.to_be_bytes());
            packet.extend([5 << 4, PUSH, 0xff, 0xff, 0, 0, 0, 0]);
            packet.extend(segment);
            numbers.push(self.frame(&packet, packet.len()));
        }
        numbers
    }

    /// Appends the first `kept` bytes of a packet.
    fn frame(&mut self, packet: &[u8], kept: usize) -> u32 {
        self.frames += 1;
        // A frame in each millisecond.
        let (seconds, nanos) = (self.frames / 1000, self.frames % 1000 * 1_000_000);
        for word in [seconds, nanos, kept as u32, packet.len() as u32] {
            self.bytes.extend(word.to_le_bytes());
        }
        self.bytes.extend(&packet[..kept]);
        self.frames
    }

    pub(crate) fn write(&self, path: &Path) {
        std::fs::write(path, &self.bytes).unwrap();
    }
}

fn ip(protocol: u8, from: Ipv4Addr, to: Ipv4Addr, payload: u16) -> Vec<u8> {
    let length = (IP_BYTES as u16 + payload).to_be_bytes();
    let mut header = vec![0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, protocol];
    header.extend([0, 0]);
    header.extend(from.octets());
    header.extend(to.octets());
    header
}
