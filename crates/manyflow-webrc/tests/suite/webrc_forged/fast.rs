//! Gaps in a session whose channels send hundreds of packets in the time by which a packet may be
//! ahead.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// A fast session with one receiver of most of its packets.
fn fast() -> (Session, World) {
    let session = Session::new(SessionConfig::lan(rate("200 Mbit/s"))).expect("a valid session");
    let wire = delay(Duration::from_millis(1));
    let receiver = ReceiverConfig {
        maximum_rate: Some(rate("150 Mbit/s")),
        ..ReceiverConfig::live()
    };
    let world = world_with(&session, wire, receiver);
    (session, world)
}

/// The fastest channels of the session send some hundred packets in the 50 ms by which a packet may
/// be ahead.
#[test]
fn forged_gaps_of_a_fast_session_count_as_no_loss() {
    let received = |gap: Option<u64>| {
        let (session, mut world) = fast();
        if let Some(gap) = gap {
            forge_gaps(&world, &session, gap, false);
        }
        world.run_until(secs(14));
        assert_eq!(outcome(&world).lost, 0, "{gap:?}");
        outcome(&world).received
    };
    let alone = received(None);
    for gap in [63, 100, 200, 400, 2_000, 20_000] {
        let received = received(Some(gap));
        assert!(
            received.abs_diff(alone) <= 4,
            "{gap}: {received} of {alone}"
        );
    }
}

/// A host that pauses for 40 ms keeps the packets of the first 10 ms, and loses the others. It
/// loses no more than these.
#[test]
fn a_burst_of_losses_after_a_pause_is_not_prolonged() {
    let (_, mut world) = fast();
    let (pause, full, resumes) = (
        secs(8),
        Duration::from_millis(8_010),
        Duration::from_millis(8_040),
    );
    let (mut kept, dropped) = (Vec::new(), Arc::new(AtomicU64::new(0)));
    let count = dropped.clone();
    only(&world).on_packet(move |receiver, now, packet| {
        let at = now - Time::ZERO;
        if (pause..full).contains(&at) {
            kept.push(packet.clone());
        } else if (full..resumes).contains(&at) {
            count.fetch_add(1, Ordering::Relaxed);
        } else {
            for packet in kept.drain(..) {
                receiver.handle_packet(now, &packet);
            }
            receiver.handle_packet(now, packet);
        }
    });
    world.run_until(secs(9));
    let dropped = dropped.load(Ordering::Relaxed);
    assert!(dropped > 300, "{dropped}");
    assert_eq!(refused(&world), Refusals::default());
    let lost = outcome(&world).lost;
    assert!(lost <= dropped, "{lost} of {dropped}");
}
