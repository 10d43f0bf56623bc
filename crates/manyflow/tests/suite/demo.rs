//! The demos of overlays and of streams. `router.rs` has that of ensembles.

use serde_json::Value;

use crate::common;

/// Runs a command that must succeed, and returns the events that it prints.
fn events(arguments: &[&str]) -> Vec<Value> {
    let ended = common::run(arguments).succeeded("the command");
    let lines = ended.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn members_miss_nothing_in_the_demo_although_a_daemon_is_killed() {
    let events = events(&["demo", "overlay", "--for", "24s", "--json"]);
    let done = events.last().unwrap();
    println!("{done}");
    assert_eq!(done["event"], "done");
    assert!(done["messages"].as_u64().unwrap() > 0);
    let seconds = events.iter().filter(|event| event["event"] == "second");
    let mut links = seconds.flat_map(|event| event["links"].as_array().unwrap());
    assert!(links.any(|link| link["up"] == false), "a daemon is killed");
}

#[test]
fn the_demo_of_streams_shows_four_receivers_and_writes_a_picture() {
    let directory = tempfile::tempdir().unwrap();
    let picture = directory.path().join("pictures.png");
    let path = picture.to_str().unwrap();
    let words = [
        "demo",
        "stream",
        "--for",
        "15s",
        "--picture",
        path,
        "--json",
    ];
    let events = events(&words);
    let seconds = events.iter().filter(|event| event["event"] == "second");
    let seconds: Vec<_> = seconds.collect();
    // On a busy computer, a second can be without units.
    for place in 0..4 {
        let mut receivers = seconds.iter().map(|second| &second["receivers"][place]);
        let is_shown = |receiver: &Value| {
            receiver["groups"].as_u64() >= Some(1)
                && receiver["prefix_bytes"].as_u64() > Some(0)
                && receiver["quality_db"].as_f64() > Some(10.0)
        };
        assert!(receivers.any(is_shown), "receiver {place}: {seconds:?}");
    }
    for second in &seconds {
        assert_eq!(second["receivers"].as_array().unwrap().len(), 4);
    }
    let decoder = png::Decoder::new(std::io::BufReader::new(
        std::fs::File::open(picture).unwrap(),
    ));
    let reader = decoder.read_info().unwrap();
    assert_eq!((reader.info().width, reader.info().height), (4 * 640, 360));
}
