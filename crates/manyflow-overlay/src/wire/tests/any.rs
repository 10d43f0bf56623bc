//! Strategies for frames of all kinds.

use proptest::prelude::*;

use super::range;
use crate::message::{
    Ack, Acknowledge, Answer, Body, Change, ClientFrame, ClientId, Control, CopyFlags, CostUpdate,
    DaemonId, Data, Delay, Feedback, Frame, GroupId, GroupSet, Item, LinkState, Message, Part,
    Report, Resent, RoundTrip, Summary, Welcome,
};
use crate::sequence::{ChangeSeq, LinkSeq, OriginSeq};

pub(super) fn any_link() -> impl Strategy<Value = LinkState> {
    any::<(u16, u16)>().prop_map(|(to, queue)| LinkState {
        to: DaemonId(to),
        queue,
    })
}

/// Returns a sequence number above 0.
pub(super) fn any_number() -> impl Strategy<Value = OriginSeq> {
    let highest = OriginSeq::MAX.number();
    prop_oneof![1..100u64, 1..=highest, Just(highest)].prop_map(OriginSeq::new)
}

pub(super) fn any_data() -> impl Strategy<Value = Data> {
    (any::<[u32; 3]>(), any::<u16>(), any_number()).prop_map(
        |([group, sender, sent_us], version, sequence)| Data {
            group: GroupId(group),
            version,
            sequence,
            sender: ClientId(sender),
            sent_us,
        },
    )
}

pub(super) fn any_control() -> impl Strategy<Value = Control> {
    let links = prop::collection::vec(any_link(), 0..=CostUpdate::LINKS);
    let cost = (any::<u16>(), links).prop_map(|(version, states)| {
        let links = core::array::from_fn(|place| states.get(place).copied());
        Control::Cost(CostUpdate { version, links })
    });
    let report = (any::<[u32; 4]>(), any_number(), any::<u16>()).prop_map(
        |([group, rate_bytes_per_s, held_us, received_bytes], acknowledged, repaired)| {
            Control::Report(Report {
                group: GroupId(group),
                rate_bytes_per_s,
                repaired,
                acknowledged,
                received_bytes,
                held_us,
            })
        },
    );
    let round_trip = any::<u32>().prop_map(|rtt_us| Control::RoundTrip(RoundTrip { rtt_us }));
    prop_oneof![cost, report, round_trip]
}

pub(super) fn any_item() -> impl Strategy<Value = Item> {
    prop_oneof![
        any::<(u32, u32, u32)>().prop_map(|(group, members, since)| Item::Members {
            group: GroupId(group),
            members,
            since: ChangeSeq(since),
        }),
        any::<(u32, bool)>().prop_map(|(group, paused)| Item::Paused {
            group: GroupId(group),
            paused,
        }),
        any::<(u16, u32, u32)>().prop_map(|(to, weight, since)| Item::Link {
            to: DaemonId(to),
            weight,
            since: ChangeSeq(since),
        }),
        Just(Item::Alive),
        any::<(u32, u32)>().prop_map(|(count, incarnation)| Item::Count { count, incarnation }),
        Just(Item::Proof),
    ]
}

/// Returns messages about the state of daemons.
pub(super) fn any_state() -> impl Strategy<Value = Body> {
    let change = || (1..=u32::MAX).prop_map(ChangeSeq);
    prop_oneof![
        (any::<u32>(), change(), any_item()).prop_map(|(incarnation, change, item)| {
            Body::Change(Change {
                incarnation,
                change,
                item,
            })
        }),
        (any::<u32>(), change(), any_item()).prop_map(|(index, change, item)| {
            Body::Part(Part {
                change,
                index,
                item,
            })
        }),
        any::<[u32; 2]>().prop_map(|[incarnation, change]| {
            let change = ChangeSeq(change);
            Body::Summary(Summary {
                incarnation,
                change,
            })
        }),
        (any::<u32>(), change()).prop_map(|(incarnation, change)| {
            Body::Seal(Summary {
                incarnation,
                change,
            })
        }),
        Just(Body::Request),
    ]
}

/// Returns messages to one daemon.
pub(super) fn any_repair() -> impl Strategy<Value = Body> {
    let ends = || (any::<(u16, u16, u32)>(), 1..=u32::MAX);
    let flow = (any::<u32>(), 1..=u32::MAX);
    let flows = prop::collection::vec(flow, 0..=Acknowledge::FLOWS);
    prop_oneof![
        (ends(), any_number(), any_number()).prop_map(|(((to, version, group), change), a, b)| {
            Body::Welcome(Welcome {
                to: DaemonId(to),
                version,
                group: GroupId(group),
                change: ChangeSeq(change),
                start: a.min(b),
                next: a.max(b),
            })
        }),
        (ends(), any_number(), any_number()).prop_map(
            |(((to, version, group), change), expected, next)| {
                Body::Answer(Answer {
                    to: DaemonId(to),
                    version,
                    group: GroupId(group),
                    change: ChangeSeq(change),
                    expected,
                    next,
                })
            }
        ),
        (any::<u16>(), any_data()).prop_map(|(to, data)| {
            let to = DaemonId(to);
            Body::Resent(Resent { to, data })
        }),
        (any::<(u16, u16)>(), flows).prop_map(|((to, version), used)| {
            let mut flows = [(GroupId(0), 0); Acknowledge::FLOWS];
            for (flow, (group, expected)) in flows.iter_mut().zip(used) {
                *flow = (GroupId(group), expected);
            }
            Body::Acknowledge(Acknowledge {
                to: DaemonId(to),
                version,
                flows,
            })
        }),
    ]
}

