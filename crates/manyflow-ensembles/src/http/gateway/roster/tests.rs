use std::collections::HashMap;

use super::*;

const WELL: Pulse = Pulse {
    is_serving: true,
    is_draining: false,
};
const DOWN: Pulse = Pulse {
    is_serving: false,
    is_draining: false,
};

/// A switch that gives each new key to the next member, and members that answer. Like the policy
/// `affinity`, it remembers one key for each place.
struct Service {
    roster: Roster,
    now: Instant,
    members: Vec<(u64, Pulse)>,
    silent: Vec<u64>,
    keys: HashMap<u32, (u32, u64)>,
    /// Answers on their way: when they arrive, the probe, the member, and its state.
    on_the_way: Vec<(Instant, RequestId, u64, Pulse)>,
    turn: usize,
    keeps_keys: bool,
}

impl Service {
    fn new(members: &[u64]) -> Service {
        let now = Instant::now();
        let mut service = Service {
            roster: Roster::new(now, Prefix::NONE),
            now,
            members: members.iter().map(|member| (*member, WELL)).collect(),
            silent: Vec::new(),
            keys: HashMap::new(),
            on_the_way: Vec::new(),
            turn: 0,
            keeps_keys: true,
        };
        service.run(200);
        service
    }

    fn member_of(&mut self, key: u32) -> u64 {
        let place = key % PLACES as u32;
        if let Some((known, member)) = self.keys.get(&place)
            && *known == key
            && self.keeps_keys
        {
            return *member;
        }
        self.turn += 1;
        let member = self.members[self.turn % self.members.len()].0;
        self.keys.insert(place, (key, member));
        member
    }

    /// Lets milliseconds pass, with round trips of 10 to 40 ms.
    fn run(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / 10 {
            self.now += Duration::from_millis(10);
            let now = self.now;
            let arrived = self.on_the_way.extract_if(.., |(due, ..)| *due <= now);
            for (_, id, member, pulse) in arrived.collect::<Vec<_>>() {
                self.roster.note_heard(now, member);
                self.roster.handle_pulse(now, id, member, pulse);
            }
            for probe in self.roster.poll_probes(now) {
                let member = self.member_of(probe.key);
                let pulse = self.members.iter().find(|(known, _)| *known == member);
                if let Some((_, pulse)) = pulse.filter(|_| !self.silent.contains(&member)) {
                    let due = now + Duration::from_millis(10 + 10 * (probe.id.0 % 4));
                    self.on_the_way.push((due, probe.id, member, *pulse));
                }
            }
        }
    }

    fn set(&mut self, member: u64, pulse: Pulse) {
        let known = self.members.iter_mut().find(|(known, _)| *known == member);
        known.unwrap().1 = pulse;
    }

    fn choose(&mut self, tried: &[u64], is_safe: bool) -> Option<u64> {
        let choice = self.roster.choose(self.now, tried, is_safe)?;
        let place = choice.key % PLACES as u32;
        let leads_to = (choice.key, choice.member);
        assert_eq!(self.keys[&place], leads_to, "the key leads there");
        Some(choice.member)
    }

    /// Chooses and begins requests that never end, and returns how many each member gets.
    fn begin(&mut self, requests: usize) -> Vec<usize> {
        let chosen: Vec<_> = (0..requests)
            .map(|_| {
                let member = self.choose(&[], false).unwrap();
                self.roster.begin(member);
                member
            })
            .collect();
        let count = |member| chosen.iter().filter(|chosen| **chosen == member).count();
        let numbers: Vec<_> = self.members.iter().map(|(member, _)| *member).collect();
        numbers.into_iter().map(count).collect()
    }

    fn note(&mut self, member: u64, outcome: Outcome) -> Option<Duration> {
        self.roster.note(self.now, member, outcome)
    }
}

