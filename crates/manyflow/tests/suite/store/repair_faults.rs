//! Repairs during which members, the switch and the repair itself are killed (SIGKILL). Disks are
//! lost one after the other, each when a repair has restored what the last one had, and every byte
//! is read back.
//!
//! `make test` makes few runs, `make crash` fifty, as for `faults`.

use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::common::text;
use crate::store::faults::seeds;
use crate::store::lab::{Lab, event};

const MEMBERS: usize = 5;
/// The disks that are lost in a run; two members are left.
const LOSSES: usize = 3;
/// The number of times that a repair is repeated which faults made fail.
const REPAIRS_MAX: u32 = 6;

#[test]
fn no_file_is_lost_to_sigkill_while_disks_are_lost_and_repaired() {
    let mut kills = 0;
    for seed in seeds() {
        println!("repeat with MANYFLOW_SEED={seed}");
        kills += Run::new(seed).run();
    }
    println!("{kills} processes were killed during repairs");
}

struct Run {
    random: Pcg64Mcg,
    lab: Lab,
    /// The members that have not lost their disk.
    whole: Vec<usize>,
    kills: u32,
}

impl Run {
    fn new(seed: u64) -> Run {
        Run {
            random: Pcg64Mcg::seed_from_u64(seed),
            lab: Lab::start_with_switch(MEMBERS),
            whole: (0..MEMBERS).collect(),
            kills: 0,
        }
    }

    /// Returns the number of processes that were killed during repairs.
    fn run(mut self) -> u32 {
        for name in ["one", "two"] {
            let bytes = self.random.random_range(0..8_000_000);
            let file = self.lab.file(name, bytes, bytes as u64);
            self.lab
                .put(&[text(&file), "--chunk", "100kB"])
                .succeeded("put");
        }
        for _ in 0..LOSSES {
            let lost = self.random.random_range(0..self.whole.len());
            let lost = self.whole.swap_remove(lost);
            self.lab.lose_member(lost);
            self.repair();
        }
        for name in ["one", "two"] {
            self.lab
                .get(&[name, "-o", "out", "--overwrite"])
                .succeeded("get");
            self.lab.assert_same(name, "out");
        }
        self.kills
    }

    /// Repairs the store, and kills something meanwhile, until a repair that nothing disturbs
    /// succeeds.
    fn repair(&mut self) {
        for attempt in 1..=REPAIRS_MAX {
            self.lab.wait_for_members(self.whole.len());
            let repair = self.lab.start_task("repair", &["--patience", "10s"]);
            let is_disturbed = self.random.random_bool(0.7) && attempt < REPAIRS_MAX;
            if !is_disturbed {
                let ended = repair.finish().succeeded("a repair that nothing disturbs");
                assert_eq!(event(&ended, "done")["sound"], true, "{ended:?}");
                return;
            }
            let after = Duration::from_millis(self.random.random_range(5..200));
            if let Err(mut running) = repair.finish_within(after) {
                self.kills += 1;
                match self.random.random_range(0..3) {
                    0 => running.kill(),
                    1 => {
                        self.lab.kill_switch();
                        self.lab.start_switch();
                        running.finish();
                    }
                    _ => {
                        let victim = self.whole[self.random.random_range(0..self.whole.len())];
                        self.lab.kill_member(victim);
                        self.lab.start_member(victim);
                        running.finish();
                    }
                }
            }
        }
    }
}