fn any_groups() -> impl Strategy<Value = GroupSet> {
    let groups = prop::collection::hash_set(any::<u32>().prop_map(GroupId), 1..=GroupSet::MAX);
    groups.prop_map(|groups| GroupSet::of(&Vec::from_iter(groups)).unwrap())
}

pub(super) fn any_message() -> impl Strategy<Value = Message> {
    let body = prop_oneof![
        any_data().prop_map(Body::Data),
        any_data().prop_map(Body::Shared),
        any_data().prop_map(Body::Again),
        any_state(),
        any_repair(),
        any_control().prop_map(Body::Control),
    ];
    (any::<u16>(), any::<u8>(), body).prop_map(|(origin, copy, body)| {
        let message = Message {
            origin: DaemonId(origin),
            copy: CopyFlags::default(),
            body,
        };
        // Only clients' messages can be layered.
        let fate = CopyFlags::REPAIRED.with(CopyFlags::MARKED).bits();
        let copy = CopyFlags::from_bits(if message.is_data() { copy } else { copy & fate });
        Message { copy, ..message }
    })
}

pub(super) fn any_client_frame() -> impl Strategy<Value = ClientFrame> {
    let group = || any::<u32>().prop_map(GroupId);
    prop_oneof![
        (1..=u16::MAX).prop_map(|priority| ClientFrame::Connect { priority }),
        group().prop_map(ClientFrame::Join),
        group().prop_map(ClientFrame::Leave),
        (any_groups(), any::<u32>(), any::<bool>()).prop_map(|(groups, sent_us, layered)| {
            ClientFrame::Send {
                groups,
                sent_us,
                layered,
            }
        }),
        (1..=u32::MAX).prop_map(|messages| ClientFrame::Took { messages }),
        Just(ClientFrame::Disconnect),
        Just(ClientFrame::Ready),
        (any::<u16>(), any_data(), any::<bool>()).prop_map(|(origin, data, layered)| {
            ClientFrame::Deliver {
                origin: DaemonId(origin),
                data,
                layered,
            }
        }),
        (group(), any::<u32>()).prop_map(|(group, members)| ClientFrame::View { group, members }),
        group().prop_map(ClientFrame::Evicted),
    ]
}

/// Returns feedback with up to three ranges, from the lengths of alternating runs of present and
/// missing numbers.
pub(super) fn any_feedback() -> impl Strategy<Value = Feedback> {
    let pair = (0..1_000_000u32, 1..1_000_000u32);
    (any::<u32>(), prop::collection::vec(pair, 0..=3)).prop_map(|(expected, pairs)| {
        let mut missing = [(0, 0); 3];
        let mut free = expected;
        for (range, (there, absent)) in missing.iter_mut().zip(pairs) {
            let begin = free.wrapping_add(there);
            free = begin.wrapping_add(absent);
            *range = (begin, free);
        }
        Feedback {
            expected: LinkSeq(expected),
            missing: missing.map(range),
        }
    })
}

/// Returns frames that are sent in datagrams.
pub(super) fn any_datagram() -> impl Strategy<Value = Frame> {
    prop_oneof![
        (any::<u32>().prop_map(LinkSeq), any_message())
            .prop_map(|(number, message)| Frame::Datagram { number, message }),
        any_feedback().prop_map(Frame::Feedback),
        any_message().prop_map(Frame::Direct),
        any_client_frame().prop_map(Frame::Client),
    ]
}

/// Returns frames on a connection between daemons.
pub(super) fn any_stream() -> impl Strategy<Value = Frame> {
    prop_oneof![
        any_message().prop_map(Frame::Stream),
        any_feedback().prop_map(Frame::Feedback),
        any::<u32>().prop_map(|sent_us| Frame::Delay(Delay::Asked { sent_us })),
        any::<u32>().prop_map(|waited_us| Frame::Delay(Delay::Answered { waited_us })),
    ]
}

/// Returns frames that are sent in TCP segments.
pub(super) fn any_segment() -> impl Strategy<Value = Frame> {
    let block = (0..1000u32, 1..1000u32);
    let ack = (
        0..1_000_000u32,
        any::<u16>(),
        prop::collection::vec(block, 0..=3),
    )
        .prop_map(|(acknowledgement, window, blocks)| {
            let mut sack = [(0, 0); 3];
            for (place, (above, length)) in sack.iter_mut().zip(blocks) {
                let from = acknowledgement + 1 + above;
                *place = (from, from + length);
            }
            Frame::Ack(Ack {
                acknowledgement: LinkSeq(acknowledgement),
                window,
                sack: sack.map(range),
            })
        });
    let segment = (any::<u32>().prop_map(LinkSeq), any_message())
        .prop_map(|(sequence, message)| Frame::Segment { sequence, message });
    prop_oneof![ack, segment]
}
