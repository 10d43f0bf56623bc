//! A daemon of a living overlay receives any messages about the links and members of other daemons,
//! while its links come and go. It does not panic or flood, its timer never stays at the same time
//! forever, and the daemons that it knows remain within their limit.
#![cfg_attr(fuzzing, no_main)]

use std::time::Duration;

use arbitrary::Arbitrary;
use manyflow_core::{Ecn, Length, Time};
use manyflow_fuzz::overlay::drain;
use manyflow_overlay::controller::Open;
use manyflow_overlay::hop::DatagramHop;
use manyflow_overlay::{
    Acknowledge, Answer, Body, Change, ChangeSeq, ClientFrame, ClientId, Daemon, DaemonId, Data,
    Frame, GroupId, Item, LinkSeq, Message, OriginSeq, OverlayConfig, Part, Resent, Summary,
    Transmit, Welcome,
};

const HERE: DaemonId = DaemonId(1);
/// Maximum number of daemons that the daemon may know.
const DAEMONS_MAX: usize = 6;
/// Maximum number of outputs after one input.
const BURST_MAX: usize = 8192;

#[derive(Arbitrary, Debug)]
enum Step {
    Message {
        from: u8,
        origin: u8,
        body: u8,
        group: u8,
        words: [u16; 4],
    },
    Up {
        to: u8,
        weight: u8,
    },
    Down {
        to: u8,
    },
    Client {
        kind: u8,
        group: u8,
    },
    Wait {
        milliseconds: u16,
    },
}

/// A daemon's number: mostly one of the few that appear again and again.
fn daemon(number: u8) -> DaemonId {
    DaemonId(match number {
        0..200 => u16::from(number % 5),
        _ => u16::from(number) << 8,
    })
}

fn item(kind: u16, [a, b, c]: [u16; 3], group: GroupId) -> Item {
    let since = ChangeSeq(u32::from(c % 8));
    match kind % 8 {
        0..3 => Item::Link {
            to: daemon(a as u8),
            weight: u32::from(b % 3),
            since,
        },
        3..5 => Item::Members {
            group,
            members: u32::from(b % 3),
            since,
        },
        5 => Item::Paused {
            group,
            paused: b.is_multiple_of(2),
        },
        6 => Item::Alive,
        _ => Item::Count {
            count: u32::from(b % 4),
            incarnation: u32::from(a % 4),
        },
    }
}

manyflow_fuzz::target!(|bytes: &[u8]| {
    let mut world = World::new();
    for step in manyflow_fuzz::each(bytes) {
        world.take(step);
        world.drain();
        assert!(world.daemon.topology().len() <= DAEMONS_MAX);
    }
});

struct World {
    daemon: Daemon<Length>,
    client: ClientId,
    now: Time,
    /// The next number of each neighbour's datagrams on its present link.
    next: [u32; 5],
}

impl World {
    fn new() -> World {
        let config = OverlayConfig {
            daemons_max: DAEMONS_MAX,
            neighbours_max: 3,
            retain_bytes: 5_000,
            ..OverlayConfig::default()
        };
        let daemon = Daemon::new(config, Box::new(Open), HERE, 2);
        let mut daemon = daemon.expect("the limits are sound");
        let client = daemon.connect(Time::ZERO, 100);
        World {
            daemon,
            client,
            now: Time::ZERO,
            next: [0; 5],
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Message {
                from,
                origin,
                body,
                group,
                words,
            } => {
                let body = self.body(body, GroupId(u32::from(group % 3)), words);
                self.hear(from % 5, daemon(origin), body);
            }
            Step::Up { to, weight } => {
                let to = to % 5;
                self.next[usize::from(to)] = 0;
                let (to, hop) = (DaemonId(to.into()), Box::new(DatagramHop::new()));
                self.daemon.add_link(self.now, to, weight.into(), hop);
            }
            Step::Down { to } => {
                let to = DaemonId(u16::from(to % 5));
                self.daemon.remove_link(self.now, to);
            }
            Step::Client { kind, group } => {
                let group = GroupId(u32::from(group % 3));
                let frame = match kind % 8 {
                    0 | 1 => ClientFrame::Join(group),
                    2 => ClientFrame::Leave(group),
                    _ => ClientFrame::Send {
                        groups: group.into(),
                        sent_us: 0,
                        layered: false,
                    },
                };
                let payload = Length(kind.into());
                self.daemon
                    .handle_client(self.now, self.client, &frame, payload);
            }
            Step::Wait { milliseconds } => {
                let scale = if milliseconds > 60_000 { 1_000 } else { 1 };
                self.now += scale * Duration::from_millis(milliseconds.into());
                self.daemon.handle_timeout(self.now);
            }
        }
    }

    fn body(&self, kind: u8, group: GroupId, [a, b, c, d]: [u16; 4]) -> Body {
        let version = match a % 4 {
            0 => b,
            _ => self.daemon.topology().version(),
        };
        let to = daemon(b as u8);
        let change = ChangeSeq(1 + u32::from(a % 8));
        let number = |word: u16| OriginSeq::new(1 + u64::from(word % 16));
        let data = Data {
            group,
            version,
            sequence: number(c),
            sender: ClientId(0),
            sent_us: 0,
        };
        match kind % 16 {
            0..4 => Body::Change(Change {
                incarnation: u32::from(d % 4),
                change,
                item: item(d >> 2, [b, c, a], group),
            }),
            4..8 => Body::Part(Part {
                change,
                index: u32::from(d % 4),
                item: item(d >> 2, [b, c, a], group),
            }),
            8 | 9 => Body::Summary(Summary {
                incarnation: u32::from(d % 4),
                change,
            }),
            10 => Body::Request,
            11 => Body::Data(data),
            12 => Body::Resent(Resent { to, data }),
            13 => Body::Welcome(Welcome {
                to,
                version,
                group,
                change,
                start: number(c),
                next: number(c).advance(u64::from(d)),
            }),
            14 => Body::Answer(Answer {
                to: HERE,
                version,
                group,
                change,
                expected: number(c),
                next: number(d),
            }),
            _ => Body::Acknowledge(Acknowledge {
                to: HERE,
                version,
                flows: [(group, u32::from(c)), (GroupId(0), u32::from(d % 16))],
            }),
        }
    }

    fn hear(&mut self, from: u8, origin: DaemonId, body: Body) {
        let next = &mut self.next[usize::from(from)];
        let message = Message {
            origin,
            copy: Default::default(),
            body,
        };
        let frame = Frame::Datagram {
            number: LinkSeq(*next),
            message,
        };
        *next += 1;
        let (from, payload) = (DaemonId(from.into()), Length(u32::from(from)));
        self.daemon
            .handle_frame(self.now, from, &frame, Ecn::NotCapable, payload);
    }

    /// The client reads at once.
    fn drain(&mut self) {
        let now = self.now;
        drain(&mut self.daemon, now, BURST_MAX, |daemon, transmit| {
            if let Transmit::Client(client, ClientFrame::Deliver { .. }, _) = transmit {
                let took = ClientFrame::Took { messages: 1 };
                daemon.handle_client(now, *client, &took, Length(0));
            }
        });
    }
}
