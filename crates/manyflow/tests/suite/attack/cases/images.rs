//! Attacks on images, whose sections are announced one by one: the same as on files.

use crate::attack::attacker::Attacker;
use crate::attack::trial::{Trial, until_noticed, withstand};

use super::symbols::{is_found, poison};
use super::tables::forged_table;

#[test]
fn forged_tables_of_sections_are_refused() {
    let Some(trial) = Trial::start_image() else {
        return;
    };
    // The numbers of the tables are those of sections that the image has, and then of others.
    let forge = |attacker: &mut Attacker, number| {
        let table = forged_table(attacker, number);
        attacker.send(&table);
    };
    until_noticed(
        || withstand(&trial, 100, forge),
        |report| report.refused("table") > 0,
    );
}

#[test]
fn false_symbols_of_sections_are_found() {
    let Some(trial) = Trial::start_image() else {
        return;
    };
    let forge = move |attacker: &mut Attacker, number| {
        poison(attacker, number, |cci, noise| cci.psn += 1 + noise % 20);
    };
    until_noticed(|| withstand(&trial, 20, forge), is_found);
}
