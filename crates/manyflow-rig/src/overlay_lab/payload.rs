//! The payload of a message: the connection that sent it, its number, its time and a checksum.

use sha2::{Digest as _, Sha256};

use super::wire::Stamp;

/// The length of a payload.
pub const PAYLOAD_BYTES: usize = 1024;
const CHECKSUM_BYTES: usize = 8;

/// Returns the payload with a stamp.
pub(super) fn write(stamp: Stamp) -> [u8; PAYLOAD_BYTES] {
    let mut payload = [b'.'; PAYLOAD_BYTES];
    stamp.write(&mut payload);
    let (content, end) = payload.split_at_mut(PAYLOAD_BYTES - CHECKSUM_BYTES);
    end.copy_from_slice(&checksum(content));
    payload
}

/// Returns the stamp of a payload; `None` if it is not what `write` has written.
pub(super) fn read(payload: &[u8]) -> Option<Stamp> {
    let (content, end) = payload.split_last_chunk::<CHECKSUM_BYTES>()?;
    let is_intact = payload.len() == PAYLOAD_BYTES && *end == checksum(content);
    is_intact.then(|| Stamp::read(content)).flatten()
}

fn checksum(content: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let digest: [u8; 32] = Sha256::digest(content).into();
    *digest.first_chunk().expect("a digest is longer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_is_found() {
        let stamp = Stamp {
            sender: 3,
            number: 70_000,
            sent_ns: 5,
        };
        let mut payload = write(stamp);
        assert_eq!(read(&payload), Some(stamp));
        assert_eq!(read(&payload[1..]), None);
        payload[11] ^= 1;
        assert_eq!(read(&payload), None);
    }
}
