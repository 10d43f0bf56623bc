//! A receiver continues from the storage and the records of an earlier one.
use crate::common;

use std::io;
use std::sync::{Arc, Mutex};

use common::*;
use manyflow_object::alc::Packet;
use manyflow_object::receiver::{ObjectEvent, ObjectReceiver, ReceiverConfig};
use manyflow_object::sender::{ObjectSender, SenderConfig};
use manyflow_object::storage::{MemoryStorage, Record, Storage};

/// A storage that survives its receiver.
#[derive(Clone, Default)]
struct Surviving(Arc<Mutex<(MemoryStorage, Vec<Record>)>>);

impl Storage for Surviving {
    fn write_at(&mut self, object: u128, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().0.write_at(object, offset, bytes)
    }

    fn read_at(&mut self, object: u128, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.lock().unwrap().0.read_at(object, offset, buffer)
    }

    fn remove(&mut self, object: u128) -> io::Result<()> {
        self.0.lock().unwrap().0.remove(object)
    }

    fn record(&mut self, record: Record) -> io::Result<()> {
        self.0.lock().unwrap().1.push(record);
        Ok(())
    }
}

struct Session {
    sender: ObjectSender,
    table: Vec<u8>,
    storage: Surviving,
}

impl Session {
    fn start() -> Session {
        let config = SenderConfig {
            block_symbols_max: 20,
            ..config(1)
        };
        let files = vec![file("x", 200_000), file("y", 20_000), file("z", 500)];
        let mut sender = ObjectSender::new(config, files).unwrap();
        let (mut table, mut symbol) = (Vec::new(), Vec::new());
        for _ in 0..sender.fdt_symbols() {
            symbol.clear();
            sender.next_fdt_datagram(&CCI, &mut symbol).unwrap();
            table.extend_from_slice(Packet::decode(&symbol).unwrap().symbol.unwrap().data);
        }
        // The document ends before its padding.
        let end = table.iter().rposition(|&byte| byte == b'>').unwrap() + 1;
        table.truncate(end);
        Session {
            sender,
            table,
            storage: Surviving::default(),
        }
    }

    /// Starts a receiver with the storage of the last one.
    fn receiver(&mut self) -> (ObjectReceiver<Surviving>, u64) {
        let config = ReceiverConfig {
            table_sha256: Some(self.sender.table_sha256()),
            ..ReceiverConfig::new(TSI.into())
        };
        let mut receiver = ObjectReceiver::with_storage(config, self.storage.clone());
        let records = self.storage.0.lock().unwrap().1.clone();
        let restored = receiver.resume(&self.table, records).unwrap();
        (receiver, restored)
    }

    fn deliver(&mut self, receiver: &mut ObjectReceiver<Surviving>, datagrams: usize) {
        for _ in 0..datagrams {
            let bytes = datagram(&mut self.sender, 0);
            let _ = receiver.handle_packet(&Packet::decode(&bytes).unwrap());
        }
    }
}

#[test]
fn a_receiver_that_was_killed_at_any_moment_gets_nothing_twice() {
    let mut session = Session::start();
    let (mut useful, mut delivered) = (0, 0);
    let mut restored_before = 0;
    // 162 source symbols, in pieces of 13 datagrams.
    for run in 0.. {
        let (mut receiver, restored) = session.receiver();
        assert!(restored >= restored_before, "run {run}");
        restored_before = restored;
        let is_complete =
            |receiver: &ObjectReceiver<Surviving>| receiver.progress().files_complete == 3;
        if !is_complete(&receiver) {
            session.deliver(&mut receiver, 13);
            delivered += 13;
        }
        let progress = receiver.progress();
        useful += progress.useful_symbols;
        assert_eq!(progress.refused, Default::default());
        if is_complete(&receiver) {
            break;
        }
    }
    assert!((162..=165).contains(&useful), "{useful} symbols were used");
    // The last piece goes on when all are complete.
    assert!(delivered < useful + 13, "{delivered} datagrams were needed");

    // One more receiver finds everything complete.
    let (mut receiver, _) = session.receiver();
    let events: Vec<_> = std::iter::from_fn(|| receiver.poll_event()).collect();
    let complete = events.iter().filter_map(|event| match event {
        ObjectEvent::ObjectComplete(object) => Some(object),
        _ => None,
    });
    for (object, length) in complete.zip([200_000, 20_000, 500]) {
        let content = receiver.content(object).unwrap();
        assert!(
            content == received(&object.name, length).1,
            "{}",
            object.name
        );
    }
    assert_eq!(
        events.last(),
        Some(&ObjectEvent::AllComplete { refused: 0 })
    );
}

#[test]
fn a_block_that_changed_on_disk_is_received_again() {
    let mut session = Session::start();
    let (mut receiver, _) = session.receiver();
    session.deliver(&mut receiver, 120);
    session.deliver(&mut receiver, 40);
    let decoded = |record: &Record| matches!(record, Record::Decoded { object: 1, sbn: 3 });
    assert!(session.storage.0.lock().unwrap().1.iter().any(decoded));
    // Byte 80,000 of file x is in its fourth block.
    session.storage.write_at(1, 80_000, &[0; 50]).unwrap();
    let (mut receiver, _) = session.receiver();
    while receiver.progress().files_complete < 3 {
        session.deliver(&mut receiver, 1);
    }
    let events: Vec<_> = std::iter::from_fn(|| receiver.poll_event()).collect();
    let x = events.iter().find_map(|event| match event {
        ObjectEvent::ObjectComplete(object) if object.name == "x" => Some(object),
        _ => None,
    });
    assert!(receiver.content(x.unwrap()).unwrap() == received("x", 200_000).1);
}

#[test]
fn a_table_of_another_session_is_not_resumed() {
    let mut session = Session::start();
    session.table.push(b' ');
    let config = ReceiverConfig {
        table_sha256: Some(session.sender.table_sha256()),
        ..ReceiverConfig::new(TSI.into())
    };
    let mut receiver = ObjectReceiver::new(config);
    receiver.resume(&session.table, []).unwrap_err();
    assert_eq!(receiver.progress().files, 0);
}

#[test]
fn files_whose_content_exists_are_skipped() {
    let mut session = Session::start();
    let (mut receiver, _) = session.receiver();
    let missing: Vec<_> = receiver.missing().collect();
    assert_eq!(missing.len(), 3);
    for object in missing {
        receiver.skip(object.toi).unwrap();
    }
    let events: Vec<_> = std::iter::from_fn(|| receiver.poll_event()).collect();
    assert_eq!(
        events.last(),
        Some(&ObjectEvent::AllComplete { refused: 0 })
    );
    assert_eq!(receiver.missing().count(), 0);
}
