//! Tests of membership intervals.

use manyflow_model::quantity::Seconds;
use manyflow_scenario::plan::sessions::intervals;
use manyflow_scenario::schema::{ReceiverTable, Start};

#[test]
fn a_receiver_joins_repeatedly() {
    let table = ReceiverTable {
        start: Start {
            from: Seconds(10.0),
            to: Seconds(10.0),
        },
        stop: Some(Seconds(20.0)),
        every: Some(Seconds(30.0)),
        ..ReceiverTable::default()
    };
    let starts: Vec<f64> = intervals(&table, Seconds(100.0))
        .unwrap()
        .iter()
        .map(|interval| interval.start.from.0)
        .collect();
    assert_eq!(starts, [10.0, 40.0, 70.0]);
    let overlapping = ReceiverTable {
        every: Some(Seconds(5.0)),
        ..table
    };
    assert!(intervals(&overlapping, Seconds(100.0)).is_err());
}
