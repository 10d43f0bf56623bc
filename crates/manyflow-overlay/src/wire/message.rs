//! The encoding of messages between daemons.

use super::{
    ACKNOWLEDGE, AGAIN, ANSWER, CHANGE, COST, COUNT, DATA, Encoded, First, PART, REPORT, REQUEST,
    RESENT, ROUND_TRIP, SEAL, SHARED, SUMMARY, WELCOME, WireError, at_least_one, check_layers,
    check_rest, count_flags, range, some_words, words, zero,
};
use crate::message::{
    Acknowledge, Answer, Body, Change, ClientId, Control, CopyFlags, CostUpdate, DaemonId, Data,
    GroupId, Item, LinkState, Message, Part, Report, Resent, RoundTrip, Summary, Welcome,
};
use crate::sequence::{ChangeSeq, OriginSeq};

const MEMBERS: u16 = 1;
const PAUSED: u16 = 2;
const LINK: u16 = 3;
const ALIVE: u16 = 4;
const COUNTED: u16 = 5;
const PROOF: u16 = 6;

impl Message {
    /// Encodes the header. The payload, if any, follows it on the wire.
    pub fn encode(&self) -> Encoded {
        let flags = self.copy.bits();
        let origin = self.origin.0;
        match &{ self.body } {
            Body::Data(data) => Encoded::of(DATA, flags, origin, data.words()),
            Body::Shared(data) => Encoded::of(SHARED, flags, origin, data.words()),
            Body::Again(data) => Encoded::of(AGAIN, flags, origin, data.words()),
            Body::Resent(resent) => {
                let mut encoded = Encoded::of(RESENT, flags, origin, resent.data.words());
                encoded.put(&word(resent.to.0, 0).to_be_bytes());
                encoded
            }
            Body::Welcome(welcome) => Encoded::of(WELCOME, flags, origin, welcome.words()),
            Body::Answer(answer) => Encoded::of(ANSWER, flags, origin, answer.words()),
            Body::Acknowledge(acknowledge) => acknowledge.encode(flags, origin),
            Body::Change(change) => {
                let [kind, a, b, c] = change.item.words();
                let words = [change.incarnation, change.change.0, kind, a, b, c];
                Encoded::of(CHANGE, flags, origin, words)
            }
            Body::Part(part) => {
                let [kind, a, b, c] = part.item.words();
                let words = [part.change.0, part.index, kind, a, b, c];
                Encoded::of(PART, flags, origin, words)
            }
            Body::Summary(summary) => Encoded::of(SUMMARY, flags, origin, summary.words()),
            Body::Seal(summary) => Encoded::of(SEAL, flags, origin, summary.words()),
            Body::Request => Encoded::first(REQUEST, flags, origin),
            Body::Control(control) => control.encode(flags, origin),
        }
    }

    /// Decodes one message. Returns its header and the header's length. The rest of the bytes is
    /// the payload, if the message [may have one](Message::has_payload); no bytes may follow any
    /// other header.
    ///
    /// # Errors
    /// Returns an error unless the bytes are the [encoding](Message::encode) of a valid message,
    /// followed only by a payload, if it may have one.
    pub fn decode(bytes: &[u8]) -> Result<(Message, usize), WireError> {
        let first = First::decode(bytes)?;
        let message = Message {
            origin: DaemonId(first.half),
            copy: CopyFlags::from_bits(first.flags),
            body: body(first, bytes)?,
        };
        let fate = CopyFlags::REPAIRED.with(CopyFlags::MARKED).bits();
        first.flags_among(match first.kind {
            DATA | SHARED | AGAIN | RESENT => CopyFlags::bits_of_all(),
            COST | ACKNOWLEDGE => fate | COUNT,
            _ => fate,
        })?;
        let header = check_rest(bytes, message.wire_bytes(), message.has_payload())?;
        if first.is_layered() && message.has_payload() {
            check_layers(bytes, header)?;
        }
        Ok((message, header))
    }
}

fn body(first: First, bytes: &[u8]) -> Result<Body, WireError> {
    Ok(match first.kind {
        DATA => Body::Data(Data::of_words(words(bytes)?)?),
        SHARED => Body::Shared(Data::of_words(words(bytes)?)?),
        AGAIN => Body::Again(Data::of_words(words(bytes)?)?),
        RESENT => Body::Resent(Resent::of_words(words(bytes)?)?),
        WELCOME => Body::Welcome(Welcome::of_words(words(bytes)?)?),
        ANSWER => Body::Answer(Answer::of_words(words(bytes)?)?),
        ACKNOWLEDGE => Body::Acknowledge(acknowledge(first, bytes)?),
        CHANGE => {
            let [incarnation, change, kind, a, b, c] = words(bytes)?;
            Body::Change(Change {
                incarnation,
                change: change_number(change)?,
                item: Item::of_words([kind, a, b, c])?,
            })
        }
        PART => {
            let [change, index, kind, a, b, c] = words(bytes)?;
            Body::Part(Part {
                change: change_number(change)?,
                index,
                item: Item::of_words([kind, a, b, c])?,
            })
        }
        SUMMARY => Body::Summary(Summary::of_words(words(bytes)?)),
        SEAL => {
            let summary = Summary::of_words(words(bytes)?);
            change_number(summary.change.0)?;
            Body::Seal(summary)
        }
        REQUEST => Body::Request,
        COST => Body::Control(Control::Cost(cost(first, bytes)?)),
        REPORT => Body::Control(Control::Report(report(words(bytes)?))),
        ROUND_TRIP => {
            let [rtt_us] = words(bytes)?;
            Body::Control(Control::RoundTrip(RoundTrip { rtt_us }))
        }
        other => return Err(WireError::Kind(other)),
    })
}

