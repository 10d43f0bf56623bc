//! A daemon receives any frames from neighbours, other hosts and its clients in any order. It does
//! not panic or flood, and its timer never stays at the same time forever.
#![cfg_attr(fuzzing, no_main)]

use std::sync::Arc;
use std::time::Duration;

use arbitrary::Arbitrary;
use manyflow_core::{Ecn, Length, Time};
use manyflow_fuzz::overlay::drain;
use manyflow_overlay::controller::{Controller, Open};
use manyflow_overlay::cost_benefit::{CostBenefit, CostBenefitConfig};
use manyflow_overlay::hop::{DatagramHop, Hop, StreamHop};
use manyflow_overlay::tfrc::{Tfrc, TfrcConfig};
use manyflow_overlay::{
    Ack, Body, Change, ChangeSeq, ClientFrame, ClientId, Control, CopyFlags, CostUpdate, Daemon,
    DaemonId, Data, Feedback, Frame, GroupId, GroupSet, Item, LinkSeq, LinkState, Message,
    OriginSeq, OverlayConfig, Report, RoundTrip, SlowPolicy, Topology, Transmit, Welcome,
};
use manyflow_tcp::TcpConfig;

/// The links 0-1-2-3 and 1-4; the daemon under test is daemon 1.
const LINKS: [(u16, u16); 4] = [(0, 1), (1, 2), (2, 3), (1, 4)];
const HERE: DaemonId = DaemonId(1);
/// Maximum number of outputs after one input: messages that wait at clients and in queues, for each
/// neighbour.
const BURST_MAX: usize = 4096;

#[derive(Arbitrary, Debug)]
enum Step {
    Link(Forged),
    Client {
        client: u8,
        kind: u8,
        group: u8,
        number: u16,
    },
    Acknowledge,
    Wait {
        milliseconds: u16,
    },
}

/// The parts of a frame between daemons.
#[derive(Arbitrary, Debug)]
struct Forged {
    from: u8,
    carrier: u8,
    body: u8,
    origin: u8,
    group: u8,
    numbers: [u16; 2],
    words: [u32; 2],
}

impl Forged {
    fn frame(&self, next: u32) -> Frame {
        let message = self.message();
        // Usually the next number, so that the message is accepted.
        let number = match self.numbers[0] {
            0..0xe000 => next,
            word => number(word),
        };
        let [first, second] = self.words;
        match self.carrier {
            0..100 => Frame::Segment {
                sequence: LinkSeq(number),
                message,
            },
            100..200 => Frame::Datagram {
                number: LinkSeq(number),
                message,
            },
            200..216 => Frame::Direct(message),
            216..236 => Frame::Ack(Ack {
                acknowledgement: LinkSeq(first % 64),
                window: self.numbers[1],
                sack: [(first % 64 + 1, second % 64), (0, 0), (0, 0)].map(range),
            }),
            _ => Frame::Feedback(Feedback {
                expected: LinkSeq(first % 64),
                missing: [
                    (first, second),
                    (second % 64, first % 64),
                    (first % 64, second),
                ]
                .map(range),
            }),
        }
    }

    fn message(&self) -> Message {
        let origin = DaemonId(match self.origin {
            0..240 => u16::from(self.origin % 5),
            _ => u16::from(self.origin) << 8,
        });
        Message {
            origin,
            copy: match self.words[1] & 1 {
                1 => CopyFlags::REPAIRED,
                _ => CopyFlags::MARKED,
            },
            body: self.body(),
        }
    }

    fn body(&self) -> Body {
        let group = GroupId(u32::from(self.group % 4));
        let [small, other] = self.numbers.map(number);
        let [first, second] = self.words;
        let client = ClientId(second % 4);
        match self.body {
            0..80 => Body::Data(Data {
                group,
                version: 0,
                sequence: OriginSeq::new(other.into()),
                sender: client,
                sent_us: first,
            }),
            80..140 => Body::Change(Change {
                incarnation: 0,
                change: ChangeSeq(other),
                item: Item::Members {
                    group,
                    members: first % 3,
                    since: ChangeSeq(other),
                },
            }),
            140..170 => Body::Welcome(Welcome {
                to: DaemonId(u16::from(self.origin >> 4) % 6),
                version: 0,
                group,
                change: ChangeSeq(small),
                start: OriginSeq::new(other.into()),
                next: OriginSeq::new(u64::from(other) + u64::from(small)),
            }),
            170..190 => Body::Change(Change {
                incarnation: 0,
                change: ChangeSeq(other),
                item: Item::Paused {
                    group,
                    paused: first & 1 == 1,
                },
            }),
            190..210 => Body::Control(Control::Cost(CostUpdate {
                version: 0,
                links: [first, second, second >> 8].map(|word| {
                    (word & 3 != 0).then_some(LinkState {
                        to: DaemonId((word >> 2) as u16 % 6),
                        queue: (word >> 16) as u16,
                    })
                }),
            })),
            210..240 => Body::Control(Control::Report(Report {
                group,
                rate_bytes_per_s: first,
                repaired: (second >> 16) as u16,
                acknowledged: OriginSeq::new(small.into()),
                received_bytes: second,
                held_us: first % 100_000,
            })),
            _ => Body::Control(Control::RoundTrip(RoundTrip { rtt_us: first })),
        }
    }
}

fn range((begin, end): (u32, u32)) -> (LinkSeq, LinkSeq) {
    (LinkSeq(begin), LinkSeq(end))
}

/// Usually a small number, sometimes one from the whole range.
fn number(word: u16) -> u32 {
    match word {
        0..0xf000 => u32::from(word % 64),
        0xf000..0xff00 => u32::from(word) << 16,
        _ => u32::MAX - u32::from(word & 0xf),
    }
}

