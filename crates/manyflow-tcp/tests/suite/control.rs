//! A congestion control of the caller, over a pair of links in simulated time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use manyflow_core::link::{Link, LinkConfig};
use manyflow_core::{Action, Endpoint, EndpointId, Packet, Time};
use manyflow_tcp::{Control, Moment, Receiver, Segment, Sender, TcpConfig};

fn delay(ms: u64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(ms),
        ..LinkConfig::default()
    }
}

/// Sends at a fixed rate, and counts its calls.
#[derive(Debug, Default)]
struct Steady {
    calls: Arc<Mutex<[u32; 3]>>,
    rate: Option<f64>,
}

impl Steady {
    fn count(&self, call: usize) {
        self.calls.lock().unwrap()[call] += 1;
    }
}

impl Control for Steady {
    fn on_ack(&mut self, moment: &Moment) {
        assert!(moment.acknowledged > 0 && moment.in_flight <= 8);
        self.count(0);
    }

    fn on_loss(&mut self, moment: &Moment) {
        assert_eq!((moment.acknowledged, moment.is_mark), (0, false));
        self.count(1);
    }

    fn on_timeout(&mut self, _moment: &Moment) {
        self.count(2);
    }

    fn window_segments(&self) -> f64 {
        8.0
    }

    fn rate_bits_per_s(&self) -> Option<f64> {
        self.rate
    }
}

/// Lets a control send 100 segments, of which those in `lost` are lost once.
fn controlled(control: Steady, lost: &[u32]) -> (Vec<Time>, [u32; 3]) {
    let calls = Arc::clone(&control.calls);
    let config = TcpConfig {
        transfer: Some(100),
        ..TcpConfig::default()
    };
    let (peer, way) = (EndpointId(1), Duration::from_millis(50));
    let mut sender = Sender::with_control(config.clone(), Box::new(control), peer, 1).unwrap();
    let mut receiver = Receiver::new(config, EndpointId(0)).unwrap();
    let mut link: Link<Packet<Segment>> = Link::new(delay(50), 1);
    let mut back: Link<Packet<Segment>> = Link::new(delay(50), 2);
    let (mut times, mut lost) = (Vec::new(), lost.to_vec());
    let next = |sender: &Sender, link: &Link<_>, back: &Link<_>| {
        let times = [sender.poll_timeout(), link.next_time(), back.next_time()];
        times.into_iter().flatten().min()
    };
    while !sender.is_finished() {
        let now = next(&sender, &link, &back).unwrap();
        assert!(now < Time::ZERO + 1000 * way, "the transfer stands still");
        sender.handle_timeout(now);
        while let Some(ack) = back.pop_ready(now) {
            sender.handle_packet(now, &ack);
        }
        while let Some(Action::Send(packet)) = sender.poll_action(now) {
            times.push(now);
            match lost
                .iter()
                .position(|number| *number == packet.header.sequence)
            {
                Some(place) => drop(lost.swap_remove(place)),
                None => drop(link.push(now, packet, 1040)),
            }
        }
        while let Some(packet) = link.pop_ready(now) {
            receiver.handle_packet(now, &packet);
            while let Some(Action::Send(ack)) = receiver.poll_action(now) {
                let _ = back.push(now, ack, 40);
            }
        }
    }
    let calls = *calls.lock().unwrap();
    (times, calls)
}

#[test]
fn a_control_of_the_caller_hears_of_acknowledgements_losses_and_timeouts() {
    let (times, calls) = controlled(Steady::default(), &[20, 22]);
    assert_eq!(times.len(), 102);
    assert!(calls[0] > 90 && calls[1] == 1 && calls[2] == 0, "{calls:?}");
    let whole_window: Vec<u32> = (40..48).collect();
    let (_, calls) = controlled(Steady::default(), &whole_window);
    assert!(calls[2] >= 1, "{calls:?}");
}

#[test]
fn a_control_of_the_caller_spaces_segments() {
    let paced = Steady {
        rate: Some(416_000.0),
        ..Steady::default()
    };
    // A segment has 8,320 bits with its headers: 20 ms at this rate.
    let (times, _) = controlled(paced, &[]);
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    assert_eq!(gaps.min(), Some(Duration::from_millis(20)));
}
