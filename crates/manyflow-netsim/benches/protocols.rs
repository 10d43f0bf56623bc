//! Benchmarks of the protocols' and the link's parts, in elements per second.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput};
use manyflow_anypoint::switch::{Leg, MemberId, RoundRobin, Switch, SwitchConfig};
use manyflow_anypoint::{self as anypoint, Ack, AcpConfig, Body, Connection, Data, Length};
use manyflow_core::link::{
    Aqm, CakeConfig, CoDelConfig, DualPi2Config, FqCoDelConfig, Link, LinkConfig, PieConfig,
    RedConfig,
};
use manyflow_core::{Action, Channel, Destination, Endpoint, EndpointId, Header, Packet, Time};
use manyflow_tcp::{Receiver as TcpReceiver, Segment, Sender as TcpSender, TcpConfig};
use manyflow_webrc::{Cci, CciFormat, Receiver, ReceiverConfig, Sender, Session, SessionConfig};

#[path = "../../manyflow-overlay/tests/overlay_line/mod.rs"]
#[allow(dead_code, reason = "the tests of manyflow-overlay use the rest")]
mod overlay_line;
#[path = "../../manyflow-overlay/tests/world/mod.rs"]
#[allow(dead_code, reason = "the tests of overlays use the rest")]
mod world;

use manyflow_core::xcp::{Congestion, Feedback, WindowChange, XcpConfig};
use manyflow_overlay::LinkKind;
use overlay_line::Line;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    links(&mut criterion);
    tcp(&mut criterion);
    acp(&mut criterion);
    webrc(&mut criterion);
    switch(&mut criterion);
    overlay(&mut criterion);
    wire(&mut criterion);
    criterion.final_summary();
}

/// Measures a packet that enters a link and the next one that leaves it, with ten packets queued.
fn links(criterion: &mut Criterion) {
    let tcp = Segment::default();
    let xcp = anypoint::Segment {
        connection: 1,
        body: Body::Data(Data {
            sequence: 0,
            key: 0,
            congestion: Congestion {
                cwnd: 100_000,
                rtt_us: 50_000,
                feedback: WindowChange::MAX,
                answered: false,
            },
        }),
    };
    let like = LinkConfig {
        rate: Some("100 Mbit/s".parse().expect("the rate is valid")),
        ..LinkConfig::default()
    };
    let red = Some(RedConfig::default());
    let router = Some(XcpConfig::default());
    let with = |red, xcp| LinkConfig {
        red,
        xcp,
        ..like.clone()
    };
    link(criterion, "drop-tail", tcp, with(None, None));
    link(criterion, "RED", tcp, with(red, None));
    for (name, aqm) in [
        ("CoDel", Aqm::CoDel(CoDelConfig::default())),
        ("FQ-CoDel", Aqm::FqCoDel(FqCoDelConfig::default())),
        ("CAKE", Aqm::Cake(CakeConfig::default())),
        ("PIE", Aqm::Pie(PieConfig::default())),
        ("DualPI2", Aqm::DualPi2(DualPi2Config::default())),
    ] {
        let aqm = Some(aqm);
        link(
            criterion,
            name,
            tcp,
            LinkConfig {
                aqm,
                ..like.clone()
            },
        );
    }
    link(criterion, "ACP, drop-tail", xcp, with(None, None));
    link(criterion, "ACP, XCP", xcp, with(None, router));
}

fn link<H: Header>(criterion: &mut Criterion, name: &str, header: H, config: LinkConfig) {
    let mut group = criterion.benchmark_group("link, packets");
    group.throughput(Throughput::Elements(1));
    let packet = Packet::new(Destination::Endpoint(EndpointId(0)), header, 960);
    let mut link = Link::<Packet<H>>::new(config, 1);
    let mut now = Time::ZERO;
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            while link.queue_packets(now) < 10 {
                let _ = link.push(now, packet.clone(), packet.wire_bytes());
            }
            // A managed queue also has events at which packets leave it.
            loop {
                now = link.next_time().expect("packets wait");
                if let Some(packet) = link.pop_ready(now) {
                    return packet;
                }
            }
        });
    });
}

