//! A daemon of a living overlay has an honest neighbour, which sends messages to a member at the
//! daemon, and a hostile one, which sends any frames: bytes of any kind, and forged states, numbers
//! and acknowledgements. Neither daemon panics or floods, their timers never stay at the same time
//! forever, what they keep is bounded, and the honest neighbour's messages arrive in order.
//!
//! Daemons trust each other, so the hostile one does not do what any member may do, or what only
//! signatures could prevent: it does not join or pause the honest group, and forges nothing of
//! which the honest neighbour is the origin.
#![cfg_attr(fuzzing, no_main)]

use std::collections::VecDeque;
use std::time::Duration;

use arbitrary::Arbitrary;
use manyflow_core::{Ecn, Length, Time};
use manyflow_fuzz::overlay::{
    FrameBytes, GROUP, HERE, HONEST, HOSTILE, body, daemon, item, number, tame, variants,
};
use manyflow_overlay::controller::Open;
use manyflow_overlay::hop::KernelHop;
use manyflow_overlay::{
    Body, Change, ChangeSeq, ClientFrame, ClientId, Daemon, DaemonId, Feedback, Frame, GroupId,
    Item, LinkSeq, Message, NAME_BYTES_MAX, OverlayConfig, Part, Summary, Transmit,
};

/// The numbers of almost all forged groups are below this one.
const GROUPS_MAX: u32 = 400;
/// The daemon, its hostile neighbour and daemons behind it that do not exist.
const LINE: [DaemonId; 5] = [HERE, HOSTILE, DaemonId(9), DaemonId(10), DaemonId(11)];
/// Maximum number of daemons that a daemon may know: so few that the hostile neighbour can invent
/// them, and more than it can invent in one input.
const DAEMONS_MAX: (usize, usize) = (6, 1024);
/// Maximum number of frames in answer to one input.
const BURST_MAX: usize = 8192;
/// The time in which a message arrives after the last hostile frame. A daemon may wait for a minute
/// before it outbids a forged incarnation of itself.
const QUIET_MAX: Duration = Duration::from_secs(120);

/// Bytes of announced groups that a daemon may keep: so few that the hostile neighbour can fill
/// them, and more than it can fill.
const STATE_BYTES: (usize, usize) = (20_000, 16 << 20);
/// Maximum number of entries that a daemon keeps if it may keep few bytes of groups: changes that
/// wait for earlier ones, and the entries of groups, flows and messages.
const STATE_MAX: usize = 16_384 + 4_096;

#[derive(Arbitrary, Debug)]
enum Step {
    /// Bytes of a frame, as daemons send them over streams.
    Bytes(FrameBytes),
    Message {
        origin: u8,
        body: u8,
        numbers: [u16; 4],
    },
    /// A whole state, in parts.
    State {
        origin: u8,
        age: [u16; 2],
        items: [(u8, u16, u16); 3],
        lacks: u8,
    },
    /// Daemons that do not exist, in a line behind the hostile neighbour, with members of a group.
    Line {
        weight: u16,
        group: u8,
        members: u16,
    },
    /// Changes of a daemon that follow each other.
    Changes {
        origin: u8,
        first: u16,
        count: u8,
        kind: u8,
    },
    Acknowledge(u32),
    /// The hostile connection breaks, and the next one announces a number.
    Reconnect(u32),
    /// A link of the daemon goes down and comes up again, with a new hop at each end.
    Relink {
        is_honest: bool,
        milliseconds: u16,
    },
    Send,
    Wait {
        milliseconds: u16,
    },
}

manyflow_fuzz::target!(|bytes: &[u8]| {
    let [first, rest @ ..] = bytes else { return };
    let is_tight = first.is_multiple_of(4);
    let mut world = World::new(is_tight);
    for step in manyflow_fuzz::each(rest) {
        world.take(step);
        world.check();
    }
    world.check_groups();
    if !world.was_full {
        world.finish();
    }
});

struct World {
    is_tight: bool,
    now: Time,
    here: Daemon<Length>,
    honest: Daemon<Length>,
    member: ClientId,
    sender: ClientId,
    /// Frames between the daemon and its honest neighbour, by destination.
    wires: [VecDeque<(Frame, Length)>; 2],
    is_linked: bool,
    /// The number of the honest neighbour's last message that was sent, and that was read.
    sent: u32,
    read: u32,
    /// Whether the last message has entered the overlay.
    is_ready: bool,
    /// The number of forged lines of daemons.
    lines: u32,
    /// Whether a daemon has known as many daemons as it may, all of them linked. Without
    /// signatures, the hostile neighbour can invent them, and an honest one that comes back has no
    /// place. States that are only offered, and groups that fill the bytes, keep nobody away.
    was_full: bool,
}

