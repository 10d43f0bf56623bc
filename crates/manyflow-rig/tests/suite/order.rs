//! The soak of ordered groups, which checks the traces of its members itself.

use manyflow_testing::programs::{Manyflow, rig};
use serde_json::Value;

#[test]
fn a_short_soak_of_ordered_groups_breaks_no_promise() {
    // The first round of this seed kills, stops and cuts off daemons.
    let arguments = ["soak", "order", "--for", "1s", "--seed", "12", "--json"];
    let ended = Manyflow::start(rig(&arguments)).finish().succeeded("soak");
    let done: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    println!("{done}");
    assert_eq!(done["event"], "done");
    for fault in ["kills", "stops", "cuts"] {
        assert!(done[fault].as_u64().unwrap() > 0, "{fault}");
    }
    assert!(done["delivered"].as_u64() > done["sent"].as_u64());
}
