//! New versions of files: receivers with a former version need only the chunks that changed, and
//! the sender sends only what they name.
use crate::common;

use std::io;

use bytes::Bytes;
use common::*;
use manyflow_object::alc::Packet;
use manyflow_object::fdt::FdtInstance;
use manyflow_object::fec::FecScheme;
use manyflow_object::needs::Needs;
use manyflow_object::receiver::{ObjectReceiver, ReceiverConfig};
use manyflow_object::sender::{ObjectSender, SenderConfig, Source, SourceFile};
use rand::RngExt as _;
use sha2::{Digest as _, Sha256};

/// The length of the file of [`one_percent_that_changed_costs_about_one_percent`], unless
/// `MANYFLOW_BYTES` gives another.
const BYTES: usize = 40_000_000;

/// Returns a version of a file in which bytes of some `places` are replaced, and some are inserted.
fn changed(former: &Bytes, places: usize, bytes: usize, seed: u64) -> Bytes {
    let mut random = rng(seed);
    let mut latter = Vec::with_capacity(former.len() + places * bytes);
    let part = former.len() / places;
    for (number, part) in former.chunks(part).enumerate() {
        let at = random.random_range(0..=part.len().saturating_sub(bytes));
        latter.extend_from_slice(&part[..at]);
        latter.extend_from_slice(&random_bytes(bytes, seed + number as u64));
        // Every second place moves all that is behind it.
        let replaced = if number % 2 == 0 { bytes } else { 0 };
        latter.extend_from_slice(part.get(at + replaced..).unwrap_or_default());
    }
    latter.into()
}

fn sender_of(files: Vec<SourceFile>, config: SenderConfig) -> ObjectSender {
    let config = SenderConfig {
        content_chunks: true,
        content_md5: false,
        ..config
    };
    ObjectSender::new(config, files).unwrap()
}

/// Returns a receiver that has the session's table of files.
fn informed(sender: &mut ObjectSender) -> ObjectReceiver {
    let config = ReceiverConfig {
        table_sha256: Some(sender.table_sha256()),
        ..ReceiverConfig::new(TSI.into())
    };
    let mut receiver = ObjectReceiver::new(config);
    while receiver.progress().files == 0 {
        let mut bytes = Vec::new();
        sender.next_fdt_datagram(&CCI, &mut bytes).unwrap();
        deliver(&mut receiver, &bytes);
    }
    receiver
}

/// Lets a receiver take what it can from a former version of each file. Returns the bytes.
fn reuse(receiver: &mut ObjectReceiver, former: &[&Bytes]) -> u64 {
    let reused = (1..).zip(former).map(|(toi, former)| {
        let reused = receiver.reuse(toi, *former).unwrap();
        assert!(reused.unread.is_none());
        reused.bytes
    });
    reused.sum()
}

fn run_jobs(sender: &mut ObjectSender) {
    while let Some(job) = sender.next_job() {
        sender.finish_job(&job.run().unwrap()).unwrap();
    }
}

/// Sends until all receivers are complete, of whose packets `loss` are lost. The sender hears what
/// they need all the time. Returns the number of packets.
fn send_until_complete(
    sender: &mut ObjectSender,
    receivers: &mut [ObjectReceiver],
    loss: f64,
) -> u64 {
    let mut random = rng(9);
    for packets in 0.. {
        if receivers.iter().all(ObjectReceiver::is_complete) {
            return packets;
        }
        if packets % 500 == 0 {
            let needs: Vec<Needs> = receivers.iter().filter_map(ObjectReceiver::needs).collect();
            sender.focus(&needs, needs.len() == receivers.len());
            run_jobs(sender);
        }
        let bytes = datagram(sender, 0);
        for receiver in &mut *receivers {
            if !random.random_bool(loss) {
                let _ = receiver.handle_packet(&Packet::decode(&bytes).unwrap());
            }
        }
    }
    unreachable!("the loop ends when all are complete")
}

fn assert_received(receiver: &mut ObjectReceiver, files: &[(&str, &Bytes)]) {
    let files = files.iter();
    let files: Vec<_> = files
        .map(|&(name, content)| (name.to_owned(), content.clone()))
        .collect();
    assert!(newly_complete(receiver) == files);
}

