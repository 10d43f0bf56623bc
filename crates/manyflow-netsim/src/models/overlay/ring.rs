//! A token ring: a reference for the order of messages, which the daemons do not ship.
//!
//! Sources: Amir, Moser, Melliar-Smith, Agarwal and Ciarfella, "The Totem Single-Ring Ordering and
//! Membership Protocol" (ACM Transactions on Computer Systems 13(4), 1995): its sections on the
//! total ordering protocol (the fields of the token, and what a processor does with it) and on flow
//! control (`fcc`). The windows are the defaults of the Spread toolkit: 60 messages in a rotation,
//! 15 of each daemon.
//!
//! A token visits the daemons in the order of their numbers. Its holder retransmits what the token
//! asks for, numbers and multicasts messages of its clients, asks for messages that it lacks, and
//! passes the token on. Members deliver messages in the order of their numbers. A message is safe
//! when all daemons have had it (`aru`) in two visits of the token.
//!
//! Multicast packets follow the tree of the daemon that sends them, one copy for each link, as if
//! the links were a broadcast domain. They are datagrams: a ring repairs losses itself. The token
//! goes to the next daemon over the network, and again if nothing has followed for a while.
//!
//! Nothing fails here: there is no membership. An idle token rotates without a pause, where Spread
//! slows it down; this only makes the ring quicker.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use manyflow_core::{Action, Contents, Destination, Endpoint, EndpointId, Packet, Time};
use manyflow_overlay::{
    Addresses, Body, ClientFrame, ClientId, DaemonId, Data, Event, Frame, GroupId, Message,
    OriginSeq, Topology,
};

/// The number of the group that stands for tokens.
const TOKENS: GroupId = GroupId(u32::MAX);

/// The parameters of a [`Ring`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// The number of messages that all daemons may multicast in a rotation of the token,
    /// retransmissions included.
    pub window: u32,
    /// The number of messages of its clients that a daemon may multicast in a visit of the token.
    pub personal_window: u32,
    /// The number of messages of clients that may wait at a daemon; at this number, it reads no
    /// more.
    pub waiting: usize,
    /// The time after which a daemon sends the token again, unless it has seen that the next daemon
    /// has it.
    pub retransmission: Duration,
    /// Whether messages are delivered only when they are safe.
    pub is_safe: bool,
}

impl Default for RingConfig {
    /// Returns the windows of Spread, agreed delivery, 1000 waiting messages, and a second.
    fn default() -> RingConfig {
        RingConfig {
            window: 60,
            personal_window: 15,
            waiting: 1000,
            retransmission: Duration::from_secs(1),
            is_safe: false,
        }
    }
}

/// The token (Totem, "The Total Ordering Protocol").
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Token {
    /// Higher at each visit: recognises copies.
    visit: u64,
    /// The highest number of a message.
    seq: u64,
    /// All daemons have all messages up to this one, as far as the token has been there.
    aru: u64,
    /// The daemon that lowered `aru`.
    aru_by: Option<u16>,
    /// The number of messages that were multicast in the last rotation.
    fcc: u32,
    /// The numbers of messages that daemons lack.
    rtr: Vec<u64>,
}

/// A message of a client that waits for the token.
#[derive(Copy, Clone, Debug)]
struct Waiting {
    from: EndpointId,
    group: GroupId,
    sent_us: u32,
    length: u32,
}

/// A daemon of a ring, with the endpoints of its clients.
#[derive(Debug)]
pub struct Ring {
    config: RingConfig,
    here: DaemonId,
    topology: Arc<Topology>,
    addresses: Arc<Addresses>,
    members: BTreeSet<(GroupId, EndpointId)>,
    waiting: VecDeque<Waiting>,
    /// Clients whose last message waits for room.
    blocked: VecDeque<Waiting>,
    /// Messages that others may lack, or that have not been delivered.
    messages: BTreeMap<u64, (Data, u32)>,
    /// All messages up to this one have arrived.
    aru: u64,
    delivered: u64,
    /// The `aru` of the token when it left.
    last_aru: u64,
    safe: u64,
    /// The number of messages that were multicast in the last visit of the token.
    last_sent: u32,
    /// The last token that was sent, until the next daemon has it.
    token: Option<Token>,
    last_visit: u64,
    resend_at: Option<Time>,
    packets: VecDeque<Packet<Frame>>,
}