impl World {
    fn new(is_tight: bool) -> World {
        let (daemons_max, state_bytes) = match is_tight {
            true => (DAEMONS_MAX.0, STATE_BYTES.0),
            false => (DAEMONS_MAX.1, STATE_BYTES.1),
        };
        let config = OverlayConfig {
            daemons_max,
            neighbours_max: 3,
            retain_bytes: 50_000,
            state_bytes,
            ..OverlayConfig::default()
        };
        let [mut here, mut honest] = [HERE, HONEST].map(|id| {
            let daemon = Daemon::new(config.clone(), Box::new(Open), id, 2);
            daemon.expect("the limits are sound")
        });
        let (member, sender) = (
            here.connect(Time::ZERO, 100),
            honest.connect(Time::ZERO, 100),
        );
        let mut world = World {
            is_tight,
            now: Time::ZERO,
            here,
            honest,
            member,
            sender,
            wires: Default::default(),
            is_linked: false,
            sent: 0,
            read: 0,
            is_ready: true,
            lines: 0,
            was_full: false,
        };
        let join = ClientFrame::Join(GROUP);
        world.tell_member(&join, Length(GROUP.0));
        world.link_honest();
        world.link_hostile();
        world.run();
        world
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Bytes(bytes) => self.bytes(&bytes),
            Step::Message {
                origin,
                body: kind,
                numbers,
            } => {
                let version = self.here.topology().version();
                self.hear(daemon(origin), body(version, kind, numbers));
            }
            Step::State {
                origin,
                age,
                items,
                lacks,
            } => {
                let [incarnation, change] = age.map(number);
                let summary = Summary {
                    incarnation,
                    change: ChangeSeq(change),
                };
                let items = items.map(|(kind, a, b)| item(kind, a, b));
                self.state(daemon(origin), summary, &items, lacks);
            }
            Step::Line {
                weight,
                group,
                members,
            } => self.line(number(weight), group, number(members)),
            Step::Changes {
                origin,
                first,
                count,
                kind,
            } => self.changes(daemon(origin), first, count, kind),
            Step::Acknowledge(expected) => self.acknowledge(expected),
            Step::Reconnect(received) => {
                self.here.handle_disconnected(self.now, HOSTILE);
                let received = LinkSeq(received);
                self.here.handle_connected(self.now, HOSTILE, received);
            }
            Step::Relink {
                is_honest,
                milliseconds,
            } => self.relink(is_honest, milliseconds),
            Step::Send => self.send(),
            Step::Wait { milliseconds } => {
                let scale = if milliseconds > 60_000 { 100 } else { 1 };
                self.pass(scale * Duration::from_millis(u64::from(milliseconds % 6_000)));
            }
        }
        self.run();
    }

    fn link_honest(&mut self) {
        let now = self.now;
        self.wires = Default::default();
        self.is_linked = true;
        self.here
            .add_link(now, HONEST, 1, Box::new(KernelHop::new()));
        self.here.handle_connected(now, HONEST, LinkSeq(0));
        self.honest
            .add_link(now, HERE, 1, Box::new(KernelHop::new()));
        self.honest.handle_connected(now, HERE, LinkSeq(0));
    }

    fn link_hostile(&mut self) {
        self.here
            .add_link(self.now, HOSTILE, 1, Box::new(KernelHop::new()));
        self.here.handle_connected(self.now, HOSTILE, LinkSeq(0));
    }

    fn relink(&mut self, is_honest: bool, milliseconds: u16) {
        if is_honest {
            self.is_linked = false;
            self.here.remove_link(self.now, HONEST);
            self.honest.remove_link(self.now, HERE);
            // This message has no way to the member, and is sent again.
            self.send();
        } else {
            self.here.remove_link(self.now, HOSTILE);
        }
        self.run();
        self.pass(Duration::from_millis(u64::from(milliseconds % 10_000)));
        match is_honest {
            true => self.link_honest(),
            false => self.link_hostile(),
        }
    }

    /// Handles bytes of the hostile neighbour, and similar bytes that are likely to be a frame.
    fn bytes(&mut self, bytes: &FrameBytes) {
        for bytes in &variants(bytes) {
            if let Ok(Some((frame, payload))) = Frame::decode_framed(bytes) {
                self.frame(frame, Length(payload.len() as u32));
            }
            if let Ok((frame, header)) = Frame::decode(&bytes[2..]) {
                self.frame(frame, Length((bytes.len() - 2 - header) as u32));
            }
        }
    }

    fn frame(&mut self, frame: Frame, payload: Length) {
        let frame = match frame {
            Frame::Stream(message) | Frame::Datagram { message, .. } => {
                Frame::Stream(tame(message))
            }
            Frame::Direct(message) => Frame::Direct(tame(message)),
            frame => frame,
        };
        self.here
            .handle_frame(self.now, HOSTILE, &frame, Ecn::NotCapable, payload);
        self.run();
    }

    fn hear(&mut self, origin: DaemonId, body: Body) {
        let message = tame(Message {
            origin,
            copy: Default::default(),
            body,
        });
        let payload = match message.has_payload() {
            true => Length(u32::from(origin.0) % (NAME_BYTES_MAX + 1)),
            false => Length(0),
        };
        // A decoder refuses some numbers.
        let encoded = message.encode_framed(payload.0).expect("names are short");
        let mut bytes = encoded.as_bytes().to_vec();
        bytes.resize(bytes.len() + payload.0 as usize, b'n');
        if Message::decode_framed(&bytes).is_ok() {
            self.frame(Frame::Stream(message), payload);
        }
    }

    /// Sends a whole state in parts, except for one of them.
    fn state(&mut self, origin: DaemonId, summary: Summary, items: &[Item], lacks: u8) {
        let (incarnation, change) = (summary.incarnation, summary.change);
        self.hear(origin, Body::Summary(summary));
        let count = items.len() as u32;
        let count = Item::Count { count, incarnation };
        for (&item, index) in core::iter::once(&count).chain(items).zip(0..) {
            if index != u32::from(lacks) {
                let part = Part {
                    change,
                    index,
                    item,
                };
                self.hear(origin, Body::Part(part));
            }
        }
    }

    fn line(&mut self, weight: u32, group: u8, members: u32) {
        self.lines += 1;
        let since = ChangeSeq(1);
        let summary = Summary {
            incarnation: 8 + self.lines,
            change: since,
        };
        for ends in LINE.windows(3) {
            let link = |to| Item::Link { to, weight, since };
            let members = Item::Members {
                group: GroupId(u32::from(group % 6)),
                members,
                since,
            };
            let items = [link(ends[0]), link(ends[2]), members];
            self.state(ends[1], summary, &items, u8::MAX);
        }
    }

    /// Announces changes of a daemon's present incarnation, each about another group or link.
    fn changes(&mut self, origin: DaemonId, first: u16, count: u8, kind: u8) {
        let incarnation = self.here.topology().incarnation(origin).unwrap_or(2);
        for place in 0..u16::from(count) {
            let item = match kind % 3 {
                0 => Item::Members {
                    group: GroupId(GROUPS_MAX - 1 - u32::from(place)),
                    members: 1,
                    since: ChangeSeq(1),
                },
                1 => Item::Link {
                    to: DaemonId(place),
                    weight: 1,
                    since: ChangeSeq(1),
                },
                _ => item(kind, place, first),
            };
            let change = ChangeSeq(number(first).wrapping_add(u32::from(place)));
            let change = Change {
                incarnation,
                change,
                item,
            };
            self.hear(origin, Body::Change(change));
        }
    }

    fn acknowledge(&mut self, expected: u32) {
        let expected = LinkSeq(expected);
        let feedback = Feedback {
            expected,
            missing: [(expected, LinkSeq(0)); 3],
        };
        self.frame(Frame::Feedback(feedback), Length(0));
    }

    /// Lets the honest neighbour's client send the next message, if the last one has entered.
    fn send(&mut self) {
        if core::mem::take(&mut self.is_ready) {
            self.sent += 1;
            let send = ClientFrame::Send {
                groups: GROUP.into(),
                sent_us: 0,
                layered: false,
            };
            let payload = Length(self.sent);
            self.honest
                .handle_client(self.now, self.sender, &send, payload);
        }
    }

    fn tell_member(&mut self, frame: &ClientFrame, payload: Length) {
        self.here
            .handle_client(self.now, self.member, frame, payload);
    }

    /// Carries frames until there are none.
    fn run(&mut self) {
        for _ in 0..BURST_MAX {
            let mut is_idle = true;
            while let Some(transmit) = self.here.poll_transmit() {
                is_idle = false;
                self.carry_from_here(transmit);
            }
            while let Some(transmit) = self.honest.poll_transmit() {
                is_idle = false;
                self.carry_from_honest(transmit);
            }
            is_idle &= self.deliver() == 0;
            for daemon in [&mut self.here, &mut self.honest] {
                while daemon.poll_event().is_some() {}
                while daemon.poll_interest().is_some() {}
            }
            if is_idle {
                return;
            }
            self.here.handle_writable(self.now, HOSTILE);
            self.here.handle_writable(self.now, HONEST);
            self.honest.handle_writable(self.now, HERE);
        }
        panic!("the daemons send frames forever");
    }

    fn carry_from_here(&mut self, transmit: Transmit<Length>) {
        match transmit {
            Transmit::Daemon(HONEST, frame, payload) if self.is_linked => {
                self.wires[1].push_back((frame, payload));
            }
            Transmit::Client(_, ClientFrame::Deliver { origin, data, .. }, payload) => {
                if (origin, data.group) == (HONEST, GROUP) {
                    let (read, sent) = (self.read, self.sent);
                    assert!(read < payload.0 && payload.0 <= sent, "{payload:?}");
                    self.read = payload.0;
                }
                self.tell_member(&ClientFrame::Took { messages: 1 }, Length(0));
            }
            _ => {}
        }
    }

    fn carry_from_honest(&mut self, transmit: Transmit<Length>) {
        match transmit {
            Transmit::Daemon(HERE, frame, payload) if self.is_linked => {
                self.wires[0].push_back((frame, payload));
            }
            Transmit::Client(_, ClientFrame::Ready, _) => self.is_ready = true,
            _ => {}
        }
    }

    /// Delivers the frames between the daemons. Returns their number.
    fn deliver(&mut self) -> usize {
        let [to_here, to_honest] = core::mem::take(&mut self.wires);
        let frames = to_here.len() + to_honest.len();
        assert!(frames <= BURST_MAX, "{frames} frames at once");
        for (frame, payload) in to_here {
            self.here
                .handle_frame(self.now, HONEST, &frame, Ecn::NotCapable, payload);
        }
        for (frame, payload) in to_honest {
            self.honest
                .handle_frame(self.now, HERE, &frame, Ecn::NotCapable, payload);
        }
        frames
    }

    /// Lets time pass, from timer to timer.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        let mut at_once = 0;
        while let Some(due) = self.next_timeout()
            && due <= end
        {
            at_once = if due > self.now { 0 } else { at_once + 1 };
            assert!(
                at_once < BURST_MAX,
                "a timer stays at the same time forever"
            );
            self.now = self.now.max(due);
            self.here.handle_timeout(self.now);
            self.honest.handle_timeout(self.now);
            self.run();
        }
        self.now = end;
    }

    fn next_timeout(&self) -> Option<Time> {
        let times = [self.here.poll_timeout(), self.honest.poll_timeout()];
        times.into_iter().flatten().min()
    }

    fn check(&mut self) {
        for daemon in [&self.here, &self.honest] {
            let (daemons, size) = (daemon.topology().len(), daemon.state_size());
            if self.is_tight {
                self.was_full |= daemons == DAEMONS_MAX.0;
                assert!(daemons <= DAEMONS_MAX.0, "{daemons} daemons");
                assert!(size <= STATE_MAX, "{size} entries");
            }
        }
    }

    /// Checks the number of announced groups. Each takes more than a hundred bytes.
    fn check_groups(&self) {
        for daemon in [&self.here, &self.honest] {
            let groups = (0..GROUPS_MAX).map(|group| daemon.members(GroupId(group)).count());
            let groups = groups.sum::<usize>();
            assert!(
                !self.is_tight || groups <= STATE_BYTES.0 / 100,
                "{groups} groups"
            );
        }
    }

    /// Sends a last message, which arrives although the hostile neighbour remains.
    fn finish(&mut self) {
        let end = self.now + QUIET_MAX;
        while !self.is_ready && self.now < end {
            self.pass(Duration::from_secs(1));
        }
        self.send();
        self.run();
        while self.read < self.sent && self.now < end {
            self.pass(Duration::from_secs(1));
        }
        assert_eq!(self.read, self.sent, "the last message has arrived");
    }
}
