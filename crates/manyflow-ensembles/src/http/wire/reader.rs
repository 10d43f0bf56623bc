//! Reads fields from bytes.

use bytes::Bytes;

use super::WireError;

/// The part of a message that is not decoded yet.
pub(super) struct Reader<'a> {
    message: &'a Bytes,
    at: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'a Bytes) -> Reader<'a> {
        let end = message.len();
        Reader {
            message,
            at: 0,
            end,
        }
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.end);
        let taken = &self.message[self.at..end.ok_or(WireError::Short)?];
        self.at += length;
        Ok(taken)
    }

    pub(super) fn take_array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| WireError::Short)
    }

    pub(super) fn take_u8(&mut self) -> Result<u8, WireError> {
        self.take_array().map(|[byte]| byte)
    }

    pub(super) fn take_u16(&mut self) -> Result<u16, WireError> {
        self.take_array().map(u16::from_be_bytes)
    }

    pub(super) fn take_u32(&mut self) -> Result<u32, WireError> {
        self.take_array().map(u32::from_be_bytes)
    }

    pub(super) fn take_u64(&mut self) -> Result<u64, WireError> {
        self.take_array().map(u64::from_be_bytes)
    }

    /// Takes `length` bytes as a part with an end of its own.
    pub(super) fn take_part(&mut self, length: usize) -> Result<Reader<'a>, WireError> {
        let at = self.at;
        self.take(length)?;
        Ok(Reader {
            message: self.message,
            at,
            end: self.at,
        })
    }

    /// Takes `length` bytes, which share the message's memory.
    pub(super) fn take_bytes(&mut self, length: usize) -> Result<Bytes, WireError> {
        let at = self.at;
        self.take(length)?;
        Ok(self.message.slice(at..self.at))
    }

    /// Takes everything that is left.
    pub(super) fn take_rest(&mut self) -> Bytes {
        let rest = self.message.slice(self.at..self.end);
        self.at = self.end;
        rest
    }

    /// Checks that nothing is left.
    pub(super) fn finish(&self) -> Result<(), WireError> {
        match self.at == self.end {
            true => Ok(()),
            false => Err(WireError::Rest),
        }
    }
}