/// `MANYFLOW_BYTES=1000000000 cargo test --release -p manyflow-object versions -- --nocapture`
/// prints the figures of a file of 1 GB.
#[test]
fn one_percent_that_changed_costs_about_one_percent() {
    let bytes = std::env::var("MANYFLOW_BYTES").map_or(BYTES, |bytes| bytes.parse().unwrap());
    let former = random_bytes(bytes, 1);
    // One percent, in 10 places.
    let latter = changed(&former, 10, bytes / 1_000, 2);
    let file = SourceFile::new("image", latter.clone());
    let mut sender = sender_of(vec![file], config(1));
    let table = sender.table_bytes();
    let mut receiver = informed(&mut sender);
    let reused = reuse(&mut receiver, &[&former]);
    let mut receivers = [receiver];
    let packets = send_until_complete(&mut sender, &mut receivers, 0.0);
    let sent = packets * sender.datagram_length() as u64;
    println!(
        "{} bytes, of which {} were here: {sent} bytes sent in {packets} packets, and a table of {table}",
        latter.len(),
        reused
    );
    assert_received(&mut receivers[0], &[("image", &latter)]);
    let share = sent as f64 / latter.len() as f64;
    assert!(share < 0.025, "{share}");
    assert!(table < latter.len() as u64 / 1_000, "{table}");
}

#[test]
fn receivers_with_different_former_versions_share_the_symbols_that_are_sent() {
    let latter = random_bytes(4_000_000, 1);
    let [one, two] = [2, 3].map(|seed| changed(&latter, 5, 8_000, 10 * seed));
    for (loss, window_symbols) in [(0.0, None), (0.2, Some(500))] {
        let config = SenderConfig {
            window_symbols,
            ..config(1)
        };
        let alone = |former: &[&Bytes]| {
            let file = SourceFile::new("x", latter.clone());
            let mut sender = sender_of(vec![file], config.clone());
            let receivers = former.iter().map(|former| {
                let mut receiver = informed(&mut sender);
                assert!(reuse(&mut receiver, &[former]) > 3_000_000);
                receiver
            });
            let mut receivers: Vec<_> = receivers.collect();
            let packets = send_until_complete(&mut sender, &mut receivers, loss);
            for receiver in &mut receivers {
                assert_received(receiver, &[("x", &latter)]);
            }
            packets
        };
        let [first, second, both] = [alone(&[&one]), alone(&[&two]), alone(&[&one, &two])];
        println!("{first} and {second} packets, {both} for both, loss {loss}");
        assert!(both * 10 < (first + second) * 9, "{first} {second} {both}");
        assert!((both as f64) < 0.5 * 2_907.0 / (1.0 - loss), "{both}");
    }
}

#[test]
fn a_receiver_without_a_former_version_gets_the_whole_file_beside_others() {
    let latter = random_bytes(2_000_000, 1);
    let former = changed(&latter, 2, 5_000, 2);
    let file = SourceFile::new("x", latter.clone());
    let mut sender = sender_of(vec![file], config(1));
    let mut holder = informed(&mut sender);
    reuse(&mut holder, &[&former]);
    let needs = holder.needs().unwrap();
    assert!(sender.focus([&needs], false));
    run_jobs(&mut sender);
    // This one has not reported yet.
    let mut receivers = [holder, receiver()];
    let mut packets = [0; 2];
    for (receiver, packets) in receivers.iter_mut().zip(&mut packets) {
        while !receiver.is_complete() {
            *packets += 1;
            let bytes = datagram(&mut sender, 0);
            let _ = receiver.handle_packet(&Packet::decode(&bytes).unwrap());
        }
        assert_received(receiver, &[("x", &latter)]);
    }
    let [holder, other] = packets;
    assert!(
        holder < 500 && (1_454..4_000).contains(&other),
        "{packets:?}"
    );
    // It needs so much that the sender has no focus.
    let mut other = informed(&mut sender);
    let all = other.needs().unwrap();
    assert!(all.symbols() >= 1_454 && !sender.focus([&needs, &all], true));
    send_until_complete(&mut sender, std::slice::from_mut(&mut other), 0.0);
}

