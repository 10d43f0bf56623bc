//! Clients connect, join, leave and disconnect 100,000 times at five daemons, while others send. No
//! sender starves, Cost-Benefit's money is conserved, and daemons keep no state when all have left.

#![allow(clippy::print_stdout, reason = "tests say what they measured")]
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod overlay_mesh;

use manyflow_overlay::cost_benefit::{CostBenefit, CostBenefitConfig};
use manyflow_overlay::tfrc::{Tfrc, TfrcConfig};
use manyflow_overlay::{DaemonId, LinkKind};
use manyflow_tcp::TcpConfig;
use overlay_mesh::{DAEMONS, Mesh, Shared};

const CHANGES: u32 = 100_000;

/// Returns the number of accepted messages of each permanent sender. Asserts that no state remains.
fn churn(mut mesh: Mesh) -> Vec<u32> {
    for at in [0, 0, 0, 2, 2, 4] {
        mesh.add_sender(at);
    }
    for _ in 0..CHANGES {
        mesh.change();
        mesh.run();
    }
    let taken = mesh.senders();
    mesh.end();
    let left: Vec<usize> = mesh.daemons.iter().map(|d| d.state_size()).collect();
    assert_eq!(left, [0; DAEMONS], "state that remains at the daemons");
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
    let budgets: Vec<_> = (0..DAEMONS as u16)
        .map(|here| CostBenefit::new(CostBenefitConfig::default(), DaemonId(here), 1).unwrap())
        .map(Shared::new)
        .collect();
    // Two messages in a round-trip time are fewer than the senders offer.
    let tcp = TcpConfig {
        maximum_window: 2,
        ..TcpConfig::default()
    };
    let mesh = Mesh::new(LinkKind::Streams(tcp), &budgets);
    assert_fair(&churn(mesh));
    for budget in budgets {
        let budget = budget.lock();
        let ledger = budget.ledger();
        assert!(ledger.given > 0);
        let gone = ledger.spent + ledger.capped + ledger.taken;
        assert_eq!(ledger.given, gone + budget.savings());
        assert_eq!(budget.savings(), 0, "disconnected clients have no savings");
    }
}

#[test]
fn no_sender_starves_under_tfrc_and_no_state_remains() {
    let controllers: Vec<_> = (0..DAEMONS as u16)
        .map(|here| Tfrc::new(TfrcConfig::default(), DaemonId(here)).unwrap())
        .map(Shared::new)
        .collect();
    let mesh = Mesh::new(LinkKind::Datagrams, &controllers);
    assert_fair(&churn(mesh));
    for controller in controllers {
        assert_eq!(controller.lock().state_size(), 0);
    }
}
