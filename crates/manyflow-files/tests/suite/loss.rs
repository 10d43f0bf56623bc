//! Sessions over loopback through links that lose, duplicate, reorder and fail. Every byte arrives.

use crate::stage;

use std::time::Duration;

use manyflow_core::link::{Counters, LinkConfig, LossModel, QueueLimit};
use manyflow_core::units::Rate;
use manyflow_files::session::Received;
use manyflow_net::last_mile::LastMile;
use stage::{Stage, random_file};
use tokio::time::sleep;

const RATE: Rate = Rate::from_bits_per_s(20_000_000);
const SYMBOL: u16 = 1024;
const OUTAGE: Duration = Duration::from_secs(5);

/// A path of `mbit_per_s` and 5 ms each way.
fn path(mbit_per_s: u64) -> LinkConfig {
    LinkConfig {
        rate: Some(Rate::from_bits_per_s(mbit_per_s * 1_000_000)),
        delay: Duration::from_millis(5),
        queue: QueueLimit::Packets(100),
        ..LinkConfig::default()
    }
}

/// A path that loses this fraction of the packets at random.
fn lossy(loss: f64) -> LinkConfig {
    LinkConfig {
        loss: LossModel::Bernoulli(loss),
        ..path(20)
    }
}

/// One path of [`every_byte_arrives_over_any_path`], and the effect that its link must have had for
/// a valid test.
struct Case {
    label: &'static str,
    down: LinkConfig,
    fault: fn(&Counters) -> u64,
}

fn cases() -> Vec<Case> {
    let case = |label, down, fault| Case { label, down, fault };
    vec![
        case("no fault", LinkConfig::default(), |link| link.delivered),
        case("1 % loss", lossy(0.01), |link| link.lost),
        case("5 % loss", lossy(0.05), |link| link.lost),
        case("20 % loss", lossy(0.2), |link| link.lost),
        case(
            "a narrow queue",
            LinkConfig {
                queue: QueueLimit::Packets(5),
                ..path(2)
            },
            |link| link.dropped,
        ),
        case(
            "duplication",
            LinkConfig {
                duplication: 0.2,
                ..path(20)
            },
            |link| link.duplicated,
        ),
        case(
            "reordering",
            LinkConfig {
                jitter: Duration::from_millis(10),
                ..path(20)
            },
            |link| link.delivered,
        ),
        case(
            "all faults",
            LinkConfig {
                loss: LossModel::Bernoulli(0.02),
                duplication: 0.05,
                jitter: Duration::from_millis(20),
                ..path(8)
            },
            |link| link.lost.min(link.duplicated),
        ),
    ]
}

/// A receiver uses almost every packet. Packets that arrive while it still decodes a block are not
/// counted: a busy machine has more of them. Simulations count them, in `waves` of manyflow-object.
fn assert_economical(received: &Received, link: &Counters, label: &str) {
    let objects = &received.progress.objects;
    let spent = objects.packets - objects.fdt_packets - objects.surplus_symbols;
    let allowed = objects.needed_symbols * 13 / 10 + link.duplicated;
    assert!(spent <= allowed, "{label}: {objects:?}");
}

/// One sender serves receivers on every kind of path at the same time, as on a network.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_byte_arrives_over_any_path() {
    let files = vec![
        random_file("large.bin", 250_000, 1),
        random_file("folder/medium.bin", 60_001, 2),
        random_file("folder/deep/symbol.bin", 1024, 3),
        random_file("folder/deep/Ångström & <Grüße>.txt", 77, 4),
        random_file("byte", 1, 5),
        random_file("empty", 0, 6),
    ];
    let stage = Stage::start(RATE, SYMBOL, files);
    let mut running = Vec::new();
    for (seed, case) in cases().into_iter().enumerate() {
        let up = LinkConfig {
            delay: case.down.delay,
            ..LinkConfig::default()
        };
        let last_mile = LastMile::start(stage.relay, case.down.clone(), up, seed as u64)
            .await
            .unwrap();
        let receiving = stage.receive(last_mile.address());
        running.push((case, last_mile, receiving));
    }
    for (case, last_mile, receiving) in running {
        let (folder, received) = receiving.finish(case.label).await;
        stage.assert_intact(folder.path(), case.label);
        assert_eq!(received.files.len(), 6, "{}", case.label);
        let link = last_mile.downstream();
        assert!(
            (case.fault)(&link) > 0,
            "{}: the link had no fault: {link:?}",
            case.label
        );
        assert_economical(&received, &link, case.label);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_goes_on_after_an_outage() {
    let stage = Stage::start(RATE, SYMBOL, vec![random_file("file", 2_500_000, 1)]);
    // The file takes 20 s on this path, so the outage is not too late on a busy machine.
    let last_mile = LastMile::start(stage.relay, path(1), path(4), 1)
        .await
        .unwrap();
    let mut receiving = stage.receive(last_mile.address());
    receiving
        .until(|progress| progress.objects.useful_symbols > 50)
        .await;

    last_mile.set_cut(true);
    sleep(OUTAGE).await;
    assert_eq!(
        receiving.progress.borrow().objects.files_complete,
        0,
        "the outage came too late"
    );
    last_mile.reconfigure(path(4));
    last_mile.set_cut(false);

    let (folder, _) = receiving.finish("outage").await;
    stage.assert_intact(folder.path(), "outage");
}