#[test]
fn files_that_did_not_change_cost_nothing() {
    let [same, former, new] = [1_000_000, 900_000, 10_000].map(|length| random_bytes(length, 1));
    let latter = changed(&former, 1, 20_000, 2);
    let files = [("a", &same), ("b", &latter), ("c", &new)];
    for scheme in [FecScheme::RaptorQ, FecScheme::NoCode] {
        let config = SenderConfig {
            scheme,
            block_symbols_max: 100,
            ..config(1)
        };
        let sources = files.map(|(name, content)| SourceFile::new(name, content.clone()));
        let mut sender = sender_of(sources.into(), config);
        let mut receiver = informed(&mut sender);
        receiver.skip(1).unwrap();
        assert!(receiver.can_reuse(2) && !receiver.can_reuse(3) && !receiver.can_reuse(4));
        reuse(&mut receiver, &[&same, &former]);
        let mut receivers = [receiver];
        let packets = send_until_complete(&mut sender, &mut receivers, 0.1);
        assert_received(&mut receivers[0], &files[1..]);
        // 8 symbols of the new file; in the other, those of two or three chunks of 16 KiB, or
        // without code of their blocks.
        let most = if scheme == FecScheme::RaptorQ {
            250
        } else {
            1_000
        };
        assert!(packets < most, "{scheme:?}: {packets}");
    }
}

/// A former version of this length, whose last part cannot be read.
struct Broken(Bytes, u64);

impl Source for Broken {
    fn length(&self) -> u64 {
        self.1
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }
}

#[test]
fn any_former_version_leads_to_the_file() {
    let latter = random_bytes(1_000_000, 1);
    let zeros = Bytes::from(vec![0; 3_000_000]);
    let half = latter.slice(..500_000);
    let twice = Bytes::from([&latter[..], &latter[..]].concat());
    for (former, some) in [
        (Bytes::new(), false),
        (random_bytes(1_000_000, 2), false),
        (zeros.clone(), false),
        (half, true),
        (twice, true),
        (latter.clone(), true),
    ] {
        let file = SourceFile::new("x", latter.clone());
        let mut sender = sender_of(vec![file], config(1));
        let mut receiver = informed(&mut sender);
        assert_eq!(reuse(&mut receiver, &[&former]) > 0, some);
        assert!(!receiver.can_reuse(1));
        assert_eq!(reuse(&mut receiver, &[&former]), 0);
        send_until_complete(&mut sender, std::slice::from_mut(&mut receiver), 0.0);
        assert_received(&mut receiver, &[("x", &latter)]);
    }
    // Many equal chunks are copied to all their places.
    let mut sender = sender_of(vec![SourceFile::new("x", zeros.clone())], config(1));
    let mut receiver = informed(&mut sender);
    assert_eq!(
        reuse(&mut receiver, &[&zeros.slice(..300_000)]) / 100_000,
        29
    );

    let mut sender = sender_of(vec![SourceFile::new("x", latter.clone())], config(1));
    let mut receiver = informed(&mut sender);
    let broken = Broken(latter.slice(..700_000), 1_000_000);
    let reused = receiver.reuse(1, &broken).unwrap();
    assert!(reused.unread.is_some() && reused.bytes > 500_000);
    send_until_complete(&mut sender, std::slice::from_mut(&mut receiver), 0.0);
    assert_received(&mut receiver, &[("x", &latter)]);
}

