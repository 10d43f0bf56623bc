//! Messages that are longer than a message of the overlay can be.

use std::collections::VecDeque;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use manyflow_overlay::{ClientId, DaemonId, GroupId};

use super::nats::layers;
use super::nats::parse::Published;

/// Longer messages are divided into fragments on links of streams. A message of the overlay has at
/// most 64 KiB.
pub(super) const FRAGMENT_BYTES: usize = 48 * 1024;
/// The first byte of a fragment. A whole message begins with a letter of PUB or HPUB.
const FRAGMENT: u8 = 1;
/// Bytes before the contents of a fragment: [`FRAGMENT`], and the length of the whole message.
const HEADER_BYTES: usize = 5;
/// The maximum number of messages of which some fragments wait for others. A sender that has
/// disconnected never completes its message.
const PARTIAL_MAX: usize = 16;
/// The maximum length of a message in fragments.
pub(super) const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The sender and the group of a message. Fragments of one source arrive in order.
type Source = (DaemonId, ClientId, GroupId);

/// A message of which some fragments have arrived.
#[derive(Debug)]
pub(super) struct Partial {
    source: Source,
    bytes: BytesMut,
    length: usize,
}

/// Divides a message into payloads of the overlay. Messages of at most `longest` bytes, and the
/// contents of fragments, are that long.
pub(super) fn divide(raw: &Bytes, longest: usize) -> impl Iterator<Item = Bytes> {
    let is_short = raw.len() <= longest;
    let whole = is_short.then(|| raw.clone());
    let chunks = raw.chunks(longest).filter(move |_| !is_short);
    whole.into_iter().chain(chunks.map(|chunk| {
        let mut fragment = BytesMut::with_capacity(HEADER_BYTES + chunk.len());
        fragment.put_u8(FRAGMENT);
        fragment.put_u32(raw.len() as u32);
        fragment.put_slice(chunk);
        fragment.freeze()
    }))
}

/// Bytes that no client can have published.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Invalid;

/// Returns the message that is complete with this payload, if one is. A payload that is in layers,
/// which is given with it, is a message of its own.
///
/// # Errors
/// Returns an error if the bytes are no message that a client can have published.
pub(super) fn assemble(
    partial: &mut VecDeque<Partial>,
    source: Source,
    (layered, mut payload): (bool, Bytes),
) -> Result<Option<Published>, Invalid> {
    if layered {
        return layers::decode(&payload).map(Some).ok_or(Invalid);
    }
    if payload.first() != Some(&FRAGMENT) {
        return Published::decode(payload).map(Some).ok_or(Invalid);
    }
    if payload.len() <= HEADER_BYTES {
        return Err(Invalid);
    }
    payload.advance(1);
    let length = payload.get_u32() as usize;
    let known = partial.iter().position(|message| message.source == source);
    let place = match known {
        Some(place) if partial[place].length == length => place,
        known => {
            if let Some(place) = known {
                partial.remove(place);
            }
            begin(partial, source, length).ok_or(Invalid)?
        }
    };
    let message = &mut partial[place];
    message.bytes.extend_from_slice(&payload);
    if message.bytes.len() < length {
        return Ok(None);
    }
    let message = partial.remove(place).ok_or(Invalid)?;
    let is_whole = message.bytes.len() == length;
    let message = is_whole.then(|| Published::decode(message.bytes.freeze()));
    message.flatten().map(Some).ok_or(Invalid)
}

fn begin(partial: &mut VecDeque<Partial>, source: Source, length: usize) -> Option<usize> {
    if length > MESSAGE_BYTES_MAX {
        return None;
    }
    if partial.len() == PARTIAL_MAX {
        partial.pop_front();
    }
    partial.push_back(Partial {
        source,
        bytes: BytesMut::new(),
        length,
    });
    Some(partial.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: Source = (DaemonId(1), ClientId(2), GroupId(3));

    fn message(bytes: usize) -> Bytes {
        let mut raw = format!("PUB a {bytes}\r\n").into_bytes();
        raw.extend((0..bytes).map(|place| (place % 251) as u8));
        raw.extend_from_slice(b"\r\n");
        Bytes::from(raw)
    }

    #[test]
    fn long_messages_are_whole_again_even_if_those_of_two_senders_alternate() {
        let raw = message(200_000);
        let parts: Vec<_> = divide(&raw, FRAGMENT_BYTES).collect();
        assert_eq!(parts.len(), 5);
        let other = (DaemonId(1), ClientId(9), GroupId(3));
        let mut partial = VecDeque::new();
        let mut whole = Vec::new();
        for part in parts {
            assert!(part.len() < 60_000);
            for source in [SOURCE, other] {
                let assembled = assemble(&mut partial, source, (false, part.clone()));
                whole.extend(assembled.unwrap());
            }
        }
        assert_eq!(whole.len(), 2);
        assert!(whole.iter().all(|message| message.raw() == &raw));
        assert!(partial.is_empty());
    }

    #[test]
    fn short_messages_are_not_copied() {
        let raw = message(1000);
        let parts: Vec<_> = divide(&raw, FRAGMENT_BYTES).collect();
        assert_eq!(parts.len(), 1);
        assert_eq!(parts[0].as_ptr(), raw.as_ptr());
    }

    #[test]
    fn a_message_without_an_end_makes_room_for_others() {
        let mut partial = VecDeque::new();
        for sender in 0..100 {
            let part = divide(&message(100_000), FRAGMENT_BYTES).next().unwrap();
            let assembled = assemble(
                &mut partial,
                (DaemonId(1), ClientId(sender), GroupId(3)),
                (false, part),
            );
            assert_eq!(assembled, Ok(None));
        }
        assert_eq!(partial.len(), PARTIAL_MAX);
        let absurd = Bytes::from_static(&[FRAGMENT, 255, 255, 255, 255, 0]);
        assert_eq!(
            assemble(&mut partial, SOURCE, (false, absurd)),
            Err(Invalid)
        );
    }
}
