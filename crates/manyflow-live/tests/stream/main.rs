//! Streams of layered data over loopback: a sender, relays, links in user space, and receivers.

mod stage;

use std::time::Duration;

use manyflow_core::units::Rate;

use stage::{Link, Stage};

fn rate(text: &str) -> Rate {
    text.parse().expect("a rate")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_receiver_gets_the_prefix_that_its_link_carries() {
    let mut stage = Stage::start(3).await;
    let slow = stage.receive_behind(Link::new(rate("500 kbit/s"))).await;
    let fast = stage.receive_behind(Link::new(rate("4 Mbit/s"))).await;
    stage
        .until("the fast receiver gets three times as much", || {
            let (slow, fast) = (slow.last_second(), fast.last_second());
            slow > 30_000 && fast > 3 * slow
        })
        .await;
    assert!(slow.prefixes_are_right() && fast.prefixes_are_right());
}
