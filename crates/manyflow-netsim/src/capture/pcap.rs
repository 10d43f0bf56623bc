//! The classic capture file (draft-ietf-opsawg-pcap), with nanoseconds.
//!
//! Written here, as the format is two headers of fixed numbers: the crate `pcap-file` would bring
//! second versions of `syn` and `thiserror`.

use std::io::{self, Write};

use manyflow_core::Time;

/// Times are in nanoseconds; also tells the byte order.
const MAGIC: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
/// No frame is longer: all are IPv4 packets.
const SNAP_LENGTH: u32 = 65_535;
/// LINKTYPE_RAW: a frame begins with its IP header.
const LINK_TYPE: u32 = 101;

/// Writes a capture file, frame by frame.
#[derive(Debug)]
pub(super) struct PcapWriter<W>(W);

impl<W: Write> PcapWriter<W> {
    /// Begins a file.
    pub(super) fn new(mut out: W) -> io::Result<PcapWriter<W>> {
        out.write_all(&MAGIC.to_le_bytes())?;
        for number in VERSION {
            out.write_all(&number.to_le_bytes())?;
        }
        // Two reserved words, which were time zone and accuracy.
        for word in [0, 0, SNAP_LENGTH, LINK_TYPE] {
            out.write_all(&word.to_le_bytes())?;
        }
        Ok(PcapWriter(out))
    }

    /// Adds a whole frame. Times beyond 136 years wrap, as the format has it.
    pub(super) fn write(&mut self, time: Time, frame: &[u8]) -> io::Result<()> {
        let (seconds, nanos) = (
            time.as_nanos() / 1_000_000_000,
            time.as_nanos() % 1_000_000_000,
        );
        let length = frame.len() as u32;
        for word in [seconds as u32, nanos as u32, length, length] {
            self.0.write_all(&word.to_le_bytes())?;
        }
        self.0.write_all(frame)
    }

    /// Writes what is left in buffers.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_header_and_one_for_each_frame() {
        let mut file = Vec::new();
        let mut writer = PcapWriter::new(&mut file).unwrap();
        writer
            .write(Time::from_nanos(3_000_000_007), &[0x45, 1, 2])
            .unwrap();
        let expected = [
            0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 101, 0,
            0, 0, 3, 0, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 0x45, 1, 2,
        ];
        assert_eq!(file, expected);
    }
}
