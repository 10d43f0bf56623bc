//! Streams of layered data over loopback: a sender, relays, links in user space, and receivers.

mod stage;

use manyflow_core::link::{LinkConfig, LossModel};
use manyflow_core::units::Rate;
use manyflow_layered::rlm;
use manyflow_streams::SendControl;

use stage::{Link, Stage};

fn rate(text: &str) -> Rate {
    text.parse().expect("a rate")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_behind_two_links_get_prefixes() {
    let mut stage = Stage::start(3).await;
    let slow = stage.receive_behind(Link::new(rate("500 kbit/s"))).await;
    let fast = stage.receive_behind(Link::new(rate("4 Mbit/s"))).await;
    stage
        .until("both get units", || {
            slow.units() >= 20 && fast.units() >= 20
        })
        .await;
    assert!(slow.prefixes_are_right() && fast.prefixes_are_right());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_gets_units_after_its_link_has_become_worse() {
    let mut stage = Stage::start(3).await;
    let receiver = stage.receive_behind(Link::new(rate("2 Mbit/s"))).await;
    stage.until("units come", || receiver.units() >= 10).await;
    let lost = || {
        let link = receiver.mile.downstream();
        link.lost + link.dropped
    };
    let before = lost();
    receiver.mile.reconfigure(LinkConfig {
        loss: LossModel::Bernoulli(0.05),
        ..Link::new(rate("400 kbit/s")).into_config()
    });
    stage
        .until("the link loses packets", || lost() > before)
        .await;
    let before = receiver.units();
    stage
        .until("units come again", || receiver.units() > before + 20)
        .await;
    let progress = *receiver.progress.borrow();
    assert!(
        progress.packets > 0 && progress.units.units > 0,
        "{progress:?}"
    );
    assert!(receiver.prefixes_are_right());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_of_rlm_takes_no_unsent_packet_for_lost() {
    let control = SendControl::Rlm(rlm::SenderConfig {
        rates: vec![rate("200 kbit/s"); 3],
        packet_bytes: 1400,
    });
    // The highest group often has nothing to send.
    let mut stage = Stage::start_with(control, 5_500).await;
    let receiver = stage.receive_behind(Link::new(rate("4 Mbit/s"))).await;
    // A receiver that loses no packets has joined all groups by then.
    stage
        .until("many packets come", || {
            receiver.progress.borrow().packets > 200
        })
        .await;
    let sent = stage.stop_sending().await.packets;
    let progress = *receiver.progress.borrow();
    // A busy machine may lose packets, but none that the sender has not sent.
    assert!(
        progress.packets + progress.lost <= sent,
        "{progress:?} of {sent} packets"
    );
    assert!(receiver.prefixes_are_right());
}
