//! The way of messages through the orderers of three daemons, in messages per second.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, Throughput};
use manyflow_core::Time;
use manyflow_order::{ClientId, OrderConfig, Orderer, Outgoing, Peer, Service};
use manyflow_overlay::DaemonId;

const DAEMONS: u16 = 3;
/// Messages between two marks.
const MESSAGES: u64 = 300;

/// Orderers whose streams arrive everywhere at once.
struct Group {
    now: Time,
    orderers: Vec<Orderer>,
    sequences: Vec<u64>,
    clients: Vec<ClientId>,
    delivered: u64,
}

impl Group {
    fn new() -> Group {
        let orderer = |at| Orderer::new(OrderConfig::default(), DaemonId(at), 1);
        let mut group = Group {
            now: Time::ZERO,
            orderers: (0..DAEMONS)
                .map(|at| orderer(at).expect("the defaults"))
                .collect(),
            sequences: vec![0; usize::from(DAEMONS)],
            clients: Vec::new(),
            delivered: 0,
        };
        let peer = |at| Peer {
            daemon: DaemonId(at),
            incarnation: 1,
        };
        let peers: Vec<Peer> = (0..DAEMONS).map(peer).collect();
        for (at, orderer) in group.orderers.iter_mut().enumerate() {
            orderer.handle_peers(group.now, &peers);
            let name = format!("#{at}#client");
            let client = orderer.connect(group.now, &name).expect("a name");
            orderer.join(group.now, client, "group").expect("a name");
            group.clients.push(client);
        }
        group.work();
        assert!(group.orderers.iter().all(Orderer::is_open), "one view");
        group
    }

    fn enter(&mut self, at: usize, record: &Bytes) {
        self.sequences[at] += 1;
        let (origin, sequence) = (DaemonId(at as u16), self.sequences[at]);
        for orderer in &mut self.orderers {
            orderer.handle_message(self.now, origin, sequence, record.clone());
        }
    }

    /// Lets time pass until all messages are delivered.
    fn work(&mut self) {
        for _ in 0..20 {
            self.now += Duration::from_millis(20);
            for at in 0..self.orderers.len() {
                self.orderers[at].handle_timeout(self.now);
                let records = std::iter::from_fn(|| self.orderers[at].poll_transmit());
                let records: VecDeque<Bytes> = records.collect();
                records.iter().for_each(|record| self.enter(at, record));
            }
        }
        for orderer in &mut self.orderers {
            self.delivered += std::iter::from_fn(|| orderer.poll_event()).count() as u64;
        }
    }

    /// Sends messages of all daemons, which all of them deliver.
    fn send(&mut self, records: &[Bytes]) {
        for message in 0..MESSAGES {
            let at = message as usize % self.orderers.len();
            self.enter(at, &records[at]);
        }
        self.work();
    }

    fn records(&self, service: Service) -> Vec<Bytes> {
        let message = Outgoing {
            service,
            groups: &["group"],
            kind: 0,
            self_discard: false,
            payload: &[0; 100],
        };
        let senders = self.orderers.iter().zip(&self.clients);
        let records = senders.map(|(orderer, client)| orderer.message(*client, &message));
        records.map(|record| record.expect("a message")).collect()
    }
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let mut benches = criterion.benchmark_group("orderer");
    // Each message is handled and delivered by each daemon.
    benches.throughput(Throughput::Elements(MESSAGES * u64::from(DAEMONS)));
    for service in [Service::Fifo, Service::Agreed, Service::Safe] {
        let mut group = Group::new();
        let records = group.records(service);
        let before = group.delivered;
        group.send(&records);
        let all = MESSAGES * u64::from(DAEMONS);
        assert_eq!(group.delivered - before, all, "all messages of {service}");
        benches.bench_function(service.to_string(), |bencher| {
            bencher.iter(|| group.send(black_box(&records)));
        });
    }
    benches.finish();
    criterion.final_summary();
}
