//! Files that can no longer be read while they are sent.

use crate::common;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use manyflow_object::alc::Packet;
use manyflow_object::receiver::ObjectEvent;
use manyflow_object::sender::{ObjectSender, Source, SourceFile};

/// A file that another program may cut.
struct Shrinking {
    content: bytes::Bytes,
    is_cut: Arc<AtomicBool>,
}

impl Source for Shrinking {
    fn length(&self) -> u64 {
        self.content.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match self.is_cut.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::UnexpectedEof.into()),
            false => self.content.read_at(offset, buffer),
        }
    }
}

/// A sender of "shrinking" and "other", the flag that cuts the first, and a receiver of both.
fn stage() -> (ObjectSender, Arc<AtomicBool>) {
    let is_cut = Arc::new(AtomicBool::new(false));
    let shrinking = Shrinking {
        content: random_bytes(400_000, 1),
        is_cut: Arc::clone(&is_cut),
    };
    let shrinking = SourceFile {
        content: Arc::new(shrinking),
        ..file("shrinking", 0)
    };
    let files = vec![shrinking, file("other", 100_000)];
    (ObjectSender::new(config(1), files).unwrap(), is_cut)
}

/// Sends a packet, and withdraws files that cannot be read. Returns whether one is left.
fn send(sender: &mut ObjectSender, out: &mut Vec<u8>) -> bool {
    loop {
        out.clear();
        match sender.next_datagram(0, &[0; 8], out) {
            Ok(()) => return true,
            Err(error) if sender.withdraw(&error) => {}
            Err(_) => return false,
        }
    }
}

#[test]
fn the_other_files_of_a_session_arrive_and_receivers_are_told() {
    let (mut sender, is_cut) = stage();
    let (mut receiver, mut out) = (receiver(), Vec::new());
    let mut reported = Vec::new();
    let mut closing = 0;
    let mut sent = 0;
    for number in 0..2_000 {
        is_cut.store(number >= 50, Ordering::Relaxed);
        assert!(send(&mut sender, &mut out));
        closing += u32::from(Packet::decode(&out).unwrap().closes_object() == Some(1));
        sent += 1;
        deliver(&mut receiver, &out);
        reported.extend(events(&mut receiver));
        if receiver.progress().files_complete == 1 {
            break;
        }
    }
    // The file that is left gets nearly all packets: it has 73 source symbols.
    assert!(sent < 50 + 73 + 73 / 8, "{sent}");
    assert!(closing >= 1);
    let name = "shrinking".to_owned();
    assert!(reported.contains(&ObjectEvent::ObjectWithdrawn { name }));
    assert_eq!(receiver.progress().files_withdrawn, 1);
    let other = received("other", 100_000);
    assert_eq!(complete(&mut receiver, &reported), [other]);
}

#[test]
fn a_forged_withdrawal_costs_nothing() {
    let (mut sender, _) = stage();
    let (mut receiver, mut out) = (receiver(), Vec::new());
    while receiver.progress().files_complete < 2 {
        assert!(send(&mut sender, &mut out));
        deliver(&mut receiver, &out);
        if receiver.progress().files > 0 {
            // As a packet of the sender, with flag B and without symbol.
            let header = usize::from(out[2]) * 4;
            let mut forged = out[..header].to_vec();
            forged[1] |= 1;
            deliver(&mut receiver, &forged);
        }
    }
    assert_eq!(receiver.progress().files_withdrawn, 0);
}

#[test]
fn a_session_ends_when_its_last_file_cannot_be_read() {
    let is_cut = Arc::new(AtomicBool::new(false));
    let shrinking = Shrinking {
        content: random_bytes(400_000, 1),
        is_cut: Arc::clone(&is_cut),
    };
    let only = SourceFile {
        content: Arc::new(shrinking),
        ..file("shrinking", 0)
    };
    let mut sender = ObjectSender::new(config(1), vec![only]).unwrap();
    is_cut.store(true, Ordering::Relaxed);
    let mut out = Vec::new();
    assert!((0..10_000).any(|_| !send(&mut sender, &mut out)));
}
