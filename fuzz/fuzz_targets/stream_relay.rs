//! A relay with children that send any messages: hop messages with right and wrong contents, and
//! any bytes. Counts stay consistent, summaries never describe more answers than were accepted, and
//! the relay never has work that it does not do.
#![cfg_attr(fuzzing, no_main)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use manyflow_core::Time;
use manyflow_fuzz::arbitrary;
use manyflow_layered::hop::{Direction, Echo, HopMessage, Sounding, Stamp};
use manyflow_layered::relay::{RelayConfig, SessionInfo, StreamRelay, Where};
use manyflow_layered::repair::GroupGaps;
use manyflow_layered::{Data, Experiment, Feedback, Message};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const CHILDREN: usize = 4;

#[derive(arbitrary::Arbitrary, Debug)]
enum Step {
    Push {
        child: u8,
        session: u8,
        rank: Option<u8>,
        bytes: u8,
    },
    Top {
        child: u8,
        top: Option<u8>,
    },
    Remove {
        child: u8,
    },
    Request {
        group: u8,
        ahead: u16,
    },
    Wait {
        milliseconds: u8,
    },
    Echo {
        child: u8,
        behind: u8,
        packets: u16,
        restarted: bool,
    },
    Report {
        child: u8,
        group: u8,
        behind: u16,
        reports: u32,
        more: bool,
        is_old: bool,
    },
    Experiment {
        child: u8,
        session: u8,
        group: u8,
    },
    Data {
        child: u8,
        sequence: u8,
        from_parent: bool,
    },
    Repair {
        child: u8,
        next: u8,
        missing: u128,
        wait_ms: u16,
    },
    Parent {
        nonce: u8,
        number: u8,
    },
    Bytes {
        child: u8,
        bytes: [u8; 40],
    },
}

manyflow_fuzz::target!(|bytes: &[u8]| {
    for has_parent in [false, true] {
        let mut world = World::new(has_parent);
        for step in manyflow_fuzz::each(bytes) {
            world.take(&step);
            world.drain();
        }
    }
});

struct World {
    now: Time,
    relay: StreamRelay,
    request: u16,
    /// The last sounding that each child has received.
    heard: [Option<Sounding>; 8],
    counter: u32,
    /// The reports that were offered since the last request to all.
    offered: u64,
}

fn address(child: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1000 + u16::from(child % 8)))
}

impl World {
    fn new(has_parent: bool) -> World {
        let config = RelayConfig {
            has_parent,
            children_max: CHILDREN,
            strangers_max: 2,
            ..RelayConfig::default()
        };
        let session = |session, groups| SessionInfo { session, groups };
        let sessions = [session(7, 3), session(8, 0)];
        World {
            now: Time::ZERO,
            relay: StreamRelay::new(config, &sessions, [1; 32], Time::ZERO)
                .expect("the defaults are in their ranges"),
            request: 0,
            heard: [None; 8],
            counter: 0,
            offered: 0,
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Push {
                child,
                session,
                rank,
                bytes,
            } => {
                let message: Arc<[u8]> = vec![bytes; usize::from(bytes)].into();
                let (at, session) = (address(child), usize::from(session % 3));
                let _ = self
                    .relay
                    .push(self.now, at, LOCAL, session, rank, &message);
            }
            Step::Top { child, top } => {
                let _ = self.relay.set_top(self.now, address(child), LOCAL, 0, top);
            }
            Step::Remove { child } => self.relay.remove_child(address(child)),
            Step::Request { group, ahead } => self.ask(group, ahead % 8),
            Step::Wait { milliseconds } => {
                self.now += Duration::from_millis(milliseconds.into());
                self.relay.handle_timeout(self.now);
            }
            Step::Echo {
                child,
                behind,
                packets,
                restarted,
            } => {
                self.echo(child, behind, packets, restarted);
            }
            Step::Report {
                child,
                group,
                behind,
                reports,
                more,
                is_old,
            } => {
                let feedback = self.feedback(group, behind, reports, more);
                self.report(child, feedback, is_old);
            }
            Step::Experiment {
                child,
                session,
                group,
            } => {
                self.announce(child, session, group);
            }
            Step::Data {
                child,
                sequence,
                from_parent,
            } => self.push_data(child, sequence, from_parent),
            Step::Repair {
                child,
                next,
                missing,
                wait_ms,
            } => self.ask_for_repairs(child, next, missing, wait_ms),
            Step::Parent { nonce, number } => {
                self.sound(nonce.into(), number.into());
            }
            Step::Bytes { child, ref bytes } => {
                self.give(child, bytes);
                let _ = self.relay.handle_parent_datagram(self.now, bytes);
            }
        }
    }

    /// Pushes layered data, or gives it to the relay as its parent does.
    fn push_data(&mut self, child: u8, sequence: u8, from_parent: bool) {
        let data = Data {
            group: sequence % 3,
            sequence: u32::from(sequence) / 3,
            request: 0,
            is_for_group: false,
            rate: 0,
            rtt_us: 1000,
            next_rate: 0,
            is_pair: false,
        };
        let mut message = vec![0; 30];
        (message[0], message[2], message[3]) = (6, 0x45, 2);
        message.extend_from_slice(Message::Data(data).encode().as_bytes());
        if from_parent {
            self.relay.handle_parent_data(0, &message);
            return;
        }
        let (at, message): (_, Arc<[u8]>) = (address(child), message.into());
        let rank = Some(data.group);
        let _ = self.relay.push(self.now, at, LOCAL, 0, rank, &message);
    }