impl Ring {
    /// Returns daemon number `here`. Daemon 0 makes the token.
    pub fn new(
        config: RingConfig,
        here: DaemonId,
        topology: Arc<Topology>,
        addresses: Arc<Addresses>,
    ) -> Ring {
        let is_first = here == DaemonId(0);
        Ring {
            config,
            here,
            topology,
            addresses,
            members: BTreeSet::new(),
            waiting: VecDeque::new(),
            blocked: VecDeque::new(),
            messages: BTreeMap::new(),
            aru: 0,
            delivered: 0,
            last_aru: 0,
            safe: 0,
            last_sent: 0,
            token: None,
            last_visit: 0,
            resend_at: is_first.then_some(Time::ZERO),
            packets: VecDeque::new(),
        }
    }

    fn handle_client(&mut self, from: EndpointId, frame: &ClientFrame, length: u32) {
        match *frame {
            ClientFrame::Join(group) => {
                self.members.insert((group, from));
            }
            ClientFrame::Leave(group) => {
                self.members.remove(&(group, from));
            }
            ClientFrame::Disconnect => self.members.retain(|member| member.1 != from),
            ClientFrame::Send {
                groups, sent_us, ..
            } => {
                self.blocked.push_back(Waiting {
                    from,
                    group: groups.first(),
                    sent_us,
                    length,
                });
                self.read_clients();
            }
            _ => {}
        }
    }

    /// Reads messages of clients while there is room.
    fn read_clients(&mut self) {
        while self.waiting.len() < self.config.waiting
            && let Some(message) = self.blocked.pop_front()
        {
            self.send_client(message.from, ClientFrame::Ready, 0);
            self.waiting.push_back(message);
        }
    }

    fn send_client(&mut self, to: EndpointId, frame: ClientFrame, length: u32) {
        let to = Destination::Endpoint(to);
        let frame = Frame::Client(frame);
        self.packets.push_back(Packet::new(to, frame, length));
    }

    fn send(&mut self, to: DaemonId, origin: DaemonId, data: Data, payload: Contents) {
        let message = Message {
            origin,
            copy: Default::default(),
            body: Body::Data(data),
        };
        let to = Destination::Endpoint(self.addresses.of(to));
        let packet = Packet::new(to, Frame::Direct(message), payload);
        self.packets.push_back(packet);
    }

    /// Sends a message to the next daemons of the tree of the daemon that multicasts it.
    fn forward(&mut self, root: DaemonId, data: Data, length: u32) {
        let topology = Arc::clone(&self.topology);
        let Some(tree) = topology.tree(root) else {
            return;
        };
        for child in tree.children(self.here) {
            self.send(child, root, data, length.into());
        }
    }

    fn handle_data(&mut self, root: DaemonId, data: Data, length: u32) {
        self.forward(root, data, length);
        let number = data.sequence.number();
        if self.token.as_ref().is_some_and(|token| number > token.seq) {
            (self.token, self.resend_at) = (None, None);
        }
        if number > self.aru {
            self.messages.entry(number).or_insert((data, length));
        }
        self.advance();
    }

    /// Notes which messages have arrived without a gap, and delivers those that may be.
    fn advance(&mut self) {
        while self.messages.contains_key(&(self.aru + 1)) {
            self.aru += 1;
        }
        let due = match self.config.is_safe {
            true => self.safe.min(self.aru),
            false => self.aru,
        };
        while self.delivered < due {
            self.delivered += 1;
            let Some((data, length)) = self.messages.get(&self.delivered).copied() else {
                debug_assert!(false, "a message that was dropped before its delivery");
                return;
            };
            let origin = DaemonId(data.sender.0 as u16);
            let members = self.members.range((data.group, EndpointId(0))..);
            let members = members.take_while(|member| member.0 == data.group);
            let members: Vec<EndpointId> = members.map(|member| member.1).collect();
            for member in members {
                let frame = ClientFrame::Deliver {
                    origin,
                    data,
                    layered: false,
                };
                self.send_client(member, frame, length);
            }
        }
        let drop_to = self.safe.min(self.delivered);
        while self
            .messages
            .first_key_value()
            .is_some_and(|(number, _)| *number <= drop_to)
        {
            self.messages.pop_first();
        }
    }

    fn handle_token(&mut self, now: Time, mut token: Token) {
        if token.visit <= self.last_visit {
            return;
        }
        self.last_visit = token.visit;
        let repaired = self.retransmit(&mut token);
        let sent = repaired + self.multicast(&mut token, repaired);
        token.fcc = (token.fcc + sent).saturating_sub(self.last_sent);
        self.last_sent = sent;
        self.update_aru(&mut token);
        let missing =
            (self.aru + 1..=token.seq).filter(|number| !self.messages.contains_key(number));
        let missing: Vec<u64> = missing
            .filter(|number| !token.rtr.contains(number))
            .collect();
        token.rtr.extend(missing);
        self.safe = self.safe.max(self.last_aru.min(token.aru));
        self.last_aru = token.aru;
        self.advance();
        token.visit += 1;
        self.pass(now, token);
        self.read_clients();
    }