impl Data {
    pub(super) fn words(&self) -> [u32; 5] {
        let [high, low] = numbered(self.version, self.sequence);
        [self.group.0, high, low, self.sender.0, self.sent_us]
    }

    pub(super) fn of_words(
        [group, high, low, sender, sent_us]: [u32; 5],
    ) -> Result<Data, WireError> {
        let (version, sequence) = number(high, low);
        Ok(Data {
            group: GroupId(group),
            version,
            sequence: counted("a sequence number", sequence)?,
            sender: ClientId(sender),
            sent_us,
        })
    }
}

impl Resent {
    fn of_words([a, b, c, d, e, to]: [u32; 6]) -> Result<Resent, WireError> {
        let (to, reserved) = halves(to);
        zero(reserved.into())?;
        Ok(Resent {
            to: DaemonId(to),
            data: Data::of_words([a, b, c, d, e])?,
        })
    }
}

impl Welcome {
    fn words(&self) -> [u32; 6] {
        let [a, b] = numbered(self.version, self.start);
        let [c, d] = numbered(self.to.0, self.next);
        [self.group.0, a, b, c, d, self.change.0]
    }

    fn of_words([group, a, b, c, d, change]: [u32; 6]) -> Result<Welcome, WireError> {
        let ((version, start), (to, next)) = (number(a, b), number(c, d));
        let start = counted("a welcome's first sequence number", start)?;
        Ok(Welcome {
            to: DaemonId(to),
            version,
            group: GroupId(group),
            change: change_number(change)?,
            start,
            next: not_below("a welcome's next sequence number", next, start)?,
        })
    }
}

impl Answer {
    fn words(&self) -> [u32; 6] {
        let [a, b] = numbered(self.version, self.expected);
        let [c, d] = numbered(self.to.0, self.next);
        [self.group.0, a, b, c, d, self.change.0]
    }

    fn of_words([group, a, b, c, d, change]: [u32; 6]) -> Result<Answer, WireError> {
        let ((version, expected), (to, next)) = (number(a, b), number(c, d));
        Ok(Answer {
            to: DaemonId(to),
            version,
            group: GroupId(group),
            change: change_number(change)?,
            expected: counted("an answer's expected sequence number", expected)?,
            next: counted("an answer's next sequence number", next)?,
        })
    }
}

impl Acknowledge {
    fn encode(&self, flags: u8, origin: u16) -> Encoded {
        let count = count_flags(self.flows().count());
        let ends = [word(self.to.0, self.version)];
        let mut encoded = Encoded::of(ACKNOWLEDGE, flags | count, origin, ends);
        for (group, expected) in self.flows() {
            encoded.put(&group.0.to_be_bytes());
            encoded.put(&expected.to_be_bytes());
        }
        encoded
    }
}

fn acknowledge(first: First, bytes: &[u8]) -> Result<Acknowledge, WireError> {
    if first.count() > Acknowledge::FLOWS {
        let count = first.count() as u64;
        return Err(range("the number of acknowledged flows", count, "0 to 2"));
    }
    let mut words = [0; 1 + 2 * Acknowledge::FLOWS];
    some_words(bytes, &mut words[..1 + 2 * first.count()])?;
    let (to, version) = halves(words[0]);
    let mut flows = [(GroupId(0), 0); Acknowledge::FLOWS];
    let (pairs, _) = words[1..].as_chunks::<2>();
    for (flow, [group, expected]) in flows.iter_mut().zip(pairs).take(first.count()) {
        at_least_one("an acknowledged flow's number", *expected)?;
        *flow = (GroupId(*group), *expected);
    }
    Ok(Acknowledge {
        to: DaemonId(to),
        version,
        flows,
    })
}

impl Summary {
    fn words(&self) -> [u32; 2] {
        [self.incarnation, self.change.0]
    }

    fn of_words([incarnation, change]: [u32; 2]) -> Summary {
        let change = ChangeSeq(change);
        Summary {
            incarnation,
            change,
        }
    }
}

