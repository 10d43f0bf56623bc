//! A short form of the study of random starts (`examples/convergence.rs`).

#[path = "../convergence/mod.rs"]
#[allow(dead_code, reason = "the example prints the rest")]
mod study;

use study::{Failure, Rules, Run, Start, bottlenecks, run};

const GROUPS: u8 = 5;

/// Runs a session whose receivers are all behind one bottleneck.
fn run_behind_one(rules: Rules, start: Start) -> Run {
    let seed = (1..100).find(|seed| bottlenecks(*seed) == 1);
    let seed = seed.expect("an eighth of the seeds has one bottleneck");
    run(rules, start, GROUPS, seed)
}

#[test]
fn a_run_depends_on_its_seed_alone() {
    let digest = |seed| format!("{:?}", run(Rules::Paper, Start::Random, GROUPS, seed));
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}

#[test]
fn with_the_papers_rules_a_session_converges_if_receivers_behind_a_link_have_the_same_groups() {
    for start in [Start::Cold, Start::Ordered, Start::Changed] {
        let run = run_behind_one(Rules::Paper, start);
        assert!(run.is_at_best(), "{start:?}: {run:?}");
    }
    let mixed = run_behind_one(Rules::Paper, Start::Random);
    assert_eq!(mixed.failure(), Some(Failure::Grown), "{mixed:?}");
}

#[test]
fn with_the_second_editions_rules_it_converges_from_mixed_groups() {
    let mixed = run_behind_one(Rules::Second, Start::Random);
    assert!(mixed.is_at_best(), "{mixed:?}");
}
