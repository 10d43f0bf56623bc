//! Images: sections that are announced one after another by signed tables.

use manyflow_object::alc::Packet;
use manyflow_object::error::ReceiveError;
use manyflow_object::fdt::Section;
use manyflow_object::image::{SIGNATURE_BYTES, TableKey};
use manyflow_object::receiver::{ObjectEvent, ObjectReceiver, ReceiverConfig};
use manyflow_object::sender::{ImageSender, SealedSection, SenderConfig};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use sha2::{Digest as _, Sha256};

const CCI: [u8; 8] = [0; 8];
const LAYERS: u16 = 4;

/// Stands for a signature with the key `secret`.
fn sign(secret: u8, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
    let mut signature = [0; SIGNATURE_BYTES];
    let digest = Sha256::new().chain_update([secret]).chain_update(message);
    signature[..32].copy_from_slice(&digest.finalize());
    signature
}

fn receiver(secret: u8) -> ObjectReceiver {
    ObjectReceiver::new(ReceiverConfig {
        table_key: Some(TableKey::new(move |message, signature| {
            sign(secret, message) == *signature
        })),
        ..ReceiverConfig::new(7)
    })
}

fn config() -> SenderConfig {
    let mut config = SenderConfig::new(7, LAYERS, 1);
    config.symbol_length = 400;
    config.block_symbols_max = 50;
    config
}

/// Seals sections, each with the zeros behind it.
struct Sealer {
    secret: u8,
    number: u32,
    offset: u64,
}

impl Sealer {
    fn new() -> Sealer {
        Sealer {
            secret: 1,
            number: 0,
            offset: 0,
        }
    }

    fn seal(&mut self, content: &[u8], zeros: u64, is_last: bool) -> SealedSection {
        let section = Section {
            number: self.number,
            offset: self.offset,
            zeros,
            image_length: None,
        };
        self.number += 1;
        self.offset += content.len() as u64 + zeros;
        let content = std::sync::Arc::new(bytes::Bytes::copy_from_slice(content));
        let signed = |message: &[u8]| sign(self.secret, message);
        SealedSection::seal(&config(), "image", section, is_last, content, &signed).unwrap()
    }
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|byte| (byte * 7 % 251) as u8).collect()
}

fn next(sender: &mut ImageSender, layer: u16) -> Vec<u8> {
    while let Some(job) = sender.next_job() {
        sender.finish_job(&job.run().unwrap()).unwrap();
    }
    let mut datagram = Vec::new();
    sender.next_datagram(layer, &CCI, &mut datagram).unwrap();
    datagram
}

/// Writes complete sections to `image`. Returns whether all are complete.
fn collect(receiver: &mut ObjectReceiver, image: &mut Vec<u8>) -> bool {
    let mut is_over = false;
    while let Some(event) = receiver.poll_event() {
        match event {
            ObjectEvent::ObjectComplete(object) => {
                let section = object.section.unwrap();
                assert_eq!(object.name, format!("image/{:07}", section.number));
                let bytes = receiver.content(&object).unwrap();
                let start = section.offset as usize;
                let end = start + bytes.len() + section.zeros as usize;
                image.resize(image.len().max(end), 0);
                image[start..start + bytes.len()].copy_from_slice(&bytes);
            }
            ObjectEvent::AllComplete { refused: 0 } => is_over = true,
            ObjectEvent::ObjectFailed { name, reason } => panic!("{name}: {reason}"),
            _ => {}
        }
    }
    is_over
}

/// The image of the tests: three sections with zeros behind two of them.
fn sections(sealer: &mut Sealer) -> (Vec<SealedSection>, Vec<u8>) {
    let (long, short) = (content(50_000), content(401));
    let sections = vec![
        sealer.seal(&long, 3_000, false),
        sealer.seal(&[], 10_000, false),
        sealer.seal(&short, 0, true),
    ];
    let image = [&long[..], &[0; 13_000], &short].concat();
    (sections, image)
}

