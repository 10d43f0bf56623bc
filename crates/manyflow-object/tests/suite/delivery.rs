//! Delivers files from our sender to our receiver over a network that loses, repeats and reorders.
use crate::common;

use std::collections::BTreeSet;

use common::*;
use manyflow_object::alc::Packet;
use manyflow_object::error::{FileError, ReceiveError, SendError};
use manyflow_object::fec::FecScheme;
use manyflow_object::receiver::{
    CompleteObject, ObjectEvent, ObjectReceiver, ReceiverConfig, Verified,
};
use manyflow_object::sender::{self, ObjectSender, SenderConfig, SourceFile};
use manyflow_object::storage::MemoryStorage;
use proptest::prelude::*;
use rand::RngExt;
use rand::seq::SliceRandom;
use sha2::{Digest, Sha256};

const SEVERAL: [(&str, usize); 5] = [
    ("a/empty", 0),
    ("b/one byte", 1),
    ("c/été ☀ 100%.bin", 1_376),
    ("d", 1_377),
    ("e", 300_000),
];

fn several_files() -> Vec<SourceFile> {
    SEVERAL.map(|(name, length)| file(name, length)).into()
}

fn small_blocks(scheme: FecScheme) -> SenderConfig {
    SenderConfig {
        scheme,
        block_symbols_max: 50,
        ..config(3)
    }
}

/// Sends until the receiver has everything. `network` takes 40 datagrams at a time and returns the
/// ones that arrive.
fn deliver_all(
    config: SenderConfig,
    mut network: impl FnMut(Vec<Vec<u8>>) -> Vec<Vec<u8>>,
) -> ObjectReceiver {
    let mut sender = ObjectSender::new(config.clone(), several_files()).unwrap();
    let mut receiver = receiver();
    let mut reported = Vec::new();
    for round in 0..400 {
        let sent = (0..40)
            .map(|_| datagram(&mut sender, round % config.layers))
            .collect();
        for datagram in network(sent) {
            deliver(&mut receiver, &datagram);
        }
        reported.extend(events(&mut receiver));
        if reported.last() == Some(&ObjectEvent::AllComplete { refused: 0 }) {
            let expected = SEVERAL.map(|(name, length)| received(name, length));
            assert_eq!(complete(&mut receiver, &reported), expected);
            return receiver;
        }
    }
    panic!(
        "not complete after 16,000 datagrams: {:?}",
        receiver.progress()
    );
}

#[test]
fn every_byte_arrives_whatever_the_network_loses() {
    for scheme in [FecScheme::RaptorQ, FecScheme::NoCode] {
        for loss in [0.0, 0.01, 0.05, 0.20] {
            let mut rng = rng(3);
            deliver_all(small_blocks(scheme), |mut sent| {
                sent.retain(|_| !rng.random_bool(loss));
                sent
            });
        }
    }
}

#[test]
fn every_byte_arrives_repeated_and_out_of_order() {
    for scheme in [FecScheme::RaptorQ, FecScheme::NoCode] {
        let mut rng = rng(4);
        let receiver = deliver_all(small_blocks(scheme), |mut sent| {
            sent.extend(sent.clone());
            sent.shuffle(&mut rng);
            sent
        });
        assert!(receiver.progress().duplicate_symbols > 0);
    }
}