manyflow_fuzz::target!(|bytes: &[u8]| {
    let [first, rest @ ..] = bytes else { return };
    let mut world = World::new(*first);
    for step in manyflow_fuzz::each(rest) {
        world.take(step);
        world.drain();
    }
});

struct World {
    daemon: Daemon<Length>,
    now: Time,
    clients: u32,
    /// The next number on each neighbour's link, of messages to the daemon and from it.
    next: [u32; 5],
    sent: [u32; 5],
    is_stream: bool,
}

impl World {
    fn new(choice: u8) -> World {
        let links = LINKS.map(|(a, b)| (DaemonId(a), DaemonId(b), 1));
        let topology = Arc::new(
            Topology::new((0..5).map(DaemonId), &links).expect("the links connect all daemons"),
        );
        let tcp = TcpConfig {
            maximum_window: 8,
            ..TcpConfig::default()
        };
        let controller: Box<dyn Controller> = match choice % 3 {
            0 => Box::new(Open),
            1 => {
                let config = CostBenefitConfig::default();
                Box::new(CostBenefit::new(config, HERE, 1).expect("the defaults are sound"))
            }
            _ => Box::new(Tfrc::new(TfrcConfig::default(), HERE).expect("the defaults are sound")),
        };
        let is_stream = choice % 3 == 1 || (choice & 0x80 == 0 && choice.is_multiple_of(3));
        let hop = |seed| -> Box<dyn Hop<Length>> {
            match is_stream {
                true => Box::new(StreamHop::new(tcp.clone(), seed).expect("the window is sound")),
                false => Box::new(DatagramHop::new()),
            }
        };
        let config = OverlayConfig {
            queue_messages: 1 + usize::from(choice >> 3 & 7),
            client_messages: 4,
            slow: match choice >> 6 {
                0 => SlowPolicy::Drop,
                1 => SlowPolicy::Evict(Duration::from_millis(500)),
                _ => SlowPolicy::Block,
            },
            ..OverlayConfig::default()
        };
        let hops = (0..3).map(hop).collect();
        World {
            daemon: Daemon::fixed(config, controller, HERE, topology, hops)
                .expect("daemon 1 has three neighbours"),
            now: Time::ZERO,
            clients: 0,
            next: [0; 5],
            sent: [0; 5],
            is_stream,
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Link(forged) => {
                let from = usize::from(forged.from % 5);
                let frame = forged.frame(self.next[from]);
                if let Frame::Segment { sequence, .. }
                | Frame::Datagram {
                    number: sequence, ..
                } = frame
                {
                    self.next[from] += u32::from(sequence.0 == self.next[from]);
                }
                let payload = Length(u32::from(forged.numbers[1] % 1500));
                self.hear(from, &frame, payload);
            }
            Step::Client {
                client,
                kind,
                group,
                number,
            } => self.client(client, kind, group, number),
            Step::Acknowledge => self.acknowledge(),
            Step::Wait { milliseconds } => {
                let milliseconds = match milliseconds {
                    60_000.. => milliseconds,
                    _ => milliseconds % 500,
                };
                self.now += Duration::from_millis(milliseconds.into());
                self.daemon.handle_timeout(self.now);
            }
        }
    }

    fn hear(&mut self, from: usize, frame: &Frame, payload: Length) {
        let from = DaemonId(from as u16);
        self.daemon
            .handle_frame(self.now, from, frame, Ecn::NotCapable, payload);
    }

    fn client(&mut self, client: u8, kind: u8, group: u8, number: u16) {
        let group = GroupId(u32::from(group % 4));
        let id = ClientId(u32::from(client) % (self.clients + 1));
        let frame = match kind {
            0..20 => {
                self.clients += 1;
                self.daemon.connect(self.now, number);
                return;
            }
            20..60 => ClientFrame::Join(group),
            60..80 => ClientFrame::Leave(group),
            80..180 => {
                let others = [
                    group,
                    GroupId((group.0 + 1) % 4),
                    GroupId((group.0 + 2) % 4),
                ];
                let count = 1 + usize::from(number % 3);
                ClientFrame::Send {
                    groups: GroupSet::of(&others[..count]).expect("the groups differ"),
                    sent_us: 0,
                    layered: number % 2 == 1,
                }
            }
            180..235 => ClientFrame::Took {
                messages: u32::from(number % 80),
            },
            235..245 => ClientFrame::Disconnect,
            245..250 => ClientFrame::Evicted(group),
            _ => ClientFrame::Ready,
        };
        let payload = Length(u32::from(number % 1500));
        self.daemon.handle_client(self.now, id, &frame, payload);
    }

    /// The neighbours acknowledge everything, so that the daemon continues.
    fn acknowledge(&mut self) {
        for neighbour in [0, 2, 4] {
            let sent = self.sent[neighbour];
            let frame = match self.is_stream {
                true => Frame::Ack(Ack {
                    acknowledgement: LinkSeq(sent),
                    window: 8,
                    sack: [(LinkSeq(0), LinkSeq(0)); 3],
                }),
                false => Frame::Feedback(Feedback {
                    expected: LinkSeq(sent),
                    missing: [(LinkSeq(0), LinkSeq(0)); 3],
                }),
            };
            self.hear(neighbour, &frame, Length(0));
        }
    }

    fn drain(&mut self) {
        let sent = &mut self.sent;
        drain(&mut self.daemon, self.now, BURST_MAX, |_, transmit| {
            if let Transmit::Daemon(
                to,
                Frame::Segment {
                    sequence: number, ..
                }
                | Frame::Datagram { number, .. },
                _,
            ) = transmit
            {
                let sent = &mut sent[usize::from(to.0)];
                *sent = (*sent).max(number.advance(1).0);
            }
        });
    }
}
