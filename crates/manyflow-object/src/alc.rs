//! ALC packets (RFC 5775): an LCT header, an FEC Payload ID and one encoding symbol.

use crate::error::PacketError;
use crate::lct::{self, EXT_CENC, EXT_FDT, EXT_FTI};

/// Length of the FEC Payload ID in bytes, in both supported FEC schemes.
pub const PAYLOAD_ID_BYTES: usize = 4;

/// A decoded packet; it borrows from the datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The LCT header; its `cci` belongs to rate control.
    pub header: lct::Header<'a>,
    /// EXT_FDT, if the packet has one.
    pub fdt: Option<FdtHeader>,
    /// The content encoding of an FDT Instance (EXT_CENC); 0 means none.
    pub content_encoding: u8,
    /// The content of EXT_FTI, in the format of the codepoint's FEC scheme.
    pub fti: Option<&'a [u8]>,
    /// The encoding symbol; `None` in a packet that only closes the session.
    pub symbol: Option<Symbol<'a>>,
}

/// EXT_FDT (RFC 6726 section 3.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FdtHeader {
    /// The FLUTE version: 2 in RFC 6726.
    pub version: u8,
    /// The FDT Instance ID, 20 bits.
    pub instance: u32,
}

/// An encoding symbol and where it belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// The object's identifier (TOI).
    pub toi: u128,
    /// Block number and symbol number, split according to the FEC scheme.
    pub payload_id: [u8; PAYLOAD_ID_BYTES],
    /// The symbol's bytes.
    pub data: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Decodes a datagram.
    ///
    /// # Errors
    /// [`PacketError`] if the datagram is not an ALC packet. The symbol's identifier and length are
    /// not checked, because the object is not known here.
    pub fn decode(datagram: &'a [u8]) -> Result<Self, PacketError> {
        let (header, rest) = lct::Header::decode(datagram)?;
        Ok(Packet {
            fdt: header.extension(EXT_FDT).and_then(FdtHeader::decode),
            content_encoding: header.extension(EXT_CENC).map_or(0, |content| content[0]),
            fti: header.extension(EXT_FTI),
            symbol: Symbol::decode(&header, rest, datagram.len())?,
            header,
        })
    }

    /// The identifier of the packet's session (TSI).
    pub fn tsi(&self) -> u64 {
        self.header.tsi
    }

    /// The congestion control information.
    pub fn cci(&self) -> &'a [u8] {
        self.header.cci
    }

    /// Whether the sender announces that it is about to stop (LCT flag A).
    pub fn closes_session(&self) -> bool {
        self.header.close_session
    }

    /// The object of which the sender announces that no more packets follow (LCT flag B).
    pub fn closes_object(&self) -> Option<u128> {
        self.header.toi.filter(|_| self.header.close_object)
    }
}

impl FdtHeader {
    pub(crate) const VERSION: u8 = 2;
    const INSTANCE_MAX: u32 = (1 << 20) - 1;

    fn decode(content: &[u8]) -> Option<Self> {
        let &[high, middle, low] = content else {
            return None;
        };
        let word = u32::from_be_bytes([0, high, middle, low]);
        Some(FdtHeader {
            version: (word >> 20) as u8,
            instance: word & Self::INSTANCE_MAX,
        })
    }

    /// Encodes the whole extension.
    pub(crate) fn encode(self) -> [u8; 4] {
        let word = u32::from(EXT_FDT) << 24
            | u32::from(self.version) << 20
            | self.instance & Self::INSTANCE_MAX;
        word.to_be_bytes()
    }
}

impl<'a> Symbol<'a> {
    fn decode(
        header: &lct::Header<'a>,
        bytes: &'a [u8],
        length: usize,
    ) -> Result<Option<Self>, PacketError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let (&payload_id, data) = bytes.split_first_chunk().ok_or(PacketError::Truncated {
            field: "FEC payload id",
            length,
        })?;
        let toi = header.toi.ok_or(PacketError::NoToi)?;
        Ok(Some(Symbol {
            toi,
            payload_id,
            data,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lct::Fields;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(tsi: u32, toi: u32, payload_id: [u8; 4], data: Vec<u8>, instance in 0..1_u32 << 20) {
            let fdt = FdtHeader { version: 2, instance };
            let extensions = fdt.encode();
            let mut bytes = Vec::new();
            Fields { cci: &[7; 8], tsi, toi: Some(toi), close_session: false, close_object: false, codepoint: 0, extensions: &extensions }.encode(&mut bytes);
            bytes.extend_from_slice(&payload_id);
            bytes.extend_from_slice(&data);
            let packet = Packet::decode(&bytes).unwrap();
            prop_assert_eq!((packet.tsi(), packet.cci(), packet.fdt), (u64::from(tsi), &[7; 8][..], Some(fdt)));
            prop_assert_eq!(packet.symbol, Some(Symbol { toi: u128::from(toi), payload_id, data: &data }));
        }

        #[test]
        fn any_bytes_give_a_packet_or_an_error(bytes: Vec<u8>) {
            let _ = Packet::decode(&bytes);
        }
    }

    #[test]
    fn a_packet_that_only_closes_the_session_has_no_symbol() {
        let mut bytes = Vec::new();
        Fields {
            cci: &[0; 4],
            tsi: 9,
            toi: None,
            close_session: true,
            close_object: false,
            codepoint: 0,
            extensions: &[],
        }
        .encode(&mut bytes);
        let packet = Packet::decode(&bytes).unwrap();
        assert!(packet.closes_session() && packet.symbol.is_none());
    }

    #[test]
    fn data_without_an_object_is_refused() {
        let mut bytes = Vec::new();
        Fields {
            cci: &[0; 4],
            tsi: 9,
            toi: None,
            close_session: false,
            close_object: false,
            codepoint: 0,
            extensions: &[],
        }
        .encode(&mut bytes);
        bytes.extend_from_slice(&[0; 5]);
        assert_eq!(Packet::decode(&bytes), Err(PacketError::NoToi));
        bytes.truncate(bytes.len() - 2);
        assert!(matches!(
            Packet::decode(&bytes),
            Err(PacketError::Truncated { .. })
        ));
    }
}