#[test]
fn events_come_in_order_and_digests_are_checked() {
    let mut sender = ObjectSender::new(config(1), vec![file("only", 5_000)]).unwrap();
    let mut receiver = receiver();
    let mut fdt = Vec::new();
    sender.next_fdt_datagram(&CCI, &mut fdt).unwrap();
    deliver(&mut receiver, &fdt);
    for _ in 0..6 {
        deliver(&mut receiver, &datagram(&mut sender, 0));
    }
    let verified = Verified {
        md5: true,
        sha256: true,
    };
    let expected = [
        ObjectEvent::FdtReceived {
            files: 1,
            total_bytes: 5_000,
        },
        ObjectEvent::ObjectStarted {
            name: "only".to_owned(),
        },
        ObjectEvent::ObjectComplete(CompleteObject {
            toi: 1,
            name: "only".to_owned(),
            length: 5_000,
            sha256: Some(Sha256::digest(&received("only", 5_000).1).into()),
            bundle: None,
            attributes: None,
            section: None,
            verified,
        }),
        ObjectEvent::AllComplete { refused: 0 },
    ];
    assert_eq!(events(&mut receiver), expected);
    let progress = receiver.progress();
    assert_eq!((progress.useful_symbols, progress.needed_symbols), (4, 4));
    assert_eq!(
        (
            progress.files,
            progress.files_complete,
            progress.needed_bytes
        ),
        (1, 1, 5_000)
    );
}

#[test]
fn data_that_precedes_the_fdt_is_used() {
    let mut sender = ObjectSender::new(config(1), vec![file("only", 100_000)]).unwrap();
    let mut receiver = receiver();
    let mut fdt = Vec::new();
    sender.next_fdt_datagram(&CCI, &mut fdt).unwrap();
    let data = std::iter::from_fn(|| Some(datagram(&mut sender, 0)));
    let is_data = |bytes: &Vec<u8>| Packet::decode(bytes).unwrap().fdt.is_none();
    for datagram in data.filter(is_data).take(75) {
        deliver(&mut receiver, &datagram);
    }
    assert_eq!(receiver.progress().early_held, 75);
    assert_eq!(events(&mut receiver), []);
    deliver(&mut receiver, &fdt);
    assert_eq!(newly_complete(&mut receiver), [received("only", 100_000)]);
    assert_eq!(receiver.progress().early_held, 0);
}

#[test]
fn the_oldest_early_packets_are_dropped_first_at_the_limit() {
    let mut sender = ObjectSender::new(config(1), vec![file("only", 100_000)]).unwrap();
    let mut receiver = ObjectReceiver::new(ReceiverConfig {
        early_max: 10_000,
        ..ReceiverConfig::new(TSI.into())
    });
    for _ in 0..50 {
        let datagram = datagram(&mut sender, 0);
        if Packet::decode(&datagram).unwrap().fdt.is_none() {
            deliver(&mut receiver, &datagram);
        }
    }
    let progress = receiver.progress();
    assert!(progress.early_held > 0 && progress.early_held <= 7);
    assert_eq!(
        progress.early_held + progress.early_dropped,
        progress.packets
    );
}

#[test]
fn all_full_datagrams_have_the_requested_length() {
    for (scheme, cci_length) in [(FecScheme::RaptorQ, 4), (FecScheme::NoCode, 8)] {
        let symbol_length = sender::symbol_length(1_200, cci_length).unwrap();
        let config = SenderConfig {
            scheme,
            symbol_length,
            cci_length,
            ..config(1)
        };
        let mut sender =
            ObjectSender::new(config, vec![file("x", usize::from(symbol_length) * 20)]).unwrap();
        let cci = vec![0; cci_length];
        let mut fdt = Vec::new();
        sender.next_fdt_datagram(&cci, &mut fdt).unwrap();
        assert!(fdt.len() == 1_200 || scheme == FecScheme::NoCode && fdt.len() < 1_200);
        for _ in 0..100 {
            let mut out = Vec::new();
            sender.next_datagram(0, &cci, &mut out).unwrap();
            let is_fdt = Packet::decode(&out).unwrap().fdt.is_some();
            assert!(is_fdt || out.len() == 1_200);
        }
        assert_eq!(sender.datagram_length(), 1_200);
    }
    assert_eq!(
        (
            sender::symbol_length(60, 8),
            sender::symbol_length(100_000, 8)
        ),
        (None, None)
    );
}

