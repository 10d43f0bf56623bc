//! Messages from a hostile daemon of an overlay: forged states, numbers and acknowledgements, and
//! bytes that are likely to be frames; and a run of the daemon that receives them.

use manyflow_core::{Length, Time};
use manyflow_overlay::{
    Acknowledge, Answer, Body, Change, ChangeSeq, ClientId, Daemon, DaemonId, Data, GroupId, Item,
    Message, OriginSeq, Part, Resent, Summary, Transmit, Welcome,
};

/// An honest daemon.
pub const HONEST: DaemonId = DaemonId(7);
/// The daemon that hostile messages are sent to.
pub const HERE: DaemonId = DaemonId(300);
/// A hostile daemon.
pub const HOSTILE: DaemonId = DaemonId(40_000);
/// The group of the honest daemon's messages. Its name is its number.
pub const GROUP: GroupId = GroupId(3);

/// Mostly a small number, sometimes one of the highest.
pub fn number(word: u16) -> u32 {
    match word {
        0..0xe000 => u32::from(word % 8),
        0xe000..0xf800 => u32::from(word) << 16,
        _ => u32::MAX - u32::from(word & 3),
    }
}

/// A daemon's number: the hostile neighbour's own, that of the daemon itself, or another.
pub fn daemon(number: u8) -> DaemonId {
    match number {
        0..80 => HOSTILE,
        80..140 => HERE,
        140..180 => HONEST,
        180..250 => DaemonId(u16::from(number % 8) << 13),
        _ => DaemonId(u16::MAX - u16::from(number & 1)),
    }
}

/// Returns an item of a forged state.
pub fn item(kind: u8, a: u16, b: u16) -> Item {
    let (group, since) = (GroupId(u32::from(a % 6)), ChangeSeq(number(b)));
    match kind % 8 {
        0..4 => Item::Link {
            to: daemon(a as u8),
            weight: number(b.rotate_left(3)),
            since,
        },
        4 | 5 => Item::Members {
            group,
            members: number(b.rotate_left(3)),
            since,
        },
        6 => Item::Paused {
            group,
            paused: b.is_multiple_of(2),
        },
        _ if b.is_multiple_of(2) => Item::Alive,
        _ if b.is_multiple_of(3) => Item::Proof,
        _ => Item::Count {
            count: number(a),
            incarnation: number(b),
        },
    }
}

/// Returns the body of a forged message that follows this version of the topology, or another.
pub fn body(version: u16, kind: u8, [a, b, c, d]: [u16; 4]) -> Body {
    let group = GroupId(u32::from(b % 6));
    let change = ChangeSeq(number(a));
    let sequence = |word: u16| match word {
        0..0xf000 => OriginSeq::new(u64::from(word % 16)),
        _ => OriginSeq::new(u64::MAX - u64::from(word)),
    };
    let to = daemon(c as u8);
    let data = Data {
        group,
        version: version.wrapping_add(u16::from(d.is_multiple_of(5))),
        sequence: sequence(a),
        sender: ClientId(number(c)),
        sent_us: number(d),
    };
    let version = data.version;
    match kind % 16 {
        0..4 => Body::Change(Change {
            incarnation: number(b),
            change,
            item: item(c as u8, c >> 3, d),
        }),
        4 | 5 => Body::Part(Part {
            change,
            index: number(b),
            item: item(c as u8, c >> 3, d),
        }),
        6 | 7 => Body::Summary(Summary {
            incarnation: number(b),
            change,
        }),
        8 if a.is_multiple_of(2) => Body::Seal(Summary {
            incarnation: number(b),
            change,
        }),
        8 => Body::Request,
        9 | 10 => Body::Data(data),
        11 => Body::Resent(Resent { to, data }),
        12 | 13 => Body::Welcome(Welcome {
            to,
            version,
            group,
            change,
            start: sequence(d),
            next: sequence(d).advance(u64::from(c)),
        }),
        14 => Body::Answer(Answer {
            to,
            version,
            group,
            change,
            expected: sequence(c),
            next: sequence(d),
        }),
        _ => Body::Acknowledge(Acknowledge {
            to,
            version,
            flows: [(group, number(c)), (GROUP, number(d))],
        }),
    }
}

/// Returns a message without what a hostile neighbour does not do.
pub fn tame(message: Message) -> Message {
    let body = match &{ message.body } {
        Body::Change(change) => Body::Change(Change {
            item: tame_item(change.item),
            ..*change
        }),
        Body::Part(part) => Body::Part(Part {
            item: tame_item(part.item),
            ..*part
        }),
        body => *body,
    };
    let origin = match message.origin {
        HONEST => HOSTILE,
        origin => origin,
    };
    Message {
        origin,
        body,
        ..message
    }
}

fn tame_item(item: Item) -> Item {
    let other = |group: GroupId| match group {
        GROUP => GroupId(GROUP.0 + 1),
        group => group,
    };
    match item {
        Item::Members {
            group,
            members,
            since,
        } => Item::Members {
            group: other(group),
            members,
            since,
        },
        Item::Paused { group, paused } => Item::Paused {
            group: other(group),
            paused,
        },
        item => item,
    }
}

/// Bytes of a frame on a stream: its length, the version and kind, flags, the origin, and words.
pub type FrameBytes = [u8; 40];

/// Returns bytes, the same with a length and kind that exist, and the same with an item that
/// exists.
pub fn variants(bytes: &FrameBytes) -> [FrameBytes; 4] {
    let mut known = *bytes;
    known[0] = 0;
    known[1] = [4, 8, 12, 24, 28, 38][usize::from(bytes[1] % 6)];
    known[2] = 0x20 | (bytes[2] % 26);
    known[3] = 0;
    // The words of a change are its incarnation, its number, the item's kind and three others. The
    // last of them is zero in a link; the half beside the kind is zero in most others.
    let mut link = known;
    (link[1], link[14], link[15]) = (28, 0, 1 + bytes[15] % 5);
    link[26..].fill(0);
    let mut other = link;
    other[16..18].fill(0);
    [*bytes, known, link, other]
}

/// Takes everything that a daemon sends, and handles its timers that are due. `on_sent` sees each
/// frame, and may answer it.
///
/// # Panics
/// Panics if the daemon sends more than `frames_max` frames, or if its timer stays at the same time
/// forever.
pub fn drain(
    daemon: &mut Daemon<Length>,
    now: Time,
    frames_max: usize,
    mut on_sent: impl FnMut(&mut Daemon<Length>, &Transmit<Length>),
) {
    let mut frames = 0;
    // Each timer that is due advances the state.
    for _ in 0..frames_max {
        while let Some(transmit) = daemon.poll_transmit() {
            frames += 1;
            on_sent(daemon, &transmit);
        }
        while daemon.poll_event().is_some() {}
        while daemon.poll_interest().is_some() {}
        if daemon.poll_timeout().is_none_or(|due| due > now) {
            assert!(frames <= frames_max, "{frames} answers to one input");
            return;
        }
        daemon.handle_timeout(now);
    }
    panic!("its timer stays at the same time forever");
}
