//! Sessions with false contents: wrong parts are refused and reported, and the rest arrives.
use crate::common;

use common::*;
use manyflow_object::alc::Packet;
use manyflow_object::error::{FdtError, FileError, NameError, OtiError, ReceiveError};
use manyflow_object::fdt::{FdtInstance, FecAttributes, FileEntry};
use manyflow_object::fec::Oti;
use manyflow_object::receiver::{ObjectEvent, ObjectReceiver, ReceiverConfig};
use manyflow_object::sender::{ObjectSender, SenderConfig};
use sha2::{Digest, Sha256};

const SYMBOL: u16 = 100;

/// A datagram with 32-bit CCI, TSI and TOI, without code.
fn packet(toi: u32, extensions: &[u8], sbn: u16, esi: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x10, 0xa0, (4 + extensions.len() / 4) as u8, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&TSI.to_be_bytes());
    bytes.extend_from_slice(&toi.to_be_bytes());
    bytes.extend_from_slice(extensions);
    bytes.extend_from_slice(&[sbn.to_be_bytes(), esi.to_be_bytes()].concat());
    bytes.extend_from_slice(data);
    bytes
}

fn fdt_extensions(instance: u8, oti: Oti) -> Vec<u8> {
    [&[192, 0x20, 0, instance][..], &oti.encode_extension()].concat()
}

fn fdt(instance: u8, files: Vec<FileEntry>) -> Vec<u8> {
    let document = FdtInstance {
        expires: 1,
        complete: true,
        files,
    }
    .encode();
    let oti = Oti::no_code(document.len() as u64, 60_000, 1).unwrap();
    packet(0, &fdt_extensions(instance, oti), 0, 0, &document)
}

fn entry(toi: u128, location: &str) -> FileEntry {
    let fec = FecAttributes::from(&Oti::no_code(250, SYMBOL, 2).unwrap());
    FileEntry {
        toi,
        location: location.to_owned(),
        transfer_length: Some(250),
        fec,
        ..FileEntry::default()
    }
}

fn handle(receiver: &mut ObjectReceiver, datagram: &[u8]) -> Result<(), ReceiveError> {
    receiver.handle_packet(&Packet::decode(datagram).unwrap())
}

/// A receiver that knows one file, `x`: object 1, with one block of two symbols and one of a single
/// symbol; the last 50 bytes are a short symbol.
fn receiver_of_x() -> ObjectReceiver {
    let mut receiver = receiver();
    deliver(&mut receiver, &fdt(0, vec![entry(1, "x")]));
    receiver
}

fn deliver_x(receiver: &mut ObjectReceiver) {
    for (sbn, esi, length) in [(0, 0, 100), (0, 1, 100), (1, 0, 50)] {
        deliver(receiver, &packet(1, &[], sbn, esi, &vec![7; length]));
    }
    assert!(newly_complete(receiver).contains(&("x".to_owned(), vec![7; 250].into())));
}

#[test]
fn files_that_cannot_be_received_are_reported_and_the_others_arrive() {
    let mut receiver = receiver();
    let gzip = FileEntry {
        content_encoding: Some("gzip".to_owned()),
        ..entry(3, "gzip")
    };
    let endless = FileEntry {
        transfer_length: Some(1 << 48),
        ..entry(4, "endless")
    };
    let fec = FecAttributes {
        encoding_id: Some(5),
        ..FecAttributes::from(&Oti::no_code(250, SYMBOL, 2).unwrap())
    };
    let unknown = FileEntry {
        fec,
        ..entry(5, "unknown")
    };
    deliver(
        &mut receiver,
        &fdt(
            0,
            vec![
                entry(1, "x"),
                entry(2, "../../etc/passwd"),
                gzip,
                endless,
                unknown,
            ],
        ),
    );
    let reasons: Vec<_> = events(&mut receiver)
        .into_iter()
        .filter_map(|event| match event {
            ObjectEvent::ObjectFailed { reason, .. } => Some(reason),
            _ => None,
        })
        .collect();
    assert!(matches!(reasons[0], FileError::Name(_)));
    assert_eq!(reasons[1], FileError::ContentEncoding("gzip".to_owned()));
    assert!(matches!(
        reasons[2],
        FileError::Oti(OtiError::TransferLength { .. })
    ));
    assert_eq!(reasons[3], FileError::Oti(OtiError::Scheme(5)));
    assert_eq!(reasons.len(), 4);

    deliver(&mut receiver, &packet(2, &[], 0, 0, &[0; 100]));
    for (sbn, esi, length) in [(0, 0, 100), (0, 1, 100), (1, 0, 50)] {
        deliver(&mut receiver, &packet(1, &[], sbn, esi, &vec![7; length]));
    }
    assert_eq!(
        events(&mut receiver).last(),
        Some(&ObjectEvent::AllComplete { refused: 4 })
    );
}