#[test]
fn no_symbol_repeats_before_its_block_is_used_up() {
    for scheme in [FecScheme::RaptorQ, FecScheme::NoCode] {
        let mut sender =
            ObjectSender::new(small_blocks(scheme), vec![file("x", 1_376 * 100)]).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        let mut data = 0;
        while data < 100 {
            let bytes = datagram(&mut sender, (data % 3) as u16);
            let symbol = Packet::decode(&bytes).unwrap().symbol.unwrap();
            if symbol.toi != 0 {
                data += 1;
                assert!(
                    seen.insert(symbol.payload_id),
                    "{scheme:?}: {:?} came twice",
                    symbol.payload_id
                );
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_datagrams() {
    let run = |seed| {
        let config = SenderConfig {
            seed,
            ..small_blocks(FecScheme::NoCode)
        };
        let mut sender = ObjectSender::new(config, several_files()).unwrap();
        (0..500)
            .map(|number| datagram(&mut sender, number % 3))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn the_end_of_the_session_is_reported_once() {
    let sender = ObjectSender::new(config(1), vec![file("x", 10)]).unwrap();
    let mut receiver = receiver();
    let mut close = Vec::new();
    sender.close_datagram(&CCI, &mut close);
    deliver(&mut receiver, &close);
    deliver(&mut receiver, &close);
    assert_eq!(events(&mut receiver), [ObjectEvent::SessionClosed]);
}

#[test]
fn a_corrupt_file_is_reported_and_received_again() {
    let mut sender = ObjectSender::new(config(1), vec![file("x", 2_000)]).unwrap();
    let mut receiver = receiver();
    let mut fdt = Vec::new();
    sender.next_fdt_datagram(&CCI, &mut fdt).unwrap();
    deliver(&mut receiver, &fdt);
    let mut is_first = true;
    for _ in 0..10 {
        let mut bytes = datagram(&mut sender, 0);
        if Packet::decode(&bytes).unwrap().fdt.is_none() {
            let last = bytes.len() - 1;
            // Corrupts only the first symbol; the last byte of the second is padding.
            bytes[last] ^= u8::from(std::mem::take(&mut is_first));
            deliver(&mut receiver, &bytes);
        }
    }
    let reported = events(&mut receiver);
    let failed = |event: &&ObjectEvent| {
        matches!(
            event,
            ObjectEvent::ObjectFailed {
                reason: FileError::Digest("MD5"),
                ..
            }
        )
    };
    assert_eq!(reported.iter().filter(failed).count(), 1, "{reported:?}");
    assert_eq!(complete(&mut receiver, &reported), [received("x", 2_000)]);
}

#[test]
fn memory_is_bounded_by_what_arrives() {
    let mut sender = ObjectSender::new(config(1), vec![file("x", 100_000)]).unwrap();
    let of_memory = |memory_max, storage_max| {
        let config = ReceiverConfig {
            memory_max,
            ..ReceiverConfig::new(TSI.into())
        };
        ObjectReceiver::with_storage(config, MemoryStorage::new(storage_max))
    };
    for (memory_max, storage_max) in [(3_000, 1 << 20), (1 << 20, 40_000)] {
        let mut receiver = of_memory(memory_max, storage_max);
        let mut refused = 0;
        for _ in 0..200 {
            let bytes = datagram(&mut sender, 0);
            if let Err(error) = receiver.handle_packet(&Packet::decode(&bytes).unwrap()) {
                assert!(
                    matches!(error, ReceiveError::Memory | ReceiveError::Storage { .. }),
                    "{error}"
                );
                refused += 1;
            }
        }
        let progress = receiver.progress();
        let counted = progress.refused.memory + progress.refused.storage;
        assert!(refused > 0 && counted >= refused && progress.useful_symbols > 0);
        assert_eq!(progress.files_complete, 0);
        assert!(progress.useful_symbols * 64 <= memory_max);
    }
}

#[test]
fn files_become_complete_one_after_another_if_memory_does_not_suffice_for_all() {
    // 480 symbols, of which memory has room for 100 or so.
    let names = ["a", "b", "c"];
    let files = names.map(|name| file(name, 160 * 1_376));
    let mut sender = ObjectSender::new(small_blocks(FecScheme::RaptorQ), files.into()).unwrap();
    let mut receiver = ObjectReceiver::new(ReceiverConfig {
        memory_max: 8_000,
        ..ReceiverConfig::new(TSI.into())
    });
    let mut reported = Vec::new();
    let mut sent = 0;
    while reported.last() != Some(&ObjectEvent::AllComplete { refused: 0 }) {
        let bytes = datagram(&mut sender, 0);
        // Symbols of the last blocks are refused meanwhile.
        let _ = receiver.handle_packet(&Packet::decode(&bytes).unwrap());
        reported.extend(events(&mut receiver));
        sent += 1;
        assert!(sent < 20_000, "{:?}", receiver.progress());
    }
    let expected = names.map(|name| received(name, 160 * 1_376));
    assert_eq!(complete(&mut receiver, &reported), expected);
    let progress = receiver.progress();
    assert!(progress.evicted_symbols > 0 && progress.refused.memory > 0);
}

#[test]
fn packets_of_other_sessions_are_counted_and_not_used() {
    let mut sender = ObjectSender::new(
        SenderConfig {
            tsi: 8,
            ..config(1)
        },
        vec![file("x", 10)],
    )
    .unwrap();
    let mut receiver = receiver();
    let bytes = datagram(&mut sender, 0);
    let result = receiver.handle_packet(&Packet::decode(&bytes).unwrap());
    assert_eq!(result, Err(ReceiveError::ForeignSession(8)));
    assert_eq!(
        (
            receiver.progress().foreign_packets,
            receiver.progress().packets
        ),
        (1, 0)
    );
}

#[test]
fn a_sender_refuses_what_it_cannot_send() {
    let new = |config: SenderConfig, files| ObjectSender::new(config, files).err().unwrap();
    let files = || vec![file("x", 10_000)];
    assert!(matches!(new(config(1), vec![]), SendError::NoFiles));
    assert!(matches!(
        new(config(1), vec![file("../x", 1)]),
        SendError::Name(_)
    ));
    assert!(matches!(
        new(config(1), vec![file("x", 1), file("x", 2)]),
        SendError::DuplicateName(_)
    ));
    for wrong in [
        SenderConfig {
            layers: 0,
            ..config(1)
        },
        SenderConfig {
            symbol_length: 62,
            ..config(1)
        },
        SenderConfig {
            symbol_length: 65_004,
            ..config(1)
        },
        SenderConfig {
            block_symbols_max: 0,
            ..config(1)
        },
        SenderConfig {
            cci_length: 5,
            ..config(1)
        },
    ] {
        assert!(matches!(new(wrong, files()), SendError::Config { .. }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_arrives_the_receiver_goes_on(datagrams in proptest::collection::vec((0_usize..60, any::<u8>(), 0_usize..200), 0..60)) {
        let mut sender = ObjectSender::new(small_blocks(FecScheme::RaptorQ), several_files()).unwrap();
        let mut receiver = receiver();
        for (position, byte, length) in datagrams {
            let mut bytes = datagram(&mut sender, 0);
            bytes[position] = byte;
            bytes.truncate(bytes.len().saturating_sub(length));
            if let Ok(packet) = Packet::decode(&bytes) {
                let _ = receiver.handle_packet(&packet);
            }
        }
        prop_assert!(events(&mut receiver).len() < 100);
    }
}

#[test]
fn an_empty_file_needs_only_the_fdt() {
    let empty = vec![file("empty", 0)];
    for scheme in [FecScheme::RaptorQ, FecScheme::NoCode] {
        let mut sender = ObjectSender::new(small_blocks(scheme), empty.clone()).unwrap();
        let mut receiver = receiver();
        deliver(&mut receiver, &datagram(&mut sender, 0));
        assert_eq!(newly_complete(&mut receiver), [received("empty", 0)]);
    }
}

/// Returns the names of complete files in their order, and the number of datagrams received until
/// each was complete. The receiver loses datagrams with probability `loss`.
fn order_of_completion(window_symbols: Option<u64>, loss: f64) -> Vec<(String, usize)> {
    let names = ["a", "b", "c", "d", "e"];
    let config = SenderConfig {
        window_symbols,
        ..small_blocks(FecScheme::RaptorQ)
    };
    let files = names.map(|name| file(name, 1_376 * 200));
    let mut sender = ObjectSender::new(config, files.into()).unwrap();
    let (mut receiver, mut rng) = (receiver(), rng(5));
    while receiver.progress().files == 0 {
        let mut table = Vec::new();
        sender.next_fdt_datagram(&CCI, &mut table).unwrap();
        deliver(&mut receiver, &table);
    }
    let (mut complete, mut received) = (Vec::new(), 0);
    for _ in 0..20_000 {
        while let Some(job) = sender.next_job() {
            sender.finish_job(&job.run().unwrap()).unwrap();
        }
        let datagram = datagram(&mut sender, 0);
        if rng.random_bool(loss) {
            continue;
        }
        received += 1;
        deliver(&mut receiver, &datagram);
        for event in events(&mut receiver) {
            if let ObjectEvent::ObjectComplete(object) = event {
                complete.push((object.name, received));
            }
        }
        if complete.len() == names.len() {
            return complete;
        }
    }
    panic!("incomplete: {complete:?}");
}

#[test]
fn in_windows_files_complete_one_after_another() {
    let complete = order_of_completion(Some(200), 0.0);
    for (number, (name, datagrams)) in complete.iter().enumerate() {
        assert_eq!(*name, ["a", "b", "c", "d", "e"][number]);
        let expected = 200 * (number + 1);
        assert!(
            (expected..expected * 11 / 10).contains(datagrams),
            "{complete:?}"
        );
    }
    // Without windows, the first file is complete when nearly everything is there.
    let together = order_of_completion(None, 0.0);
    assert!(together[0].1 > 900, "{together:?}");
}

#[test]
fn the_first_round_of_windows_has_each_source_symbol_once() {
    let config = SenderConfig {
        window_symbols: Some(200),
        ..small_blocks(FecScheme::RaptorQ)
    };
    let files = ["a", "b", "c"].map(|name| file(name, 1_376 * 200));
    let mut sender = ObjectSender::new(config, files.into()).unwrap();
    let (symbols, mut seen) = (sender.symbols() as usize, BTreeSet::new());
    while seen.len() < symbols {
        let datagram = datagram(&mut sender, 0);
        let symbol = Packet::decode(&datagram).unwrap().symbol.unwrap();
        let [sbn, esi @ ..] = symbol.payload_id;
        if symbol.toi > 0 {
            assert!(esi < [0, 0, 50], "{symbol:?} is a repair symbol");
            assert!(seen.insert((symbol.toi, sbn, esi)), "{symbol:?} again");
        }
    }
}

#[test]
fn the_estimate_of_storage_has_room_for_all_repair_symbols() {
    // With the shortest symbols, long files get blocks that are longer than a window.
    for (length, window_symbols) in [(100_000, None), (100_000, Some(10)), (5_000_000, Some(10))] {
        let config = SenderConfig {
            symbol_length: 64,
            window_symbols,
            ..small_blocks(FecScheme::RaptorQ)
        };
        let estimate = sender::repair_bytes(&config, length as u64);
        let sender = ObjectSender::new(config, vec![file("file", length)]).unwrap();
        // The table of files has a few blocks of its own.
        let table = 2 * sender.table_bytes() + 1_000;
        let needed = sender.storage_bytes();
        assert!(
            needed <= estimate + table,
            "{needed} of {estimate}, {length} bytes"
        );
    }
}

#[test]
fn receivers_below_the_sessions_rate_complete_windows_in_later_rounds() {
    for loss in [0.1, 0.5, 0.9] {
        let in_windows = order_of_completion(Some(200), loss);
        let together = order_of_completion(None, loss);
        assert!(
            in_windows[4].1 < 2 * together[4].1,
            "loss {loss}: {in_windows:?}, {together:?}"
        );
    }
}
