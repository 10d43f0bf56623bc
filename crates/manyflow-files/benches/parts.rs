//! Measures what a group key's MAC, or encryption, costs for each packet of 1400 bytes, in elements
//! per second.

use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput};
use manyflow_files::session::{GroupOpener, GroupSealer};
use manyflow_net::group_key::GroupKey;
use manyflow_object::ext_auth::EXTENSION_BYTES;
use manyflow_object::lct::{Fields, Header};

const PACKET_BYTES: usize = 1_400;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let key = group_key();
    let (mac, encryption) = (
        GroupSealer::authenticating(&key),
        GroupSealer::encrypting(&key),
    );
    packets(&mut criterion, "group key, packets", mac);
    packets(&mut criterion, "group key, encrypted packets", encryption);
    criterion.final_summary();
}

fn packets(criterion: &mut Criterion, name: &str, mut sealer: GroupSealer) {
    let plain = plain_packet();
    let mut opener = GroupOpener::new(&group_key(), &sealer.protection());
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(1));
    let mut packet = Vec::with_capacity(PACKET_BYTES);
    group.bench_function("seal", |bencher| {
        bencher.iter(|| {
            packet.clear();
            packet.extend_from_slice(&plain);
            sealer.seal(&mut packet);
        });
    });
    let mut sealed = || {
        let mut packet = plain.clone();
        sealer.seal(&mut packet);
        packet
    };
    group.bench_function("open", |bencher| {
        bencher.iter_batched_ref(
            &mut sealed,
            |packet| opens(&mut opener, packet),
            BatchSize::SmallInput,
        );
    });
    let repeated = sealed();
    opens(&mut opener, &repeated);
    group.bench_function("refuse a repeated one", |bencher| {
        bencher.iter(|| opens(&mut opener, &repeated));
    });
}

fn opens(opener: &mut GroupOpener, packet: &[u8]) -> bool {
    let decoded = Header::decode(packet);
    decoded.is_ok_and(|(header, _)| opener.open(packet, &header).is_some())
}

/// A packet that is `PACKET_BYTES` long once it is sealed.
fn plain_packet() -> Vec<u8> {
    let fields = Fields {
        cci: &[7; 8],
        tsi: 7,
        toi: Some(1),
        close_session: false,
        close_object: false,
        codepoint: 6,
        extensions: &[],
    };
    let mut packet = Vec::new();
    fields.encode(&mut packet);
    packet.resize(PACKET_BYTES - EXTENSION_BYTES, 9);
    packet
}

fn group_key() -> GroupKey {
    let file = tempfile::NamedTempFile::new().expect("a folder for temporary files");
    let key = format!("{}=", "A".repeat(43));
    std::fs::write(file.path(), key).expect("a file that can be written");
    GroupKey::read(file.path()).expect("a key of 32 bytes")
}
