//! Forged ends of the session, and packets that are not well-formed.

use rand::{Rng as _, RngExt as _};

use crate::attack::forge::Forged;
use crate::attack::trial::{Trial, some_files, until_noticed, withstand, withstand_in_tunnel};

#[test]
fn forged_ends_of_the_session_are_ignored() {
    let Some(trial) = Trial::start(some_files, &[]) else {
        return;
    };
    withstand(&trial, 10, |attacker, _| {
        let (tsi, cci) = (attacker.description.tsi, attacker.next_cci());
        let end = Forged {
            toi: None,
            closes: true,
            ..Forged::symbol(tsi, cci, 0, &[])
        };
        attacker.send(&end.encode());
    });
}

fn withstand_mutations(in_tunnel: bool) {
    let Some(trial) = Trial::start(some_files, &[]) else {
        return;
    };
    let forge = |attacker: &mut crate::attack::attacker::Attacker, number: u64| {
        if number >= 10_000 {
            return;
        }
        let Some(mut bytes) = attacker.latest(|_| true).map(|real| real.bytes.to_vec()) else {
            return;
        };
        let channel = crate::attack::forge::Real::decode(&bytes)
            .unwrap()
            .cci
            .channel;
        let random = &mut attacker.random;
        match number % 4 {
            0 => bytes.truncate(random.random_range(0..bytes.len())),
            1 => random.fill_bytes(&mut bytes[..24]),
            2 => bytes[2] = random.random(),
            _ => {
                for _ in 0..random.random_range(1..8) {
                    // Most of the bits are in the header.
                    let bit = random.random_range(0..24 * 8);
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
        attacker.send_on(channel, &bytes);
    };
    let transfer = || match in_tunnel {
        true => withstand_in_tunnel(&trial, 1_500, forge),
        false => withstand(&trial, 1_500, forge),
    };
    until_noticed(transfer, |report| report.packets_refused() > 0);
}

#[test]
fn truncated_and_mutated_packets_are_refused() {
    withstand_mutations(false);
}

#[test]
fn truncated_and_mutated_packets_in_a_tunnel_are_refused() {
    withstand_mutations(true);
}
