//! A sequencer: a reference for the order of messages, which the daemons do not ship.
//!
//! Source: Défago, Schiper and Urbán, "Total Order Broadcast and Multicast Algorithms: Taxonomy and
//! Survey" (ACM Computing Surveys 36(4), 2004), the sections on fixed and moving sequencers. This
//! is the variant in which senders multicast, and the sequencer multicasts the order
//! (broadcast-broadcast), as in Amoeba and Isis.
//!
//! Messages follow the overlay's trees as messages without order do, under its flow control. One
//! daemon, number 0 at first, multicasts in which order they have arrived at it. A member delivers
//! a message when it has the message and its place. A message is safe when all daemons have said
//! that they have it. A sequencer that moves hands over to another daemon once more than half of
//! the last [`RECENT`] messages are that daemon's.
//!
//! Nothing fails here: there is no membership, and no choice of another sequencer.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use manyflow_core::{Contents, EndpointId, Time};
use manyflow_overlay::{Agent, ClientFrame, ClientId, Daemon, DaemonId, Data, Direct, GroupId};

/// The number of the group that carries the records of sequencers.
const RECORDS: GroupId = GroupId(u32::MAX);

/// The number of messages by which a sequencer decides whether to move.
const RECENT: usize = 16;

/// The parameters of a [`Sequencer`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SequencerConfig {
    /// Whether the sequencer moves to where most messages come from.
    pub moves: bool,
    /// Whether messages are delivered only when they are safe.
    pub is_safe: bool,
    /// The shortest time between two records of a daemon, so that one record is enough for many
    /// messages.
    pub pace: Duration,
}

/// A number of messages of one daemon, in the order in which it has sent them.
type Run = (DaemonId, u16);

/// A message that the daemons multicast besides those of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Record {
    /// The decision of a sequencer with this number: the places of the next messages, and the
    /// daemon that decides next.
    Decision {
        number: u64,
        next: DaemonId,
        runs: Vec<Run>,
    },
    /// The sending daemon has all messages before this number.
    Received(u64),
}

/// The agent of a simulated daemon whose clients' messages a sequencer orders. It knows one group.
#[derive(Debug)]
pub struct Sequencer {
    config: SequencerConfig,
    here: DaemonId,
    group: GroupId,
    direct: Direct,
    /// The client of the overlay that receives messages and records.
    own: Option<ClientId>,
    members: BTreeSet<EndpointId>,
    sequencer: DaemonId,
    sources: Vec<Origin>,
    /// Decisions that have arrived before their predecessors.
    early: BTreeMap<u64, (DaemonId, Vec<Run>)>,
    /// The number of decisions that have arrived, as have all before them.
    decisions: u64,
    /// The places of messages that have not arrived yet, or whose predecessors have not.
    runs: VecDeque<Run>,
    /// The number of messages that have arrived, as have all before them.
    received: u64,
    /// The messages among them that have not been delivered.
    waiting: VecDeque<(DaemonId, Data, Contents)>,
    /// The number of messages that this daemon has said to have.
    reported: u64,
    /// The time of the last record.
    last: Option<Time>,
    /// Whether the daemon had room for a record.
    has_room: bool,
    /// The origins of the last messages, at the sequencer.
    recent: VecDeque<DaemonId>,
    frames: VecDeque<(EndpointId, ClientFrame, Contents)>,
}

/// The messages of a daemon.
#[derive(Debug, Default)]
struct Origin {
    /// Those that have arrived and have not had their turn.
    messages: VecDeque<(Data, Contents)>,
    arrived: u64,
    placed: u64,
    /// The number of messages of all daemons that this one has said to have.
    reported: u64,
}