#[test]
fn a_receiver_uses_each_section_before_the_next_is_known() {
    let mut sealer = Sealer::new();
    let mut sender = ImageSender::new(config(), sealer.seal(&[], 0, false)).unwrap();
    let (mut receiver, mut image) = (receiver(1), Vec::new());
    let (sections, expected) = sections(&mut sealer);
    // While there is no input, the first section keeps the session alive.
    for _ in 0..100 {
        let datagram = next(&mut sender, 0);
        receiver
            .handle_packet(&Packet::decode(&datagram).unwrap())
            .unwrap();
    }
    assert_eq!(receiver.progress().files_complete, 1);
    assert!(receiver.progress().promising() > 90, "the session is alive");
    let mut complete = 1;
    for section in sections {
        assert!(!collect(&mut receiver, &mut image));
        sender.push(section);
        complete += 1;
        let mut packets = 0;
        while receiver.progress().files_complete < complete {
            let datagram = next(&mut sender, 0);
            receiver
                .handle_packet(&Packet::decode(&datagram).unwrap())
                .unwrap();
            packets += 1;
            assert!(packets < 150, "a section takes no more packets than it has");
        }
    }
    assert!(collect(&mut receiver, &mut image));
    assert!(image == expected);
}

#[test]
fn late_lossy_and_slow_receivers_get_every_section() {
    // A short section has few packets in each visit, of which a slow receiver gets an eighth.
    for (label, loss, layer_max, late, heard_max) in [
        ("late", 0.0, 4, 300, 600),
        ("lossy", 0.3, 4, 0, 600),
        ("slow", 0.0, 1, 0, 1_500),
    ] {
        let mut sealer = Sealer::new();
        let (sections, expected) = sections(&mut sealer);
        let mut sections = sections.into_iter();
        let mut sender = ImageSender::new(config(), sections.next().unwrap()).unwrap();
        sections.for_each(|section| sender.push(section));
        let (mut receiver, mut image) = (receiver(1), Vec::new());
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut heard = 0;
        let is_over = (0..12_000_u32).any(|number| {
            let layer = (number.trailing_zeros() as u16).min(LAYERS - 1);
            let datagram = next(&mut sender, LAYERS - 1 - layer);
            let is_heard = LAYERS - 1 - layer < layer_max && number >= late;
            if is_heard && !random.random_bool(loss) {
                heard += 1;
                receiver
                    .handle_packet(&Packet::decode(&datagram).unwrap())
                    .unwrap();
            }
            collect(&mut receiver, &mut image)
        });
        assert!(is_over, "{label}: {:?}", receiver.progress());
        assert!(image == expected, "{label}");
        let progress = receiver.progress();
        assert!(heard < heard_max, "{label}: {heard} packets {progress:?}");
    }
}

/// Returns the first error of a receiver of the session, and the number of sections that it knows.
fn refusal(mut sender: ImageSender) -> (Option<ReceiveError>, usize) {
    let mut receiver = receiver(1);
    let error = (0..200).find_map(|_| {
        let datagram = next(&mut sender, 0);
        receiver
            .handle_packet(&Packet::decode(&datagram).unwrap())
            .err()
    });
    let refused = receiver.progress().refused;
    assert_eq!(refused.table + refused.fdt, u64::from(error.is_some()));
    (error, receiver.progress().files)
}

#[test]
fn tables_of_another_key_and_contradicting_sections_are_refused() {
    let refused = |section| (Some(ReceiveError::Section(section)), section as usize);
    let forger = &mut Sealer {
        secret: 2,
        ..Sealer::new()
    };
    let forged = ImageSender::new(config(), forger.seal(b"forged", 0, true)).unwrap();
    let (error, known) = refusal(forged);
    assert_eq!((error, known), (Some(ReceiveError::TableSignature(0)), 0));
    // An image that does not begin at 0.
    let sealer = &mut Sealer {
        offset: 5,
        ..Sealer::new()
    };
    let late = ImageSender::new(config(), sealer.seal(b"late", 0, true)).unwrap();
    assert_eq!(refusal(late), refused(0));
    // A gap between two sections, and a section after the last.
    let mut sealer = Sealer::new();
    let mut gap = ImageSender::new(config(), sealer.seal(b"first", 0, false)).unwrap();
    sealer.offset += 1;
    gap.push(sealer.seal(b"second", 0, false));
    assert_eq!(refusal(gap), refused(1));
    let mut sealer = Sealer::new();
    let mut longer = ImageSender::new(config(), sealer.seal(b"first", 0, false)).unwrap();
    longer.push(sealer.seal(b"second", 0, true));
    longer.push(sealer.seal(b"third", 0, false));
    assert_eq!(refusal(longer), refused(2));
}

