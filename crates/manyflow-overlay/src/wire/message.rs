//! The encoding of messages between daemons.

use super::{
    COST, COUNT, DATA, Encoded, First, MEMBERSHIP, ON, PAUSE, REPAIRED, REPORT, ROUND_TRIP,
    WELCOME, WireError, at_least_one, check_rest, count_flags, some_words, words, zero,
};
use crate::message::{
    Body, ClientId, Control, CostUpdate, DaemonId, Data, GroupId, LinkId, LinkState, Membership,
    Message, Pause, Report, RoundTrip, Welcome,
};
use crate::sequence::{ChangeSeq, OriginSeq};

impl Message {
    /// Encodes the header. The payload, if any, follows it on the wire.
    pub fn encode(&self) -> Encoded {
        let flags = flag(self.repaired, REPAIRED);
        let origin = self.origin.0;
        match &self.body {
            Body::Data(data) => Encoded::of(DATA, flags, origin, data.words()),
            Body::Membership(membership) => {
                let words = [membership.group.0, membership.client.0, membership.change.0];
                let joined = flag(membership.joined, ON);
                Encoded::of(MEMBERSHIP, flags | joined, origin, words)
            }
            Body::Welcome(welcome) => {
                let to = u32::from(welcome.to.0) << 16;
                let words = [welcome.group.0, welcome.change.0, welcome.start.0, to];
                Encoded::of(WELCOME, flags, origin, words)
            }
            Body::Pause(pause) => {
                let paused = flag(pause.paused, ON);
                let words = [pause.group.0, pause.change.0];
                Encoded::of(PAUSE, flags | paused, origin, words)
            }
            Body::Control(control) => control.encode(flags, origin),
        }
    }

    /// Decodes one message. Returns its header and the header's length. The rest of the bytes is
    /// the payload of [`Body::Data`]; no bytes may follow any other header.
    ///
    /// # Errors
    /// Returns an error unless the bytes are the [encoding](Message::encode) of a valid message,
    /// followed only by a payload, if it may have one.
    pub fn decode(bytes: &[u8]) -> Result<(Message, usize), WireError> {
        let first = First::decode(bytes)?;
        let message = Message {
            origin: DaemonId(first.half),
            repaired: first.flags & REPAIRED != 0,
            body: body(first, bytes)?,
        };
        first.flags_among(match first.kind {
            MEMBERSHIP | PAUSE => REPAIRED | ON,
            COST => REPAIRED | COUNT,
            _ => REPAIRED,
        })?;
        let header = check_rest(bytes, message.wire_bytes(), message.is_data())?;
        Ok((message, header))
    }
}

fn body(first: First, bytes: &[u8]) -> Result<Body, WireError> {
    let on = first.flags & ON != 0;
    Ok(match first.kind {
        DATA => Body::Data(Data::of_words(words(bytes)?)?),
        MEMBERSHIP => {
            let [group, client, change] = words(bytes)?;
            Body::Membership(Membership {
                group: GroupId(group),
                client: ClientId(client),
                joined: on,
                change: ChangeSeq(change),
            })
        }
        WELCOME => Body::Welcome(welcome(words(bytes)?)?),
        PAUSE => {
            let [group, change] = words(bytes)?;
            Body::Pause(Pause {
                group: GroupId(group),
                paused: on,
                change: ChangeSeq(change),
            })
        }
        COST => Body::Control(Control::Cost(cost(first, bytes)?)),
        REPORT => Body::Control(Control::Report(report(words(bytes)?))),
        ROUND_TRIP => {
            let [group, rtt_us] = words(bytes)?;
            let group = GroupId(group);
            Body::Control(Control::RoundTrip(RoundTrip { group, rtt_us }))
        }
        other => return Err(WireError::Kind(other)),
    })
}

fn welcome([group, change, start, to]: [u32; 4]) -> Result<Welcome, WireError> {
    let (to, reserved) = halves(to);
    zero(reserved.into())?;
    Ok(Welcome {
        to: DaemonId(to),
        group: GroupId(group),
        change: ChangeSeq(change),
        start: OriginSeq(at_least_one("a welcome's first sequence number", start)?),
    })
}

fn cost(first: First, bytes: &[u8]) -> Result<CostUpdate, WireError> {
    let mut words = [0; CostUpdate::LINKS];
    some_words(bytes, &mut words[..first.count()])?;
    let link = |place| {
        let (link, queue) = halves(words[place]);
        let link = LinkId(link);
        (place < first.count()).then_some(LinkState { link, queue })
    };
    Ok(CostUpdate {
        links: core::array::from_fn(link),
    })
}

fn report([group, rate, shares, acknowledged, held_us]: [u32; 5]) -> Report {
    let (loss_event_rate, repaired) = halves(shares);
    Report {
        group: GroupId(group),
        rate_bytes_per_s: rate,
        loss_event_rate,
        repaired,
        acknowledged: OriginSeq(acknowledged),
        held_us,
    }
}

impl Control {
    fn encode(&self, flags: u8, origin: u16) -> Encoded {
        match self {
            Control::Cost(update) => {
                let links = || update.links.iter().flatten();
                let mut encoded =
                    Encoded::first(COST, flags | count_flags(links().count()), origin);
                for state in links() {
                    encoded.put(&word(state.link.0, state.queue).to_be_bytes());
                }
                encoded
            }
            Control::Report(report) => {
                let words = [
                    report.group.0,
                    report.rate_bytes_per_s,
                    word(report.loss_event_rate, report.repaired),
                    report.acknowledged.0,
                    report.held_us,
                ];
                Encoded::of(REPORT, flags, origin, words)
            }
            Control::RoundTrip(round_trip) => {
                let words = [round_trip.group.0, round_trip.rtt_us];
                Encoded::of(ROUND_TRIP, flags, origin, words)
            }
        }
    }
}

impl Data {
    pub(super) fn words(&self) -> [u32; 4] {
        [self.group.0, self.sequence.0, self.sender.0, self.sent_us]
    }

    pub(super) fn of_words(
        [group, sequence, sender, sent_us]: [u32; 4],
    ) -> Result<Data, WireError> {
        Ok(Data {
            group: GroupId(group),
            sequence: OriginSeq(at_least_one("a sequence number", sequence)?),
            sender: ClientId(sender),
            sent_us,
        })
    }
}

fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

fn word(high: u16, low: u16) -> u32 {
    u32::from(high) << 16 | u32::from(low)
}

fn halves(word: u32) -> (u16, u16) {
    ((word >> 16) as u16, word as u16)
}
