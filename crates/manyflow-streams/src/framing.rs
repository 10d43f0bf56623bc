//! Units in a pipe: a length of 4 bytes in network order, and the bytes of the unit.
//!
//! A source and a sink use the same framing, so that streams can be chained.

use std::io::{self, ErrorKind, Read, Write};

use bytes::Bytes;
use manyflow_layered::unit::UNIT_BYTES_MAX;

/// The reason why no unit can be read from a pipe.
#[derive(Debug, thiserror::Error)]
pub(super) enum FramingError {
    /// The pipe ends inside a unit.
    #[error(
        "it ends in the middle of a unit: each unit is a length of 4 bytes in network order, and as \
         many bytes"
    )]
    Truncated,
    /// The length is not that of a unit. Probably the pipe has no framing.
    #[error(
        "it announces a unit of {0} bytes, at most {UNIT_BYTES_MAX} are allowed: write before each \
         unit its length in 4 bytes, in network order"
    )]
    Length(u32),
    /// The system cannot read.
    #[error("{0}")]
    Read(io::Error),
}

/// Reads a unit; `None` at the end of the pipe. Memory grows with the bytes that arrive, not with
/// the length that is announced.
pub(super) fn read_unit(pipe: &mut impl Read) -> Result<Option<Bytes>, FramingError> {
    let Some(length) = read_length(pipe)? else {
        return Ok(None);
    };
    if length as usize > UNIT_BYTES_MAX {
        return Err(FramingError::Length(length));
    }
    let mut unit = Vec::new();
    let read = pipe.take(length.into()).read_to_end(&mut unit);
    match read.map_err(FramingError::Read)? == length as usize {
        true => Ok(Some(unit.into())),
        false => Err(FramingError::Truncated),
    }
}

/// Reads a length; `None` at the end of the pipe.
fn read_length(pipe: &mut impl Read) -> Result<Option<u32>, FramingError> {
    let mut bytes = [0; 4];
    let mut filled = 0;
    while filled < bytes.len() {
        match pipe.read(&mut bytes[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(FramingError::Truncated),
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(FramingError::Read(error)),
        }
    }
    Ok(Some(u32::from_be_bytes(bytes)))
}

/// Writes a unit, and flushes the pipe.
pub(super) fn write_unit(pipe: &mut impl Write, unit: &[u8]) -> io::Result<()> {
    let length = u32::try_from(unit.len()).map_err(|_| ErrorKind::InvalidInput)?;
    pipe.write_all(&length.to_be_bytes())?;
    pipe.write_all(unit)?;
    pipe.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_as_they_were_written() {
        let mut pipe = Vec::new();
        for unit in [&b"one"[..], b"", b"three"] {
            write_unit(&mut pipe, unit).unwrap();
        }
        let mut pipe = &pipe[..];
        let units: Vec<Bytes> = std::iter::from_fn(|| read_unit(&mut pipe).unwrap()).collect();
        assert_eq!(units, [&b"one"[..], b"", b"three"]);
    }

    #[test]
    fn a_cut_pipe_and_a_wrong_length_are_refused() {
        for cut in [&[0, 0][..], &[0, 0, 0, 2, 7]] {
            let mut pipe = cut;
            assert!(matches!(read_unit(&mut pipe), Err(FramingError::Truncated)));
        }
        let mut pipe = &b"\xff\xff\xff\xff"[..];
        assert!(matches!(
            read_unit(&mut pipe),
            Err(FramingError::Length(u32::MAX))
        ));
    }
}
