//! Sessions over loopback through queues that mark packets instead of dropping them.

use crate::stage;

use std::time::Duration;

use manyflow_core::Ecn;
use manyflow_core::link::{Aqm, CoDelConfig, DualPi2Config, LinkConfig, QueueLimit};
use manyflow_core::units::Rate;
use manyflow_net::last_mile::LastMile;
use stage::{Stage, random_file};

/// Five times the rate of the path, so that only marks or losses hold a receiver back.
const RATE: Rate = Rate::from_bits_per_s(20_000_000);

/// The path to the receiver. Its queue holds half of the file, so it would overflow with a
/// receiver that does not respond to marks.
fn path(aqm: Aqm) -> LinkConfig {
    LinkConfig {
        rate: Some(Rate::from_bits_per_s(4_000_000)),
        delay: Duration::from_millis(10),
        queue: QueueLimit::Packets(1000),
        aqm: Some(aqm),
        ..LinkConfig::default()
    }
}

/// The marks are those of the outer header of a tunnel, so they also show that the relay copies the
/// field of the session's packets, and that the gateway combines both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marked_packets_hold_a_receiver_back_and_none_is_lost() {
    let codel = || Aqm::CoDel(CoDelConfig::default());
    let cases = [
        (Ecn::NotCapable, codel()),
        (Ecn::Capable, codel()),
        (Ecn::L4s, Aqm::DualPi2(DualPi2Config::default())),
    ];
    let mut running = Vec::new();
    for (ecn, aqm) in cases {
        let files = vec![random_file("file", 2_000_000, 1)];
        let stage = Stage::start_with_ecn(RATE, ecn, 1024, files);
        let up = LinkConfig {
            delay: Duration::from_millis(10),
            ..LinkConfig::default()
        };
        let path = LastMile::start(stage.relay, path(aqm), up, 1).await;
        let path = path.unwrap();
        let receiving = stage.receive(path.address());
        running.push((ecn, stage, path, receiving));
    }
    for (ecn, stage, path, receiving) in running {
        let label = format!("{ecn:?}");
        let (folder, received) = receiving.finish(&label).await;
        stage.assert_intact(folder.path(), &label);
        let (link, packets) = (path.downstream(), received.progress.packets);
        println!("{label}: {link:?} {packets:?}");
        assert!(packets.marked <= link.marked, "{label}: {packets:?}");
        if ecn == Ecn::NotCapable {
            assert!(packets.lost > 0 && packets.marked == 0, "{packets:?}");
        } else {
            assert!(packets.marked > 0, "{label}: {packets:?}");
            assert_eq!((packets.lost, link.dropped), (0, 0), "{label}");
        }
    }
}