#[test]
fn symbols_that_do_not_fit_their_object_are_refused() {
    let mut receiver = receiver_of_x();
    for (sbn, esi) in [(0, 2), (1, 1), (2, 0), (9, 9)] {
        let error = handle(&mut receiver, &packet(1, &[], sbn, esi, &[0; 100])).unwrap_err();
        assert_eq!(
            error,
            ReceiveError::SymbolId {
                sbn: sbn.into(),
                esi: esi.into()
            }
        );
    }
    for (sbn, found, expected) in [(0, 99, 100), (0, 101, 100), (0, 0, 100), (1, 100, 50)] {
        let error = handle(&mut receiver, &packet(1, &[], sbn, 0, &vec![0; found])).unwrap_err();
        assert_eq!(error, ReceiveError::PayloadLength { found, expected });
    }
    let other = Oti::no_code(251, SYMBOL, 2).unwrap().encode_extension();
    assert_eq!(
        handle(&mut receiver, &packet(1, &other, 0, 0, &[0; 100])),
        Err(ReceiveError::OtiChanged)
    );
    let impossible = [&[64, 4][..], &[0; 14]].concat();
    assert!(matches!(
        handle(&mut receiver, &packet(1, &impossible, 0, 0, &[0; 100])),
        Err(ReceiveError::Oti(_))
    ));
    let refused = receiver.progress().refused;
    assert_eq!(
        (refused.symbol_id, refused.payload_length, refused.oti),
        (4, 4, 2)
    );
    deliver_x(&mut receiver);
}

#[test]
fn fdt_packets_that_cannot_be_used_are_refused() {
    let mut receiver = receiver();
    let oti = Oti::no_code(10, SYMBOL, 1).unwrap();
    let long = Oti::no_code(33 << 20, 60_000, 1_000).unwrap();
    let mut of_version_3 = fdt_extensions(0, oti);
    of_version_3[1] = 0x30;
    let compressed = [&fdt_extensions(0, oti)[..], &[193, 3, 0, 0]].concat();
    assert_eq!(
        handle(&mut receiver, &packet(0, &[], 0, 0, &[0; 10])),
        Err(ReceiveError::FdtHeader(None))
    );
    assert_eq!(
        handle(&mut receiver, &packet(0, &of_version_3, 0, 0, &[0; 10])),
        Err(ReceiveError::FdtHeader(Some(3)))
    );
    assert_eq!(
        handle(&mut receiver, &packet(0, &compressed, 0, 0, &[0; 10])),
        Err(ReceiveError::FdtEncoding(3))
    );
    let error = handle(
        &mut receiver,
        &packet(0, &fdt_extensions(0, long), 0, 0, &[0; 10]),
    );
    assert_eq!(
        error,
        Err(ReceiveError::FdtLength {
            length: 33 << 20,
            limit: 32 << 20
        })
    );
    let error = handle(
        &mut receiver,
        &packet(0, &[192, 0x20, 0, 0], 0, 0, &[0; 10]),
    );
    assert!(matches!(
        error,
        Err(ReceiveError::Oti(OtiError::Missing(_)))
    ));
    let error = handle(
        &mut receiver,
        &packet(0, &fdt_extensions(0, oti), 0, 0, b"no xml ..."),
    );
    assert!(matches!(error, Err(ReceiveError::Fdt(_))));
    assert_eq!(receiver.progress().refused.fdt, 5);
}

#[test]
fn files_are_bounded_over_all_fdts_of_a_session() {
    let mut receiver = ObjectReceiver::new(ReceiverConfig {
        files_max: 2,
        ..ReceiverConfig::new(TSI.into())
    });
    deliver(&mut receiver, &fdt(0, vec![entry(1, "x"), entry(2, "y")]));
    deliver(&mut receiver, &fdt(1, vec![entry(1, "x")]));
    let result = handle(&mut receiver, &fdt(2, vec![entry(3, "z")]));
    assert_eq!(result, Err(ReceiveError::Fdt(FdtError::TooManyFiles(2))));
    deliver_x(&mut receiver);
}

