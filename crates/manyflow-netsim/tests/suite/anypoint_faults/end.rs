//! Ends of connections whose applications identify each frame.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use manyflow_anypoint::switch::{MemberId, Prefix};
use manyflow_anypoint::{AcpConfig, Body, Event, Frame, Reason, Segment};
use manyflow_core::{Action, Contents, Endpoint, EndpointId, Packet, Time};
use manyflow_netsim::models::anypoint::{Application, ModelledEnd};

/// The first key of an end is its index times this number. The peer has index 0.
pub(crate) const KEYS: u32 = 1 << 20;
const CONNECTION: u32 = 7;

/// A record of an end's actions for the checks.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The keys of the frames that arrived in packets, by sequence number.
    pub(crate) arrived: BTreeMap<u32, u32>,
    /// The end has acknowledged all frames below this number.
    pub(crate) acknowledging: u32,
    /// The other end has acknowledged all frames of this end below this number.
    pub(crate) acknowledged: u32,
    /// The keys of the frames that the end has read, in order.
    pub(crate) read: Vec<u32>,
    /// The number of frames that the end has handed to its connection.
    pub(crate) sent: u32,
    /// Whether a frame had a payload that does not belong to its key.
    pub(crate) garbled: bool,
    /// Whether everything that the end sent is acknowledged, including its Close.
    pub(crate) finished: bool,
    pub(crate) failed: Option<Reason>,
    /// Whether the end has sent or received an Open.
    pub(crate) opened: bool,
    /// The time at which the connection ended, for any reason.
    pub(crate) over: Option<Time>,
    pub(crate) crashed: bool,
}

impl Log {
    /// Returns whether the end does nothing from now on.
    pub(crate) fn is_done(&self) -> bool {
        self.over.is_some() || self.crashed || !self.opened
    }

    /// Describes the state of the end's connection.
    pub(crate) fn state(&self) -> String {
        let Log {
            finished,
            failed,
            opened,
            over,
            crashed,
            ..
        } = self;
        let over = over.map_or("never".to_owned(), |at| {
            format!("at {:.1} s", at.as_secs_f64())
        });
        format!(
            "opened {opened}, finished {finished}, failed {failed:?}, over {over}, crashed {crashed}"
        )
    }
}

/// The task of an end.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Task {
    /// The key of the end's first frame. The following frames have the following keys.
    pub(crate) first_key: u32,
    /// The number of frames that the end sends.
    pub(crate) frames: u32,
    /// The time for which the end works on a frame that it has read.
    pub(crate) service: Duration,
    /// The time at which the end crashes.
    pub(crate) crash: Option<Time>,
    /// The number of initiators to which the frames are addressed in turn, by the prefixes of their
    /// keys; 0: the frames are for any member of the other side.
    pub(crate) initiators: u16,
}

impl Task {
    /// Returns the key of the end's frame with this number. The prefix of an addressed frame
    /// replaces the highest bits.
    pub(crate) fn key(&self, number: u32) -> u32 {
        let key = self.first_key + number;
        match self.initiators {
            0 => key,
            initiators => {
                let to = MemberId((number % u32::from(initiators)) as u16);
                Prefix::of_member(to).unwrap().key(key)
            }
        }
    }
}

/// Returns the length of the frame with this key in bytes.
pub(crate) fn length_of(key: u32, frame_bytes_max: u32) -> u32 {
    1 + key.wrapping_mul(7919) % frame_bytes_max
}

/// The log of an end, which the end writes and the checks read.
pub(crate) type SharedLog = Arc<RwLock<Log>>;

/// An application that sends its frames as fast as the connection accepts them, then closes, and
/// logs the frames that it reads.
struct Judged {
    task: Task,
    frame_bytes_max: u32,
    log: SharedLog,
}

impl Judged {
    fn new(config: &AcpConfig, task: Task, log: &SharedLog) -> Judged {
        Judged {
            task,
            frame_bytes_max: config.frame_bytes_max,
            log: Arc::clone(log),
        }
    }

    /// Returns the key of the next frame. Length and payload follow from the key, so that a
    /// corrupted frame is detected.
    fn next_key(&self) -> u32 {
        self.task.key(self.log.read().unwrap().sent)
    }

    fn length_of(&self, key: u32) -> u32 {
        length_of(key, self.frame_bytes_max)
    }

