//! Two ends of a link over the kernel's TCP, whose connections break at any moment, deliver each
//! message once and in order. Acknowledgements of messages that were never sent, or were
//! acknowledged before, change nothing. Any frames, from an end that follows no rules, do not cause
//! a panic.
#![cfg_attr(fuzzing, no_main)]

use std::collections::VecDeque;
use std::time::Duration;

use arbitrary::Arbitrary;
use manyflow_core::{Ecn, Length, Time};
use manyflow_overlay::hop::{Hop, KernelHop};
use manyflow_overlay::{
    Ack, Body, ClientId, DaemonId, Data, Delay, Feedback, Frame, GroupId, LinkSeq, Message,
    OriginSeq, PAYLOAD_BYTES_MAX,
};

/// A number of messages that a hop holds for its daemon before it is full, or more.
const ARRIVALS_MAX: usize = 512;

#[derive(Arbitrary, Debug)]
enum Step {
    Push {
        end: bool,
        messages: u8,
    },
    Transmit {
        end: bool,
        frames: u8,
    },
    /// The socket has taken all bytes.
    Writable {
        end: bool,
    },
    Deliver {
        end: bool,
        frames: u8,
    },
    Wait {
        milliseconds: u8,
    },
    /// The connection breaks. The ends notice in either order, with frames delivered in between.
    Break {
        first: bool,
        frames: u8,
        reconnects: bool,
    },
    Forge {
        end: bool,
        kind: u8,
        number: u32,
    },
}

manyflow_fuzz::target!(|bytes: &[u8]| {
    let mut pair = Pair::new();
    for step in manyflow_fuzz::each(bytes) {
        pair.take(&step);
    }
    pair.finish();
    let mut outlaw = Outlaw::new();
    for step in manyflow_fuzz::each(bytes) {
        outlaw.take(&step);
    }
});

/// Two hops, and the frames on the way between them.
struct Pair {
    now: Time,
    ends: [End; 2],
}

/// One end of a link.
#[derive(Default)]
struct End {
    hop: KernelHop<Length>,
    /// Frames that this end has sent and the other has not received.
    wire: VecDeque<(Frame, Length)>,
    is_connected: bool,
    pushed: u32,
    /// The number of the next message on this connection.
    sent: u32,
    read: u32,
}

impl Pair {
    fn new() -> Pair {
        let mut pair = Pair {
            now: Time::ZERO,
            ends: Default::default(),
        };
        pair.connect();
        pair
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Push { end, messages } => {
                let end = &mut self.ends[usize::from(end)];
                (0..messages % 32).for_each(|_| end.push(self.now));
            }
            Step::Transmit { end, frames } => self.ends[usize::from(end)].transmit(frames.into()),
            Step::Writable { end } => {
                let end = &mut self.ends[usize::from(end)];
                end.hop.handle_writable(self.now);
            }
            Step::Deliver { end, frames } => self.deliver(end.into(), frames.into()),
            Step::Wait { milliseconds } => self.wait(milliseconds.into()),
            Step::Break {
                first,
                frames,
                reconnects,
            } => {
                self.disconnect(first.into());
                self.deliver(first.into(), frames.into());
                self.disconnect((!first).into());
                if reconnects {
                    self.connect();
                }
            }
            Step::Forge { end, kind, number } => self.forge(end.into(), kind, number),
        }
    }

    fn connect(&mut self) {
        let received = [0, 1].map(|end| self.ends[end].hop.received());
        for (end, received) in self.ends.iter_mut().zip([received[1], received[0]]) {
            assert!(end.wire.is_empty(), "a connection begins without frames");
            end.is_connected = true;
            end.sent = received.0;
            end.hop.handle_connected(self.now, received);
        }
    }

    /// Ends the connection at one end, which receives nothing from then on.
    fn disconnect(&mut self, end: usize) {
        self.ends[1 - end].wire.clear();
        self.ends[end].is_connected = false;
        self.ends[end].hop.handle_disconnected();
    }

    /// Delivers frames from one end to the other, as the driver of the other end does: a full hop
    /// is not read.
    fn deliver(&mut self, from: usize, frames: usize) {
        for _ in 0..frames {
            if self.ends[1 - from].hop.is_full() || !self.ends[1 - from].is_connected {
                break;
            }
            let Some((frame, payload)) = self.ends[from].wire.pop_front() else {
                break;
            };
            let to = &mut self.ends[1 - from];
            to.hop
                .handle_frame(self.now, &frame, Ecn::NotCapable, payload);
        }
        // Some messages wait for the daemon.
        let messages = frames.div_ceil(2);
        (0..messages).for_each(|_| self.ends[1 - from].read(self.now));
    }

    fn wait(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
        for end in &mut self.ends {
            end.hop.handle_timeout(self.now);
        }
    }

    /// Forges a frame that changes nothing at one end.
    fn forge(&mut self, at: usize, kind: u8, number: u32) {
        let received = self.ends[1 - at].hop.received().0;
        let end = &mut self.ends[at];
        let frame = match kind % 4 {
            // The other end has received these messages, or even acknowledged them.
            0 => acknowledgement(received - number % (received + 1)),
            1 => acknowledgement(end.sent + 1 + number % 3),
            2 => acknowledgement(end.sent + 1 + number % 0x8000_0000),
            _ => foreign(number),
        };
        end.hop
            .handle_frame(self.now, &frame, Ecn::NotCapable, Length(number));
    }

    /// Lets all messages arrive over a new connection.
    fn finish(&mut self) {
        (0..2).for_each(|end| self.disconnect(end));
        self.connect();
        let mut idle_rounds = 0;
        while idle_rounds < 2 {
            idle_rounds += 1;
            for end in 0..2 {
                self.ends[end].transmit(usize::MAX);
                self.ends[end].hop.handle_writable(self.now);
                let frames = self.ends[end].wire.len();
                if frames > 0 {
                    idle_rounds = 0;
                }
                self.deliver(end, 2 * frames + 2 * ARRIVALS_MAX);
            }
            self.wait(50);
        }
        for end in 0..2 {
            let (sent, read) = (self.ends[end].pushed, self.ends[1 - end].read);
            assert_eq!(read, sent, "messages from end {end}");
        }
    }
}

