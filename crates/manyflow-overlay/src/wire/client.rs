//! The encoding of frames between clients and daemons.

use super::{
    CONNECT, COUNT, COUNT_MAX, DELIVER, DISCONNECT, EVICTED, Encoded, First, JOIN, LEAVE, READY,
    SEND, TOOK, VIEW, WireError, at_least_one, check_layers, check_rest, count_flags, range,
    some_words, words, zero,
};
use crate::message::{ClientFrame, CopyFlags, DaemonId, Data, GroupId, GroupSet};

impl ClientFrame {
    /// Encodes the header. The payload, if any, follows it on the wire.
    pub fn encode(&self) -> Encoded {
        match *self {
            ClientFrame::Connect { priority } => Encoded::first(CONNECT, 0, priority),
            ClientFrame::Join(group) => Encoded::of(JOIN, 0, 0, [group.0]),
            ClientFrame::Leave(group) => Encoded::of(LEAVE, 0, 0, [group.0]),
            ClientFrame::Send {
                groups,
                sent_us,
                layered,
            } => {
                let further = &groups.as_slice()[1..];
                let flags = count_flags(further.len()) | CopyFlags::layered(layered).bits();
                let mut encoded = Encoded::of(SEND, flags, 0, [groups.first().0, sent_us]);
                for group in further {
                    encoded.put(&group.0.to_be_bytes());
                }
                encoded
            }
            ClientFrame::Took { messages } => Encoded::of(TOOK, 0, 0, [messages]),
            ClientFrame::Disconnect => Encoded::first(DISCONNECT, 0, 0),
            ClientFrame::Ready => Encoded::first(READY, 0, 0),
            ClientFrame::Deliver {
                origin,
                data,
                layered,
            } => {
                let flags = CopyFlags::layered(layered).bits();
                Encoded::of(DELIVER, flags, origin.0, data.words())
            }
            ClientFrame::View { group, members } => Encoded::of(VIEW, 0, 0, [group.0, members]),
            ClientFrame::Evicted(group) => Encoded::of(EVICTED, 0, 0, [group.0]),
        }
    }

    /// Decodes one frame. Returns its header and the header's length. The rest of the bytes is the
    /// payload of [`ClientFrame::Join`], [`ClientFrame::Send`] or [`ClientFrame::Deliver`]; no
    /// bytes may follow any other header.
    ///
    /// # Errors
    /// Returns an error unless the bytes are the [encoding](ClientFrame::encode) of a valid frame,
    /// followed only by a payload, if it may have one.
    pub fn decode(bytes: &[u8]) -> Result<(ClientFrame, usize), WireError> {
        let first = First::decode(bytes)?;
        let frame = match first.kind {
            CONNECT => {
                at_least_one("a client's priority in percent", first.half.into())?;
                let priority = first.half;
                ClientFrame::Connect { priority }
            }
            DISCONNECT => ClientFrame::Disconnect,
            READY => ClientFrame::Ready,
            DELIVER => ClientFrame::Deliver {
                origin: DaemonId(first.half),
                data: Data::of_words(words(bytes)?)?,
                layered: first.is_layered(),
            },
            SEND => send(first, bytes)?,
            kind => with_words(kind, bytes)?,
        };
        first.flags_among(match first.kind {
            SEND => COUNT | CopyFlags::LAYERED.bits(),
            DELIVER => CopyFlags::LAYERED.bits(),
            _ => 0,
        })?;
        if !matches!(first.kind, CONNECT | DELIVER) {
            zero(first.half.into())?;
        }
        let header = check_rest(bytes, frame.wire_bytes(), frame.has_payload())?;
        if first.is_layered() {
            check_layers(bytes, header)?;
        }
        Ok((frame, header))
    }
}

/// Decodes the kinds whose header is the kind and further words.
fn with_words(kind: u8, bytes: &[u8]) -> Result<ClientFrame, WireError> {
    Ok(match kind {
        JOIN => ClientFrame::Join(group(bytes)?),
        LEAVE => ClientFrame::Leave(group(bytes)?),
        EVICTED => ClientFrame::Evicted(group(bytes)?),
        TOOK => {
            let [messages] = words(bytes)?;
            let messages = at_least_one("the number of messages that were taken", messages)?;
            ClientFrame::Took { messages }
        }
        VIEW => {
            let [group, members] = words(bytes)?;
            let group = GroupId(group);
            ClientFrame::View { group, members }
        }
        other => return Err(WireError::Kind(other)),
    })
}

/// Decodes a message of a client to one to four groups.
fn send(first: First, bytes: &[u8]) -> Result<ClientFrame, WireError> {
    let count = first.count();
    let mut all = [0; 2 + COUNT_MAX];
    some_words(bytes, &mut all[..2 + count])?;
    let [group, sent_us, further @ ..] = all;
    let mut groups = GroupSet::from(GroupId(group));
    for &group in &further[..count] {
        let name = "a message's further group";
        let twice = || range(name, group.into(), "another than those before");
        groups = groups.with(GroupId(group)).ok_or_else(twice)?;
    }
    Ok(ClientFrame::Send {
        groups,
        sent_us,
        layered: first.is_layered(),
    })
}

fn group(bytes: &[u8]) -> Result<GroupId, WireError> {
    let [group] = words(bytes)?;
    Ok(GroupId(group))
}
