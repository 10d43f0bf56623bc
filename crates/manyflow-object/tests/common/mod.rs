//! Helpers that several test files share.
use bytes::Bytes;
use manyflow_object::alc::Packet;
use manyflow_object::receiver::{ObjectEvent, ObjectReceiver, ReceiverConfig};
use manyflow_object::sender::{ObjectSender, SenderConfig, SourceFile};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

pub(crate) const TSI: u32 = 7;
pub(crate) const CCI: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

pub(crate) fn rng(seed: u64) -> Pcg64 {
    Pcg64::seed_from_u64(seed)
}

pub(crate) fn random_bytes(length: usize, seed: u64) -> Bytes {
    let mut bytes = vec![0; length];
    rng(seed).fill_bytes(&mut bytes);
    bytes.into()
}

pub(crate) fn file(name: &str, length: usize) -> SourceFile {
    SourceFile::new(name, random_bytes(length, length as u64))
}

/// The name and content of a file made by [`file`].
pub(crate) fn received(name: &str, length: usize) -> (String, Bytes) {
    (name.to_owned(), random_bytes(length, length as u64))
}

pub(crate) fn config(layers: u16) -> SenderConfig {
    SenderConfig {
        content_md5: true,
        ..SenderConfig::new(TSI, layers, 1)
    }
}

pub(crate) fn receiver() -> ObjectReceiver {
    ObjectReceiver::new(ReceiverConfig::new(TSI.into()))
}

pub(crate) fn datagram(sender: &mut ObjectSender, layer: u16) -> Vec<u8> {
    let mut out = Vec::new();
    sender.next_datagram(layer, &CCI, &mut out).unwrap();
    out
}

/// Returns all events of the receiver so far.
pub(crate) fn events(receiver: &mut ObjectReceiver) -> Vec<ObjectEvent> {
    std::iter::from_fn(|| receiver.poll_event()).collect()
}

/// The complete files among `events` with their contents, by name.
pub(crate) fn complete(
    receiver: &mut ObjectReceiver,
    events: &[ObjectEvent],
) -> Vec<(String, Bytes)> {
    let mut files: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            ObjectEvent::ObjectComplete(object) => {
                let content = receiver.content(object).unwrap();
                Some((object.name.clone(), content.into()))
            }
            _ => None,
        })
        .collect();
    files.sort();
    files
}

/// Like [`complete`], with the receiver's new events.
pub(crate) fn newly_complete(receiver: &mut ObjectReceiver) -> Vec<(String, Bytes)> {
    let events = events(receiver);
    complete(receiver, &events)
}

/// Hands a datagram that must be acceptable to the receiver.
pub(crate) fn deliver(receiver: &mut ObjectReceiver, datagram: &[u8]) {
    receiver
        .handle_packet(&Packet::decode(datagram).unwrap())
        .unwrap();
}
