//! Cut and changed packets: the dissectors refuse those that our decoders refuse.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use rand::seq::SliceRandom as _;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::{Protocol, dissect, overlay, simulated};
use crate::wireshark::pcap::{Pcap, SENDER, UNICAST};

/// The bytes of a packet that are varied. All headers are shorter.
const VARIED_BYTES: usize = 64;
/// The bytes of a packet that are kept.
const KEPT_BYTES: usize = 96;
/// The number of variants of one protocol.
const VARIANTS_MAX: usize = 2500;
/// The number of different packets of one kind and length that are varied.
const BASES: usize = 3;
/// The port of protocols that have none, or that share it.
const HOP_PORT: u16 = 40_001;
const OVERLAY_PORT: u16 = 40_002;
/// The port of daemons.
const DAEMON_PORT: u16 = 4747;

/// Packets of kinds that captures do not have.
#[rustfmt::skip]
const MORE: [(Protocol, &[u8]); 45] = [
    (Protocol::Acp, &[1, 8, 1, 0, 1, 2, 3, 4]),
    (Protocol::Acp, &[1, 1, 0, 0, 1, 2, 3, 4, 0, 1, 2, 3, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]),
    (Protocol::Acp, &[0x81, 6, 0, 0, 1, 2, 3, 4, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]),
    (Protocol::Acp, &[1, 4, 0, 3, 1, 2, 3, 4, 0, 0, 0, 9, 255, 255, 255, 254, 0, 0, 0, 7, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0, 0]),
    (Protocol::Layered, &[1, 4, 5, 6, 1, 2, 3, 4, 0, 1, 232, 72, 0, 1, 134, 160, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 9, 7, 8, 9]),
    (Protocol::Layered, &[1, 4, 5, 6, 1, 2, 3, 4, 0, 1, 232, 72, 0, 1, 134, 160, 0, 0, 0, 0]),
    (Protocol::Layered, &[2, 0x9f, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 8, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2]),
    (Protocol::Hop, &[0x41, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 35, 40]),
    (Protocol::Hop, &[0x41, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 35, 40, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]),
    (Protocol::Hop, &[0x42, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 35, 40]),
    (Protocol::Hop, &[0x43, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0, 0, 3, 2, 0x9f, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 8, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2]),
    (Protocol::Hop, &[0x43, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0, 0, 3, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]),
    (Protocol::Hop, &[0x44, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0, 0, 3, 3, 2, 0, 0, 0, 0, 0, 5]),
    (Protocol::Overlay, &[0x25, 0x30, 1, 2, 7, 8, 0, 0, 0, 4, 2, 3, 0, 6, 2, 3, 0, 9, 2, 3]),
    (Protocol::Overlay, &[0x2e, 0x20, 1, 2, 5, 6, 7, 8, 0, 0, 0, 9, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 4]),
    (Protocol::Overlay, &[0x2d, 0, 1, 2, 0, 0, 0, 9, 7, 8, 0, 0, 0, 0, 0, 3, 5, 6, 0, 0, 0, 0, 0, 5, 0, 0, 0, 2]),
    (Protocol::Overlay, &[0x2c, 0x80, 1, 2, 0, 0, 0, 9, 7, 8, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 6, 0, 0, 80, 81]),
    (Protocol::Overlay, &[0x22, 0, 1, 2, 0, 0, 0, 9, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 2, 110, 46, 115]),
    (Protocol::Overlay, &[0x22, 0, 1, 2, 0, 0, 0, 9, 0, 0, 0, 2, 0, 2, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0]),
    (Protocol::Overlay, &[0x24, 0, 1, 2, 0, 0, 0, 2, 0, 0, 0, 4, 0, 3, 5, 6, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0]),
    (Protocol::Overlay, &[0x24, 0, 1, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0]),
    (Protocol::Overlay, &[0x22, 0, 1, 2, 0, 0, 0, 9, 0, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    (Protocol::Overlay, &[0x2a, 0, 1, 2, 0, 0, 0, 9, 0, 0, 0, 2]),
    (Protocol::Overlay, &[0x30, 0, 1, 0x90]),
    (Protocol::Overlay, &[0x34, 0, 0, 0, 0, 0, 0, 9]),
    (Protocol::Overlay, &[0x37, 0, 1, 2, 0, 0, 0, 9, 7, 8, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 80, 81]),
    (Protocol::Overlay, &[0x29, 0x20, 0, 0, 0, 0, 0, 7, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 12]),
    (Protocol::Webrc, &[0x10, 0xa0, 6, 6, 1, 2, 0, 3, 0, 0, 0, 9, 0, 0, 0, 0, 1, 1, 0, 0, 192, 32, 0, 7, 0, 0, 0, 1, 80, 81]),
    // Values at the limits of what decoders accept, on both sides.
    (Protocol::Acp, &[1, 4, 0, 0, 1, 2, 3, 4, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 1, 0, 0, 0, 0, 5, 0, 6, 0, 1, 0, 0, 0, 0]),
    (Protocol::Acp, &[1, 4, 0, 0, 1, 2, 3, 4, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 1, 0, 0, 0, 0, 5, 0, 5, 0, 1, 0, 0, 0, 0]),
    (Protocol::Acp, &[1, 4, 0, 0, 1, 2, 3, 4, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 1, 0, 0, 1, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0]),
    (Protocol::Acp, &[1, 4, 0, 0, 1, 2, 3, 4, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 1, 0, 0, 2, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0]),
    (Protocol::Acp, &[1, 8, 5, 0, 1, 2, 3, 4]),
    (Protocol::Acp, &[0x81, 12, 3, 255, 1, 2, 3, 4, 0, 0, 1, 0]),
    (Protocol::Acp, &[0x81, 12, 4, 0, 1, 2, 3, 4, 0, 0, 1, 0]),
    (Protocol::Webrc, &[0x10, 0x82, 3, 0, 1, 2, 0, 3, 0, 0, 0, 9]),
    (Protocol::Webrc, &[0x10, 0x80, 3, 0, 1, 2, 0, 3, 0, 0, 0, 9, 0, 0, 0, 0, 7]),
    (Protocol::Webrc, &[0x18, 0xa0, 6, 0, 1, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1]),
    (Protocol::Webrc, &[0x10, 0xa0, 5, 0, 1, 2, 0, 3, 0, 0, 0, 9, 0, 0, 0, 1, 2, 0, 0, 0]),
    (Protocol::Overlay, &[0x29, 0x10, 0, 0, 0, 0, 0, 5, 0, 0, 0, 5, 0x80, 0, 0, 4]),
    (Protocol::Overlay, &[0x29, 0x10, 0, 0, 0, 0, 0, 5, 0, 0, 0, 5, 0x80, 0, 0, 5]),
    (Protocol::Overlay, &[0x29, 0x10, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 2]),
    (Protocol::Overlay, &[0x22, 0, 1, 2, 0, 0, 0, 9, 0, 0, 0, 2, 0, 2, 0, 2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0]),
    (Protocol::Layered, &[1, 31, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 5, 255, 255, 255, 254, 255, 255, 255, 255, 7, 8]),
    (Protocol::Layered, &[1, 31, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 5, 255, 255, 255, 254, 255, 255, 255, 255, 7]),
];

/// Cuts and changes a packet.
fn variants_of(packet: &[u8], random: &mut Pcg64Mcg, out: &mut Vec<Vec<u8>>) {
    let packet = &packet[..packet.len().min(KEPT_BYTES)];
    let varied = packet.len().min(VARIED_BYTES);
    out.extend((1..varied).map(|end| packet[..end].to_vec()));
    for place in 0..varied {
        let bit = 1 << random.random_range(0..8_u32);
        for byte in [
            packet[place] ^ bit,
            packet[place].wrapping_add(1),
            0,
            random.random(),
        ] {
            let mut changed = packet.to_vec();
            changed[place] = byte;
            out.push(changed);
        }
    }
    out.push([packet, &[0]].concat());
    out.push([packet, &[1; 8]].concat());
}

/// Some packets of each protocol and kind.
fn bases() -> BTreeMap<Protocol, Vec<Vec<u8>>> {
    let (_folder, rows) = simulated();
    let mut bases: BTreeMap<Protocol, Vec<Vec<u8>>> = BTreeMap::new();
    let mut counts = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.udp.is_empty()) {
        let protocol = Protocol::of_simulated(row);
        // The first bytes have the kind, and in datagrams of the overlay the message.
        let kind = (
            protocol,
            row.udp[..2].to_vec(),
            row.udp.get(8).map(|byte| byte >> 4),
        );
        let count = counts.entry(kind).or_insert(0);
        *count += 1;
        if *count <= BASES {
            bases.entry(protocol).or_default().push(row.udp.clone());
        }
    }
    for (protocol, bytes) in MORE {
        bases.entry(protocol).or_default().push(bytes.to_vec());
    }
    let packets = bases[&Protocol::Overlay]
        .iter()
        .map(|frame| as_packet(frame));
    let packets = packets.collect();
    bases.insert(Protocol::OverlayPacket, packets);
    bases
}

/// A packet of a live link with this frame.
fn as_packet(frame: &[u8]) -> Vec<u8> {
    let header = [0x81, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 1, 2];
    let body: &[u8] = match frame[0] & 31 {
        8 | 9 => &[1],
        16.. => &[0],
        _ => &[2, 1, 2, 3, 4, 32],
    };
    // A keep-alive has no frame.
    let frame = if body == [0] { &[] } else { frame };
    [&header[..], body, frame].concat()
}

/// The longest message of an overlay, and one that is too long.
fn longest() -> [Vec<u8>; 2] {
    [0, 1].map(|more| {
        let mut bytes = vec![0; 24 + manyflow_overlay::PAYLOAD_BYTES_MAX as usize + more];
        // The version and the kind, and the sequence number.
        (bytes[0], bytes[15]) = (0x21, 1);
        bytes
    })
}

/// Where variants of a protocol go.
fn destination(protocol: Protocol) -> (Ipv4Addr, u16) {
    let group = Ipv4Addr::new(232, 1, 0, 1);
    match protocol {
        Protocol::Webrc => (group, 5445),
        Protocol::Tfmcc => (group, 47445),
        Protocol::Layered => (group, 5446),
        Protocol::Hop => (UNICAST, HOP_PORT),
        Protocol::Acp => (UNICAST, 7000),
        Protocol::Overlay => (UNICAST, OVERLAY_PORT),
        Protocol::OverlayPacket => (UNICAST, DAEMON_PORT),
    }
}

#[test]
fn cut_and_changed_datagrams_are_refused_as_by_our_decoders() {
    if dissect::is_missing() {
        return;
    }
    let mut random = Pcg64Mcg::seed_from_u64(7);
    let (mut pcap, mut sent) = (Pcap::new(), BTreeMap::new());
    for (protocol, packets) in bases() {
        let mut variants = Vec::new();
        for packet in &packets {
            variants_of(packet, &mut random, &mut variants);
        }
        variants.shuffle(&mut random);
        variants.truncate(VARIANTS_MAX);
        if protocol == Protocol::Overlay {
            variants.extend(longest());
        }
        for bytes in packets.into_iter().chain(variants) {
            let number = pcap.udp((SENDER, 40_000), destination(protocol), &bytes);
            sent.insert(number, (protocol, bytes));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("variants.pcap");
    pcap.write(&file);
    let hop = format!("udp.port=={HOP_PORT},manyflow_hop");
    let frames = format!("udp.port=={OVERLAY_PORT},manyflow_overlay");
    let clear = "manyflow_overlay_packet.protection:none (insecure daemons)";
    let rows = dissect::rows(&file, &["-d", &hop, "-d", &frames, "-o", clear]);
    assert_eq!(rows.len(), sent.len());
    let mut counts: BTreeMap<Protocol, [u32; 2]> = BTreeMap::new();
    for row in rows {
        let (protocol, bytes) = &sent[&row.frame];
        let fields = protocol.decode(bytes);
        row.check(fields.as_ref());
        counts.entry(*protocol).or_default()[usize::from(fields.is_none())] += 1;
    }
    println!("accepted and refused: {counts:?}");
    assert_eq!(counts.len(), 7);
    for (protocol, [accepted, refused]) in counts {
        assert!(
            accepted > 100 && refused > 100,
            "{protocol:?}: {accepted}, {refused}"
        );
    }
}

/// Handshakes and frames of streams, each in a connection of its own.
fn stream_bases() -> Vec<Vec<u8>> {
    let frames: Vec<&[u8]> = MORE
        .iter()
        .filter(|(protocol, bytes)| *protocol == Protocol::Overlay && bytes[0] < 0x30)
        .filter(|(protocol, bytes)| protocol.decode(bytes).is_some())
        .map(|(_, bytes)| *bytes)
        .collect();
    let framed = |frame: &[u8]| [&[0, frame.len() as u8], frame].concat();
    let mut bases: Vec<Vec<u8>> = frames.iter().map(|frame| framed(frame)).collect();
    bases.push(frames[..3].iter().flat_map(|frame| framed(frame)).collect());
    for flags in [0, 2] {
        let mut bytes = b"manyflo\x06\x01\x02\x00\x00\x00\x07".to_vec();
        bytes.extend([flags, 2]);
        bytes.extend(b"\xc3\xa9\x05north");
        bytes.extend([0, 0, 0, 7, 0, 0, 0, 9]);
        bytes.extend(if flags == 2 { &[1; 10][..] } else { &[] });
        bytes.extend(framed(frames[0]));
        bases.push(bytes);
    }
    bases
}

#[tokio::test]
async fn cut_and_changed_streams_are_refused_as_by_our_decoders() {
    if dissect::is_missing() {
        return;
    }
    let (mut random, mut variants) = (Pcg64Mcg::seed_from_u64(7), Vec::new());
    for bytes in stream_bases() {
        let mut of_these = Vec::new();
        variants_of(&bytes, &mut random, &mut of_these);
        let is_hello = bytes.starts_with(b"manyflo");
        variants.extend(of_these.into_iter().map(|bytes| (is_hello, bytes)));
    }
    let mut pcap = Pcap::new();
    for (place, (_, bytes)) in variants.iter().enumerate() {
        let port = 10_000 + place as u16;
        pcap.tcp((SENDER, port), (UNICAST, DAEMON_PORT), 1, bytes);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("streams.pcap");
    pcap.write(&file);
    let rows = dissect::rows(&file, &[]);
    assert_eq!(rows.len(), variants.len());
    let mut counts = [0; 2];
    for (row, (is_hello, bytes)) in rows.iter().zip(&variants) {
        let fields = match is_hello {
            true => overlay::connection(bytes).await,
            false => overlay::stream(bytes),
        };
        row.check(fields.as_ref());
        counts[usize::from(fields.is_none())] += 1;
    }
    println!("accepted and refused: {counts:?}");
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}

#[test]
fn no_bytes_break_a_dissector() {
    if dissect::is_missing() {
        return;
    }
    let (mut random, mut pcap) = (Pcg64Mcg::seed_from_u64(7), Pcap::new());
    for _ in 0..5000 {
        let mut bytes = vec![0; random.random_range(1..80)];
        random.fill_bytes(&mut bytes);
        let (port, first) = (
            random.random_range(0..7_usize),
            random.random_range(0..5_u8),
        );
        // Half of the packets have a first byte that the dissector or AMT's knows.
        if random.random() {
            bytes[0] = [0x10, first, first, 0x40 | first, first, 0x21 + first, 0][port];
        }
        let port = [5445, 47445, 48445, 2268, 7000, 4747, 2268][port];
        pcap.udp((SENDER, 40_000), (UNICAST, port), &bytes);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("random.pcap");
    pcap.write(&file);
    let rows = dissect::rows(&file, &[]);
    let refused = rows.iter().filter(|row| row.is_refused).count();
    println!("{refused} of {} refused", rows.len());
    assert!(rows.len() == 5000 && refused > 1000);
}

#[test]
fn packets_of_a_capture_with_a_limit_are_not_refused() {
    if dissect::is_missing() {
        return;
    }
    let mut pcap = Pcap::new();
    for (protocol, packets) in bases() {
        let packets = packets
            .iter()
            .filter(|bytes| protocol.decode(bytes).is_some());
        for bytes in packets {
            for kept in 0..bytes.len().min(VARIED_BYTES) {
                pcap.udp_cut((SENDER, 40_000), destination(protocol), bytes, kept);
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("limited.pcap");
    pcap.write(&file);
    let rows = dissect::rows(&file, &[]);
    assert!(rows.len() > 1000);
    assert!(rows.iter().all(|row| !row.is_refused));
}

#[test]
fn packets_of_insecure_links_are_recognised_and_sealed_ones_show_their_number() {
    if dissect::is_missing() {
        return;
    }
    let packets = bases().remove(&Protocol::OverlayPacket).unwrap();
    let packets = packets.into_iter();
    let packets: Vec<Vec<u8>> = packets
        .filter(|bytes| Protocol::OverlayPacket.decode(bytes).is_some())
        .collect();
    let mut pcap = Pcap::new();
    for bytes in &packets {
        // No dissector has the port, so heuristics decide.
        pcap.udp((SENDER, 50_000), (UNICAST, 50_001), bytes);
    }
    let mut sealed = packets[0][..16].to_vec();
    sealed.extend([0xaa; 40]);
    pcap.udp((SENDER, 50_000), (UNICAST, 50_001), &sealed);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("packets.pcap");
    pcap.write(&file);
    let rows = dissect::rows(&file, &[]);
    assert!(rows.len() > 10);
    for (row, bytes) in rows.iter().zip(&packets) {
        row.check(Protocol::OverlayPacket.decode(bytes).as_ref());
    }
    let last = rows.last().unwrap();
    let number = last.columns.get("manyflow_overlay_packet.number");
    assert_eq!(number.map(String::as_str), Some("258"), "{last:?}");
    assert!(!last.is_refused && last.columns.len() == 2, "{last:?}");
}

#[test]
fn links_under_tls_are_left_to_wireshark() {
    if dissect::is_missing() {
        return;
    }
    // A ClientHello with one cipher suite and no extension.
    let hello = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0, 0, 0]].concat();
    let length = hello.len() as u8;
    let mut bytes = vec![0x16, 3, 1, 0, length + 4, 1, 0, 0, length];
    bytes.extend(hello);
    let mut pcap = Pcap::new();
    pcap.tcp((SENDER, 40_000), (UNICAST, DAEMON_PORT), 1, &bytes);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tls.pcap");
    pcap.write(&file);
    let rows = dissect::rows(&file, &[]);
    assert!(rows[0].protocols.ends_with(":tls") && !rows[0].is_refused);
}
