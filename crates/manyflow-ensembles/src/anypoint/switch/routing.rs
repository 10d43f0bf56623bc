//! The policy of one connection: the service's policy, applied to messages.
//!
//! All fragments of a message go to the member of the first one. The table of messages that are
//! under way is bounded; a rest whose beginning was forgotten goes to any one member, which
//! discards it.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use manyflow_anypoint::Data;
use manyflow_anypoint::switch::{
    Affinity, Candidate, HashOfKey, KeyRule, LeastOutstanding, MemberId, MemberMetrics, Policy,
    RateAware, ReplicaHash, Round, RoundRobin, Weighted,
};
use manyflow_core::xcp::Feedback;

use super::config::{PolicyName, ServiceConfig};
use crate::anypoint::fragment::Header;

/// Maximum number of messages of one connection that are under way to members.
const MESSAGES_MAX: usize = 256;

/// The rules of the service, with members by their numbers in the switch.
#[derive(Debug, Default)]
pub(super) struct Rules {
    policy: PolicyName,
    weights: Vec<f64>,
    /// The identity of each member, former members included.
    identities: Vec<u64>,
    keys: Vec<(RangeInclusive<u32>, MemberId)>,
    /// The knowledge about each member that all connections share, former members included.
    metrics: Vec<Arc<MemberMetrics>>,
}

impl Rules {
    /// Returns the rules of a service. `number` returns the number of a member of `config`. The
    /// knowledge about members in the `former` rules remains.
    pub(super) fn new(
        config: &ServiceConfig,
        number: impl Fn(usize) -> u16,
        former: &Rules,
    ) -> Rules {
        let mut rules = Rules {
            policy: config.policy,
            identities: former.identities.clone(),
            metrics: former.metrics.clone(),
            ..Rules::default()
        };
        for (place, member) in config.members.iter().enumerate() {
            let number = number(place);
            let numbers = rules.metrics.len().max(usize::from(number) + 1);
            rules.metrics.resize_with(numbers, Arc::default);
            rules.weights.resize(numbers, 0.0);
            rules.weights[usize::from(number)] = member.weight;
            rules.identities.resize(numbers, 0);
            rules.identities[usize::from(number)] = identity(member.address);
            let keys = member.keys.iter().cloned();
            rules
                .keys
                .extend(keys.map(|range| (range, MemberId(number))));
        }
        rules
    }

    /// Returns the policy of a connection, whose random choices come from `seed`.
    fn choice(&self, seed: u64) -> Choice {
        match self.policy {
            PolicyName::Hash => Choice::Hash(HashOfKey::default()),
            PolicyName::Replicas => Choice::Replicas(ReplicaHash::new(self.identities.clone())),
            PolicyName::RoundRobin => Choice::RoundRobin(RoundRobin::default()),
            PolicyName::LeastOutstanding => Choice::LeastOutstanding(LeastOutstanding::default()),
            PolicyName::RateAware => Choice::RateAware(self.learner(seed)),
            PolicyName::Weighted => Choice::Weighted(Weighted::new(self.weights.clone())),
            PolicyName::KeyRange => Choice::KeyRange(KeyRule::new(self.keys.clone())),
            PolicyName::Affinity => Choice::Affinity(Affinity::default()),
        }
    }

    fn learner(&self, seed: u64) -> RateAware {
        let mut policy = RateAware::shared(seed);
        self.share_metrics(&mut policy, 0);
        policy
    }

    /// Gives `policy` the metrics of the members whose numbers are `from` or higher.
    fn share_metrics(&self, policy: &mut RateAware, from: usize) {
        for (number, metrics) in self.metrics.iter().enumerate().skip(from) {
            policy.share_metrics(MemberId(number as u16), Arc::clone(metrics));
        }
    }
}

/// Returns what distinguishes a member from others for all switches: its address, because a client
/// may name it in any way and at any place of its list.
fn identity(address: SocketAddr) -> u64 {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; 18];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_be_bytes());
    ReplicaHash::identity(&bytes)
}

/// The state of the service's policy.
#[derive(Debug)]
enum Choice {
    Hash(HashOfKey),
    Replicas(ReplicaHash),
    RoundRobin(RoundRobin),
    LeastOutstanding(LeastOutstanding),
    RateAware(RateAware),
    Weighted(Weighted),
    KeyRange(KeyRule),
    Affinity(Affinity),
}

