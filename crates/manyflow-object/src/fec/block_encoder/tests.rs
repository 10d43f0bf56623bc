use super::*;
use crate::fec::FecScheme;
use crate::storage::MemoryStorage;
use bytes::Bytes;
use rand::SeedableRng;

/// A block of symbols of 100 bytes, and what it needs to produce symbols.
struct Block {
    encoder: BlockEncoder,
    object: ObjectSource,
    storage: MemoryStorage,
    plans: Arc<Plans>,
    jobs: usize,
}

const ALL: Demand = Demand::Steady { share: 1.0 };

fn block(scheme: FecScheme, symbols: usize, first: u32) -> Block {
    let object = Bytes::from(vec![1; symbols * 100]);
    let oti = Oti::choose(scheme, object.len() as u64, 100, 1_000).unwrap();
    let mut encoder = BlockEncoder::new(oti, 0, first, 16);
    encoder.set_room(0);
    Block {
        encoder,
        object: ObjectSource {
            is_withdrawn: false,
            name: "object".into(),
            source: Arc::new(object),
            digests: Vec::new(),
        },
        storage: MemoryStorage::default(),
        plans: Arc::default(),
        jobs: 0,
    }
}

impl Block {
    fn ids(&mut self, count: usize) -> Vec<u32> {
        let mut rng = Pcg64::seed_from_u64(1);
        (0..count).map(|_| self.next_id(&mut rng)).collect()
    }

    fn next_id(&mut self, rng: &mut Pcg64) -> u32 {
        if let Some(job) =
            self.encoder
                .job(0, Demand::Steady { share: 0.5 }, &self.object, &self.plans)
        {
            self.jobs += 1;
            let encoded = job.run().unwrap();
            self.encoder.store(&encoded, &mut self.storage).unwrap();
        }
        let (next, mut out) = (self.encoder.next(rng), Vec::new());
        let source = &*self.object.source;
        let appended = self
            .encoder
            .append(&next, source, &mut self.storage, &mut out);
        appended.unwrap();
        assert_eq!(out.len(), 4 + 100);
        let id = [out[0], out[1], out[2], out[3]];
        self.encoder.oti.split_payload_id(id).1
    }
}

#[test]
fn raptorq_symbols_start_again_when_their_numbers_are_used_up() {
    let mut from_the_start = block(FecScheme::RaptorQ, 20, 0);
    assert_eq!(from_the_start.ids(300), (0..300).collect::<Vec<_>>());
    // 15 symbols by the first job, 20 by each of the others.
    assert_eq!(from_the_start.jobs, 15);
    let last = (1 << 24) - 1;
    let mut near_the_end = block(FecScheme::RaptorQ, 20, last - 50);
    let expected: Vec<_> = (last - 50..=last).chain(0..70).collect();
    assert_eq!(near_the_end.ids(121), expected);
}

#[test]
fn repair_symbols_are_those_of_the_code() {
    let object: Vec<u8> = (0..2_000_u32).map(|byte| (byte % 251) as u8).collect();
    let mut block = block(FecScheme::RaptorQ, 20, 0);
    block.object.source = Arc::new(Bytes::from(object.clone()));
    let config = block.encoder.oti.raptorq_config().unwrap();
    let expected = SourceBlockEncoder::new(0, &config, &object).repair_packets(0, 200);
    block.ids(20);
    for packet in expected {
        let mut rng = Pcg64::seed_from_u64(1);
        if let Some(job) = block.encoder.job(0, ALL, &block.object, &block.plans) {
            let encoded = job.run().unwrap();
            block.encoder.store(&encoded, &mut block.storage).unwrap();
        }
        let (next, mut out) = (block.encoder.next(&mut rng), Vec::new());
        let source = &*block.object.source;
        let (encoder, storage) = (&mut block.encoder, &mut block.storage);
        encoder.append(&next, source, storage, &mut out).unwrap();
        assert_eq!(&out[4..], packet.data());
    }
}

#[test]
fn a_block_that_has_changed_is_not_encoded() {
    let mut block = block(FecScheme::RaptorQ, 20, 0);
    block.object.digests = vec![block_digest(&[1; 2_000])];
    let mut job = || block.encoder.job(0, ALL, &block.object, &block.plans);
    let first = job().unwrap();
    assert!(job().is_none(), "one job at a time");
    block
        .encoder
        .store(&first.run().unwrap(), &mut block.storage)
        .unwrap();
    block.object.source = Arc::new(Bytes::from(vec![2; 2_000]));
    block.encoder.next(&mut Pcg64::seed_from_u64(1));
    let mut rng = Pcg64::seed_from_u64(1);
    let later = std::iter::from_fn(|| {
        block.encoder.next(&mut rng);
        Some(block.encoder.job(0, ALL, &block.object, &block.plans))
    });
    assert!(later.flatten().next().unwrap().run().is_err());
}

#[test]
fn without_code_each_round_is_a_new_order_of_all_symbols() {
    let mut block = block(FecScheme::NoCode, 20, 0);
    let rounds: Vec<Vec<u32>> = (0..3).map(|_| block.ids(20)).collect();
    assert_ne!(rounds[0], rounds[1]);
    for mut round in rounds {
        round.sort_unstable();
        assert_eq!(round, (0..20).collect::<Vec<_>>());
    }
}

#[test]
fn a_block_of_one_symbol_repeats_it() {
    assert_eq!(block(FecScheme::RaptorQ, 1, 0).ids(3), [0, 0, 0]);
}
