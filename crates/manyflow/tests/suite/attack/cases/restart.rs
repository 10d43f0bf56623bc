//! A sender that is started again.

use std::path::Path;
use std::time::Duration;

use crate::attack::trial::{Trial, some_files};
use crate::attack::world::INTERFACE;
use crate::common::{LIMIT, write_random};

/// Twice what the receiver takes. It waits for long, and further packets would be most of the work.
const RATE: [&str; 2] = ["--rate", "4Mbit/s"];

/// Other content under the name of a file of the session.
fn other_files(folder: &Path) {
    write_random(&folder.join("image.bin"), 20_000_000, 9);
}

/// Restarts the sender with other files under the same description, while a receiver with these
/// arguments has most of the files to receive. The receiver's patience must be longer than the
/// restart and the search for the sender take on a busy computer.
fn a_restart_ends_the_receiver(arguments: &[&str], patience_s: u64) {
    let Some(mut trial) = Trial::start(other_files, &RATE) else {
        return;
    };
    let patience = format!("{patience_s}s");
    let arguments = [
        arguments,
        &["--max-rate", "2Mbit/s", "--patience", &patience],
    ]
    .concat();
    let mut receiver = trial.receive(&arguments);
    receiver.wait_for_files(1);
    trial.restart(some_files, &RATE);
    let report = receiver.finish(LIMIT + Duration::from_secs(patience_s));
    assert_eq!(report.ended.code(), 1, "{:?}", report.ended);
    let says_why = report
        .ended
        .stderr
        .contains("started again with other files");
    assert!(says_why, "{:?}", report.ended);
    let names = report.names();
    let mut names = names.iter();
    assert!(names.all(|name| name.starts_with(".manyflow")));
    assert!(report.refused("table") > 0);
    report.assert_bounded();
}

#[test]
fn a_sender_restarted_with_other_files_ends_the_receiver() {
    a_restart_ends_the_receiver(&["--interface", INTERFACE], 20);
}

/// A gateway notices that its relay was restarted when its next query is due, after 30 s.
#[test]
fn a_relay_restarted_with_other_files_ends_the_receiver() {
    a_restart_ends_the_receiver(&[], 60);
}
