//! Explicit congestion notification: the two bits of IP headers, of packets and as bytes.
//!
//! Tunnels copy the field: [`Ecn::decapsulated`] is the egress of RFC 6040, whose ingress writes
//! the inner header's field into the outer one (section 4.1, normal mode).

/// The offset of an IPv4 header's checksum (RFC 791 section 3.1).
const CHECKSUM_AT: usize = 10;
/// The length of an IPv4 header without options.
const IPV4_BYTES: usize = 20;

/// Explicit congestion notification (RFC 3168 section 5).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The transport does not support ECN: a router drops the packet instead of marking it.
    #[default]
    NotCapable,
    /// ECT(0): a router may mark the packet.
    Capable,
    /// ECT(1): a router may mark the packet, and its sender's congestion control is scalable, as
    /// L4S requires (RFC 9331).
    L4s,
    /// CE: a router has marked the packet.
    Marked,
}

impl Ecn {
    /// Returns the field with these bits, of which only the lower two count.
    pub fn from_bits(bits: u8) -> Ecn {
        match bits & 3 {
            0 => Ecn::NotCapable,
            1 => Ecn::L4s,
            2 => Ecn::Capable,
            _ => Ecn::Marked,
        }
    }

    /// Returns the two bits of the field.
    pub fn bits(self) -> u8 {
        match self {
            Ecn::NotCapable => 0,
            Ecn::L4s => 1,
            Ecn::Capable => 2,
            Ecn::Marked => 3,
        }
    }

    /// Returns the field of an IPv4 or IPv6 datagram; not capable if it is neither.
    #[inline]
    pub fn of_datagram(datagram: &[u8]) -> Ecn {
        match datagram {
            [first, second, ..] if first >> 4 == 4 => Ecn::from_bits(*second),
            [first, second, ..] if first >> 4 == 6 => Ecn::from_bits(second >> 4),
            _ => Ecn::NotCapable,
        }
    }

    /// Writes the field into an IPv4 or IPv6 datagram, and corrects the checksum of an IPv4 header
    /// (RFC 1624). Does nothing to other bytes.
    pub fn write_into(self, datagram: &mut [u8]) {
        match datagram {
            [first, second, ..] if *first >> 4 == 6 => *second = *second & !0x30 | self.bits() << 4,
            [first, ..] if *first >> 4 == 4 => {
                if let Some(header) = datagram.first_chunk_mut::<IPV4_BYTES>() {
                    self.write_into_ipv4(header);
                }
            }
            _ => {}
        }
    }

    fn write_into_ipv4(self, header: &mut [u8; IPV4_BYTES]) {
        let word = |header: &[u8; IPV4_BYTES], at| u16::from_be_bytes([header[at], header[at + 1]]);
        let before = word(header, 0);
        header[1] = header[1] & !3 | self.bits();
        let sum = corrected(word(header, CHECKSUM_AT), before, word(header, 0));
        header[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
    }

    /// Returns the field of a datagram that leaves a tunnel, from that of its own header and that
    /// of the outer one (RFC 6040 section 4.2, figure 4). `None` if the datagram has to be dropped:
    /// a router in the tunnel has marked a packet that does not support ECN.
    pub fn decapsulated(inner: Ecn, outer: Ecn) -> Option<Ecn> {
        match (inner, outer) {
            (Ecn::NotCapable, Ecn::Marked) => None,
            (Ecn::NotCapable | Ecn::Marked, _) => Some(inner),
            (_, Ecn::Marked) => Some(Ecn::Marked),
            (_, Ecn::L4s) => Some(Ecn::L4s),
            (_, Ecn::NotCapable | Ecn::Capable) => Some(inner),
        }
    }
}

/// Returns the checksum after one of the words that it covers has changed (RFC 1624, Eq. 3).
fn corrected(sum: u16, before: u16, after: u16) -> u16 {
    let total = u32::from(!sum) + u32::from(!before) + u32::from(after);
    let folded = (total & 0xffff) + (total >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !(folded as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Ecn::{Capable, L4s, Marked, NotCapable};

    #[test]
    fn the_tunnel_egress_is_the_table_of_rfc_6040() {
        let outer = [NotCapable, Capable, L4s, Marked];
        let table = [
            (
                NotCapable,
                [Some(NotCapable), Some(NotCapable), Some(NotCapable), None],
            ),
            (
                Capable,
                [Some(Capable), Some(Capable), Some(L4s), Some(Marked)],
            ),
            (L4s, [Some(L4s), Some(L4s), Some(L4s), Some(Marked)]),
            (
                Marked,
                [Some(Marked), Some(Marked), Some(Marked), Some(Marked)],
            ),
        ];
        for (inner, row) in table {
            for (outer, expected) in outer.into_iter().zip(row) {
                let found = Ecn::decapsulated(inner, outer);
                assert_eq!(found, expected, "{inner:?} in {outer:?}");
            }
        }
    }

    #[test]
    fn a_field_that_is_written_is_read_back() {
        for ecn in [NotCapable, Capable, L4s, Marked] {
            assert_eq!(Ecn::from_bits(ecn.bits()), ecn);
            let mut ipv6 = [0x6a, 0xad, 0xcd, 0xef];
            ecn.write_into(&mut ipv6);
            assert_eq!(Ecn::of_datagram(&ipv6), ecn);
            // The traffic class and the flow label keep their other bits.
            assert_eq!((ipv6[0], ipv6[1] & !0x30, ipv6[2]), (0x6a, 0x8d, 0xcd));
            let mut other = [0x10, 3];
            ecn.write_into(&mut other);
            assert_eq!((other, Ecn::of_datagram(&other)), ([0x10, 3], NotCapable));
        }
    }

    #[test]
    fn the_checksum_of_an_ipv4_header_remains_right() {
        let total = |header: &[u8; IPV4_BYTES]| {
            let words = header.chunks_exact(2);
            let sum: u32 = words
                .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
                .sum();
            (sum & 0xffff) + (sum >> 16)
        };
        // A header of RFC 1071's kind: its words add up to ones.
        let mut header = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8,
            0, 0xc7,
        ];
        assert_eq!(total(&header), 0xffff);
        for ecn in [Capable, Marked, L4s, NotCapable] {
            ecn.write_into(&mut header);
            assert_eq!((Ecn::of_datagram(&header), total(&header)), (ecn, 0xffff));
        }
    }
}
