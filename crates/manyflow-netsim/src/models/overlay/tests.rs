use super::*;
use manyflow_overlay::{CLIENT_WINDOW, ClientFrame, ClientId, DaemonId, Data, OriginSeq};

const DAEMON: EndpointId = EndpointId(7);
const GROUP: GroupId = GroupId(3);
const BYTES: u32 = 1000;

/// A client, with the frames and events that it has produced so far.
struct Run {
    client: ClientEndpoint,
    now: Time,
    sent: Vec<(f64, ClientFrame)>,
    events: Vec<(f64, Event)>,
}

fn ms(time: Time) -> f64 {
    time.as_secs_f64() * 1e3
}

fn at_ms(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

impl Run {
    fn new(application: Application, seed: u64) -> Run {
        Run {
            client: ClientEndpoint::new(application, DAEMON, seed).unwrap(),
            now: Time::ZERO,
            sent: Vec::new(),
            events: Vec::new(),
        }
    }

    fn drain(&mut self) {
        let now = ms(self.now);
        while let Some(action) = self.client.poll_action(self.now) {
            let Action::Send(packet) = action else {
                panic!("a client only sends");
            };
            assert_eq!(packet.destination, Destination::Endpoint(DAEMON));
            let Frame::Client(frame) = packet.header else {
                panic!("a client sends client frames only");
            };
            let is_message = matches!(frame, ClientFrame::Send { .. });
            let payload_bytes = if is_message { BYTES } else { 0 };
            assert_eq!(packet.payload_bytes(), payload_bytes);
            self.sent.push((now, frame));
        }
        while let Some(event) = self.client.poll_event() {
            self.events.push((now, event));
        }
    }

    /// Advances time to `end_ms` and handles everything that is due.
    fn until(&mut self, end_ms: u64) -> &mut Run {
        self.until_time(at_ms(end_ms))
    }

    fn until_time(&mut self, end: Time) -> &mut Run {
        for _ in 0..10_000 {
            let Some(due) = self.client.poll_timeout().filter(|due| *due <= end) else {
                self.now = end;
                return self;
            };
            self.now = self.now.max(due);
            self.client.handle_timeout(self.now);
            self.drain();
        }
        panic!("a timer is still due after handle_timeout");
    }

    fn receive(&mut self, frame: ClientFrame) -> &mut Run {
        let packet = Packet::new(
            Destination::Endpoint(EndpointId(8)),
            Frame::Client(frame),
            if frame.has_payload() { BYTES } else { 0 },
        )
        .with_source(DAEMON);
        self.client.handle_packet(self.now, &packet);
        self.drain();
        self
    }

    /// Delivers a message of daemon 1 that was ready at `sent_us`.
    fn deliver(&mut self, sequence: u32, sent_us: u32) -> &mut Run {
        self.receive(ClientFrame::Deliver {
            origin: DaemonId(1),
            data: Data {
                group: GROUP,
                version: 0,
                sequence: OriginSeq::new(sequence.into()),
                sender: ClientId(0),
                sent_us,
            },
            layered: false,
        })
    }

    /// Returns the times at which the client's messages were ready, in milliseconds.
    fn ready_ms(&self) -> Vec<f64> {
        let ready = |sent_frame: &(f64, ClientFrame)| match sent_frame.1 {
            ClientFrame::Send { sent_us, .. } => Some(f64::from(sent_us) / 1e3),
            _ => None,
        };
        self.sent.iter().filter_map(ready).collect()
    }

    fn took(&self) -> Vec<u32> {
        let took = |sent_frame: &(f64, ClientFrame)| match sent_frame.1 {
            ClientFrame::Took { messages } => Some(messages),
            _ => None,
        };
        self.sent.iter().filter_map(took).collect()
    }

    /// Returns when messages were read, and their ages, both in milliseconds.
    fn read(&self) -> Vec<(f64, f64)> {
        let read = |event: &(f64, Event)| match event.1 {
            Event::Latency { seconds } => Some((event.0, seconds * 1e3)),
            _ => None,
        };
        self.events.iter().filter_map(read).collect()
    }
}

/// Returns a member that works for `service_ms` on each message.
fn member(service_ms: u64) -> Application {
    Application {
        joins: Some(GROUP),
        service: Duration::from_millis(service_ms),
        ..Application::default()
    }
}

/// Returns a sender of a message every `interval_ms`, or of messages as fast as possible.
fn sender(interval_ms: Option<u64>) -> Application {
    let rate = |ms| Rate::from_bits_per_s(u64::from(BYTES) * 8 * 1000 / ms);
    Application {
        sends: Some(Source {
            group: GROUP,
            message_bytes: BYTES,
            rate: interval_ms.map(rate),
            messages: None,
            layers: Vec::new(),
        }),
        ..Application::default()
    }
}

#[test]
fn a_client_connects_and_joins_at_its_start() {
    let application = Application {
        priority: 250,
        start: at_ms(20),
        ..member(0)
    };
    let mut run = Run::new(application, 1);
    run.receive(ClientFrame::Ready).until(100);
    let connect = ClientFrame::Connect { priority: 250 };
    let expected = [(20.0, connect), (20.0, ClientFrame::Join(GROUP))];
    assert_eq!(run.sent, expected);
    assert_eq!(run.events, []);
}

#[test]
fn a_paced_client_sends_at_its_rate_with_a_phase_from_its_seed() {
    let first = |seed| {
        let mut run = Run::new(sender(Some(10)), seed);
        for _ in 0..50 {
            let next = ms(run.now) as u64 + 10;
            run.until(next).receive(ClientFrame::Ready);
        }
        let ready = run.ready_ms();
        assert_eq!(ready.len(), 50);
        assert!((0.0..10.0).contains(&ready[0]), "{ready:?}");
        let gaps = ready.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.for_each(|gap| assert!((gap - 10.0).abs() < 1e-6, "{gap}"));
        ready[0]
    };
    assert_eq!(first(1), first(1));
    assert_ne!(first(1), first(2));
}

#[test]
fn ready_messages_wait_and_age_until_the_daemon_is_ready() {
    let mut run = Run::new(sender(Some(10)), 1);
    run.until(95);
    let first = run.ready_ms()[0];
    assert_eq!(run.ready_ms().len(), 1);
    for _ in 0..20 {
        run.receive(ClientFrame::Ready);
        let next = run.now + MAKING;
        run.until_time(next);
    }
    let expected: Vec<f64> = (0..10)
        .map(|index| first + 10.0 * f64::from(index))
        .filter(|ready| *ready < 95.0)
        .collect();
    let ready = run.ready_ms();
    assert_eq!(ready.len(), expected.len());
    let pairs = ready.iter().zip(&expected);
    pairs.for_each(|(ready, expected)| assert!((ready - expected).abs() < 1e-3));
    let is_sent = |event: &(f64, Event)| event.1 == Event::Sent { bytes: BYTES };
    assert!(run.events.iter().all(is_sent));
    assert_eq!(run.events.len(), expected.len());
}

#[test]
fn a_greedy_client_sends_whenever_the_daemon_is_ready() {
    let mut application = sender(None);
    application.sends.as_mut().unwrap().messages = Some(3);
    let mut run = Run::new(application, 1);
    for time in [0, 10, 25, 60, 61] {
        run.until(time).receive(ClientFrame::Ready);
    }
    assert_eq!(run.ready_ms(), [0.0, 0.01, 10.01]);
    // Messages that the daemon accepted count, even after the last one was sent.
    let sent = |at| (at, Event::Sent { bytes: BYTES });
    assert_eq!(run.events, [sent(0.0), sent(10.0), sent(25.0)]);
}

#[test]
fn a_quick_reader_reads_each_message_at_once() {
    let mut run = Run::new(member(0), 1);
    run.until(50).deliver(1, 20_000).deliver(4, 49_000);
    assert_eq!(run.read(), [(50.0, 30.0), (50.0, 1.0)]);
    assert_eq!(run.took(), [1, 1]);
    let delivered = |event: &&(f64, Event)| event.1 == Event::Delivered { bytes: BYTES };
    assert_eq!(run.events.iter().filter(delivered).count(), 2);
}

#[test]
fn a_slow_reader_works_on_one_message_at_a_time() {
    let mut run = Run::new(member(10), 1);
    run.until(50).deliver(1, 50_000).deliver(2, 50_000);
    run.until(65).deliver(3, 65_000).until(100);
    assert_eq!(run.read(), [(60.0, 10.0), (70.0, 20.0), (80.0, 15.0)]);
    // After an idle time, the client starts with the next message, not at a time in the past.
    run.deliver(4, 100_000).until(200);
    assert_eq!(run.read()[3], (110.0, 10.0));
    assert_eq!(run.took(), [3, 1]);
}

#[test]
fn a_slow_reader_reports_half_a_window_at_a_time() {
    let mut run = Run::new(member(10), 1);
    run.until(0);
    for sequence in 1..=CLIENT_WINDOW {
        run.deliver(sequence, 0);
    }
    run.until(10 * u64::from(CLIENT_WINDOW / 2) - 1);
    assert_eq!(run.took(), Vec::<u32>::new());
    run.until(10 * u64::from(CLIENT_WINDOW));
    assert_eq!(run.took(), [CLIENT_WINDOW / 2; 2]);
}

#[test]
fn latency_is_right_when_the_microseconds_wrap() {
    let mut run = Run::new(member(0), 1);
    run.until(4_294_968).deliver(1, u32::MAX - 295);
    // 2^32 microseconds are 4,294,967.296 milliseconds.
    assert_eq!(run.read(), [(4_294_968.0, 1.0)]);
}

#[test]
fn a_stopping_client_leaves_reads_its_messages_and_disconnects() {
    let stopping = Application {
        stop: Some(at_ms(55)),
        sends: sender(Some(10)).sends,
        ..member(10)
    };
    let mut run = Run::new(stopping, 1);
    run.until(50).deliver(1, 50_000).deliver(2, 50_000);
    run.until(54).sent.clear();
    run.until(57).receive(ClientFrame::Ready).until(200);
    let took = ClientFrame::Took { messages: 2 };
    let expected = [
        (55.0, ClientFrame::Leave(GROUP)),
        (70.0, took),
        (70.0, ClientFrame::Disconnect),
    ];
    assert_eq!(run.sent, expected);
    assert_eq!(run.read(), [(60.0, 10.0), (70.0, 20.0)]);
    run.receive(ClientFrame::View {
        group: GROUP,
        members: 1,
    });
    assert!(!run.events.iter().any(|e| matches!(e.1, Event::View { .. })));
}

#[test]
fn a_crashed_client_does_not_read_its_messages() {
    let crashing = Application {
        stop: Some(at_ms(65)),
        crash: true,
        ..member(10)
    };
    let mut run = Run::new(crashing, 1);
    run.until(50).deliver(1, 50_000).deliver(2, 50_000);
    run.until(200).deliver(3, 50_000);
    assert_eq!(run.sent.last(), Some(&(65.0, ClientFrame::Disconnect)));
    assert!(!run.sent.contains(&(65.0, ClientFrame::Leave(GROUP))));
    assert_eq!(run.read(), [(60.0, 10.0)]);
}

#[test]
fn an_evicted_member_does_not_leave_again() {
    let evicted = Application {
        stop: Some(at_ms(100)),
        ..member(0)
    };
    let mut run = Run::new(evicted, 1);
    run.until(50)
        .receive(ClientFrame::Evicted(GroupId(9)))
        .receive(ClientFrame::Evicted(GROUP));
    run.until(200);
    assert_eq!(run.sent[2..], [(100.0, ClientFrame::Disconnect)]);
}

#[test]
fn a_view_is_reported() {
    let mut run = Run::new(member(0), 1);
    let (group, members) = (GROUP, 12);
    run.until(5).receive(ClientFrame::View { group, members });
    assert_eq!(run.events, [(5.0, Event::View { group, members })]);
}

#[test]
fn parameters_outside_their_ranges_are_refused_by_name() {
    let source = |message_bytes, bits| Application {
        sends: Some(Source {
            group: GROUP,
            message_bytes,
            rate: Some(Rate::from_bits_per_s(bits)),
            messages: None,
            layers: Vec::new(),
        }),
        ..Application::default()
    };
    let priority = Application {
        priority: 0,
        ..Application::default()
    };
    let stop = Application {
        start: at_ms(5),
        stop: Some(at_ms(5)),
        ..Application::default()
    };
    let cases = [
        (priority, "priority"),
        (stop, "stop"),
        (source(0, 1), "messages"),
        (source(PAYLOAD_BYTES_MAX + 1, 1), "messages"),
        (source(1, 0), "rate"),
    ];
    for (application, name) in cases {
        let error = ClientEndpoint::new(application, DAEMON, 1).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
    assert!(ClientEndpoint::new(source(PAYLOAD_BYTES_MAX, 1), DAEMON, 1).is_ok());
}
