//! Tests of a sender whose groups have rounds of their own.

use manyflow_core::{Action, Endpoint as _};
use manyflow_layered::sim::{Sender, SenderConfig};
use manyflow_layered::{Event, Message, Offer as _};

use super::{RTT, SESSION, at, packet as feedback_packet, report};

#[test]
fn a_group_with_rounds_of_its_own_asks_even_if_nothing_waits_in_it() {
    let config = SenderConfig {
        groups: 3,
        group_rounds: true,
        ..SenderConfig::default()
    };
    let mut sender = Sender::new(config, SESSION, at(0), None).expect("valid in this test");
    let mut requests: [Vec<u16>; 3] = Default::default();
    let mut now = at(0);
    while now < at(3000) {
        (0..3).for_each(|group| sender.offer(group, 0));
        sender.handle_timeout(now);
        while let Some(Action::Send(packet)) = sender.poll_action(now) {
            let Message::Data(data) = packet.header else {
                panic!("a sender sends data");
            };
            assert!(data.is_for_group && packet.payload_bytes() == 0);
            requests[usize::from(data.group)].push(data.request);
        }
        now = sender.poll_timeout().expect("it has no end");
    }
    println!("{requests:?}");
    requests[0].dedup();
    for of_group in requests {
        // A round lasts two initial round-trip times, and up to the next packet of 80 ms.
        assert!(of_group.len() >= 3000 / 280 - 1);
        let numbers: Vec<u16> = (1..).take(of_group.len()).collect();
        assert_eq!(of_group, numbers, "each request once");
    }
}

/// The lowest group grows past the next one, which has no receivers and moves with it.
#[test]
fn a_group_that_another_one_moves_tells_its_rate_at_once() {
    let config = SenderConfig {
        groups: 3,
        group_rounds: true,
        initial_rtt: RTT,
        ..SenderConfig::default()
    };
    let mut sender = Sender::new(config, SESSION, at(0), None).expect("valid in this test");
    let mut told = [0, 1, 2].map(|group| sender.rate(group).bits_per_s());
    let (mut now, mut asked, mut rises) = (at(0), 0, 0);
    while now < at(5000) {
        sender.handle_timeout(now);
        while let Some(Action::Send(packet)) = sender.poll_action(now) {
            let Message::Data(data) = packet.header else {
                panic!("a sender sends data");
            };
            if data.group == 0 && data.request != asked {
                asked = data.request;
                let answer = report(3, 0, asked, false, data.rate);
                sender.handle_packet(now, &feedback_packet(answer));
            }
        }
        while let Some(event) = sender.poll_event() {
            let Event::GroupRate { group, rate, .. } = event else {
                panic!("a sender has no other events");
            };
            told[usize::from(group)] = rate.bits_per_s();
            rises += u32::from(group == 0);
        }
        assert!(told.is_sorted(), "cumulative rates: {told:?}");
        now = sender.poll_timeout().expect("it has no end");
    }
    assert!(rises > 10, "{rises}");
}
