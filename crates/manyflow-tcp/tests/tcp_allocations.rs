//! A sender with any control allocates no memory for each segment or acknowledgement, once its
//! buffers have reached their capacity.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use core::time::Duration;
use std::collections::VecDeque;

use manyflow_core::{Action, Ecn, Endpoint, EndpointId, Packet, Time};
use manyflow_tcp::{Receiver, Segment, Sender, TcpConfig, Variant};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// A connection over a path of 20 ms that delivers a segment per millisecond, marks every 50th, and
/// loses every 500th.
struct Connection {
    sender: Sender,
    receiver: Receiver,
    /// The segments in the network, and the acknowledgements, with their arrivals.
    data: VecDeque<(Time, Packet<Segment>)>,
    acks: VecDeque<(Time, Packet<Segment>)>,
    link_free: Time,
    sent: u64,
}

/// Returns the next packet that has arrived.
fn pop_due(queue: &mut VecDeque<(Time, Packet<Segment>)>, now: Time) -> Option<Packet<Segment>> {
    let is_due = queue.front().is_some_and(|(arrival, _)| *arrival <= now);
    is_due.then(|| queue.pop_front())?.map(|(_, packet)| packet)
}

impl Connection {
    fn new(variant: Variant) -> Connection {
        let config = TcpConfig {
            maximum_window: 100,
            ..TcpConfig::of(variant)
        };
        Connection {
            sender: Sender::new(config.clone(), EndpointId(1), 1).unwrap(),
            receiver: Receiver::new(config, EndpointId(0)).unwrap(),
            data: VecDeque::with_capacity(1000),
            acks: VecDeque::with_capacity(1000),
            link_free: Time::ZERO,
            sent: 0,
        }
    }

    /// Handles everything that happens at the next instant. Returns its time.
    fn step(&mut self) -> Time {
        let arrivals = [&self.data, &self.acks].map(|queue| queue.front().map(|one| one.0));
        let next = [self.sender.poll_timeout(), arrivals[0], arrivals[1]];
        let now = next.into_iter().flatten().min().unwrap();
        while let Some(packet) = pop_due(&mut self.data, now) {
            self.receiver.handle_packet(now, &packet);
            while let Some(Action::Send(ack)) = self.receiver.poll_action(now) {
                self.acks.push_back((now + Duration::from_millis(10), ack));
            }
        }
        while let Some(ack) = pop_due(&mut self.acks, now) {
            self.sender.handle_packet(now, &ack);
        }
        self.sender.handle_timeout(now);
        while let Some(Action::Send(mut packet)) = self.sender.poll_action(now) {
            self.sent += 1;
            if self.sent.is_multiple_of(50) && packet.ecn != Ecn::NotCapable {
                packet.ecn = Ecn::Marked;
            }
            self.link_free = self.link_free.max(now) + Duration::from_millis(1);
            if !self.sent.is_multiple_of(500) {
                let arrival = self.link_free + Duration::from_millis(10);
                self.data.push_back((arrival, packet));
            }
        }
        while self.sender.poll_event().is_some() {}
        now
    }

    fn run_until(&mut self, end: Duration) {
        while self.step() < Time::ZERO + end {}
    }
}

#[test]
fn segments_and_acknowledgements_allocate_nothing() {
    for variant in [
        Variant::Sack,
        Variant::Cubic,
        Variant::Bbr,
        Variant::Bbr3,
        Variant::Dctcp,
        Variant::Prague,
    ] {
        let mut connection = Connection::new(variant);
        connection.run_until(Duration::from_secs(30));
        let (before, sent) = (ALLOCATOR.current_usage(), connection.sent);
        assert!(before > 0, "no memory is counted");
        ALLOCATOR.reset_peak_usage();
        connection.run_until(Duration::from_secs(60));
        let (peak, segments) = (ALLOCATOR.peak_usage(), connection.sent - sent);
        println!("{variant:?}: {segments} segments");
        assert!(segments > 5_000, "{variant:?}: {segments}");
        assert_eq!(peak, before, "{variant:?}");
    }
}
