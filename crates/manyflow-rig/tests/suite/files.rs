//! The soak of files, which compares every byte and the memory itself.

use manyflow_testing::programs::{Manyflow, rig};

#[test]
fn a_minute_of_soak_ends_well() {
    let words = [
        "soak", "files", "--for", "1min", "--size", "500kB", "--json",
    ];
    let ended = Manyflow::start(rig(&words)).finish().succeeded("soak");
    println!("{}", ended.stdout);
    assert!(ended.stdout.contains("\"event\":\"done\""), "{ended:?}");
}
