//! A short form of the study of random starts (`examples/convergence.rs`).

#[path = "../convergence/mod.rs"]
#[allow(dead_code, reason = "the example prints the rest")]
mod study;

use study::{Rules, Start, bottlenecks, run};

const GROUPS: u8 = 5;

#[test]
fn a_run_depends_on_its_seed_alone() {
    let digest = |seed| format!("{:?}", run(Rules::Paper, Start::Random, GROUPS, seed));
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}

#[test]
fn sessions_with_one_capacity_converge_from_any_start() {
    let seed = (1..100).find(|seed| bottlenecks(*seed) == 1);
    let seed = seed.expect("an eighth of the seeds has one capacity");
    for start in [Start::Cold, Start::Random, Start::Changed] {
        let alone = run(Rules::Paper, start, GROUPS, seed);
        assert!(alone.is_at_best(), "{start:?}: {alone:?}");
    }
}
