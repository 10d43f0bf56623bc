//! Members and switches that are killed (SIGKILL) at random moments. A file that `put` has
//! acknowledged is read back as long as fewer members are gone than it has copies.
//!
//! `make test` makes few runs, `make crash` fifty: MANYFLOW_KILLS is their number. A failure prints
//! its seed, which MANYFLOW_SEED repeats.

use std::time::Duration;

use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::common::{Ended, Manyflow, text};
use crate::store::lab::Lab;

/// The number of times that a put is repeated which faults made fail.
const PUTS_MAX: u32 = 5;

/// Returns the seeds of the runs.
pub(super) fn seeds() -> std::ops::Range<u64> {
    let kills = std::env::var("MANYFLOW_KILLS");
    let runs: u64 = kills.map_or(3, |kills| kills.parse().expect("a number of runs"));
    let seed = std::env::var("MANYFLOW_SEED");
    let (first, runs) = match seed {
        Ok(seed) => (seed.parse().expect("a seed"), 1),
        Err(_) => (u64::from(rand::random::<u32>()), runs),
    };
    first..first + runs
}

#[test]
fn no_acknowledged_file_is_lost_to_sigkill() {
    let seeds = seeds();
    let runs = seeds.end - seeds.start;
    let mut total = Tally::default();
    for seed in seeds {
        println!("repeat with MANYFLOW_SEED={seed}");
        total.add(&Run::new(seed).run());
    }
    println!("{runs} runs: {total:?}");
}

/// Counts of the faults.
#[derive(Debug, Default)]
struct Tally {
    members_killed: u32,
    members_restarted: u32,
    switches_killed: u32,
    puts_disturbed: u32,
    puts_failed: u32,
    gets_disturbed: u32,
    bytes: usize,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.members_killed += other.members_killed;
        self.members_restarted += other.members_restarted;
        self.switches_killed += other.switches_killed;
        self.puts_disturbed += other.puts_disturbed;
        self.puts_failed += other.puts_failed;
        self.gets_disturbed += other.gets_disturbed;
        self.bytes += other.bytes;
    }
}

/// One run: a file is put, members and the switch are killed before, during and after, and the file
/// is read back.
struct Run {
    seed: u64,
    random: Pcg64Mcg,
    lab: Lab,
    copies: u8,
    /// The members that are still to be killed.
    victims: Vec<usize>,
    /// Members that were killed and do not run.
    dead: Vec<usize>,
    tally: Tally,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let copies = random.random_range(2..=3_u8);
        // Enough members remain for all copies.
        let members = usize::from(2 * copies - 1) + random.random_range(0..2);
        let mut victims: Vec<_> = (0..members).collect();
        victims.shuffle(&mut random);
        victims.truncate(usize::from(copies) - 1);
        Run {
            seed,
            lab: Lab::start_with_switch(members),
            random,
            copies,
            victims,
            dead: Vec::new(),
            tally: Tally::default(),
        }
    }

    fn run(mut self) -> Tally {
        let bytes = self.random.random_range(0..20_000_000);
        self.tally.bytes = bytes;
        self.lab.file("file", bytes, self.seed);
        self.put();
        while self.random.random_bool(0.7) && !self.victims.is_empty() {
            self.kill_something();
        }
        let label = format!("seed {}: get", self.seed);
        let get = self.lab.start_get(&["file", "-o", "out"]);
        let ended = match self.random.random_bool(0.5) {
            true => self.disturb(get, |tally| &mut tally.gets_disturbed),
            false => get.finish(),
        };
        ended.succeeded(&label);
        println!("{label}: {:?}, {} dead", self.tally, self.dead.len());
        self.lab.assert_same("file", "out");
        self.tally
    }

    /// Puts the file until that is acknowledged. Often kills something meanwhile.
    fn put(&mut self) {
        let file = self.lab.path("file");
        let copies = self.copies.to_string();
        let arguments = [text(&file), "--replicas", &copies, "--chunk", "100kB"];
        for attempt in 1..=PUTS_MAX {
            let put = self.lab.start_put(&arguments);
            // The last attempt is left alone: faults may make any other fail.
            let is_disturbed = self.random.random_bool(0.6) && attempt < PUTS_MAX;
            let ended = match is_disturbed {
                true => self.disturb(put, |tally| &mut tally.puts_disturbed),
                false => put.finish(),
            };
            if ended.code() == 0 {
                return;
            }
            println!("seed {}: a put failed: {}", self.seed, ended.stderr.trim());
            self.tally.puts_failed += 1;
        }
        panic!("seed {}: no put was acknowledged", self.seed);
    }

    /// Kills something while a command runs, and waits for its end.
    fn disturb(&mut self, running: Manyflow, count: fn(&mut Tally) -> &mut u32) -> Ended {
        let after = Duration::from_millis(self.random.random_range(5..300));
        match running.finish_within(after) {
            Ok(ended) => ended,
            Err(running) => {
                *count(&mut self.tally) += 1;
                self.kill_something();
                running.finish()
            }
        }
    }

    /// Kills a member or the switch, and starts the switch, and sometimes members, again.
    fn kill_something(&mut self) {
        let is_switch = self.random.random_bool(0.3);
        if let Some(victim) = (!is_switch).then(|| self.victims.pop()).flatten() {
            self.lab.kill_member(victim);
            self.dead.push(victim);
            self.tally.members_killed += 1;
        } else {
            self.lab.kill_switch();
            self.tally.switches_killed += 1;
            self.lab.start_switch();
        }
        if self.random.random_bool(0.4)
            && let Some(member) = self.dead.pop()
        {
            self.lab.start_member(member);
            self.tally.members_restarted += 1;
            // The member has all that it acknowledged, so it may be killed again.
            self.victims.push(member);
        }
    }
}
