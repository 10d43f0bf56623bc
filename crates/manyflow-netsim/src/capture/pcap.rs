//! The classic format of capture files (draft-ietf-opsawg-pcap), with nanoseconds.
//!
//! The format consists of two headers of fixed numbers. The crate `pcap-file` would bring second
//! versions of `syn` and `thiserror`.

use std::io::{self, Write};

use manyflow_core::Time;

/// The magic number for times in nanoseconds, which also shows the byte order.
const MAGIC: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
/// The maximum length of a frame. All frames are IPv4 or IPv6 packets without
/// jumbo payloads.
const SNAP_LENGTH: u32 = 65_535;
/// LINKTYPE_RAW: each frame begins with its IP header.
const LINK_TYPE: u32 = 101;

/// Writes a capture file frame by frame.
#[derive(Debug)]
pub(super) struct PcapWriter<W>(W);

impl<W: Write> PcapWriter<W> {
    /// Writes the file header.
    pub(super) fn new(mut out: W) -> io::Result<PcapWriter<W>> {
        out.write_all(&MAGIC.to_le_bytes())?;
        for number in VERSION {
            out.write_all(&number.to_le_bytes())?;
        }
        // The two reserved words were time zone and accuracy.
        for word in [0, 0, SNAP_LENGTH, LINK_TYPE] {
            out.write_all(&word.to_le_bytes())?;
        }
        Ok(PcapWriter(out))
    }

    /// Writes a complete frame. The format wraps times after 136 years.
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

    /// Flushes the output.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_and_each_frame_have_a_header() {
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
