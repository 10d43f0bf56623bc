//! The packets that receivers need of sessions in windows, and when they need no more.

use std::ops::Range;

use crate::common;

use common::*;
use manyflow_object::alc::Packet;
use manyflow_object::receiver::{ObjectEvent, ObjectReceiver};
use manyflow_object::sender::{ObjectSender, SenderConfig};

/// Returns the number of datagrams that a receiver gets of a file in 20 windows until it is
/// complete, over those that it needs, and the number that is sent until then over those of the
/// first round. The receiver misses the first datagrams, `late` of those of a round, and evenly a
/// part `loss` of the others.
fn overhead_in_windows(late: f64, loss: f64) -> (f64, f64) {
    const SYMBOLS: usize = 20_000;
    let config = SenderConfig {
        window_symbols: Some(SYMBOLS as u64 / 20),
        symbol_length: 64,
        block_symbols_max: 500,
        ..config(1)
    };
    let mut sender = ObjectSender::new(config, vec![file("file", 64 * SYMBOLS)]).unwrap();
    let (mut receiver, mut received) = (receiver(), 0);
    for sent in 1..20 * SYMBOLS {
        while let Some(job) = sender.next_job() {
            sender.finish_job(&job.run().unwrap()).unwrap();
        }
        let datagram = datagram(&mut sender, 0);
        // Multiples of the golden ratio are evenly distributed.
        let is_lost = (sent as f64 * 0.618_034).fract() < loss;
        if (sent as f64) < late * SYMBOLS as f64 || is_lost {
            continue;
        }
        received += 1;
        deliver(&mut receiver, &datagram);
        let is_all = |event: &ObjectEvent| matches!(event, ObjectEvent::AllComplete { .. });
        if events(&mut receiver).iter().any(is_all) {
            let per_symbol = |count: usize| count as f64 / SYMBOLS as f64;
            return (per_symbol(received), per_symbol(sent));
        }
    }
    panic!("incomplete with loss {loss}, late by {late}");
}

#[test]
fn receivers_that_miss_a_little_of_each_window_or_some_windows_do_not_wait_for_a_round() {
    for loss in [0.0, 0.01, 0.15, 0.2, 0.35, 0.4, 0.6, 0.8] {
        let (received, sent) = overhead_in_windows(0.0, loss);
        println!("loss {loss}: {received} times the file received, {sent} sent");
        assert!(received < 1.45, "loss {loss}: {received}");
        assert!(loss > 0.15 || sent < 1.3, "loss {loss}: {sent} rounds");
    }
    for late in [0.75, 1.5] {
        let (received, sent) = overhead_in_windows(late, 0.0);
        println!("late by {late}: {received} times the file received, {sent} sent");
        assert!(received < 1.75, "late by {late}: {received}");
    }
    for late in [0.05, 0.25] {
        let (received, sent) = overhead_in_windows(late, 0.0);
        println!("late by {late}: {received} times the file received, {sent} sent");
        assert!(received < 1.3, "late by {late}: {received}");
        assert!(sent < late + 1.3, "late by {late}: {sent} rounds");
    }
}

/// Gives the receiver a table, and datagrams of a file of one block that lack its first symbols
/// until it has enough; does not decode. Datagrams with the numbers `falsified` have a wrong byte.
fn take_until_enough(receiver: &mut ObjectReceiver, falsified: Range<usize>) {
    let mut sender = ObjectSender::new(config(1), vec![file("file", 50 * 1_376)]).unwrap();
    let mut table = Vec::new();
    sender.next_fdt_datagram(&CCI, &mut table).unwrap();
    deliver(receiver, &table);
    for _ in 0..5 {
        datagram(&mut sender, 0);
    }
    for number in 0..100 {
        let mut datagram = datagram(&mut sender, 0);
        if let Some(last) = datagram.last_mut().filter(|_| falsified.contains(&number)) {
            *last ^= 1;
        }
        let packet = Packet::decode(&datagram).unwrap();
        receiver.take_packet(&packet).unwrap();
        if receiver.has_enough() {
            assert!(number >= 51, "{number} symbols may be too few");
            return;
        }
    }
    panic!("100 symbols are not enough");
}

#[test]
fn a_receiver_has_enough_before_it_decodes() {
    let mut receiver = receiver();
    assert!(!receiver.has_enough());
    take_until_enough(&mut receiver, 0..0);
    assert!(!receiver.is_complete());
    while let Some(job) = receiver.next_job().unwrap() {
        receiver.finish_job(&job.run()).unwrap();
    }
    assert!(receiver.is_complete() && receiver.has_enough());
}

#[test]
fn a_block_with_a_false_symbol_is_not_enough_when_it_is_decoded() {
    let mut receiver = receiver();
    take_until_enough(&mut receiver, 7..20);
    let job = receiver
        .next_job()
        .unwrap()
        .expect("a block can be decoded");
    // It is an error, or the block takes more symbols.
    let _ = receiver.finish_job(&job.run());
    assert!(!receiver.has_enough() && !receiver.is_complete());
}
