//! Two ends of an ACP connection receive any segments in any order. Neither panics, floods, or
//! sleeps past its timer, and no receive buffer holds more than its size.
#![cfg_attr(fuzzing, no_main)]

use std::collections::VecDeque;
use std::time::Duration;

use arbitrary::Arbitrary;
use manyflow_anypoint::{
    AcpConfig, Body, Connection, Control, FlowControl, Length, Segment, SoftConfig,
};
use manyflow_core::Time;
use manyflow_fuzz::acp::{CONNECTION, Forged};

const BUFFER: u32 = 4_000;
/// A send buffer is full of frames of one byte each. No call makes an end send more packets than
/// these and a few of its own.
const BURST_MAX: usize = BUFFER as usize + 10;

#[derive(Arbitrary, Debug)]
enum Step {
    Forge {
        acceptor: bool,
        segment: Forged,
        bytes: u8,
    },
    /// Delivers or loses the first packet on its way to this end, or one that overtakes it.
    Deliver {
        acceptor: bool,
        place: u8,
        lost: bool,
    },
    Send {
        acceptor: bool,
        key: u32,
        bytes: u8,
    },
    Receive {
        acceptor: bool,
    },
    /// Ends the connection; rare, because nothing happens afterwards.
    End {
        acceptor: bool,
        how: u8,
    },
    /// Waits, usually for less than half a second.
    Wait {
        milliseconds: u16,
    },
}

type Way = VecDeque<(Segment, Length)>;

manyflow_fuzz::target!(|bytes: &[u8]| {
    let [first, rest @ ..] = bytes else { return };
    let config = config(first & 1 != 0, first & 2 != 0);
    let mut now = Time::ZERO;
    let initiator = Connection::connect(config.clone(), CONNECTION, now);
    let acceptor = Connection::listen(config);
    let mut ends = [initiator, acceptor].map(|end| end.expect("the parameters are sound"));
    let mut ways = [Way::new(), Way::new()];
    // The connection is usually opened first, because few inputs would get that far.
    if first & 12 != 0 {
        for acceptor in [true, false] {
            drain_both(&mut ends, now, &mut ways);
            let step = Step::Deliver {
                acceptor,
                place: 0,
                lost: false,
            };
            take(&mut ends, &mut ways, &mut now, step);
        }
        assert!(ends.iter().all(Connection::is_established));
    }
    for step in manyflow_fuzz::each(rest) {
        take(&mut ends, &mut ways, &mut now, step);
        drain_both(&mut ends, now, &mut ways);
    }
});

fn config(reno: bool, soft: bool) -> AcpConfig {
    AcpConfig {
        control: if reno { Control::Reno } else { Control::Xcp },
        flow: match soft && !reno {
            true => FlowControl::Soft(SoftConfig::default()),
            false => FlowControl::Credit,
        },
        frame_bytes_max: 200,
        send_buffer: BUFFER,
        receive_buffer: BUFFER,
        keep_alive: Duration::from_secs(2),
        ..AcpConfig::default()
    }
}

fn take(ends: &mut [Connection<Length>; 2], ways: &mut [Way; 2], now: &mut Time, step: Step) {
    match step {
        Step::Forge {
            acceptor,
            segment,
            bytes,
        } => {
            if let Some(segment) = segment.segment() {
                let payload = payload_of(&segment, bytes);
                ends[usize::from(acceptor)].handle_segment(*now, &segment, payload);
            }
        }
        Step::Deliver {
            acceptor,
            place,
            lost,
        } => {
            let way = &mut ways[usize::from(acceptor)];
            let packet = way.remove(usize::from(place) % way.len().max(1));
            if let Some((segment, payload)) = packet
                && !lost
            {
                ends[usize::from(acceptor)].handle_segment(*now, &segment, payload);
            }
        }
        Step::Send {
            acceptor,
            key,
            bytes,
        } => drop(ends[usize::from(acceptor)].send(key, Length(bytes.into()))),
        Step::Receive { acceptor } => receive_all(&mut ends[usize::from(acceptor)], *now),
        Step::End { acceptor, how } => match how {
            0..16 => ends[usize::from(acceptor)].close(),
            16..20 => ends[usize::from(acceptor)].abort(),
            _ => {}
        },
        Step::Wait { milliseconds } => {
            let milliseconds = if milliseconds < 60_000 {
                milliseconds % 500
            } else {
                milliseconds
            };
            *now += Duration::from_millis(milliseconds.into());
            for end in ends {
                end.handle_timeout(*now);
            }
        }
    }
}

fn payload_of(segment: &Segment, bytes: u8) -> Length {
    match segment.body {
        Body::Data(_) => Length(bytes.into()),
        _ => Length(0),
    }
}

fn receive_all(end: &mut Connection<Length>, now: Time) {
    let mut bytes = 0;
    while let Some(frame) = end.receive(now) {
        bytes += frame.payload.0;
    }
    assert!(bytes <= BUFFER, "{bytes} bytes were in the receive buffer");
}

fn drain_both(ends: &mut [Connection<Length>; 2], now: Time, ways: &mut [Way; 2]) {
    for (place, end) in ends.iter_mut().enumerate() {
        drain(end, now, &mut ways[1 - place]);
    }
}

fn drain(end: &mut Connection<Length>, now: Time, way: &mut Way) {
    let mut sent = 0;
    while let Some((segment, payload)) = end.poll_transmit(now) {
        sent += 1;
        assert!(sent < BURST_MAX, "it floods");
        let bytes = segment.encode();
        assert!(
            Segment::decode(bytes.as_bytes()).is_ok(),
            "it sends a segment that no end accepts: {segment:?}"
        );
        way.push_back((segment, payload.unwrap_or_default()));
    }
    while end.poll_event().is_some() {}
    // Timers that are due have been handled: a timer in the past would stop the clock.
    if end.poll_timeout().is_some_and(|due| due <= now) {
        end.handle_timeout(now);
        assert!(end.poll_timeout().is_none_or(|due| due > now));
    }
}
