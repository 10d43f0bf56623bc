//! Forged tables of files, and packets that disturb the assembly of the true one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use manyflow_object::fec::Oti;
use manyflow_webrc::Cci;
use rand::RngExt as _;

use crate::attack::attacker::{Attacker, Way};
use crate::attack::forge::{Forged, broken_fti, empty_file, table_packet, whole_table};
use crate::attack::trial::{
    Report, Trial, large_file, many_files, some_files, until_noticed, withstand,
};

/// The ports from which Linux takes a socket's own (ip_local_port_range).
const PORTS: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// Forged packets to all ports.
const SWEEP: u64 = 50_000;

/// A table that empties a file of the session, or adds one that a shell would read.
pub(super) fn forged_table(attacker: &mut Attacker, number: u64) -> Vec<u8> {
    let (toi, location) = match number % 4 {
        0 => (1, "image.bin"),
        1 => (2, ".bashrc"),
        2 => (77, ".ssh/authorized_keys"),
        _ => (78, "../bystander"),
    };
    let (tsi, cci) = (attacker.description.tsi, attacker.next_cci());
    let files = vec![empty_file(toi, location)];
    whole_table(tsi, cci, number as u32, files)
}

#[test]
fn forged_tables_neither_empty_nor_add_files() {
    let Some(trial) = Trial::start(some_files, &[]) else {
        return;
    };
    let forge = |attacker: &mut Attacker, number| {
        let table = forged_table(attacker, number);
        attacker.send(&table);
    };
    until_noticed(
        || withstand(&trial, 30, forge),
        |report| report.refused("table") > 0,
    );
}

/// The attacker does not know the receiver's port. When it has tried all ports, it finds out.
#[test]
fn fifty_thousand_forged_tables_to_all_ports_of_the_receiver_do_no_harm() {
    let Some(trial) = Trial::start(some_files, &[]) else {
        return;
    };
    // A transfer that is shorter than the attack is followed by another one.
    let swept = Arc::new(AtomicU64::new(0));
    let transfer = || {
        let receiver = trial.receive(&["--max-rate", "2Mbit/s"]);
        let way = Way::Tunnel(receiver.tunnel_port(&trial));
        let swept = Arc::clone(&swept);
        let attack = trial.attacker(way).start(10_000, move |attacker, _| {
            let number = swept.fetch_add(1, Ordering::Relaxed);
            let table = forged_table(attacker, number);
            if number < SWEEP {
                let ports = u64::from(PORTS.end() - PORTS.start()) + 1;
                attacker.send_to_port(&table, PORTS.start() + (number % ports) as u16);
            } else if number.is_multiple_of(100) {
                attacker.send(&table);
            }
        });
        trial.finish(receiver, attack)
    };
    until_noticed(transfer, |report| {
        swept.load(Ordering::Relaxed) >= SWEEP && report.refused("table") > 0
    });
}

/// FDT Instance 0, with FEC parameters that have no content.
#[test]
fn packets_of_instance_zero_with_broken_parameters_do_not_hold_up_a_long_table() {
    let Some(trial) = Trial::start(many_files, &["--bundle", "0B"]) else {
        return;
    };
    let forge = |attacker: &mut Attacker, number: u64| {
        let (tsi, cci) = (attacker.description.tsi, attacker.next_cci());
        let fti = broken_fti((number % 2) as u8);
        attacker.send(&table_packet(tsi, cci, 0, &fti, [0; 4], &[0; 100]));
    };
    until_noticed(
        || withstand(&trial, 30, forge),
        |report| report.refused("oti") > 0 && report.packets_refused() > 0,
    );
}

/// Each packet begins the assembly of another table.
#[test]
fn tables_of_many_instances_do_not_evict_the_true_one() {
    let Some(trial) = Trial::start(many_files, &["--bundle", "0B"]) else {
        return;
    };
    let report = withstand(&trial, 30, |attacker, number| {
        let (tsi, cci) = (attacker.description.tsi, attacker.next_cci());
        let fti = Oti::no_code(500_000, 1_000, 1_000).unwrap();
        let symbol = [number as u8; 1_000];
        let fti = fti.encode_extension();
        attacker.send(&table_packet(
            tsi,
            cci,
            number as u32,
            &fti,
            [0; 4],
            &symbol,
        ));
    });
    assert_eq!(report.refused("table"), 0);
}

