//! Measures how many packets receivers of any rate must receive, in a fluid model of WEBRC: Luby,
//! Goyal, Skaria and Horn, "Wave and Equation Based Rate Control Using Multicast Round Trip Time",
//! 2002, section 3, figures 1 and 2. Each wave channel's rate decays by P per time slot. A receiver
//! of n waves receives the last n slots of each wave; in the first of these slots it receives only
//! what follows its join in the middle of the slot.

#![allow(
    clippy::disallowed_methods,
    reason = "the bounds leave room for the last bit of `powf`"
)]

use crate::common;

use common::*;
use manyflow_object::alc::Packet;
use manyflow_object::receiver::{ObjectEvent, ObjectReceiver, Progress};
use manyflow_object::sender::{ObjectSender, SenderConfig, SourceFile};

const P: f64 = 0.75;
const SLOT_S: f64 = 10.0;
/// The base channel's rate at the start of a slot in packets per second; it decays to P times that
/// within the slot.
const BASE_RATE: f64 = 1.0;
/// The number of active waves above those that the receiver receives.
const UNHEARD_WAVES: u16 = 2;
const STEPS_PER_SLOT: u32 = 200;

/// Sends slot after slot and gives a receiver the layers that it has joined, until it has all
/// files.
struct Session {
    sender: ObjectSender,
    receiver: ObjectReceiver,
    joined_waves: u16,
    /// The step of each slot in which the receiver joins its next wave.
    join_step: u32,
    /// Fractions of packets that the fluid model has sent and the sender has not, for each layer.
    credit: Vec<f64>,
    received: u64,
    is_complete: bool,
}

impl Session {
    fn new(
        config: SenderConfig,
        files: Vec<SourceFile>,
        joined_waves: u16,
        join_step: u32,
    ) -> Self {
        let layers = joined_waves + UNHEARD_WAVES + 1;
        let sender = ObjectSender::new(SenderConfig { layers, ..config }, files).unwrap();
        let credit = vec![0.0; usize::from(layers)];
        Session {
            sender,
            receiver: receiver(),
            joined_waves,
            join_step,
            credit,
            received: 0,
            is_complete: false,
        }
    }

    /// Returns the number of packets received until all files are complete, by a receiver that
    /// joins in step `start` of the first slot.
    fn run(mut self, start: u32) -> (u64, Progress) {
        for slot in 0..20_000 {
            for step in 0..STEPS_PER_SLOT {
                let is_listening = slot > 0 || step >= start;
                self.step(step, is_listening);
                if self.is_complete {
                    return (self.received, self.receiver.progress());
                }
            }
        }
        panic!("the files are not complete after 20,000 slots");
    }

    fn step(&mut self, step: u32, is_listening: bool) {
        if step == 0 {
            let mut fdt = Vec::new();
            self.sender.next_fdt_datagram(&CCI, &mut fdt).unwrap();
            self.receive(is_listening, &fdt);
        }
        for layer in 0..self.joined_waves + UNHEARD_WAVES + 1 {
            let decay = f64::from(step) / f64::from(STEPS_PER_SLOT) - f64::from(layer);
            self.credit[usize::from(layer)] +=
                BASE_RATE * P.powf(decay) * SLOT_S / f64::from(STEPS_PER_SLOT);
            while self.credit[usize::from(layer)] >= 1.0 {
                self.credit[usize::from(layer)] -= 1.0;
                let data = datagram(&mut self.sender, layer);
                let is_joined = layer < self.joined_waves
                    || layer == self.joined_waves && step >= self.join_step;
                self.receive(is_listening && is_joined, &data);
            }
        }
    }

    fn receive(&mut self, is_heard: bool, datagram: &[u8]) {
        if is_heard && !self.is_complete {
            self.received += 1;
            self.receiver
                .handle_packet(&Packet::decode(datagram).unwrap())
                .unwrap();
            let is_all = |event| matches!(event, ObjectEvent::AllComplete { .. });
            self.is_complete = events(&mut self.receiver).into_iter().any(is_all);
        }
    }
}

/// Packets received over symbols needed, of a receiver that joins in step `start` of the first
/// slot.
fn overhead(files: &[SourceFile], joined_waves: u16, start: u32, join_step: u32) -> f64 {
    let config = SenderConfig {
        symbol_length: 512,
        block_symbols_max: 1_000,
        ..config(1)
    };
    let session = Session::new(config, files.to_vec(), joined_waves, join_step);
    let symbols = session.sender.symbols();
    let (received, progress) = session.run(start);
    assert_eq!(
        (progress.duplicate_symbols, progress.refused),
        Default::default()
    );
    received as f64 / symbols as f64
}

/// The worst overhead of receivers that join at five moments and join their waves in step
/// `join_step` of each slot.
fn worst_overhead(what: &str, files: &[SourceFile], joined_waves: u16, join_step: u32) -> f64 {
    let overheads: Vec<f64> = (0..5)
        .map(|moment| {
            overhead(
                files,
                joined_waves,
                moment * 139 % STEPS_PER_SLOT,
                join_step,
            )
        })
        .collect();
    let worst = overheads.iter().copied().fold(0.0, f64::max);
    println!(
        "{what}, {joined_waves:2} waves joined in step {join_step:3}: {worst:.4} of {overheads:.4?}"
    );
    worst
}

#[test]
fn a_receiver_of_any_rate_needs_at_most_three_percent_more_packets_than_symbols() {
    for blocks in [1, 5, 20] {
        let files = [file("file", blocks * 1_000 * 512)];
        for joined_waves in [4, 12, 22] {
            let worst = worst_overhead(&format!("{blocks:2} blocks"), &files, joined_waves, 0);
            assert!(
                worst <= 1.03,
                "{blocks} blocks, {joined_waves} waves: {worst}"
            );
        }
    }
}

/// These receivers cut one layer at random places, some packets long. No schedule can keep so few
/// packets in proportion.
#[test]
fn a_receiver_that_joins_amid_slots_needs_at_most_five_percent_more() {
    for (joined_waves, join_step) in [(4, 70), (4, 150), (12, 30), (22, 110)] {
        let worst = worst_overhead(
            "20 blocks",
            &[file("file", 20 * 1_000 * 512)],
            joined_waves,
            join_step,
        );
        assert!(
            worst <= 1.05,
            "{joined_waves} waves, step {join_step}: {worst}"
        );
    }
}

#[test]
fn a_thousand_tiny_files_arrive_in_few_rounds() {
    let files: Vec<_> = (0..1_000)
        .map(|number| file(&format!("{number}"), 100))
        .collect();
    for joined_waves in [4, 12, 22] {
        let worst = worst_overhead("1000 files", &files, joined_waves, 0);
        assert!(worst <= 5.5, "{joined_waves} waves: {worst}");
    }
}

#[test]
fn tiny_files_do_not_hold_up_a_large_one() {
    let mut files: Vec<_> = (0..10)
        .map(|number| file(&format!("{number}"), 100))
        .collect();
    files.push(file("large", 5_000 * 512));
    for joined_waves in [4, 12, 22] {
        let worst = worst_overhead("5000 symbols and 10 files", &files, joined_waves, 70);
        assert!(worst <= 1.04, "{joined_waves} waves: {worst}");
    }
}