/// The policy of one connection.
#[derive(Debug)]
pub(super) struct Routing {
    choice: Choice,
    seed: u64,
    /// The number of members whose metrics the policy has.
    shared: usize,
    /// The number in the switch of each member of the connection.
    members: Vec<u16>,
    /// Messages under way, and the member that has their beginning; oldest first.
    messages: Vec<(u64, MemberId)>,
    /// The candidates by their numbers in the switch, ascending, and the place of each in the
    /// connection's list.
    known: Vec<Candidate>,
    places: Vec<usize>,
}

impl Routing {
    /// Creates the policy of a connection with these members. Random choices come from `seed`.
    pub(super) fn new(rules: &Rules, members: Vec<u16>, seed: u64) -> Routing {
        Routing {
            choice: rules.choice(seed),
            seed,
            shared: rules.metrics.len(),
            members,
            messages: Vec::new(),
            known: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Applies other rules from now on. Keys stay with their members, and what was learned remains.
    pub(super) fn set_rules(&mut self, rules: &Rules) {
        match (&mut self.choice, rules.policy) {
            (Choice::Affinity(_), PolicyName::Affinity) => {}
            (Choice::RateAware(policy), PolicyName::RateAware) => {
                rules.share_metrics(policy, self.shared);
            }
            _ => self.choice = rules.choice(self.seed),
        }
        self.shared = rules.metrics.len();
    }

    /// Adds the connection's next member, which has this number in the switch.
    pub(super) fn add_member(&mut self, number: u16) {
        self.members.push(number);
    }

    fn choose(&mut self, frame: &Data, payload: &Bytes, candidates: &[Candidate]) -> usize {
        self.translate(candidates);
        let known = &self.known[..];
        let place = match &mut self.choice {
            Choice::Hash(policy) => policy.route(frame, payload, known),
            Choice::Replicas(policy) => policy.route(frame, payload, known),
            Choice::RoundRobin(policy) => policy.route(frame, payload, known),
            Choice::LeastOutstanding(policy) => policy.route(frame, payload, known),
            Choice::RateAware(policy) => policy.route(frame, payload, known),
            Choice::Weighted(policy) => policy.route(frame, payload, known),
            Choice::KeyRange(policy) => policy.route(frame, payload, known),
            Choice::Affinity(policy) => policy.route(frame, payload, known),
        };
        self.places[place.min(self.places.len() - 1)]
    }

    /// Returns the number in the switch of a member of the connection.
    fn number(&self, member: MemberId) -> MemberId {
        let number = self.members.get(member.index());
        MemberId(number.copied().unwrap_or(u16::MAX))
    }

    fn translate(&mut self, candidates: &[Candidate]) {
        self.known.clear();
        self.places.clear();
        for (place, candidate) in candidates.iter().enumerate() {
            let member = self.number(candidate.member);
            let at = self.known.partition_point(|known| known.member < member);
            self.known.insert(
                at,
                Candidate {
                    member,
                    ..*candidate
                },
            );
            self.places.insert(at, place);
        }
    }

    /// Returns the place among the candidates of the member that has the message's beginning.
    fn place_of(&self, message: usize, candidates: &[Candidate]) -> Option<usize> {
        let member = self.messages[message].1;
        let found = candidates.binary_search_by_key(&member, |candidate| candidate.member);
        found.ok()
    }

    fn remember(&mut self, message: u64, member: MemberId) {
        if self.messages.len() == MESSAGES_MAX {
            self.messages.remove(0);
        }
        self.messages.push((message, member));
    }
}

impl Policy<Bytes> for Routing {
    fn route(&mut self, frame: &Data, payload: &Bytes, candidates: &[Candidate]) -> usize {
        let header = Header::decode(payload).filter(|h| !(h.is_last && h.index == 0));
        let Some(header) = header else {
            return self.choose(frame, payload, candidates);
        };
        let mut known = self.messages.iter();
        let known = known.position(|(message, _)| *message == header.message);
        let place = known.and_then(|known| self.place_of(known, candidates));
        let place = place.unwrap_or_else(|| self.choose(frame, payload, candidates));
        let member = candidates[place].member;
        match known {
            Some(known) if header.is_last => {
                self.messages.remove(known);
            }
            Some(known) => self.messages[known].1 = member,
            None if header.is_last => {}
            None => self.remember(header.message, member),
        }
        place
    }

    fn note_answer(&mut self, member: MemberId, feedback: Feedback) {
        let member = self.number(member);
        if let Choice::RateAware(policy) = &mut self.choice {
            Policy::<Bytes>::note_answer(policy, member, feedback);
        }
    }

    fn note_round(&mut self, member: MemberId, round: Round) {
        let member = self.number(member);
        if let Choice::RateAware(policy) = &mut self.choice {
            Policy::<Bytes>::note_round(policy, member, round);
        }
    }

    fn note_loss(&mut self, member: MemberId) {
        let member = self.number(member);
        if let Choice::RateAware(policy) = &mut self.choice {
            Policy::<Bytes>::note_loss(policy, member);
        }
    }

    fn note_acknowledged(&mut self, member: MemberId) {
        let member = self.number(member);
        if let Choice::RateAware(policy) = &mut self.choice {
            Policy::<Bytes>::note_acknowledged(policy, member);
        }
    }
}

#[cfg(test)]
mod tests {
    use manyflow_core::xcp::{Congestion, WindowChange};

    use super::*;
    use crate::anypoint::switch::MemberConfig;

    fn rules(policy: PolicyName) -> Arc<Rules> {
        let member = |number: u8| MemberConfig {
            name: number.to_string(),
            address: ([127, 0, 0, number], 1).into(),
            weight: f64::from(number),
            keys: vec![u32::from(number) * 10..=u32::from(number) * 10 + 9],
        };
        let members = (0..4).map(member).collect();
        let config = ServiceConfig { members, policy };
        Arc::new(Rules::new(&config, |place| place as u16, &Rules::default()))
    }

    fn candidates(members: &[u16]) -> Vec<Candidate> {
        let candidate = |member: &u16| Candidate {
            member: MemberId(*member),
            outstanding: 0,
        };
        members.iter().map(candidate).collect()
    }

    fn route(routing: &mut Routing, key: u32, header: Header, candidates: &[Candidate]) -> u16 {
        let data = Data {
            sequence: 0,
            key,
            congestion: Congestion::default(),
        };
        let payload = Bytes::copy_from_slice(&header.encode());
        let place = routing.route(&data, &payload, candidates);
        candidates[place].member.0
    }

    fn header(message: u64, index: u16, is_last: bool) -> Header {
        Header {
            is_last,
            is_sealed: false,
            index,
            message,
        }
    }

    #[test]
    fn a_message_stays_with_the_member_of_its_first_fragment() {
        let mut routing = Routing::new(&rules(PolicyName::RoundRobin), vec![0, 1, 2, 3], 1);
        let all = candidates(&[0, 1, 2, 3]);
        let mut to =
            |message, index, is_last| route(&mut routing, 0, header(message, index, is_last), &all);
        assert_eq!([to(1, 0, false), to(2, 0, false)], [0, 1]);
        assert_eq!(to(3, 0, true), 2);
        assert_eq!([to(1, 1, false), to(2, 1, true), to(1, 2, true)], [0, 1, 0]);
        assert!(routing.messages.is_empty());
    }

    #[test]
    fn the_rest_of_a_message_leaves_a_failed_member_together() {
        let mut routing = Routing::new(&rules(PolicyName::RoundRobin), vec![0, 1, 2, 3], 1);
        let first = route(
            &mut routing,
            0,
            header(1, 0, false),
            &candidates(&[0, 1, 2, 3]),
        );
        assert_eq!(first, 0);
        let rest = candidates(&[1, 2, 3]);
        let members: Vec<_> = (1..5)
            .map(|index| route(&mut routing, 0, header(1, index, index == 4), &rest))
            .collect();
        assert!(
            members.iter().all(|member| *member == members[0]),
            "{members:?}"
        );
    }

    #[test]
    fn members_that_joined_again_keep_their_weights_keys_and_hash() {
        // Member 4 of the connection is member 1 of the switch, which failed and came back.
        let again = candidates(&[0, 2, 3, 4]);
        let before = candidates(&[0, 1, 2, 3]);
        for policy in [
            PolicyName::Hash,
            PolicyName::Replicas,
            PolicyName::Weighted,
            PolicyName::KeyRange,
        ] {
            let members = vec![0, 1, 2, 3, 1];
            let mut first = Routing::new(&rules(policy), members.clone(), 1);
            let mut second = Routing::new(&rules(policy), members.clone(), 1);
            for key in 10..40 {
                let single = header(u64::from(key), 0, true);
                let one = route(&mut first, key, single, &before);
                let two = route(&mut second, key, single, &again);
                assert_eq!(one, members[usize::from(two)], "{policy:?}, key {key}");
            }
        }
    }

    #[test]
    fn replicas_go_to_the_same_addresses_whatever_the_order_and_the_names_of_members() {
        let service = |numbers: &[u8], name: &str| {
            let member = |number: &u8| MemberConfig {
                name: format!("{name}{number}"),
                address: ([192, 0, 2, *number], 7001).into(),
                weight: 1.0,
                keys: vec![],
            };
            ServiceConfig {
                members: numbers.iter().map(member).collect(),
                policy: PolicyName::Replicas,
            }
        };
        let own_number = |place| place as u16;
        let (one, other) = (service(&[1, 2, 3], "a"), service(&[3, 1], "b"));
        let first = Rules::new(&one, own_number, &Rules::default());
        // The second switch has the member 2 from its third place on.
        let second = Rules::new(&other, own_number, &Rules::default());
        let joined = service(&[3, 1, 2], "b");
        let second = Rules::new(&joined, own_number, &second);
        let all = candidates(&[0, 1, 2]);
        let mut routings = [&first, &second].map(|rules| Routing::new(rules, vec![0, 1, 2], 1));
        for key in 0..200 {
            let single = header(u64::from(key), 0, true);
            let [place, place_of_other] = routings
                .each_mut()
                .map(|routing| usize::from(route(routing, key, single, &all)));
            let address = one.members[place].address;
            assert_eq!(address, joined.members[place_of_other].address, "key {key}");
        }
    }

    #[test]
    fn a_key_keeps_its_member_when_members_join_and_the_rules_are_read_again() {
        let rules = rules(PolicyName::Affinity);
        let mut routing = Routing::new(&rules, vec![0, 1, 2, 3], 1);
        let (three, four) = (candidates(&[0, 1, 2]), candidates(&[0, 1, 2, 3]));
        let single = |key: u32| header(u64::from(key), 0, true);
        let to = |routing: &mut Routing, candidates| {
            let key = |key| route(routing, key, single(key), candidates);
            (0..30).map(key).collect::<Vec<_>>()
        };
        let before = to(&mut routing, &three);
        assert_eq!(before[..6], [0, 1, 2, 0, 1, 2]);
        routing.set_rules(&rules);
        assert_eq!(to(&mut routing, &four), before);
    }

    #[test]
    fn a_later_connection_begins_with_the_shares_of_an_earlier_one_also_under_new_rules() {
        let former = rules(PolicyName::RateAware);
        let mut first = Routing::new(&former, vec![0, 1], 1);
        let busy = [(0, 4), (1, 396)].map(|(member, outstanding)| Candidate {
            member: MemberId(member),
            outstanding,
        });
        let frame = Data {
            sequence: 0,
            key: 0,
            congestion: Congestion {
                cwnd: 40_000,
                ..Congestion::default()
            },
        };
        let single = |message| header(message, 0, true);
        let rtt = std::time::Duration::from_millis(20);
        for message in 0..2000 {
            let payload = Bytes::copy_from_slice(&single(message).encode());
            let place = first.route(&frame, &payload, &busy);
            let feedback = Feedback {
                change: WindowChange::from_bytes([-1000.0, 1000.0][place]),
                answered: true,
                averaged: false,
            };
            Policy::<Bytes>::note_answer(&mut first, MemberId(place as u16), feedback);
            for member in [0, 1].map(MemberId) {
                Policy::<Bytes>::note_round(&mut first, member, Round { rtt, answers: 10 });
            }
        }
        drop(first);
        let config = ServiceConfig {
            members: Vec::new(),
            policy: PolicyName::RateAware,
        };
        let later = Rules::new(&config, |place| place as u16, &former);
        let frames_of_first_member = |rules: &Rules| {
            let mut routing = Routing::new(rules, vec![0, 1], 2);
            let idle = candidates(&[0, 1]);
            let chosen = (0..100).map(|message| route(&mut routing, 0, single(message), &idle));
            chosen.filter(|member| *member == 0).count()
        };
        assert!(frames_of_first_member(&later) < 10);
        assert!(
            frames_of_first_member(&rules(PolicyName::RateAware)) > 30,
            "nothing is known"
        );
    }

    #[test]
    fn messages_that_never_end_take_bounded_memory() {
        let mut routing = Routing::new(&rules(PolicyName::Hash), vec![0, 1], 1);
        for message in 0..10_000 {
            route(
                &mut routing,
                1,
                header(message, 0, false),
                &candidates(&[0, 1]),
            );
        }
        assert_eq!(routing.messages.len(), MESSAGES_MAX);
    }
}