impl End {
    fn push(&mut self, now: Time) {
        if self.hop.has_room() {
            let number = self.pushed;
            self.hop.push(now, message(number), Length(length(number)));
            self.pushed += 1;
        }
    }

    fn transmit(&mut self, frames: usize) {
        for _ in 0..frames {
            let Some((frame, payload)) = self.hop.poll_transmit(Time::ZERO) else {
                break;
            };
            assert!(self.is_connected, "a frame without a connection: {frame:?}");
            if matches!(frame, Frame::Stream(_)) {
                assert_eq!(frame, Frame::Stream(message(self.sent)));
                self.sent += 1;
            }
            self.wire.push_back((frame, payload));
        }
    }

    fn read(&mut self, now: Time) {
        if let Some(arrival) = self.hop.poll_arrival(now) {
            assert_eq!(arrival.message, message(self.read), "once and in order");
            assert_eq!(arrival.payload, Length(length(self.read)));
            self.read += 1;
        }
    }
}

fn message(number: u32) -> Message {
    Message {
        origin: DaemonId(0),
        copy: Default::default(),
        body: Body::Data(Data {
            group: GroupId(1),
            version: 0,
            sequence: OriginSeq::new(u64::from(number) + 1),
            sender: ClientId(0),
            sent_us: 0,
        }),
    }
}

/// Returns the length of a message. Some fill a batch.
fn length(number: u32) -> u32 {
    match number % 16 {
        0 => 60_000,
        small => 100 * small,
    }
}

fn acknowledgement(expected: u32) -> Frame {
    Frame::Feedback(Feedback {
        expected: LinkSeq(expected),
        missing: [(LinkSeq(0), LinkSeq(expected)); 3],
    })
}

/// Returns a frame of another kind of hop.
fn foreign(number: u32) -> Frame {
    let sequence = LinkSeq(number);
    match number % 5 {
        0 => Frame::Segment {
            sequence,
            message: message(number),
        },
        1 => Frame::Datagram {
            number: sequence,
            message: message(number),
        },
        2 => Frame::Direct(message(number)),
        3 => Frame::Delay(Delay::Answered { waited_us: number }),
        _ => Frame::Ack(Ack {
            acknowledgement: sequence,
            window: number as u16,
            sack: [(sequence, LinkSeq(0)); 3],
        }),
    }
}

/// A hop whose other end sends any frames, and announces any number in each new connection.
struct Outlaw {
    now: Time,
    hop: KernelHop<Length>,
    is_connected: bool,
}

impl Outlaw {
    fn new() -> Outlaw {
        Outlaw {
            now: Time::ZERO,
            hop: KernelHop::new(),
            is_connected: false,
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Push { messages, .. } => {
                (0..messages.into()).for_each(|number| self.push(number))
            }
            Step::Writable { .. } => self.hop.handle_writable(self.now),
            Step::Transmit { frames, .. } => {
                for _ in 0..frames {
                    let frame = self.hop.poll_transmit(self.now);
                    assert!(self.is_connected || frame.is_none(), "{frame:?}");
                }
            }
            Step::Deliver { frames, .. } => {
                (0..frames).for_each(|_| _ = self.hop.poll_arrival(self.now));
            }
            Step::Wait { milliseconds } => {
                self.now += Duration::from_millis(milliseconds.into());
                self.hop.handle_timeout(self.now);
            }
            Step::Break { frames, .. } => {
                self.is_connected = false;
                self.hop.handle_disconnected();
                assert!(!self.hop.has_room());
                self.receive(acknowledgement(frames.into()));
            }
            Step::Forge { kind, number, .. } => match kind % 8 {
                0 => self.connect(number),
                1 => self.connect(number % 64),
                2 => self.receive(acknowledgement(number)),
                3 => self.receive(acknowledgement(number % 64)),
                4 => self.receive(foreign(number)),
                _ => self.receive(Frame::Stream(message(number))),
            },
        }
    }

    fn push(&mut self, number: u32) {
        if self.hop.has_room() {
            self.hop
                .push(self.now, message(number), Length(length(number)));
        }
    }

    fn connect(&mut self, received: u32) {
        self.is_connected = true;
        self.hop.handle_connected(self.now, LinkSeq(received));
    }

    /// Handles a frame with the longest payload that decoders accept. The driver does not read a
    /// full hop.
    fn receive(&mut self, frame: Frame) {
        if !self.hop.is_full() {
            let before = self.hop.received();
            self.hop
                .handle_frame(self.now, &frame, Ecn::NotCapable, Length(PAYLOAD_BYTES_MAX));
            let messages = u32::from(matches!(frame, Frame::Stream(_)));
            assert_eq!(self.hop.received(), before.advance(messages));
        }
    }
}
