//! Clients connect, join, leave and disconnect 100,000 times at five daemons, while others send. No
//! sender starves, Cost-Benefit's money is conserved, and daemons keep no state when all have left.

use crate::overlay_mesh;

use manyflow_overlay::LinkKind;
use manyflow_overlay::cost_benefit::{CostBenefit, CostBenefitConfig};
use manyflow_overlay::tfrc::{Tfrc, TfrcConfig};
use manyflow_tcp::TcpConfig;
use overlay_mesh::Mesh;

const CHANGES: u32 = 100_000;

/// Returns the number of accepted messages of each permanent sender. Asserts that no state remains.
fn churn(mesh: &mut Mesh) -> Vec<u32> {
    for at in [0, 0, 0, 2, 2, 4] {
        mesh.add_sender(at);
    }
    for _ in 0..CHANGES {
        mesh.change();
        mesh.run();
    }
    let taken = mesh.senders();
    mesh.end();
    for daemon in &mesh.world.daemons {
        let left = daemon.get().daemon().state_size();
        assert_eq!(left, 0, "state that remains at daemon {:?}", daemon.id());
    }
    taken
}

/// Asserts that each sender has at least a third of the average of its daemon's senders.
fn assert_fair(taken: &[u32]) {
    println!("{taken:?}");
    for of_daemon in [&taken[..3], &taken[3..5], &taken[5..]] {
        let mean = of_daemon.iter().sum::<u32>() / of_daemon.len() as u32;
        assert!(mean > 1_000, "{taken:?}");
        assert!(of_daemon.iter().all(|n| *n > mean / 3), "{taken:?}");
    }
}

#[test]
fn no_sender_starves_under_cost_benefit_and_money_is_conserved() {
    // Two messages in a round-trip time are fewer than the senders offer.
    let tcp = TcpConfig {
        maximum_window: 2,
        ..TcpConfig::default()
    };
    let budget = |here| CostBenefit::new(CostBenefitConfig::default(), here, 1).unwrap();
    let mut mesh = Mesh::new(&LinkKind::Streams(tcp), budget);
    assert_fair(&churn(&mut mesh));
    for daemon in &mesh.world.daemons {
        let daemon = daemon.get();
        let budget: &CostBenefit = daemon.daemon().controller().unwrap();
        let ledger = budget.ledger();
        assert!(ledger.given > 0);
        let gone = ledger.spent + ledger.capped + ledger.taken;
        assert_eq!(ledger.given, gone + budget.savings());
        assert_eq!(budget.savings(), 0, "disconnected clients have no savings");
    }
}

#[test]
fn no_sender_starves_under_tfrc_and_no_state_remains() {
    let tfrc = |here| Tfrc::new(TfrcConfig::default(), here).unwrap();
    let mut mesh = Mesh::new(&LinkKind::Datagrams, tfrc);
    assert_fair(&churn(&mut mesh));
    for daemon in &mesh.world.daemons {
        let daemon = daemon.get();
        let tfrc: &Tfrc = daemon.daemon().controller().unwrap();
        assert_eq!(tfrc.state_size(), 0);
    }
}
