//! A Spread client sends any bytes, cut into any reads. The decoders do not panic, find the same
//! messages and the same error however the bytes are cut, and read nothing beyond a message.
#![cfg_attr(fuzzing, no_main)]

use arbitrary::Arbitrary;
use bytes::BytesMut;
use manyflow_messages::spread::wire::{
    GREETING_BYTES_MAX, GROUPS_MAX, Greeting, HEADER_BYTES, MESSAGE_BYTES_MAX, Message, NAME_BYTES,
    WireError, take_methods,
};

#[derive(Arbitrary, Debug)]
struct Input {
    /// Headers and what follows them. Few random bytes are a header.
    messages: Vec<Shape>,
    rest: Vec<u8>,
    reads: Vec<u8>,
}

#[derive(Arbitrary, Debug)]
struct Shape {
    type_bit: u8,
    is_little: bool,
    sender: [u8; NAME_BYTES],
    groups: u8,
    kind: u16,
    payload_bytes: u8,
    contents: u8,
    /// A field that gets this value instead.
    spoilt: Option<(u8, u32)>,
}

impl Shape {
    fn write(&self, to: &mut Vec<u8>) {
        let bytes = |number: u32| match self.is_little {
            true => number.to_le_bytes(),
            false => number.to_be_bytes(),
        };
        let marks = if self.is_little { 0x8000_0080 } else { 0 };
        let groups = u32::from(self.groups % 4);
        let hint = u32::from(self.kind) << 8 | marks;
        let mut header = bytes(1 << (self.type_bit % 20) | marks).to_vec();
        header.extend(self.sender);
        for number in [groups, hint, self.payload_bytes.into()] {
            header.extend(bytes(number));
        }
        if let Some((at, number)) = self.spoilt {
            let at = usize::from(at) % (HEADER_BYTES - 3);
            header[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        to.extend(header);
        let body = groups as usize * NAME_BYTES + usize::from(self.payload_bytes);
        to.extend(std::iter::repeat_n(self.contents, body));
    }
}

manyflow_fuzz::target!(|input: Input| {
    let mut bytes = Vec::new();
    input
        .messages
        .iter()
        .for_each(|shape| shape.write(&mut bytes));
    bytes.extend(&input.rest);
    check_handshake(&input.rest);
    let (whole, error) = read_all(&bytes, &mut std::iter::repeat(usize::MAX));
    let mut reads = input.reads.iter().map(|read| 1 + usize::from(*read));
    let cut = read_all(
        &bytes,
        &mut reads.by_ref().chain(std::iter::repeat(usize::MAX)),
    );
    assert_eq!(cut, (whole, error));
});

/// Reads messages from bytes that come in reads of these lengths.
fn read_all(
    mut bytes: &[u8],
    reads: &mut dyn Iterator<Item = usize>,
) -> (Vec<Message>, Option<WireError>) {
    let (mut buffer, mut messages) = (BytesMut::new(), Vec::new());
    while !bytes.is_empty() {
        let (read, rest) = bytes.split_at(reads.next().unwrap_or(1).min(bytes.len()));
        buffer.extend_from_slice(read);
        bytes = rest;
        loop {
            match Message::take(&mut buffer) {
                Ok(Some(message)) => {
                    check_message(&message);
                    messages.push(message);
                }
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
    }
    (messages, None)
}

fn check_message(message: &Message) {
    let header = &message.header;
    assert!(header.groups <= GROUPS_MAX);
    assert_eq!(message.groups().count(), header.groups);
    assert_eq!(message.payload().len(), header.payload_bytes);
    assert!(header.groups * NAME_BYTES + header.payload_bytes <= MESSAGE_BYTES_MAX);
    for name in message.groups().flatten() {
        assert!((1..NAME_BYTES).contains(&name.len()));
    }
}

fn check_handshake(bytes: &[u8]) {
    for head in [&[][..], &[4, 4, 0, 1, 3], &[3, 12, 1, 2]] {
        let all = [head, bytes].concat();
        let mut rest = BytesMut::from(&all[..]);
        match Greeting::take(&mut rest) {
            Ok(Some(greeting)) => {
                let read = all.len() - rest.len();
                assert!(read <= GREETING_BYTES_MAX);
                let again = Greeting::take(&mut BytesMut::from(&greeting.encode()[..]));
                assert_eq!(again, Ok(Some(greeting)));
            }
            Ok(None) => assert!(all.len() < GREETING_BYTES_MAX && rest == all),
            Err(_) => {}
        }
    }
    for head in [&b""[..], b"NULL"] {
        let mut methods = BytesMut::from(&[head, bytes].concat()[..]);
        let _ = take_methods(&mut methods);
    }
}