/// Measures a segment that is sent, received and acknowledged, in rounds of whole windows.
fn tcp(criterion: &mut Criterion) {
    const WINDOW: u32 = 64;
    let config = TcpConfig {
        maximum_window: WINDOW,
        ..TcpConfig::default()
    };
    let mut sender =
        TcpSender::new(config.clone(), EndpointId(1), 1).expect("the configuration is valid");
    let mut receiver = TcpReceiver::new(config, EndpointId(0)).expect("the configuration is valid");
    let mut now = Time::ZERO;
    let mut round = || {
        let mut sent = 0;
        let mut acks = [const { None }; WINDOW as usize];
        while let Some(Action::Send(segment)) = sender.poll_action(now) {
            receiver.handle_packet(now, &segment);
            acks[sent] = receiver.poll_action(now);
            sent += 1;
        }
        now += Duration::from_millis(100);
        for ack in acks.iter().flatten() {
            if let Action::Send(packet) = ack {
                sender.handle_packet(now, packet);
            }
            while sender.poll_event().is_some() {}
        }
        sent
    };
    while round() < WINDOW as usize {}
    let mut group = criterion.benchmark_group("tcp, segments");
    group.throughput(Throughput::Elements(WINDOW.into()));
    group.bench_function("sender and receiver", |bencher| bencher.iter(&mut round));
}

/// Measures a frame that is sent, received, read and acknowledged, in rounds of whole windows.
fn acp(criterion: &mut Criterion) {
    const WINDOW: u32 = 64;
    const FRAME: Length = Length(1024);
    const ROUND_TRIP: Duration = Duration::from_millis(100);
    let config = AcpConfig {
        send_buffer: WINDOW * FRAME.0,
        ..AcpConfig::default()
    };
    let mut now = Time::ZERO;
    let mut sender =
        Connection::connect(config.clone(), 1, now).expect("the configuration is valid");
    let mut receiver = Connection::listen(config).expect("the configuration is valid");
    let mut round = || {
        let mut read = 0;
        while sender.send(read, FRAME).is_ok() {}
        while read < WINDOW {
            if let Some((segment, payload)) = sender.poll_transmit(now) {
                receiver.handle_segment(now, &segment, payload.unwrap_or_default());
                read += u32::from(receiver.receive(now).is_some());
                continue;
            }
            // Frames are paced: each has its own time.
            match sender.poll_timeout() {
                Some(due) if due > now && due < now + ROUND_TRIP => now = due,
                _ => break,
            }
        }
        while receiver.poll_event().is_some() {}
        now += ROUND_TRIP;
        while let Some((segment, _)) = receiver.poll_transmit(now) {
            sender.handle_segment(now, &segment, Length(0));
        }
        while sender.poll_event().is_some() {}
        read
    };
    let rounds = (0..10).map(|_| round()).last();
    assert_eq!(rounds, Some(WINDOW), "the window is open");
    let mut group = criterion.benchmark_group("acp, frames");
    group.throughput(Throughput::Elements(WINDOW.into()));
    group.bench_function("sender and receiver", |bencher| bencher.iter(&mut round));
}

fn session() -> Session {
    let rate = "5 Mbit/s".parse().expect("the rate is valid");
    Session::new(SessionConfig::wan(rate)).expect("the configuration is valid")
}

/// Returns a receiver that does not end because of silence.
fn receiver() -> Receiver {
    let forever = Some(Duration::from_secs(1_000_000_000));
    let config = ReceiverConfig {
        silence_timeout: forever,
        slot_timeout: forever,
        ..ReceiverConfig::default()
    };
    Receiver::new(Arc::new(session()), Arc::new(config), 0, Time::ZERO)
        .expect("the configuration is valid")
}

/// Calls the receiver's timer until `now`. Keeps `joined` up to date, and ignores other actions.
fn advance(receiver: &mut Receiver, now: Time, joined: &mut BTreeSet<u16>) {
    while let Some(due) = receiver.poll_timeout().filter(|due| *due <= now) {
        receiver.handle_timeout(due);
        drain(receiver, due, joined);
    }
}