    /// Multicasts the messages that the token asks for. Returns their number.
    fn retransmit(&mut self, token: &mut Token) -> u32 {
        let (own, rest) = token
            .rtr
            .iter()
            .partition(|number| self.messages.contains_key(number));
        token.rtr = rest;
        let own: Vec<u64> = own;
        for number in &own {
            if let Some((data, length)) = self.messages.get(number).copied() {
                self.forward(self.here, data, length);
            }
        }
        own.len() as u32
    }

    /// Numbers and multicasts messages of this daemon's clients, as many as flow control permits.
    /// Returns their number.
    fn multicast(&mut self, token: &mut Token, repaired: u32) -> u32 {
        // The token counts what this daemon has sent in its last visit, which no longer counts.
        let others = token.fcc.saturating_sub(self.last_sent) + repaired;
        let room = self.config.window.saturating_sub(others);
        let room = room.min(self.config.personal_window);
        let sent = (room as usize).min(self.waiting.len());
        for message in self.waiting.drain(..sent).collect::<Vec<_>>() {
            token.seq += 1;
            let data = Data {
                group: message.group,
                version: 0,
                sequence: OriginSeq::new(token.seq),
                sender: ClientId(self.here.0.into()),
                sent_us: message.sent_us,
            };
            self.messages.insert(token.seq, (data, message.length));
            self.forward(self.here, data, message.length);
        }
        self.advance();
        sent as u32
    }

    fn update_aru(&self, token: &mut Token) {
        let here = Some(self.here.0);
        if self.aru < token.aru || token.aru_by == here || token.aru_by.is_none() {
            token.aru = self.aru;
            token.aru_by = if self.aru == token.seq { None } else { here };
        }
    }

    /// Sends the token to the next daemon.
    fn pass(&mut self, now: Time, token: Token) {
        let next = (usize::from(self.here.0) + 1) % self.topology.len();
        let data = Data {
            group: TOKENS,
            version: 0,
            sequence: OriginSeq::new(token.visit),
            sender: ClientId(self.here.0.into()),
            sent_us: 0,
        };
        let payload = Contents::from(&token.encode()[..]);
        self.send(DaemonId(next as u16), self.here, data, payload);
        self.token = Some(token);
        self.resend_at = Some(now + self.config.retransmission);
    }
}

impl Endpoint for Ring {
    type Rx = Frame;
    type Tx = Frame;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Frame>) {
        let length = packet.payload_bytes();
        match &packet.header {
            Frame::Client(frame) => self.handle_client(packet.source, frame, length),
            Frame::Direct(message) => {
                let Some(data) = message.data() else {
                    return;
                };
                if data.group != TOKENS {
                    return self.handle_data(message.origin, data, length);
                }
                let payload = packet.payload();
                if let Some(token) = payload.bytes().and_then(Token::decode) {
                    self.handle_token(now, token);
                }
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.resend_at.is_none_or(|at| at > now) {
            return;
        }
        match self.token.take() {
            Some(token) => self.pass(now, token),
            None => self.handle_token(
                now,
                Token {
                    visit: 1,
                    ..Token::default()
                },
            ),
        }
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Frame>> {
        self.packets.pop_front().map(Action::Send)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.resend_at
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}

impl Token {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(30 + 4 * self.rtr.len());
        bytes.extend(self.visit.to_be_bytes());
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.aru.to_be_bytes());
        bytes.extend(self.aru_by.unwrap_or(u16::MAX).to_be_bytes());
        bytes.extend(self.fcc.to_be_bytes());
        let before = |number: &u64| (self.seq - number) as u32;
        bytes.extend(self.rtr.iter().map(before).flat_map(u32::to_be_bytes));
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Token> {
        let number = |at: usize| Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        let seq = number(8)?;
        let by = u16::from_be_bytes(*bytes.get(24..)?.first_chunk()?);
        let before = bytes.get(30..)?.chunks_exact(4);
        let rtr = before.map(|bytes| {
            let before = u32::from_be_bytes(*bytes.first_chunk()?);
            seq.checked_sub(before.into())
        });
        Some(Token {
            visit: number(0)?,
            seq,
            aru: number(16)?,
            aru_by: Some(by).filter(|by| *by != u16::MAX),
            fcc: u32::from_be_bytes(*bytes.get(26..)?.first_chunk()?),
            rtr: rtr.collect::<Option<_>>()?,
        })
    }
}