impl Item {
    /// Returns the encoding.
    pub(crate) fn words(&self) -> [u32; 4] {
        match *self {
            Item::Members {
                group,
                members,
                since,
            } => [word(MEMBERS, 0), group.0, members, since.0],
            Item::Paused { group, paused } => [word(PAUSED, paused.into()), group.0, 0, 0],
            Item::Link { to, weight, since } => [word(LINK, to.0), weight, since.0, 0],
            Item::Alive => [word(ALIVE, 0), 0, 0, 0],
            Item::Count { count, incarnation } => [word(COUNTED, 0), count, incarnation, 0],
            Item::Proof => [word(PROOF, 0), 0, 0, 0],
        }
    }

    fn of_words([kind, a, b, c]: [u32; 4]) -> Result<Item, WireError> {
        let (kind, half) = halves(kind);
        let unused = match kind {
            MEMBERS => u32::from(half),
            PAUSED => u32::from(half & !1) | b | c,
            LINK => c,
            ALIVE | PROOF => u32::from(half) | a | b | c,
            COUNTED => u32::from(half) | c,
            other => {
                let (name, number) = ("the kind of an item", other.into());
                return Err(range(name, number, "1 to 6"));
            }
        };
        zero(unused)?;
        Ok(match kind {
            MEMBERS => Item::Members {
                group: GroupId(a),
                members: b,
                since: ChangeSeq(c),
            },
            PAUSED => Item::Paused {
                group: GroupId(a),
                paused: half == 1,
            },
            LINK => Item::Link {
                to: DaemonId(half),
                weight: a,
                since: ChangeSeq(b),
            },
            COUNTED => Item::Count {
                count: a,
                incarnation: b,
            },
            PROOF => Item::Proof,
            _ => Item::Alive,
        })
    }
}

fn cost(first: First, bytes: &[u8]) -> Result<CostUpdate, WireError> {
    let mut words = [0; 1 + CostUpdate::LINKS];
    some_words(bytes, &mut words[..1 + first.count()])?;
    let (version, reserved) = halves(words[0]);
    zero(reserved.into())?;
    let link = |place| {
        let (to, queue) = halves(words[1 + place]);
        let to = DaemonId(to);
        (place < first.count()).then_some(LinkState { to, queue })
    };
    Ok(CostUpdate {
        version,
        links: core::array::from_fn(link),
    })
}

fn report([group, rate, high, low, held_us, received_bytes]: [u32; 6]) -> Report {
    let (repaired, acknowledged) = number(high, low);
    Report {
        group: GroupId(group),
        rate_bytes_per_s: rate,
        repaired,
        acknowledged,
        received_bytes,
        held_us,
    }
}

impl Control {
    fn encode(&self, flags: u8, origin: u16) -> Encoded {
        match self {
            Control::Cost(update) => {
                let links = || update.links.iter().flatten();
                let count = count_flags(links().count());
                let version = [word(update.version, 0)];
                let mut encoded = Encoded::of(COST, flags | count, origin, version);
                for state in links() {
                    encoded.put(&word(state.to.0, state.queue).to_be_bytes());
                }
                encoded
            }
            Control::Report(report) => {
                let [high, low] = numbered(report.repaired, report.acknowledged);
                let words = [
                    report.group.0,
                    report.rate_bytes_per_s,
                    high,
                    low,
                    report.held_us,
                    report.received_bytes,
                ];
                Encoded::of(REPORT, flags, origin, words)
            }
            Control::RoundTrip(round_trip) => {
                Encoded::of(ROUND_TRIP, flags, origin, [round_trip.rtt_us])
            }
        }
    }
}

/// Returns the words of 16 bits and a sequence number of 48 bits.
fn numbered(half: u16, sequence: OriginSeq) -> [u32; 2] {
    let number = sequence.number();
    [word(half, (number >> 32) as u16), number as u32]
}

/// Returns the 16 bits and the sequence number in two words.
fn number(high: u32, low: u32) -> (u16, OriginSeq) {
    let (half, high) = halves(high);
    (half, OriginSeq::new(u64::from(high) << 32 | u64::from(low)))
}

/// Returns an error for 0: sequence numbers are counted from 1.
fn counted(name: &'static str, sequence: OriginSeq) -> Result<OriginSeq, WireError> {
    not_below(name, sequence, OriginSeq::new(1))
}

fn not_below(
    name: &'static str,
    sequence: OriginSeq,
    lowest: OriginSeq,
) -> Result<OriginSeq, WireError> {
    match sequence >= lowest {
        true => Ok(sequence),
        false => Err(range(
            name,
            sequence.number(),
            "at least 1, and not below the start",
        )),
    }
}

fn change_number(change: u32) -> Result<ChangeSeq, WireError> {
    at_least_one("the number of a change", change).map(ChangeSeq)
}

fn word(high: u16, low: u16) -> u32 {
    u32::from(high) << 16 | u32::from(low)
}

fn halves(word: u32) -> (u16, u16) {
    ((word >> 16) as u16, word as u16)
}