impl Sequencer {
    /// Returns the agent of daemon number `here` of `daemons`.
    pub fn new(config: SequencerConfig, here: DaemonId, daemons: usize, group: GroupId) -> Self {
        Sequencer {
            config,
            here,
            group,
            direct: Direct::default(),
            own: None,
            members: BTreeSet::new(),
            sequencer: DaemonId(0),
            sources: (0..daemons).map(|_| Origin::default()).collect(),
            early: BTreeMap::new(),
            decisions: 0,
            runs: VecDeque::new(),
            received: 0,
            waiting: VecDeque::new(),
            reported: 0,
            last: None,
            has_room: true,
            recent: VecDeque::new(),
            frames: VecDeque::new(),
        }
    }

    fn handle_message(&mut self, origin: DaemonId, data: Data, payload: Contents) {
        let Some(source) = self.sources.get_mut(usize::from(origin.0)) else {
            return;
        };
        source.messages.push_back((data, payload));
        source.arrived += 1;
        if self.config.moves && self.sequencer == self.here {
            self.recent.push_back(origin);
            if self.recent.len() > RECENT {
                self.recent.pop_front();
            }
        }
    }

    fn handle_record(&mut self, origin: DaemonId, record: Record) {
        match record {
            Record::Decision { number, next, runs } => {
                self.early.insert(number, (next, runs));
                while let Some((next, runs)) = self.early.remove(&self.decisions) {
                    for (origin, count) in &runs {
                        self.sources[usize::from(origin.0)].placed += u64::from(*count);
                    }
                    self.runs.extend(runs);
                    self.decisions += 1;
                    if next != self.sequencer {
                        self.recent.clear();
                    }
                    self.sequencer = next;
                }
            }
            Record::Received(count) => self.sources[usize::from(origin.0)].reported = count,
        }
    }

    /// Delivers the messages whose turn has come.
    fn deliver(&mut self) {
        while let Some((origin, count)) = self.runs.front_mut() {
            let source = &mut self.sources[usize::from(origin.0)];
            let Some((data, payload)) = source.messages.pop_front() else {
                break;
            };
            self.received += 1;
            self.waiting.push_back((*origin, data, payload));
            *count -= 1;
            if *count == 0 {
                self.runs.pop_front();
            }
        }
        let reported = self.sources.iter().map(|source| source.reported).min();
        let safe = match self.config.is_safe {
            true => reported.unwrap_or(0),
            false => self.received,
        };
        while self.received - (self.waiting.len() as u64) < safe
            && let Some((origin, data, payload)) = self.waiting.pop_front()
        {
            for member in &self.members {
                let frame = ClientFrame::Deliver {
                    origin,
                    data,
                    layered: false,
                };
                self.frames.push_back((*member, frame, payload.clone()));
            }
        }
    }

    /// Returns the next record of this daemon.
    fn next_record(&self) -> Option<Record> {
        if self.sequencer == self.here {
            let unplaced = self.sources.iter().zip(0..).filter_map(|(source, number)| {
                let count = source.arrived.checked_sub(source.placed)?;
                let count = count.min(u16::MAX.into()) as u16;
                (count > 0).then_some((DaemonId(number), count))
            });
            let runs: Vec<Run> = unplaced.collect();
            let next = self.busiest().unwrap_or(self.here);
            if !runs.is_empty() || next != self.here {
                let number = self.decisions;
                return Some(Record::Decision { number, next, runs });
            }
        }
        let must_report = self.config.is_safe && self.received > self.reported;
        must_report.then_some(Record::Received(self.received))
    }

    /// Returns the daemon that has sent more than half of the last messages, if there is one.
    fn busiest(&self) -> Option<DaemonId> {
        let mut all = (0..self.sources.len() as u16).map(DaemonId);
        all.find(|daemon| {
            let own = self.recent.iter().filter(|origin| *origin == daemon);
            own.count() > RECENT / 2
        })
    }

    fn due(&self) -> Time {
        self.last.map_or(Time::ZERO, |last| last + self.config.pace)
    }

    /// Joins the groups of messages and of records.
    fn begin(&mut self, now: Time, daemon: &mut Daemon<Contents>) {
        if self.own.is_some() {
            return;
        }
        let own = daemon.connect(now, 100);
        self.own = Some(own);
        for group in [self.group, RECORDS] {
            let join = ClientFrame::Join(group);
            daemon.handle_client(now, own, &join, Contents::default());
        }
    }
}

