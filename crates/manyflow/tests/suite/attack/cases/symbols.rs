//! False symbols of the session's files.

use manyflow_webrc::Cci;
use rand::{Rng as _, RngExt as _};

use crate::attack::attacker::Attacker;
use crate::attack::forge::{Forged, Real};
use crate::attack::trial::{
    Report, Trial, some_files, until_noticed, withstand, withstand_in_tunnel,
};

const FALSE_PER_S: u32 = 20;

/// Sends a false symbol of the file to which the session's latest packet belongs. `number` chooses
/// whether the symbol is a source symbol, or a repair symbol that the sender will soon send, or one
/// that it will never send.
pub(super) fn poison(attacker: &mut Attacker, number: u64, change: impl Fn(&mut Cci, u32)) {
    let noise: u32 = attacker.random.random();
    let Some(&Real {
        cci, payload_id, ..
    }) = attacker.latest_data().as_ref()
    else {
        return;
    };
    let mut symbol = vec![0; attacker.latest_data().unwrap().symbol.len()];
    attacker.random.fill_bytes(&mut symbol);
    let real = attacker.latest_data().unwrap();
    // RaptorQ's payload id: 8 bits of block number, 24 of symbol number (RFC 6330 section 3.2).
    let [sbn, rest @ ..] = payload_id;
    let real_esi = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]);
    let esi: u32 = match number % 3 {
        0 => noise % 700,
        1 => real_esi + noise % 100,
        _ => 100_000 + noise % 100_000,
    };
    let [_, esi @ ..] = esi.to_be_bytes();
    let mut cci = cci;
    change(&mut cci, noise);
    let forged = Forged {
        codepoint: real.codepoint,
        payload_id: [sbn, esi[0], esi[1], esi[2]],
        ..Forged::symbol(attacker.description.tsi, cci, real.toi.unwrap(), &symbol)
    };
    attacker.send(&forged.encode());
}

/// Whether a symbol was found to be false.
pub(super) fn is_found(report: &Report) -> bool {
    let reasons = ["contradiction", "withdrawn_symbols", "block"];
    let found: u64 = reasons.map(|reason| report.refused(reason)).iter().sum();
    found + report.packets_refused() > 0
}

fn withstand_poison(change: fn(&mut Cci, u32)) {
    let Some(trial) = Trial::start(some_files, &[]) else {
        return;
    };
    let forge = move |attacker: &mut Attacker, number| poison(attacker, number, change);
    until_noticed(|| withstand(&trial, FALSE_PER_S, forge), is_found);
}

#[test]
fn false_symbols_under_the_numbers_of_true_packets_are_found() {
    withstand_poison(|_, _| {});
}

#[test]
fn false_symbols_under_the_numbers_of_packets_to_come_are_found() {
    withstand_poison(|cci, noise| cci.psn = (cci.psn + 1 + noise % 20) & 0xffff);
}

/// Numbers of packets that the sender sent before the receiver joined their wave.
#[test]
fn false_symbols_under_the_numbers_of_old_packets_are_found() {
    withstand_poison(|cci, noise| cci.psn = cci.psn.saturating_sub(noise % 2_000));
}

#[test]
fn false_symbols_under_random_numbers_are_found() {
    withstand_poison(|cci, noise| cci.psn = noise & 0xffff);
}

#[test]
fn false_symbols_in_a_tunnel_are_found() {
    let Some(trial) = Trial::start(some_files, &[]) else {
        return;
    };
    let forge = |attacker: &mut Attacker, number: u64| {
        poison(attacker, number, |cci, noise| {
            cci.psn = (cci.psn + noise % 4) & 0xffff
        })
    };
    until_noticed(|| withstand_in_tunnel(&trial, FALSE_PER_S, forge), is_found);
}