    fn contents_of(&self, key: u32) -> Contents {
        let bytes = key.to_be_bytes().into_iter().cycle();
        let bytes: Vec<u8> = bytes.take(self.length_of(key) as usize).collect();
        Contents::from(&bytes[..])
    }
}

impl Application for Judged {
    fn next_frame_at(&self) -> Option<Time> {
        (!self.has_sent_all()).then_some(Time::ZERO)
    }

    fn next_frame_bytes(&self) -> u32 {
        self.length_of(self.next_key())
    }

    fn take_frame(&mut self, _now: Time) -> Option<Frame<Contents>> {
        let key = self.next_key();
        let payload = self.contents_of(key);
        self.log.write().unwrap().sent += 1;
        Some(Frame { key, payload })
    }

    fn has_sent_all(&self) -> bool {
        self.log.read().unwrap().sent >= self.task.frames
    }

    fn read_frame(&mut self, _now: Time, Frame { key, payload }: Frame<Contents>) -> Duration {
        let mut log = self.log.write().unwrap();
        log.read.push(key);
        log.garbled |= payload != self.contents_of(key);
        self.task.service
    }

    fn stop_sending(&mut self) {
        self.task.frames = self.log.read().unwrap().sent;
    }
}

/// An end that may crash, and that logs its packets for the checks.
pub(crate) struct End {
    end: ModelledEnd<Judged>,
    crash: Option<Time>,
    log: SharedLog,
}

impl End {
    pub(crate) fn initiator(
        config: &AcpConfig,
        task: Task,
        remote: EndpointId,
        log: SharedLog,
    ) -> End {
        log.write().unwrap().opened = true;
        let application = Judged::new(config, task, &log);
        let config = config.clone();
        let end = ModelledEnd::initiator(config, application, remote, CONNECTION, Time::ZERO);
        End::new(end.unwrap(), task, log)
    }

    pub(crate) fn acceptor(
        config: &AcpConfig,
        task: Task,
        remote: EndpointId,
        log: SharedLog,
    ) -> End {
        let application = Judged::new(config, task, &log);
        let end = ModelledEnd::acceptor(config.clone(), application, remote);
        End::new(end.unwrap(), task, log)
    }

    fn new(end: ModelledEnd<Judged>, task: Task, log: SharedLog) -> End {
        let crash = task.crash;
        End { end, crash, log }
    }

    fn crash_if_due(&mut self, now: Time) {
        if self.crash.take_if(|crash| now >= *crash).is_some() {
            self.log.write().unwrap().crashed = true;
            self.end.crash();
        }
    }

    /// Logs packets that arrive at an end that has neither crashed nor ended.
    fn note_arrival(&self, segment: &Segment) {
        let mut log = self.log.write().unwrap();
        match segment.body {
            _ if log.crashed || log.over.is_some() => {}
            Body::Open { .. } => log.opened = true,
            Body::Data(data) => {
                log.arrived.insert(data.sequence, data.key);
            }
            Body::Ack(ack) => log.acknowledged = log.acknowledged.max(ack.cumulative),
            _ => {}
        }
    }

    fn note_end(&self, now: Time) {
        if self.end.is_over() {
            self.log.write().unwrap().over.get_or_insert(now);
        }
    }
}

impl Endpoint for End {
    type Rx = Segment;
    type Tx = Segment;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Segment>) {
        self.crash_if_due(now);
        self.note_arrival(&packet.header);
        self.end.handle_packet(now, packet);
        self.note_end(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.crash_if_due(now);
        self.end.handle_timeout(now);
        self.note_end(now);
    }

    fn poll_action(&mut self, now: Time) -> Option<Action<Segment>> {
        let action = self.end.poll_action(now)?;
        if let Action::Send(packet) = &action
            && let Body::Ack(ack) = packet.header.body
        {
            let mut log = self.log.write().unwrap();
            log.acknowledging = log.acknowledging.max(ack.cumulative);
        }
        Some(action)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let times = [self.end.poll_timeout(), self.crash];
        times.into_iter().flatten().min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        let event = self.end.poll_event()?;
        let mut log = self.log.write().unwrap();
        match event {
            Event::Finished => log.finished = true,
            Event::Failed(reason) => log.failed = Some(reason),
            _ => {}
        }
        Some(event)
    }
}
