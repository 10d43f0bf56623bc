//! Forged congestion control information.

use manyflow_files::session::session_of;
use manyflow_object::fec::Oti;
use manyflow_webrc::Cci;
use rand::RngExt as _;

use crate::attack::attacker::Attacker;
use crate::attack::forge::{Forged, table_packet};
use crate::attack::trial::{Trial, large_file, some_files, until_noticed, withstand};

/// A packet with a symbol of an object that does not exist.
fn strange_symbol(attacker: &Attacker, cci: Cci) -> Vec<u8> {
    Forged::symbol(attacker.description.tsi, cci, u32::MAX, &[0; 100]).encode()
}

#[test]
fn time_slots_that_have_not_begun_do_not_end_the_transfer() {
    let Some(trial) = Trial::start(large_file, &[]) else {
        return;
    };
    let forge = |attacker: &mut Attacker, number: u64| {
        let mut cci = attacker.base_cci();
        let slots = attacker.base();
        cci.ctsi = (cci.ctsi + 2 + number as u16 % (slots - 2)) % slots;
        attacker.send(&strange_symbol(attacker, cci));
    };
    until_noticed(
        || withstand(&trial, 50, forge),
        |report| report.packets_refused() > 0,
    );
}

/// The sender's own packets as they will be in three time slots, with tables of other instances, at
/// five times the rate of the base channel. `webrc_forged.rs` in manyflow-webrc has the bound of
/// the time that this and other attacks take.
#[test]
fn a_false_timeline_from_before_the_start_does_not_keep_a_receiver_out() {
    let Some(trial) = Trial::start(some_files, &[]) else {
        return;
    };
    let session = session_of(&trial.description.webrc).unwrap();
    let per_slot = session.base_packets_per_slot();
    let forge = move |attacker: &mut Attacker, number: u64| {
        let mut cci = attacker.base_cci();
        cci.psn = (cci.psn + 3 * per_slot) & 0xffff;
        cci.ctsi = (cci.ctsi + 3) % attacker.base();
        let fti = Oti::no_code(500_000, 1_000, 1_000).unwrap();
        let fti = fti.encode_extension();
        let tsi = attacker.description.tsi;
        let table = table_packet(tsi, cci, number as u32, &fti, [0; 4], &[1; 1_000]);
        attacker.send(&table);
    };
    until_noticed(
        || withstand(&trial, 20, forge),
        |report| report.packets_refused() > 0,
    );
}

#[test]
fn sequence_numbers_far_ahead_do_not_end_the_transfer() {
    let Some(trial) = Trial::start(large_file, &[]) else {
        return;
    };
    let forge = |attacker: &mut Attacker, number: u64| {
        // Each second packet is on the base channel, the others on the wave of the latest packet.
        let mut cci = match number % 2 {
            0 => attacker.base_cci(),
            _ => attacker
                .latest_data()
                .map_or(attacker.base_cci(), |real| real.cci),
        };
        let jump = attacker.random.random_range(1_000..30_000);
        cci.psn = (cci.psn + jump) & 0xffff;
        attacker.send(&strange_symbol(attacker, cci));
    };
    until_noticed(
        || withstand(&trial, 50, forge),
        |report| report.packets_refused() > 0,
    );
}

#[test]
fn packets_of_other_channels_than_their_groups_do_not_end_the_transfer() {
    let Some(trial) = Trial::start(large_file, &[]) else {
        return;
    };
    let forge = |attacker: &mut Attacker, number: u64| {
        let mut cci = attacker.base_cci();
        // The last of these channels does not exist.
        cci.channel = number as u16 % (attacker.base() + 2);
        if cci.channel == attacker.base() {
            cci.channel = u16::from(u8::MAX);
        }
        let forged = strange_symbol(attacker, cci);
        attacker.send_on(attacker.base(), &forged);
    };
    until_noticed(
        || withstand(&trial, 50, forge),
        |report| report.packets_refused() > 0,
    );
}

/// Four times a second, a number that leaves out thirty.
#[test]
fn gaps_in_sequence_numbers_do_not_end_the_transfer() {
    let Some(trial) = Trial::start(large_file, &[]) else {
        return;
    };
    withstand(&trial, 4, |attacker, number| {
        let real = attacker.latest_data().map(|real| real.cci);
        let mut cci = match (number % 2, real) {
            (0, Some(cci)) => cci,
            _ => attacker.base_cci(),
        };
        cci.psn = (cci.psn + 30) & 0xffff;
        attacker.send(&strange_symbol(attacker, cci));
    });
}

/// Twenty times a second, the number of a packet that the sender is about to send on a wave.
#[test]
fn numbers_of_waves_before_their_time_do_not_end_the_transfer() {
    let Some(trial) = Trial::start(large_file, &[]) else {
        return;
    };
    withstand(&trial, 20, |attacker, _| {
        let cci = attacker.next_cci();
        if cci.channel != attacker.base() {
            attacker.send(&strange_symbol(attacker, cci));
        }
    });
}

/// Ten times a second, the next number of the base channel.
#[test]
fn numbers_of_the_base_channel_before_their_time_do_not_end_the_transfer() {
    let Some(trial) = Trial::start(large_file, &[]) else {
        return;
    };
    withstand(&trial, 10, |attacker, _| {
        let mut cci = attacker.base_cci();
        cci.psn = (cci.psn + 1) & 0xffff;
        attacker.send(&strange_symbol(attacker, cci));
    });
}
