//! Measures the coding of ALC packets with their LCT header, in elements per second, and the
//! digests of files and blocks, in bytes per second.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use manyflow_object::alc::Packet;
use manyflow_object::fec::block_digest;
use manyflow_object::lct::Header;
use manyflow_object::sender::{ObjectSender, SenderConfig, SourceFile};
use sha2::{Digest as _, Sha256};

const CCI: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    packets(&mut criterion);
    digests(&mut criterion);
    criterion.final_summary();
}

fn digests(criterion: &mut Criterion) {
    let block = vec![7; 1_400_000];
    let mut group = criterion.benchmark_group("digests");
    group.throughput(Throughput::Bytes(block.len() as u64));
    group.bench_function("SHA-256, of a file", |bencher| {
        bencher.iter(|| Sha256::digest(black_box(&block)));
    });
    group.bench_function("BLAKE3, of a block", |bencher| {
        bencher.iter(|| block_digest(black_box(&block)));
    });
}

fn packets(criterion: &mut Criterion) {
    let file = SourceFile::new("file", vec![7; 500_000]);
    let mut sender =
        ObjectSender::new(SenderConfig::new(7, 1, 1), vec![file]).expect("a file to send");
    let mut datagram = Vec::new();
    sender
        .next_datagram(0, &CCI, &mut datagram)
        .expect("the file is in memory");
    let sent = datagram.clone();

    let mut group = criterion.benchmark_group("alc, packets");
    group.throughput(Throughput::Elements(1));
    group.bench_function("encode, symbols included", |bencher| {
        bencher.iter(|| sender.next_datagram(0, &CCI, &mut datagram));
    });
    group.bench_function("decode", |bencher| {
        bencher.iter(|| Packet::decode(black_box(&sent)).map(|packet| packet.tsi()));
    });
    group.bench_function("decode the LCT header alone", |bencher| {
        bencher.iter(|| Header::decode(black_box(&sent)).map(|(header, _)| header.tsi));
    });
}
