//! Packets that are meant to fill the receiver's memory.

use manyflow_object::fec::Oti;

use crate::attack::attacker::Attacker;
use crate::attack::forge::{Forged, table_packet, widen_toi};
use crate::attack::trial::{Trial, some_files, until_noticed, withstand};

/// Length of the longest UDP payload over IPv4.
const LONGEST: usize = 65_507;

/// Long datagrams, and short ones in between that could keep the long ones' buffers in memory.
#[test]
fn long_and_short_datagrams_do_not_fill_the_memory() {
    let Some(trial) = Trial::start(some_files, &[]) else {
        return;
    };
    let forge = |attacker: &mut Attacker, number: u64| {
        if number >= 10_000 {
            return;
        }
        let (tsi, cci) = (attacker.description.tsi, attacker.next_cci());
        let long = Forged::symbol(tsi, cci, number as u32, &[0; LONGEST - 20]).encode();
        attacker.send(&long[..LONGEST]);
        attacker.send(&Forged::symbol(tsi, cci, number as u32, &[0; 1]).encode());
    };
    until_noticed(
        || withstand(&trial, 1_000, forge),
        |report| report.packets_refused() > 0,
    );
}

/// Two seconds of symbols of objects that no table announces. The receiver compares the lower bits
/// of TOIs to find packets with one number: here they are the same.
#[test]
fn symbols_of_unknown_objects_do_not_fill_the_memory() {
    let Some(trial) = Trial::start(some_files, &[]) else {
        return;
    };
    withstand(&trial, 50_000, |attacker, number| {
        if number >= 100_000 {
            return;
        }
        let (tsi, cci) = (attacker.description.tsi, attacker.next_cci());
        let symbol = [number as u8; 1_000];
        let forged = Forged::symbol(tsi, cci, u32::MAX, &symbol).encode();
        attacker.send(&widen_toi(&forged, cci, number as u32));
    });
}

/// Symbols of one byte, each a block of its own, of tables of files and of unknown objects.
#[test]
fn blocks_of_one_byte_do_not_fill_the_memory() {
    let Some(trial) = Trial::start(some_files, &[]) else {
        return;
    };
    withstand(&trial, 50_000, |attacker, number| {
        if number >= 200_000 {
            return;
        }
        let (tsi, cci) = (attacker.description.tsi, attacker.next_cci());
        let oti = Oti::no_code(65_535, 1, 1).unwrap();
        let fti = oti.encode_extension();
        // Compact No-Code's payload id: 16 bits of block number, 16 of symbol number (RFC 5445).
        let [high, low] = (number as u16).to_be_bytes();
        let payload_id = [high, low, 0, 0];
        if number % 4 == 0 {
            let symbol = Forged {
                extensions: &fti,
                payload_id,
                ..Forged::symbol(tsi, cci, 1_000 + number as u32, &[1])
            };
            attacker.send(&symbol.encode());
        } else {
            let instance = (number >> 14) as u32;
            attacker.send(&table_packet(tsi, cci, instance, &fti, payload_id, &[1]));
        }
    });
}
