//! Streams of layered data over loopback: a sender, relays, links in user space, and receivers.

mod stage;

use manyflow_core::units::Rate;
use manyflow_layered::rlm;
use manyflow_live::stream::SendControl;

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_follows_its_link_down() {
    let mut stage = Stage::start(3).await;
    let receiver = stage.receive_behind(Link::new(rate("2 Mbit/s"))).await;
    let last_second = || receiver.last_second();
    stage
        .until("the receiver gets 1 Mbit/s", || last_second() > 125_000)
        .await;
    receiver
        .mile
        .reconfigure(Link::new(rate("400 kbit/s")).into_config());
    stage
        .until("units come again, at less than the new rate", || {
            (10_000..50_000).contains(&last_second())
        })
        .await;
    let progress = *receiver.progress.borrow();
    assert!(
        progress.packets > 0 && progress.units.units > 0,
        "{progress:?}"
    );
    assert!(receiver.prefixes_are_right());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_of_rlm_keeps_its_groups_and_takes_no_unsent_packet_for_lost() {
    let control = SendControl::Rlm(rlm::SenderConfig {
        rates: vec![rate("200 kbit/s"); 3],
        packet_bytes: 1400,
    });
    let mut stage = Stage::start_with(control).await;
    let receiver = stage.receive_behind(Link::new(rate("4 Mbit/s"))).await;
    // A group sends 18 packets per second.
    stage
        .until("six seconds' packets of all groups come", || {
            let progress = receiver.progress.borrow();
            progress.groups == 3 && progress.packets > 6 * 3 * 18
        })
        .await;
    let progress = *receiver.progress.borrow();
    assert_eq!((progress.changes, progress.lost), (3, 0), "{progress:?}");
    assert!(receiver.prefixes_are_right());
}