/// The true table's instance, with parameters of other tables.
#[test]
fn the_true_instance_with_other_parameters_does_not_hold_up_a_long_table() {
    let Some(trial) = Trial::start(many_files, &["--bundle", "0B"]) else {
        return;
    };
    withstand(&trial, 30, |attacker, number| {
        let (tsi, cci) = (attacker.description.tsi, attacker.next_cci());
        let table = attacker.latest(|real| real.instance.is_some());
        let Some(instance) = table.and_then(|real| real.instance) else {
            return;
        };
        let oti = Oti::no_code(500_000 + number % 1_000, 1_000, 1_000).unwrap();
        let fti = oti.encode_extension();
        attacker.send(&table_packet(tsi, cci, instance, &fti, [0; 4], &[1; 1_000]));
    });
}

/// False symbols of the true table, with the true parameters.
fn withstand_false_table_symbols(number: fn(&mut Attacker, Cci) -> Cci) {
    let Some(trial) = Trial::start(many_files, &["--bundle", "0B"]) else {
        return;
    };
    let forge = move |attacker: &mut Attacker, _| {
        let table = attacker.latest(|real| real.instance.is_some());
        let Some((mut forged, cci, length)) =
            table.map(|real| (real.bytes.to_vec(), real.cci, real.symbol.len()))
        else {
            return;
        };
        let noise: u8 = attacker.random.random();
        let (cci, cci_length) = number(attacker, cci).encode();
        // The rest of the header is the true one.
        forged[4..4 + cci_length].copy_from_slice(&cci[..cci_length]);
        let symbol = forged.len() - length;
        forged[symbol..].fill(noise);
        // Another symbol of the table.
        forged[symbol - 1] ^= noise & 0x3f | 1;
        attacker.send(&forged);
    };
    let reasons = ["contradiction", "withdrawn_symbols", "table", "fdt"];
    let is_found = |report: &Report| reasons.iter().any(|reason| report.refused(reason) > 0);
    until_noticed(|| withstand(&trial, 20, forge), is_found);
}

#[test]
fn false_symbols_of_a_long_table_under_true_numbers_do_not_hold_it_up() {
    withstand_false_table_symbols(|_, cci| cci);
}

#[test]
fn false_symbols_of_a_long_table_under_old_numbers_do_not_hold_it_up() {
    withstand_false_table_symbols(|attacker, _| attacker.late_cci());
}

/// Packets of a true object with FEC parameters that the table does not give.
#[test]
fn parameters_of_other_objects_in_data_packets_are_refused() {
    let Some(trial) = Trial::start(large_file, &[]) else {
        return;
    };
    let forge = |attacker: &mut Attacker, _| {
        let oti = Oti::no_code(1 << 40, u16::MAX, 65_535).unwrap();
        let extensions = oti.encode_extension();
        let (tsi, cci) = (attacker.description.tsi, attacker.next_cci());
        let Some(real) = attacker.latest_data() else {
            return;
        };
        let forged = Forged {
            extensions: &extensions,
            payload_id: real.payload_id,
            // The extension makes the packet longer.
            ..Forged::symbol(tsi, cci, 1, &real.symbol[extensions.len()..])
        };
        attacker.send(&forged.encode());
    };
    until_noticed(
        || withstand(&trial, 30, forge),
        |report| report.refused("oti") > 0,
    );
}

/// Anyone can choose the files of a session without a digest, but not the receiver's memory.
#[test]
fn tables_of_strangers_do_not_fill_the_memory_of_a_receiver_that_accepts_any() {
    let Some(trial) = Trial::start(some_files, &[]) else {
        return;
    };
    let mut description = trial.description.clone();
    description.table_sha256 = None;
    trial.share(&description);
    let attack = trial
        .attacker(Way::Multicast)
        .start(2_000, |attacker, number| {
            let (tsi, cci) = (attacker.description.tsi, attacker.next_cci());
            let first = 1_000 + 10 * number as u32;
            let files = (first..first + 10).map(|toi| {
                let mut file = empty_file(toi, &format!("stranger/{toi}"));
                file.transfer_length = Some(100_000);
                file.fec = (&Oti::no_code(100_000, 1_000, 100).unwrap()).into();
                file
            });
            let table = whole_table(tsi, cci, number as u32, files.collect());
            attacker.send(&table);
            let symbol = [7; 1_000];
            for toi in first..first + 10 {
                let cci = attacker.next_cci();
                attacker.send(&Forged::symbol(tsi, cci, toi, &symbol).encode());
            }
        });
    let mut receiver = trial.receive(&[
        "--interface",
        crate::attack::world::INTERFACE,
        "--allow-unverified",
    ]);
    receiver.wait_for_packets();
    receiver.wait_for_files(1_000);
    assert!(attack.stop() > 0, "nothing was forged");
    // The true files cannot be told from the others, which never become complete.
    let report = receiver.interrupt();
    report.assert_bounded();
    assert_eq!(report.ended.code(), 130, "{:?}", report.ended);
}