#[test]
fn a_table_without_the_expected_digest_is_dropped() {
    let mut sender = ObjectSender::new(config(1), vec![file("x", 250)]).unwrap();
    let mut receiver = ObjectReceiver::new(ReceiverConfig {
        table_sha256: Some(sender.table_sha256()),
        ..ReceiverConfig::new(TSI.into())
    });
    // The first forged table takes the file's TOI and name, the second adds a file.
    for (instance, forged) in [(0, vec![entry(1, "x")]), (9, vec![entry(2, "y")])] {
        let result = handle(&mut receiver, &fdt(instance, forged));
        assert_eq!(result, Err(ReceiveError::TableDigest(instance.into())));
    }
    assert_eq!(events(&mut receiver), []);
    let mut reported = Vec::new();
    for _ in 0..100 {
        deliver(&mut receiver, &datagram(&mut sender, 0));
        reported.extend(events(&mut receiver));
    }
    assert_eq!(complete(&mut receiver, &reported), [received("x", 250)]);
    let result = handle(&mut receiver, &fdt(10, vec![entry(2, "y")]));
    assert_eq!(result, Err(ReceiveError::TableDigest(10)));
    assert_eq!(receiver.progress().files, 1);
    assert_eq!(receiver.progress().refused.table, 3);
}

#[test]
fn a_file_without_sha_256_is_refused_if_the_table_is_authenticated() {
    let table = FdtInstance {
        expires: 1,
        complete: true,
        files: vec![entry(1, "x")],
    };
    let mut receiver = ObjectReceiver::new(ReceiverConfig {
        table_sha256: Some(Sha256::digest(table.encode()).into()),
        ..ReceiverConfig::new(TSI.into())
    });
    deliver(&mut receiver, &fdt(0, table.files));
    let reported = events(&mut receiver);
    let reason = FileError::NoDigest;
    let name = "x".to_owned();
    assert!(
        reported.contains(&ObjectEvent::ObjectFailed { name, reason }),
        "{reported:?}"
    );
    assert!(reported.contains(&ObjectEvent::AllComplete { refused: 1 }));
}

#[test]
fn hidden_names_are_accepted_only_from_an_authenticated_table() {
    let hidden = [".bashrc", "a/.ssh/b"].map(|name| file(name, 50));
    let mut sender = ObjectSender::new(config(1), hidden.to_vec()).unwrap();
    let authenticated = ReceiverConfig {
        table_sha256: Some(sender.table_sha256()),
        ..ReceiverConfig::new(TSI.into())
    };
    for (config, wanted) in [
        (ReceiverConfig::new(TSI.into()), 0),
        (authenticated, hidden.len()),
    ] {
        let mut receiver = ObjectReceiver::new(config);
        let mut reported = Vec::new();
        for _ in 0..100 {
            deliver(&mut receiver, &datagram(&mut sender, 0));
            reported.extend(events(&mut receiver));
        }
        assert_eq!(complete(&mut receiver, &reported).len(), wanted);
        let refused = hidden.len() - wanted;
        assert!(reported.contains(&ObjectEvent::AllComplete { refused }));
        let is_hidden = |event: &&ObjectEvent| {
            matches!(
                event,
                ObjectEvent::ObjectFailed {
                    reason: FileError::Name(NameError::Hidden(_)),
                    ..
                }
            )
        };
        assert_eq!(reported.iter().filter(is_hidden).count(), refused);
    }
}

#[test]
fn a_second_object_with_the_name_of_another_is_refused() {
    let mut receiver = receiver();
    deliver(&mut receiver, &fdt(0, vec![entry(1, "x"), entry(2, "x")]));
    deliver(&mut receiver, &fdt(1, vec![entry(3, "x"), entry(4, "%78")]));
    let refused = |event: &&ObjectEvent| matches!(event, ObjectEvent::ObjectFailed { reason, .. } if *reason == FileError::DuplicateName);
    assert_eq!(events(&mut receiver).iter().filter(refused).count(), 3);
    assert_eq!(receiver.progress().files_refused, 3);
    deliver_x(&mut receiver);
}

#[test]
fn a_later_fdt_adds_files() {
    let mut receiver = receiver_of_x();
    deliver_x(&mut receiver);
    deliver(&mut receiver, &packet(2, &[], 0, 0, &[7; 100]));
    deliver(&mut receiver, &fdt(1, vec![entry(1, "x"), entry(2, "y")]));
    let reported = events(&mut receiver);
    assert_eq!(
        reported[0],
        ObjectEvent::FdtReceived {
            files: 1,
            total_bytes: 250
        }
    );
    assert_eq!(
        reported[1],
        ObjectEvent::ObjectStarted {
            name: "y".to_owned()
        }
    );
    assert_eq!(receiver.progress().files, 2);
}