#[test]
fn an_image_without_its_middle_is_not_complete() {
    let mut sealer = Sealer::new();
    let (sections, expected) = sections(&mut sealer);
    let mut sections = sections.into_iter();
    let mut sender = ImageSender::new(config(), sections.next().unwrap()).unwrap();
    sections.for_each(|section| sender.push(section));
    let (mut receiver, mut image) = (receiver(1), Vec::new());
    let mut deliver = |without: Option<u128>| {
        let mut is_over = false;
        for _ in 0..1_500 {
            let datagram = next(&mut sender, 0);
            let packet = Packet::decode(&datagram).unwrap();
            let instance = packet.fdt.map(|fdt| u128::from(fdt.instance));
            if without.is_none() || instance != without {
                receiver.handle_packet(&packet).unwrap();
            }
            is_over |= collect(&mut receiver, &mut image);
        }
        (is_over, receiver.is_complete())
    };
    assert_eq!(deliver(Some(1)), (false, false));
    assert_eq!(deliver(None), (true, true));
    assert!(image == expected);
}

#[test]
fn sections_too_far_ahead_wait_for_a_later_round() {
    let mut sealer = Sealer::new();
    let (sections, expected) = sections(&mut sealer);
    let mut sections = sections.into_iter();
    let mut sender = ImageSender::new(config(), sections.next().unwrap()).unwrap();
    sections.for_each(|section| sender.push(section));
    let (mut receiver, mut image) = (receiver(1), Vec::new());
    receiver.set_released(0, 1_000);
    let mut deliver = |receiver: &mut ObjectReceiver| {
        (0..1_000).any(|_| {
            let datagram = next(&mut sender, 0);
            receiver
                .handle_packet(&Packet::decode(&datagram).unwrap())
                .unwrap();
            collect(receiver, &mut image)
        })
    };
    assert!(!deliver(&mut receiver));
    let progress = receiver.progress();
    assert_eq!(progress.files_complete, 2, "the last section has content");
    assert!(progress.ahead_symbols > 0);
    receiver.set_released(63_000, 1_000);
    assert!(deliver(&mut receiver));
    assert!(image == expected);
}

#[test]
fn a_receiver_resumes_from_signed_tables_only() {
    let mut sealer = Sealer::new();
    let mut sender = ImageSender::new(config(), sealer.seal(b"first", 0, true)).unwrap();
    let mut other = receiver(2);
    for document in [&b""[..], b"<FDT-Instance Expires='1'/>"] {
        assert_eq!(
            other.resume_section(document),
            Err(ReceiveError::TableSignature(0))
        );
    }
    let (mut receiver, mut image) = (receiver(1), Vec::new());
    let datagram = next(&mut sender, 0);
    receiver
        .handle_packet(&Packet::decode(&datagram).unwrap())
        .unwrap();
    assert!(!collect(&mut receiver, &mut image));
}

#[test]
fn a_section_that_the_caller_has_is_not_received() {
    let mut sealer = Sealer::new();
    let first = sealer.seal(&content(5_000), 0, false);
    let mut sender = ImageSender::new(config(), first).unwrap();
    sender.push(sealer.seal(&content(7_000), 0, true));
    let (mut receiver, mut numbers, mut is_over) = (receiver(1), Vec::new(), false);
    for _ in 0..200 {
        let datagram = next(&mut sender, 0);
        let packet = Packet::decode(&datagram).unwrap();
        receiver.handle_packet(&packet).unwrap();
        for section in receiver.take_new_sections() {
            numbers.push(section.section.unwrap().number);
            receiver.skip(section.toi).unwrap();
        }
        while let Some(event) = receiver.poll_event() {
            is_over |= matches!(event, ObjectEvent::AllComplete { refused: 0 });
        }
    }
    assert_eq!(numbers, [0, 1], "each once");
    assert!(is_over);
    assert_eq!(receiver.progress().earlier_bytes, 12_000);
}