fn drain(receiver: &mut Receiver, now: Time, joined: &mut BTreeSet<u16>) {
    while let Some(action) = receiver.poll_action(now) {
        match action {
            Action::Join(Channel { number, .. }) => joined.insert(number),
            Action::Leave(Channel { number, .. }) => joined.remove(&number),
            Action::Send(_) => false,
        };
    }
    while receiver.poll_event().is_some() {}
}

/// Returns the packets that a receiver gets over 100 s without loss at 100 ms from the sender, and
/// the receiver.
fn session_of_100_s() -> (Vec<(Time, Packet<Cci>)>, Receiver) {
    let config = LinkConfig {
        delay: Duration::from_millis(100),
        ..LinkConfig::default()
    };
    let (mut link, mut receiver) = (Link::<Packet<_>>::new(config, 1), receiver());
    let mut sender = Sender::new(session(), 0, Time::ZERO);
    let (mut joined, mut arrivals) = (BTreeSet::new(), Vec::new());
    let mut now = Time::ZERO;
    while now < Time::from_secs_f64(100.0) {
        let timers = [
            sender.poll_timeout(),
            receiver.poll_timeout(),
            link.next_time(),
        ];
        now = timers.into_iter().flatten().min().expect("a sender sends");
        sender.handle_timeout(now);
        while let Some(Action::Send(packet)) = sender.poll_action(now) {
            if matches!(packet.destination, Destination::Channel(to) if joined.contains(&to.number))
            {
                let bytes = packet.wire_bytes();
                let _ = link.push(now, packet, bytes);
            }
        }
        advance(&mut receiver, now, &mut joined);
        while let Some(packet) = link.pop_ready(now) {
            arrivals.push((now, packet.clone()));
            receiver.handle_packet(now, &packet);
            drain(&mut receiver, now, &mut joined);
        }
    }
    (arrivals, receiver)
}

fn webrc(criterion: &mut Criterion) {
    let (arrivals, mut seasoned) = session_of_100_s();
    let mut joined = BTreeSet::new();
    let mut group = criterion.benchmark_group("webrc");

    group.throughput(Throughput::Elements(arrivals.len() as u64));
    group.bench_function("receiver, packets (epochs included)", |bencher| {
        let replay = |mut receiver: Receiver| {
            for (time, packet) in &arrivals {
                advance(&mut receiver, *time, &mut joined);
                receiver.handle_packet(*time, packet);
                drain(&mut receiver, *time, &mut joined);
            }
            receiver
        };
        bencher.iter_batched(receiver, replay, BatchSize::SmallInput);
    });

    group.throughput(Throughput::Elements(1));
    let mut now = arrivals.last().expect("packets arrive").0;
    group.bench_function("receiver, epochs without packets", |bencher| {
        bencher.iter(|| {
            // EL is a twentieth of the time slot.
            now += Duration::from_millis(500);
            advance(&mut seasoned, now, &mut joined);
        });
    });

    let mut sender = Sender::new(session(), 0, Time::ZERO);
    let mut now = Time::ZERO;
    group.bench_function("sender, packets", |bencher| {
        bencher.iter(|| {
            loop {
                if let Some(action) = sender.poll_action(now) {
                    break action;
                }
                now = sender.poll_timeout().expect("a sender has no end");
                sender.handle_timeout(now);
            }
        });
    });
}

/// Returns the answer that grants all of the change that a header asks for.
fn granted(asked: Congestion) -> Feedback {
    Feedback {
        change: asked.feedback,
        ..Feedback::default()
    }
}