#[test]
fn unfinished_fdts_do_not_pile_up() {
    let mut receiver = receiver();
    let oti = Oti::no_code(200, SYMBOL, 2).unwrap();
    for instance in 0..100 {
        deliver(
            &mut receiver,
            &packet(0, &fdt_extensions(instance, oti), 0, 0, &[0; 100]),
        );
    }
    deliver(&mut receiver, &fdt(200, vec![entry(1, "x")]));
    deliver_x(&mut receiver);
}

/// Returns the packets of a table of many files, as instance `instance` with two symbols or more.
fn long_fdt(instance: u8) -> (Vec<Vec<u8>>, [u8; 32]) {
    let files = (1..200).map(|toi| entry(toi, &format!("x{toi}"))).collect();
    let table = FdtInstance {
        expires: 1,
        complete: true,
        files,
    };
    let table = table.encode();
    let oti = Oti::no_code(table.len() as u64, 1000, 60_000).unwrap();
    let symbols = table.chunks(1000).enumerate();
    let extensions = fdt_extensions(instance, oti);
    let packets = symbols.map(|(esi, data)| packet(0, &extensions, 0, esi as u16, data));
    (packets.collect(), Sha256::digest(&table).into())
}

#[test]
fn forged_packets_of_tables_do_not_keep_a_long_table_from_arriving() {
    let (packets, table_sha256) = long_fdt(0);
    assert!(packets.len() > 10);
    let mut receiver = ObjectReceiver::new(ReceiverConfig {
        table_sha256: Some(table_sha256),
        ..ReceiverConfig::new(TSI.into())
    });
    for (number, real) in (0..).zip(&packets) {
        // Packets of this instance with other FEC parameters, and of higher instances.
        let oti = Oti::no_code(200 + number, SYMBOL, 2).unwrap();
        for instance in [0, 200, 201, 202, 203, 204, 205] {
            let forged = packet(0, &fdt_extensions(instance, oti), 0, 0, &[0; 100]);
            deliver(&mut receiver, &forged);
        }
        let result = handle(&mut receiver, &fdt(0, vec![entry(1, "forged")]));
        assert_eq!(result, Err(ReceiveError::TableDigest(0)));
        deliver(&mut receiver, real);
    }
    assert_eq!(receiver.progress().files, 199);
}

/// A session of one file with blocks of 20 symbols, and a receiver that knows its table.
fn session_of_blocks() -> (ObjectSender, ObjectReceiver) {
    let config = SenderConfig {
        block_symbols_max: 20,
        ..config(1)
    };
    let mut sender = ObjectSender::new(config, vec![file("x", 200_000)]).unwrap();
    let mut receiver = ObjectReceiver::new(ReceiverConfig {
        table_sha256: Some(sender.table_sha256()),
        ..ReceiverConfig::new(TSI.into())
    });
    let mut table = Vec::new();
    sender.next_fdt_datagram(&CCI, &mut table).unwrap();
    deliver(&mut receiver, &table);
    assert_eq!(receiver.progress().files, 1);
    (sender, receiver)
}

fn is_data(datagram: &[u8]) -> bool {
    Packet::decode(datagram).unwrap().fdt.is_none()
}

#[test]
fn a_false_symbol_costs_its_block_and_no_other() {
    let (mut sender, mut receiver) = session_of_blocks();
    let mut is_first = true;
    let mut sent = 0;
    while receiver.progress().files_complete == 0 {
        let mut bytes = datagram(&mut sender, 0);
        if is_data(&bytes) {
            sent += 1;
            if std::mem::take(&mut is_first) {
                bytes[100] ^= 1;
            }
        }
        if let Err(error) = handle(&mut receiver, &bytes) {
            assert!(matches!(error, ReceiveError::BlockDigest(_)), "{error}");
        }
    }
    assert_eq!(receiver.progress().refused.block, 1);
    assert_eq!(newly_complete(&mut receiver), [received("x", 200_000)]);
    // 146 symbols in 8 blocks. Until one of them has been received twice, the others get as many
    // packets: without digests of blocks, all of these would be needed again.
    assert!((146 + 18..=146 * 2 + 20).contains(&sent), "{sent}");
    assert!(receiver.progress().useful_symbols <= 146 + 25);
}

