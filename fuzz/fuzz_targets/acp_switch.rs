//! A switch receives any segments from its peer and its members in any order. It does not panic,
//! flood, sleep past its timer, or send segments that no end accepts.
#![cfg_attr(fuzzing, no_main)]

use std::time::Duration;

use arbitrary::Arbitrary;
use manyflow_anypoint::switch::{
    ByPrefix, HashOfKey, KeyRule, LeastOutstanding, Leg, MemberId, Policy, RoundRobin, Scaling,
    Switch, SwitchConfig, Weighted,
};
use manyflow_anypoint::{Ack, Body, Length, NO_GAPS, Segment, UNLIMITED};
use manyflow_core::Time;
use manyflow_core::xcp::Feedback;
use manyflow_fuzz::acp::{CONNECTION, Forged};

const HELD_MAX: u32 = 16;
const MEMBERS_MAX: u16 = 6;
/// Maximum number of packets in one step: the frames that are held, and a few packets of the
/// switch's own, for each leg.
const BURST_MAX: usize = 64 + (HELD_MAX as usize + 8) * (MEMBERS_MAX as usize + 1);

#[derive(Arbitrary, Debug)]
enum Step {
    /// A segment from one leg. The last leg is the peer's, and as frequent as those of all members
    /// together.
    Segment {
        leg: u8,
        segment: Forged,
        bytes: u16,
    },
    /// The answers of honest ends, which open members and acknowledge frames.
    Answer,
    Join,
    /// A member leaves; rare, because there is nothing to test without members.
    Leave {
        member: u8,
        really: u8,
    },
    /// Waits, usually for less than half a second.
    Wait {
        milliseconds: u16,
    },
}

manyflow_fuzz::target!(|bytes: &[u8]| {
    let [first, rest @ ..] = bytes else { return };
    let mut world = World::new(*first);
    let open = Body::Open { credit: UNLIMITED };
    world.hear(Leg::Peer, open, Length(0));
    for step in manyflow_fuzz::each(rest) {
        world.take(step);
        world.drain();
    }
});

struct World {
    switch: Switch<Length>,
    now: Time,
    members: u16,
    /// Segments that the switch has sent since the last answers.
    sent: Vec<(Leg, Body)>,
}

impl World {
    fn new(choice: u8) -> World {
        let members = 1 + u16::from(choice & 3);
        let config = SwitchConfig {
            histogram_frames: 4,
            scaling: match choice & 4 {
                0 => Scaling::Paper,
                _ => Scaling::PerPacket,
            },
            fallback: choice & 64 != 0,
            bound: choice & 128 != 0,
            held_frames_max: HELD_MAX,
            ..SwitchConfig::default()
        };
        let policy: Box<dyn Policy<Length>> = match choice >> 3 & 7 {
            _ if config.bound => Box::new(ByPrefix::default()),
            0 => Box::new(RoundRobin::default()),
            1 => Box::new(LeastOutstanding::default()),
            2 => Box::new(HashOfKey::default()),
            3 => Box::new(Weighted::new(vec![1.0, 0.0, 3.0])),
            _ => Box::new(KeyRule::new(vec![(0..=20, MemberId(1))])),
        };
        World {
            switch: Switch::new(config, policy, members.into()).expect("the parameters are sound"),
            now: Time::ZERO,
            members,
            sent: Vec::new(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Segment {
                leg,
                segment,
                bytes,
            } => {
                if let Some(segment) = segment.segment() {
                    let bytes = Length(u32::from(bytes % 1500));
                    let leg = self.leg(leg);
                    self.switch.handle_segment(self.now, leg, &segment, bytes);
                }
            }
            Step::Answer => self.answer(),
            Step::Join if self.members < MEMBERS_MAX => {
                self.members += 1;
                self.switch.join(self.now);
            }
            Step::Leave { member, really } if really < 16 => {
                self.switch.leave(self.now, MemberId(member.into()));
            }
            Step::Wait { milliseconds } => {
                let milliseconds = if milliseconds < 60_000 {
                    milliseconds % 500
                } else {
                    milliseconds
                };
                self.now += Duration::from_millis(milliseconds.into());
                self.switch.handle_timeout(self.now);
            }
            Step::Join | Step::Leave { .. } => {}
        }
    }

    fn leg(&self, leg: u8) -> Leg {
        match leg {
            0..128 => Leg::Peer,
            // One more number than there are members, for a member that the switch does not know.
            _ => Leg::Member(MemberId(u16::from(leg) % (self.members + 1))),
        }
    }

    fn answer(&mut self) {
        for (leg, body) in std::mem::take(&mut self.sent) {
            let acknowledged = |sequence: u32| {
                Body::Ack(Ack {
                    cumulative: sequence.wrapping_add(1),
                    of: sequence,
                    credit: UNLIMITED,
                    feedback: Feedback::default(),
                    missing: NO_GAPS,
                })
            };
            match body {
                Body::Open { credit } => self.hear(leg, Body::Accept { credit }, Length(0)),
                Body::Data(data) => self.hear(leg, acknowledged(data.sequence), Length(0)),
                Body::Close { sequence } => self.hear(leg, acknowledged(sequence), Length(0)),
                Body::Probe => self.hear(leg, Body::Alive, Length(0)),
                Body::Accept { .. } | Body::Ack(_) | Body::Alive | Body::Reset(_) => {}
            }
        }
    }

    fn hear(&mut self, leg: Leg, body: Body, payload: Length) {
        let segment = Segment {
            connection: CONNECTION,
            body,
        };
        self.switch.handle_segment(self.now, leg, &segment, payload);
        self.drain();
    }

    fn drain(&mut self) {
        let mut sent = 0;
        while let Some((leg, segment, _)) = self.switch.poll_transmit() {
            sent += 1;
            assert!(sent <= BURST_MAX, "it floods");
            let bytes = segment.encode();
            let decoded = Segment::decode(bytes.as_bytes());
            assert!(decoded.is_ok(), "it sends {segment:?}: {decoded:?}");
            self.sent.push((leg, segment.body));
        }
        while self.switch.poll_event().is_some() {}
        // Timers that are due have been handled: a timer in the past would stop the clock.
        if self
            .switch
            .poll_timeout()
            .is_some_and(|due| due <= self.now)
        {
            self.switch.handle_timeout(self.now);
            let next = self.switch.poll_timeout();
            assert!(next.is_none_or(|due| due > self.now));
        }
    }
}