/// A chunk's digest has 64 bits only, so an enemy can make two chunks with one digest. Here the
/// digests of the last third are those of another file, which the receiver has.
#[test]
fn chunks_that_are_false_are_found_by_the_digests_of_blocks() {
    let [latter, other] = [1, 2].map(|seed| random_bytes(3_000_000, seed));
    let other = Bytes::from([&latter[..2_900_000], &other[2_900_000..]].concat());
    let table_of = |content: &Bytes| {
        let file = SourceFile::new("x", content.clone());
        let mut sender = sender_of(vec![file], config(1));
        let mut table = Vec::new();
        for _ in 0..sender.fdt_symbols() {
            let mut bytes = Vec::new();
            sender.next_fdt_datagram(&CCI, &mut bytes).unwrap();
            table.extend_from_slice(Packet::decode(&bytes).unwrap().symbol.unwrap().data);
        }
        let end = table.iter().rposition(|&byte| byte == b'>').unwrap() + 1;
        let fdt = FdtInstance::decode(&table[..end], 1).unwrap();
        (sender, fdt)
    };
    let ((mut sender, mut fdt), (_, others)) = (table_of(&latter), table_of(&other));
    fdt.files[0].chunks.clone_from(&others.files[0].chunks);
    let table = fdt.encode();
    let config = ReceiverConfig {
        table_sha256: Some(Sha256::digest(&table).into()),
        ..ReceiverConfig::new(TSI.into())
    };
    let mut receiver = ObjectReceiver::new(config);
    receiver.resume(&table, []).unwrap();
    // The last chunk of the former version differs, so the last block is not whole.
    assert!(reuse(&mut receiver, &[&other.slice(..2_990_000)]) > 2_900_000);
    let packets = send_until_complete(&mut sender, std::slice::from_mut(&mut receiver), 0.0);
    assert_received(&mut receiver, &[("x", &latter)]);
    assert_eq!(receiver.progress().refused.block, 1);
    assert!(packets < 3_000, "{packets}");
}

#[test]
fn symbols_that_came_before_the_table_do_not_keep_chunks_from_being_used() {
    let latter = random_bytes(3_000_000, 1);
    let former = changed(&latter, 3, 100, 2);
    let mut sender = sender_of(vec![SourceFile::new("x", latter.clone())], config(1));
    let config = ReceiverConfig {
        table_sha256: Some(sender.table_sha256()),
        ..ReceiverConfig::new(TSI.into())
    };
    let mut receiver = ObjectReceiver::new(config);
    for _ in 0..300 {
        let bytes = datagram(&mut sender, 0);
        let packet = Packet::decode(&bytes).unwrap();
        if packet.symbol.is_some_and(|symbol| symbol.toi > 0) {
            receiver.handle_packet(&packet).unwrap();
        }
    }
    while receiver.progress().files == 0 {
        let mut bytes = Vec::new();
        sender.next_fdt_datagram(&CCI, &mut bytes).unwrap();
        deliver(&mut receiver, &bytes);
    }
    assert!(receiver.progress().useful_symbols > 290);
    assert!(reuse(&mut receiver, &[&former]) > 2_500_000);
    let packets = send_until_complete(&mut sender, std::slice::from_mut(&mut receiver), 0.0);
    assert_received(&mut receiver, &[("x", &latter)]);
    assert!(packets < 500, "{packets}");
}

#[test]
fn reused_symbols_take_no_more_memory_than_allowed() {
    let latter = random_bytes(3_000_000, 1);
    let former = changed(&latter, 3, 100, 2);
    let mut sender = sender_of(vec![SourceFile::new("x", latter.clone())], config(1));
    let config = ReceiverConfig {
        table_sha256: Some(sender.table_sha256()),
        memory_max: 70_000,
        ..ReceiverConfig::new(TSI.into())
    };
    let mut receiver = ObjectReceiver::new(config);
    while receiver.progress().files == 0 {
        let mut bytes = Vec::new();
        sender.next_fdt_datagram(&CCI, &mut bytes).unwrap();
        deliver(&mut receiver, &bytes);
    }
    // Of three blocks, one fits.
    let reused = reuse(&mut receiver, &[&former]);
    assert!((800_000..1_000_000).contains(&reused), "{reused}");
    send_until_complete(&mut sender, std::slice::from_mut(&mut receiver), 0.0);
    assert_received(&mut receiver, &[("x", &latter)]);
}

#[test]
fn needs_of_blocks_that_the_session_does_not_have_are_ignored() {
    let mut sender = sender_of(vec![file("x", 100_000)], config(1));
    for bytes in [
        &[1, 50, 0xff, 0xff, 3, 9][..],
        &[9, 0, 1, 1],
        &[1, 0xff, 0xff, 0xff, 0xff, 7, 1, 1],
    ] {
        let needs = Needs::decode(bytes).unwrap();
        assert!(!sender.focus([&needs], true), "{bytes:?}");
        datagram(&mut sender, 0);
    }
    let all = Needs::decode(&[1, 0, 0xff, 0xff, 3, 0xff, 0xff, 3]).unwrap();
    assert!(!sender.focus([&all], true));
}
