//! Three daemons that sign their states stand in a line, and everything that the middle one sends
//! to the last may be changed, left out, repeated and reordered. The last daemon does not panic,
//! and never believes anything about the first that the first has not announced.
#![cfg_attr(fuzzing, no_main)]

use std::collections::{BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

use arbitrary::Arbitrary;
use manyflow_core::{Ecn, Time};
use manyflow_overlay::controller::Open;
use manyflow_overlay::hop::KernelHop;
use manyflow_overlay::{
    Claim, ClientFrame, ClientId, Daemon, DaemonId, Frame, GroupId, LinkSeq, Notary, OverlayConfig,
    Transmit,
};

const IDS: [DaemonId; 3] = [DaemonId(40_001), DaemonId(7), DaemonId(65_535)];
const ORIGIN: usize = 0;
const MIDDLE: usize = 1;
const LAST: usize = 2;
const GROUPS: u32 = 4;
/// Maximum number of frames in answer to one input.
const BURST_MAX: usize = 8192;

#[derive(Arbitrary, Debug)]
enum Step {
    /// A client of the first daemon joins a group, or leaves it.
    Join {
        group: u8,
    },
    Leave {
        group: u8,
    },
    /// The next frame from the middle to the last daemon arrives.
    Deliver,
    Drop,
    /// It arrives later, behind others.
    Postpone,
    Repeat,
    /// A bit of it is changed.
    Change {
        place: u16,
        bit: u8,
    },
    /// All frames arrive.
    Run,
    Relink,
    Wait {
        milliseconds: u16,
    },
}

#[derive(Debug)]
struct TestNotary(DaemonId);

impl TestNotary {
    fn hash(daemon: DaemonId, statement: &[u8]) -> [u8; 8] {
        let mut hasher = DefaultHasher::new();
        hasher.write_u16(daemon.0);
        hasher.write(b"a key that no input guesses");
        hasher.write(statement);
        hasher.finish().to_be_bytes()
    }
}

impl Notary<Vec<u8>> for TestNotary {
    fn bytes<'a>(&self, payload: &'a Vec<u8>) -> &'a [u8] {
        payload
    }

    fn payload(&self, bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }

    fn identity(&self) -> &[u8] {
        b"a certificate"
    }

    fn sign(&self, statement: &[u8]) -> Vec<u8> {
        TestNotary::hash(self.0, statement).to_vec()
    }

    fn verify(&self, claim: &Claim<'_>) -> bool {
        let signature = TestNotary::hash(claim.origin, claim.statement);
        claim.identity == self.identity() && claim.signature == signature
    }
}

manyflow_fuzz::target!(|bytes: &[u8]| {
    let mut world = World::new();
    for step in manyflow_fuzz::each(bytes) {
        world.take(&step);
        world.carry();
        world.check();
    }
});

type Wire = VecDeque<(Frame, Vec<u8>)>;

struct World {
    now: Time,
    daemons: [Daemon<Vec<u8>>; 3],
    client: ClientId,
    /// The numbers of members of each group that the first daemon has had.
    announced: BTreeSet<(GroupId, u32)>,
    /// The frames that the input may change: from the middle to the last daemon.
    wire: Wire,
}

impl World {
    fn new() -> World {
        let mut daemons = IDS.map(|id| {
            let daemon = Daemon::new(OverlayConfig::default(), Box::new(Open), id, 2);
            let daemon = daemon.expect("the limits are sound");
            daemon.with_notary(Box::new(TestNotary(id)))
        });
        let client = daemons[ORIGIN].connect(Time::ZERO, 100);
        let mut world = World {
            now: Time::ZERO,
            daemons,
            client,
            announced: BTreeSet::new(),
            wire: Wire::new(),
        };
        world.link(ORIGIN, MIDDLE);
        world.link(MIDDLE, LAST);
        world.carry();
        world
    }