    /// Asks for repairs. They are at most a quarter of what was sent, and the burst.
    fn ask_for_repairs(&mut self, child: u8, next: u8, missing: u128, wait_ms: u16) {
        let gaps: Vec<_> = (0..3)
            .map(|rank| GroupGaps {
                session: 7,
                rank,
                next: next.into(),
                missing,
            })
            .collect();
        let mut out = Vec::new();
        let stamp = self.stamp(child, false);
        let wait = Duration::from_millis(wait_ms.into());
        stamp.encode_repair(wait, &gaps, None, &mut out);
        self.give(child, &out);
        if let Some(hop) = self.relay.hop(address(child)) {
            let counters = hop.counters;
            // The shortest message has 78 bytes with its headers.
            let burst = (32 << 10) / 78;
            assert!(counters.repairs <= counters.sent_bytes / 4 / 78 + burst);
        }
    }

    fn announce(&mut self, child: u8, session: u8, group: u8) {
        let experiment = Experiment {
            session: 7 + u32::from(session % 3),
            group: group % 32,
        };
        let mut out = Vec::new();
        let stamp = self.stamp(child, false);
        stamp.encode_experiment(experiment, Direction::Up, None, &mut out);
        self.give(child, &out);
    }

    /// Gives the relay a sounding of its parent.
    fn sound(&mut self, nonce: u64, number: u32) {
        let sounding = Sounding {
            nonce,
            number,
            packets: 0,
            bytes: 0,
        };
        let mut out = Vec::new();
        sounding.encode(None, &mut out);
        let _ = self.relay.handle_parent_datagram(self.now, &out);
        self.relay.handle_parent_data(0, &out);
    }

    fn ask(&mut self, group: u8, ahead: u16) {
        self.request = self.request.wrapping_add(ahead);
        let data = Data {
            group: group % 32,
            sequence: 0,
            request: self.request,
            is_for_group: group & 0x40 != 0,
            rate: 0,
            rtt_us: 1000,
            next_rate: 0,
            is_pair: false,
        };
        self.relay.observe_data(self.now, 0, &data);
        // Rounds of other groups go on.
        if ahead > 0 && !data.is_for_group {
            self.check_summaries();
            self.offered = 0;
        }
    }

    fn stamp(&mut self, child: u8, is_old: bool) -> Stamp {
        self.counter += u32::from(!is_old);
        let heard = self.heard[usize::from(child % 8)];
        Stamp {
            nonce: heard.map_or(0, |sounding| sounding.nonce),
            number: heard.map_or(0, |sounding| sounding.number),
            counter: self.counter,
        }
    }

    fn echo(&mut self, child: u8, behind: u8, packets: u16, restarted: bool) {
        let Some(sounding) = self.heard[usize::from(child % 8)] else {
            return;
        };
        let echo = Echo {
            nonce: sounding.nonce,
            number: sounding.number.saturating_sub((behind % 4).into()),
            child: restarted.into(),
            packets: if packets.is_multiple_of(3) {
                sounding.packets
            } else {
                u64::MAX / u64::from(packets)
            },
            bytes: u64::from(packets) * 1000,
        };
        let mut out = Vec::new();
        echo.encode(None, &mut out);
        self.give(child, &out);
    }

    fn feedback(&self, group: u8, behind: u16, reports: u32, more: bool) -> Feedback {
        let behind = (behind % 8).wrapping_sub(1);
        Feedback {
            source: reports,
            session: 7,
            group: group % 4,
            more,
            request: self.request.wrapping_sub(behind),
            reports,
            congested: reports / 2,
            minimum: 1,
            maximum: 2,
            population: reports,
            hold_us: u32::MAX - reports,
            rtt_us: reports,
        }
    }

    fn report(&mut self, child: u8, feedback: Feedback, is_old: bool) {
        let stamp = self.stamp(child, is_old);
        let mut out = Vec::new();
        stamp.encode_report(&[feedback], None, &mut out);
        self.offered += u64::from(feedback.reports);
        self.give(child, &out);
    }

    fn give(&mut self, child: u8, bytes: &[u8]) {
        let at = address(child);
        let _ = self.relay.handle_datagram(self.now, at, LOCAL, bytes);
    }

    /// A round's summaries describe no more reports than children have sent.
    fn check_summaries(&mut self) {
        while let Some(feedback) = self.relay.poll_feedback() {
            assert!(feedback.congested <= feedback.reports);
            assert!(u64::from(feedback.reports) <= self.offered, "{feedback:?}");
        }
    }

    /// Takes everything that is due, as a driver does.
    fn drain(&mut self) {
        let mut out = Vec::new();
        for sent in 0.. {
            assert!(sent < 10_000, "the relay sends without end");
            let Some(datagrams) = self.relay.poll_transmit(self.now, &mut out) else {
                break;
            };
            assert!(datagrams.segment_bytes == 0 || out.len() % datagrams.segment_bytes == 0);
            let Where::Child { to, .. } = datagrams.place else {
                assert!(HopMessage::decode(&out, Direction::Up, None).is_ok());
                continue;
            };
            if let Ok(HopMessage::Sounding(sounding)) =
                HopMessage::decode(&out, Direction::Down, None)
            {
                self.heard[usize::from(to.port() - 1000)] = Some(sounding);
            }
        }
        assert!(self.relay.children().count() <= CHILDREN);
        for child in self.relay.children() {
            let status = self.relay.hop(child).expect("children have hops");
            assert!(status.queued.0 <= 15 + 1000);
            assert!(status.rate.bits_per_s() >= 16_000);
        }
        self.check_summaries();
    }
}
