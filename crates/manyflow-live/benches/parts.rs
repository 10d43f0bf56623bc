//! Measures what a group key's MAC costs for each packet of 1400 bytes, in elements per second.

use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput};
use manyflow_live::filecast::session::{GroupKey, Sealer, Verifier};
use manyflow_object::ext_auth::EXTENSION_BYTES;
use manyflow_object::lct::{Fields, Header};

const PACKET_BYTES: usize = 1_400;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    packets(&mut criterion);
    criterion.final_summary();
}

fn packets(criterion: &mut Criterion) {
    let plain = plain_packet();
    let mut sealer = Sealer::new(group_key());
    let mut verifier = Verifier::new(group_key());
    let mut group = criterion.benchmark_group("group key, packets");
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
    group.bench_function("verify", |bencher| {
        bencher.iter_batched_ref(
            &mut sealed,
            |packet| accepts(&mut verifier, packet),
            BatchSize::SmallInput,
        );
    });
    let repeated = sealed();
    accepts(&mut verifier, &repeated);
    group.bench_function("refuse a repeated one", |bencher| {
        bencher.iter(|| accepts(&mut verifier, &repeated));
    });
}

fn accepts(verifier: &mut Verifier, packet: &[u8]) -> bool {
    let decoded = Header::decode(packet);
    decoded.is_ok_and(|(header, _)| verifier.accepts(packet, &header))
}

/// A packet that is `PACKET_BYTES` long once it is sealed.
fn plain_packet() -> Vec<u8> {
    let fields = Fields {
        cci: &[7; 8],
        tsi: 7,
        toi: Some(1),
        close_session: false,
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