/// Measures frames from the peer to four members and their acknowledgements: routed, renumbered and
/// transformed, in rounds of whole windows.
fn switch(criterion: &mut Criterion) {
    const WINDOW: u32 = 256;
    let mut switch: Switch<Length, _> =
        Switch::new(SwitchConfig::default(), RoundRobin::default(), 4)
            .expect("the configuration is valid");
    let segment = |body| anypoint::Segment {
        connection: 1,
        body,
    };
    let credit = anypoint::UNLIMITED;
    let now = Time::ZERO;
    switch.handle_segment(now, Leg::Peer, &segment(Body::Open { credit }), Length(0));
    for member in 0..4 {
        let leg = Leg::Member(MemberId(member));
        switch.handle_segment(now, leg, &segment(Body::Accept { credit }), Length(0));
    }
    while switch.poll_transmit().is_some() {}
    // Headers are encoded and decoded.
    let in_bytes = |segment: &anypoint::Segment| {
        let decoded = anypoint::Segment::decode(black_box(segment.encode()).as_bytes());
        decoded.expect("the segment decodes").0
    };
    let mut next = 0;
    let mut sent = Vec::with_capacity(WINDOW as usize);
    let mut round = || {
        for sequence in next..next + WINDOW {
            let congestion = Congestion {
                cwnd: 256 * 1080,
                rtt_us: 10_000,
                feedback: WindowChange(1000),
                answered: false,
            };
            let data = segment(Body::Data(Data {
                sequence,
                key: sequence,
                congestion,
            }));
            switch.handle_segment(now, Leg::Peer, &in_bytes(&data), Length(1024));
            sent.extend(switch.poll_transmit());
        }
        next += WINDOW;
        let mut answers = 0;
        for (leg, segment, _) in sent.drain(..) {
            let segment = in_bytes(&segment);
            let Body::Data(data) = segment.body else {
                continue;
            };
            let body = Body::Ack(Ack {
                cumulative: data.sequence + 1,
                of: data.sequence,
                credit,
                feedback: granted(data.congestion),
                missing: anypoint::NO_GAPS,
            });
            let ack = anypoint::Segment { body, ..segment };
            switch.handle_segment(now, leg, &in_bytes(&ack), Length(0));
            let answer = switch
                .poll_transmit()
                .map(|(_, answer, _)| in_bytes(&answer));
            answers += u32::from(answer.is_some());
        }
        assert_eq!(answers, WINDOW);
    };
    let mut group = criterion.benchmark_group("switch, frames");
    group.throughput(Throughput::Elements(WINDOW.into()));
    group.bench_function("inbound to four members, and acknowledged", |bencher| {
        bencher.iter(&mut round)
    });
}

/// Measures a message from its client over three daemons to a member: routed twice, sent over two
/// links, and delivered.
fn overlay(criterion: &mut Criterion) {
    let mut group =
        criterion.benchmark_group("overlay, messages over three daemons in the simulator");
    group.throughput(Throughput::Elements(1));
    for (name, links) in [
        ("streams", LinkKind::Streams(TcpConfig::default())),
        ("datagrams", LinkKind::Datagrams),
    ] {
        let mut line = Line::new(&links);
        group.bench_function(name, |bencher| bencher.iter(|| line.message()));
    }
}

fn wire(criterion: &mut Criterion) {
    let segment = Segment {
        acknowledgement: 7,
        sack: [(9, 12), (15, 16), (20, 30)],
        ..Segment::default()
    };
    let encoded = segment.encode(1, 2, 1000);
    let cci = Cci {
        ctsi: 5,
        channel: 30,
        psn: 70_000,
        format: CciFormat::Long,
    };
    let (field, length) = cci.encode();
    let mut group = criterion.benchmark_group("wire, headers");
    group.throughput(Throughput::Elements(1));
    group.bench_function("tcp encode", |bencher| {
        bencher.iter(|| black_box(&segment).encode(1, 2, 1000));
    });
    group.bench_function("tcp decode", |bencher| {
        bencher.iter(|| Segment::decode(black_box(encoded.as_bytes()), 1000));
    });
    group.bench_function("cci encode", |bencher| {
        bencher.iter(|| black_box(&cci).encode());
    });
    group.bench_function("cci decode", |bencher| {
        bencher.iter(|| Cci::decode(black_box(&field[..length])));
    });
}