impl Agent for Sequencer {
    fn handle_client(
        &mut self,
        now: Time,
        daemon: &mut Daemon<Contents>,
        from: EndpointId,
        frame: &ClientFrame,
        payload: Contents,
    ) {
        match frame {
            ClientFrame::Join(_) => {
                self.members.insert(from);
            }
            ClientFrame::Leave(_) => {
                self.members.remove(&from);
            }
            ClientFrame::Took { .. } => {}
            _ => {
                if *frame == ClientFrame::Disconnect {
                    self.members.remove(&from);
                }
                self.direct.handle_client(now, daemon, from, frame, payload);
            }
        }
    }

    fn handle_frame(
        &mut self,
        now: Time,
        daemon: &mut Daemon<Contents>,
        to: ClientId,
        frame: ClientFrame,
        payload: Contents,
    ) {
        if Some(to) != self.own {
            return self.direct.handle_frame(now, daemon, to, frame, payload);
        }
        let ClientFrame::Deliver { origin, data, .. } = frame else {
            return;
        };
        let took = ClientFrame::Took { messages: 1 };
        daemon.handle_client(now, to, &took, Contents::default());
        if data.group != RECORDS {
            self.handle_message(origin, data, payload);
        } else if let Some(record) = payload.bytes().and_then(Record::decode) {
            self.handle_record(origin, record);
        }
        self.deliver();
    }

    fn poll_client(&mut self) -> Option<(EndpointId, ClientFrame, Contents)> {
        self.direct
            .poll_client()
            .or_else(|| self.frames.pop_front())
    }

    fn serve(&mut self, now: Time, daemon: &mut Daemon<Contents>) -> bool {
        self.has_room = daemon.has_room();
        let Some(own) = self.own.filter(|_| self.has_room && now >= self.due()) else {
            return false;
        };
        let Some(record) = self.next_record() else {
            return false;
        };
        if let Record::Received(count) = record {
            self.reported = count;
        }
        self.last = Some(now);
        daemon.send_at_once(now, own, RECORDS, Contents::from(&record.encode()[..]));
        true
    }

    fn handle_timeout(&mut self, now: Time, daemon: &mut Daemon<Contents>) {
        self.begin(now, daemon);
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self.own {
            None => Some(Time::ZERO),
            // Without room, the daemon is served when its queues are shorter.
            Some(_) if !self.has_room => None,
            Some(_) => self.next_record().map(|_| self.due()),
        }
    }
}

impl Record {
    fn encode(&self) -> Vec<u8> {
        match self {
            Record::Decision { number, next, runs } => {
                let mut bytes = vec![1];
                bytes.extend(number.to_be_bytes());
                bytes.extend(next.0.to_be_bytes());
                for (origin, count) in runs {
                    bytes.extend(origin.0.to_be_bytes());
                    bytes.extend(count.to_be_bytes());
                }
                bytes
            }
            Record::Received(count) => [&[2], &count.to_be_bytes()[..]].concat(),
        }
    }

    fn decode(bytes: &[u8]) -> Option<Record> {
        let (kind, rest) = bytes.split_first()?;
        let number = |bytes: &[u8]| Some(u64::from_be_bytes(*bytes.first_chunk()?));
        let short = |bytes: &[u8]| Some(u16::from_be_bytes(*bytes.first_chunk()?));
        match kind {
            1 => {
                let runs = rest.get(10..)?.chunks_exact(4);
                let run = |bytes: &[u8]| Some((DaemonId(short(bytes)?), short(&bytes[2..])?));
                Some(Record::Decision {
                    number: number(rest)?,
                    next: DaemonId(short(&rest[8..])?),
                    runs: runs.map(run).collect::<Option<_>>()?,
                })
            }
            2 => Some(Record::Received(number(rest)?)),
            _ => None,
        }
    }
}