    fn link(&mut self, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            let hop = Box::new(KernelHop::new());
            self.daemons[from].add_link(self.now, IDS[to], 1, hop);
            self.daemons[from].handle_connected(self.now, IDS[to], LinkSeq(0));
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Join { group } => {
                let group = GroupId(u32::from(group) % GROUPS);
                self.announced.insert((group, 1));
                let name = group.0.to_be_bytes().to_vec();
                self.say(ClientFrame::Join(group), name);
            }
            Step::Leave { group } => {
                let group = GroupId(u32::from(group) % GROUPS);
                self.say(ClientFrame::Leave(group), Vec::new());
            }
            Step::Deliver => self.deliver(),
            Step::Drop => drop(self.wire.pop_front()),
            Step::Postpone => {
                if let Some(frame) = self.wire.pop_front() {
                    self.wire.push_back(frame);
                }
            }
            Step::Repeat => {
                if let Some(frame) = self.wire.front().cloned() {
                    self.wire.push_front(frame);
                }
            }
            Step::Change { place, bit } => self.change(place.into(), bit),
            Step::Run => (0..BURST_MAX).for_each(|_| self.deliver()),
            Step::Relink => {
                self.wire.clear();
                self.daemons[MIDDLE].remove_link(self.now, IDS[LAST]);
                self.daemons[LAST].remove_link(self.now, IDS[MIDDLE]);
                self.link(MIDDLE, LAST);
            }
            Step::Wait { milliseconds } => {
                self.now += Duration::from_millis(u64::from(milliseconds % 8000));
                for daemon in &mut self.daemons {
                    daemon.handle_timeout(self.now);
                }
            }
        }
    }

    fn say(&mut self, frame: ClientFrame, payload: Vec<u8>) {
        self.daemons[ORIGIN].handle_client(self.now, self.client, &frame, payload);
    }

    /// Changes a bit of the next frame's encoding, if the result is a frame.
    fn change(&mut self, place: usize, bit: u8) {
        let Some((frame, payload)) = self.wire.front_mut() else {
            return;
        };
        let encoded = frame.encode_framed(payload.len() as u32);
        let Ok(encoded) = encoded else {
            return;
        };
        let mut bytes = [encoded.as_bytes(), payload].concat();
        let place = 2 + place % (bytes.len() - 2);
        bytes[place] ^= 1 << (bit % 8);
        if let Ok(Some((changed, range))) = Frame::decode_framed(&bytes) {
            (*frame, *payload) = (changed, bytes[range].to_vec());
        }
    }

    fn deliver(&mut self) {
        if let Some((frame, payload)) = self.wire.pop_front() {
            let last = &mut self.daemons[LAST];
            last.handle_frame(self.now, IDS[MIDDLE], &frame, Ecn::NotCapable, payload);
        }
    }

    /// Carries all frames between the daemons, except those that the input may change.
    fn carry(&mut self) {
        for _ in 0..BURST_MAX {
            let mut frames = Vec::new();
            for (at, daemon) in self.daemons.iter_mut().enumerate() {
                while let Some(transmit) = daemon.poll_transmit() {
                    if let Transmit::Daemon(to, frame, payload) = transmit {
                        let to = IDS.iter().position(|id| *id == to);
                        frames.push((at, to.expect("a neighbour"), frame, payload));
                    }
                }
                while daemon.poll_event().is_some() {}
                while daemon.poll_interest().is_some() {}
            }
            if frames.is_empty() {
                return;
            }
            for (from, to, frame, payload) in frames {
                if (from, to) == (MIDDLE, LAST) {
                    self.wire.push_back((frame, payload));
                } else {
                    let ecn = Ecn::NotCapable;
                    self.daemons[to].handle_frame(self.now, IDS[from], &frame, ecn, payload);
                }
                self.daemons[from].handle_writable(self.now, IDS[to]);
            }
        }
        panic!("the daemons send frames forever");
    }

    fn check(&self) {
        let last = &self.daemons[LAST];
        for group in (0..GROUPS).map(GroupId) {
            for (daemon, members) in last.members(group) {
                assert_eq!(daemon, IDS[ORIGIN], "only the first daemon has a client");
                assert!(
                    self.announced.contains(&(group, members)),
                    "{group:?} {members}"
                );
            }
        }
        let topology = last.topology();
        assert!(topology.daemons().iter().all(|daemon| IDS.contains(daemon)));
        let first = topology.incarnation(IDS[ORIGIN]);
        assert!(
            first.is_none_or(|incarnation| incarnation == 2),
            "{first:?}"
        );
    }
}