#[test]
fn all_members_are_found_and_share_the_requests() {
    let mut service = Service::new(&[1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(service.begin(70), [10; 7]);
}

#[test]
fn a_retry_goes_to_another_member() {
    let mut service = Service::new(&[1, 2, 3]);
    let first = service.choose(&[], true).unwrap();
    let second = service.choose(&[first], true).unwrap();
    let third = service.choose(&[first, second], true).unwrap();
    let mut all = [first, second, third];
    all.sort();
    assert_eq!(all, [1, 2, 3]);
    assert_eq!(service.choose(&all, true), None);
}

#[test]
fn a_silent_member_is_suspected_in_200_ms_if_others_answer() {
    let mut service = Service::new(&[1, 2]);
    service.roster.begin(1);
    service.silent = vec![1];
    service.run(200);
    assert!(service.roster.is_suspected(service.now, 1));
    assert!(!service.roster.is_suspected(service.now, 2));
    assert_eq!(service.begin(5), [0, 5]);
    service.silent.clear();
    service.run(510);
    assert!(!service.roster.is_suspected(service.now, 1));

    service.silent = vec![1, 2];
    service.run(2_000);
    assert!(!service.roster.is_suspected(service.now, 1), "the switch?");
    assert!(service.roster.silence(service.now) > Duration::from_millis(1_400));
}

#[test]
fn a_member_whose_server_is_down_gets_nothing_until_it_is_back_and_then_slowly() {
    let mut service = Service::new(&[1, 2]);
    service.set(1, DOWN);
    service.run(600);
    assert_eq!(service.begin(20), [0, 20]);
    (0..20).for_each(|_| service.roster.end(2));
    service.set(1, WELL);
    service.run(600);
    let shares = service.begin(110);
    assert!(
        (5..=15).contains(&shares[0]),
        "{shares:?}: a tenth at first"
    );
    let after = SLOW_START.as_millis() as u64;
    service.run(after);
    let shares = service.begin(100);
    assert!(
        shares[0] > 90,
        "{shares:?}: it has room for its whole share"
    );
}

#[test]
fn failures_in_a_row_eject_a_member_and_a_success_on_trial_brings_it_back() {
    let mut service = Service::new(&[1, 2]);
    for _ in 1..EJECTED_AT {
        assert_eq!(service.note(1, Outcome::Failed), None);
    }
    assert_eq!(service.note(1, Outcome::Answered), None);
    for _ in 1..EJECTED_AT {
        assert_eq!(service.note(1, Outcome::Failed), None, "not in a row");
    }
    assert_eq!(service.note(1, Outcome::Failed), Some(EJECTION));
    assert_eq!(service.begin(10), [0, 10]);
    assert_eq!(service.note(2, Outcome::Late), None, "the last one stays");

    service.run(EJECTION.as_millis() as u64);
    assert_eq!(service.choose(&[], false), Some(2), "no POST is a trial");
    assert_eq!(service.choose(&[], true), Some(1));
    service.roster.begin(1);
    assert_eq!(service.choose(&[], true), Some(2), "one trial at a time");
    service.roster.end(1);
    assert_eq!(service.note(1, Outcome::Failed), Some(2 * EJECTION));
    service.run(2 * EJECTION.as_millis() as u64);
    assert_eq!(service.note(1, Outcome::Answered), None);
    let shares = service.begin(25);
    assert!(shares[0] > 0, "{shares:?}");
}

#[test]
fn a_server_that_does_not_answer_in_time_ejects_its_member_at_once() {
    let mut service = Service::new(&[1, 2]);
    assert_eq!(service.note(1, Outcome::Late), Some(EJECTION));
    assert_eq!(service.begin(4), [0, 4]);
    assert_eq!(service.choose(&[2], true), Some(1), "if there is no other");
}

#[test]
fn a_server_that_cannot_be_reached_gets_nothing_until_its_member_says_that_it_is_back() {
    let mut service = Service::new(&[1, 2]);
    assert_eq!(service.note(1, Outcome::Unreachable), None);
    assert_eq!(service.begin(4), [0, 4]);
    service.run(600);
    let shares = service.begin(100);
    assert!(shares[0] > 0, "{shares:?}");
}

#[test]
fn a_draining_member_is_the_last_choice() {
    let mut service = Service::new(&[1, 2]);
    let draining = Pulse {
        is_serving: true,
        is_draining: true,
    };
    service.set(1, draining);
    service.run(600);
    assert_eq!(service.begin(4), [0, 4]);
    service.set(2, DOWN);
    service.run(600);
    assert_eq!(service.choose(&[], true), Some(2));
}

#[test]
fn a_member_that_joins_is_found_and_one_that_died_is_named_once() {
    let mut service = Service::new(&[1, 2]);
    service.run(6_000);
    service.members.push((3, WELL));
    service.run(2_500);
    let mut tried = vec![];
    while let Some(member) = service.choose(&tried, true) {
        tried.push(member);
    }
    tried.sort();
    assert_eq!(tried, [1, 2, 3]);

    service.silent = vec![1];
    service.run(2_000);
    assert_eq!(service.roster.take_dead(), [0; 0]);
    // The switch gives the member up, and its keys to others.
    service.members.retain(|(member, _)| *member != 1);
    service.keys.retain(|_, (_, member)| *member != 1);
    service.run(1_000);
    assert_eq!(service.roster.take_dead(), [1]);
    assert_eq!(service.roster.take_dead(), [0; 0]);
    assert_eq!(service.choose(&[2, 3], true), None);
}

#[test]
fn a_policy_that_keeps_no_keys_is_noticed_at_once() {
    let now = Instant::now();
    let mut service = Service::new(&[1, 2]);
    service.keeps_keys = false;
    service.roster = Roster::new(now, Prefix::NONE);
    service.now = now;
    service.on_the_way.clear();
    service.run(50);
    assert!(service.roster.is_divided(service.now));
    assert_eq!(service.roster.choose(service.now, &[], true), None);
}

#[test]
fn second_copies_for_slow_servers_are_a_tenth_of_the_requests() {
    let mut service = Service::new(&[1, 2]);
    let at_once = (0..1000).filter(|_| service.roster.take_hedge()).count();
    assert_eq!(at_once, HEDGE_BURST as usize);
    for _ in 0..105 {
        service.choose(&[], true);
    }
    let more = (0..1000).filter(|_| service.roster.take_hedge()).count();
    assert_eq!(more, 10);
}

#[test]
fn more_members_than_keys_take_bounded_memory() {
    let members: Vec<u64> = (1..=400).collect();
    let mut service = Service::new(&members);
    service.run(60_000);
    assert_eq!(service.roster.members.len(), MEMBERS_MAX);
    assert!(service.roster.probes.len() < 4 * MEMBERS_MAX);
}
