//! Interoperates with another FLUTE implementation, the crate `flute`: it rebuilds files from our
//! datagrams, and we rebuild files from its datagrams.
#![allow(
    clippy::disallowed_types,
    reason = "the crate `flute` asks for the time"
)]

use crate::common;

use std::rc::Rc;
use std::time::{Duration, SystemTime};

use common::*;
use flute::core::{UDPEndpoint, lct::Cenc};
use flute::{receiver::MultiReceiver, receiver::writer::ObjectWriterBufferBuilder};
use manyflow_object::fec::FecScheme;
use manyflow_object::receiver::{ObjectEvent, Verified};
use manyflow_object::sender::{ObjectSender, SenderConfig, SourceFile};

const FILES: [(&str, usize); 3] = [("a/été.bin", 10), ("b", 1_400), ("c d", 200_000)];

fn files() -> Vec<SourceFile> {
    FILES.map(|(name, length)| file(name, length)).into()
}

fn endpoint() -> UDPEndpoint {
    UDPEndpoint::new(None, "224.0.0.1".to_owned(), 5_000)
}

/// A moment before our FDTs expire.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

/// Loses every seventh packet, so that some source symbols are missing.
fn is_lost(number: usize) -> bool {
    number % 7 == 3
}

/// Returns URI and content of the `files` that the crate `flute` has rebuilt after `datagrams` of
/// our datagrams.
fn rebuilt_by_flute(
    scheme: FecScheme,
    files: Vec<SourceFile>,
    datagrams: usize,
) -> Vec<(String, Vec<u8>)> {
    let config = SenderConfig {
        scheme,
        block_symbols_max: 40,
        ..config(1)
    };
    let mut sender = ObjectSender::new(config, files).unwrap();
    let output = Rc::new(ObjectWriterBufferBuilder::new(true));
    let mut receiver = MultiReceiver::new(output.clone(), None, false);
    for number in 0..datagrams {
        let datagram = datagram(&mut sender, 0);
        if !is_lost(number) {
            receiver.push(&endpoint(), &datagram, now()).unwrap();
        }
    }
    let mut close = Vec::new();
    sender.close_datagram(&CCI, &mut close);
    receiver.push(&endpoint(), &close, now()).unwrap();
    let objects = output.objects.borrow();
    let complete = objects
        .iter()
        .map(|object| object.borrow())
        .filter(|object| object.complete && !object.error);
    let mut rebuilt: Vec<_> = complete
        .map(|object| {
            (
                object.meta.content_location.to_string(),
                object.data.clone(),
            )
        })
        .collect();
    rebuilt.sort();
    rebuilt
}

fn flute_rebuilds(scheme: FecScheme) {
    let uris = ["file:///a/%C3%A9t%C3%A9.bin", "file:///b", "file:///c%20d"].map(str::to_owned);
    let expected: Vec<_> = uris
        .into_iter()
        .zip(FILES)
        .map(|(uri, (name, length))| (uri, received(name, length).1.to_vec()))
        .collect();
    assert!(rebuilt_by_flute(scheme, files(), 2_000) == expected);
}

#[test]
fn flute_rebuilds_our_raptorq_files() {
    flute_rebuilds(FecScheme::RaptorQ);
}

#[test]
fn flute_rebuilds_our_files_without_code() {
    flute_rebuilds(FecScheme::NoCode);
}

#[test]
fn flute_reads_our_fdt_of_many_packets() {
    for scheme in [FecScheme::RaptorQ, FecScheme::NoCode] {
        let files = (100..200).map(|number| file(&format!("{number}"), number));
        let rebuilt = rebuilt_by_flute(scheme, files.collect(), 2_000);
        let contents = rebuilt.into_iter().map(|(_, content)| content);
        let expected = (100..200).map(|number| received("", number).1);
        assert!(contents.eq(expected), "{scheme:?}");
    }
}

fn flute_sender(oti: &flute::core::Oti) -> flute::sender::Sender {
    let config = flute::sender::Config {
        fdt_cenc: Cenc::Null,
        ..Default::default()
    };
    let mut sender = flute::sender::Sender::new(endpoint(), TSI.into(), oti, &config);
    for (name, length) in FILES {
        let uri = url::Url::parse(&format!("file:///{name}")).unwrap();
        let transfer = flute::sender::TransferConfig {
            cenc: Cenc::Null,
            max_transfer_count: 3,
            ..Default::default()
        };
        let content = received(name, length).1.to_vec();
        let object = flute::sender::ObjectDesc::create_from_buffer(
            content,
            "text/plain",
            &uri,
            true,
            transfer,
        )
        .unwrap();
        sender.add_object(0, object).unwrap();
    }
    sender.publish(now()).unwrap();
    sender
}

fn we_rebuild(oti: &flute::core::Oti) {
    let mut sender = flute_sender(oti);
    let mut receiver = receiver();
    let mut reported = Vec::new();
    for number in 0..4_000 {
        if let Some(datagram) = sender.read(now())
            && !is_lost(number)
        {
            deliver(&mut receiver, &datagram);
            reported.extend(events(&mut receiver));
        }
    }
    let expected = FILES.map(|(name, length)| received(name, length));
    let complete = complete(&mut receiver, &reported);
    assert!(complete == expected, "{:?}", receiver.progress());
    let verified = reported.iter().filter_map(|event| match event {
        ObjectEvent::ObjectComplete(object) => Some(object.verified),
        _ => None,
    });
    assert!(verified.into_iter().all(|verified| verified
        == Verified {
            md5: true,
            sha256: false
        }));
}

#[test]
fn we_rebuild_flutes_raptorq_files() {
    we_rebuild(&flute::core::Oti::new_raptorq(1_400, 40, 20, 1, 4).unwrap());
}

#[test]
fn we_rebuild_flutes_raptorq_files_with_sub_blocks() {
    we_rebuild(&flute::core::Oti::new_raptorq(1_400, 40, 20, 5, 8).unwrap());
}

#[test]
fn we_rebuild_flutes_files_without_code() {
    we_rebuild(&flute::core::Oti::new_no_code(1_400, 40));
}

#[test]
fn we_rebuild_flutes_files_whose_parameters_are_in_the_fdt_alone() {
    let mut oti = flute::core::Oti::new_raptorq(1_400, 40, 20, 1, 4).unwrap();
    oti.inband_fti = false;
    we_rebuild(&oti);
}
