//! Forged congestion control information.

use manyflow_webrc::Cci;
use rand::RngExt as _;

use crate::attack::attacker::{Attacker, Way};
use crate::attack::forge::Forged;
use crate::attack::trial::{Trial, large_file, until_noticed, withstand};
use crate::attack::world::INTERFACE;

/// A packet with a symbol of an object that does not exist.
fn strange_symbol(attacker: &Attacker, cci: Cci) -> Vec<u8> {
    Forged::symbol(attacker.description.tsi, cci, u32::MAX, &[0; 100]).encode()
}

/// The attack begins when the receiver has had ten packets of the base channel. Before, a receiver
/// believes the majority of these packets, whichever of them the computer delivers first: see
/// `webrc_forged.rs` in manyflow-webrc.
#[test]
fn time_slots_that_have_not_begun_do_not_end_the_transfer() {
    let Some(trial) = Trial::start(large_file, &[]) else {
        return;
    };
    let mut forged = 0;
    let forge = move |attacker: &mut Attacker, _| {
        if attacker.base_packets < 10 {
            return;
        }
        let mut cci = attacker.base_cci();
        let slots = attacker.base();
        cci.ctsi = (cci.ctsi + 2 + forged % (slots - 2)) % slots;
        attacker.send(&strange_symbol(attacker, cci));
        forged += 1;
    };
    let transfer = || {
        let mut receiver = trial.receive(&["--interface", INTERFACE, "--max-rate", "4Mbit/s"]);
        receiver.wait_for_packets();
        let attack = trial.attacker(Way::Multicast).start(50, forge);
        trial.finish(receiver, attack)
    };
    until_noticed(transfer, |report| report.packets_refused() > 0);
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