#[test]
fn symbols_that_contradict_each_other_are_not_used() {
    let (mut sender, mut receiver) = session_of_blocks();
    let mut contradictions = 0;
    for number in 0.. {
        let bytes = datagram(&mut sender, 0);
        if is_data(&bytes) && number % 20 == 5 {
            let mut forged = bytes.clone();
            forged[100] ^= 1;
            deliver(&mut receiver, &bytes);
            // A symbol of a complete block is not compared.
            if let Err(error) = handle(&mut receiver, &forged) {
                let is_contradiction = matches!(error, ReceiveError::Contradiction { .. });
                assert!(is_contradiction, "{error}");
                contradictions += 1;
            }
        } else {
            deliver(&mut receiver, &bytes);
        }
        if receiver.progress().files_complete == 1 {
            break;
        }
    }
    assert_eq!(newly_complete(&mut receiver), [received("x", 200_000)]);
    let refused = receiver.progress().refused;
    assert!(contradictions > 5);
    assert_eq!((refused.contradiction, refused.block), (contradictions, 0));
}

#[test]
fn withdrawn_symbols_do_not_spoil_their_block() {
    let (mut sender, mut receiver) = session_of_blocks();
    while receiver.progress().files_complete == 0 {
        let bytes = datagram(&mut sender, 0);
        if is_data(&bytes) && receiver.progress().withdrawn_symbols < 100 {
            // A symbol that the sender sends much later, if at all.
            let mut forged = bytes.clone();
            let symbol = Packet::decode(&bytes).unwrap().symbol.unwrap();
            let start = bytes.len() - symbol.data.len() - 4;
            let payload_id = [symbol.payload_id[0], 0x80, 0, 1];
            forged[start..start + 4].copy_from_slice(&payload_id);
            deliver(&mut receiver, &forged);
            receiver.withdraw(symbol.toi, payload_id).unwrap();
        }
        deliver(&mut receiver, &bytes);
    }
    let progress = receiver.progress();
    assert_eq!(progress.refused.block, 0);
    assert_eq!(progress.withdrawn_symbols, 100);
    assert_eq!(newly_complete(&mut receiver), [received("x", 200_000)]);
}

#[test]
fn an_expired_table_is_not_used() {
    let mut receiver = receiver();
    receiver.set_time(2);
    let result = handle(&mut receiver, &fdt(3, vec![entry(1, "x")]));
    assert_eq!(result, Err(ReceiveError::Expired(3)));
    assert_eq!(receiver.progress().refused.expired, 1);
    receiver.set_time(1);
    deliver(&mut receiver, &fdt(3, vec![entry(1, "x")]));
    deliver_x(&mut receiver);
}

#[test]
fn a_wrong_clock_does_not_expire_the_table_that_the_description_identifies() {
    let file = FileEntry {
        sha256: Some(Sha256::digest([7; 250]).into()),
        ..entry(1, "x")
    };
    let table = FdtInstance {
        expires: 1,
        complete: true,
        files: vec![file],
    };
    let config = ReceiverConfig {
        table_sha256: Some(Sha256::digest(table.encode()).into()),
        ..ReceiverConfig::new(TSI.into())
    };
    for clock in [0, 2, 1 << 31, 1 << 33] {
        let mut receiver = ObjectReceiver::new(config.clone());
        receiver.set_time(clock);
        handle(&mut receiver, &fdt(3, table.files.clone())).unwrap();
        deliver_x(&mut receiver);
    }
}

#[test]
fn forged_fec_parameters_do_not_block_an_object_whose_table_gives_none() {
    let mut receiver = receiver();
    let without = FileEntry {
        fec: FecAttributes::default(),
        ..entry(1, "x")
    };
    deliver(&mut receiver, &fdt(0, vec![without]));
    let right = Oti::no_code(250, SYMBOL, 2).unwrap().encode_extension();
    let forged = Oti::no_code(250_000, SYMBOL, 2).unwrap().encode_extension();
    deliver(&mut receiver, &packet(1, &forged, 0, 0, &[9; 100]));
    deliver(&mut receiver, &packet(1, &forged, 1, 0, &[9; 100]));
    for round in 0..3 {
        for (sbn, esi, length) in [(0, 0, 100), (0, 1, 100), (1, 0, 50)] {
            let bytes = packet(1, &right, sbn, esi, &vec![7; length]);
            let result = handle(&mut receiver, &bytes);
            assert!(result.is_ok() || round == 0, "{result:?}");
        }
    }
    assert_eq!(receiver.progress().refused.oti, 2);
    let expected = ("x".to_owned(), vec![7; 250].into());
    assert_eq!(newly_complete(&mut receiver), [expected]);
}
