//! Any connection over any path.

use crate::tcp::{CONTROLS, VARIANTS, of, secs};
use crate::tcp_world::{World, delay};

use std::time::Duration;

use manyflow_core::link::{LinkConfig, LossModel};
use manyflow_core::{Ecn, Endpoint};
use manyflow_tcp::{Event, LossDetection, Recovery, SlowStart, TcpConfig};
use proptest::prelude::*;

fn any_path() -> impl Strategy<Value = LinkConfig> {
    (0.0..0.3, 0.0..0.3, 0..100u64, 1..50u64).prop_map(
        |(loss, duplication, jitter_ms, delay_ms)| LinkConfig {
            loss: LossModel::Bernoulli(loss),
            duplication,
            jitter: Duration::from_millis(jitter_ms),
            ..delay(delay_ms)
        },
    )
}

const STARTS: [SlowStart; 3] = [
    SlowStart::Standard,
    SlowStart::HyStart,
    SlowStart::HyStartPlusPlus,
];

/// Any variant, with any way to start, to detect losses and to repair them that it can have.
fn any_variant() -> impl Strategy<Value = TcpConfig> {
    let variant = prop::sample::select([&VARIANTS[..], &CONTROLS].concat());
    let start = prop::sample::select(&STARTS[..]);
    let parts = (start, any::<bool>(), any::<bool>());
    (variant, parts).prop_map(|(variant, (slow_start, has_rack, has_prr))| {
        let has_sack = variant.uses_sack();
        TcpConfig {
            slow_start,
            loss_detection: match has_rack && has_sack {
                true => LossDetection::RackTlp,
                false => LossDetection::Duplicates,
            },
            recovery: match has_prr && has_sack {
                true => Recovery::Prr,
                false => Recovery::Window,
            },
            ..of(variant)
        }
    })
}

fn any_connection() -> impl Strategy<Value = TcpConfig> {
    let flags = (any::<bool>(), any::<bool>());
    (any_variant(), 1..300u32, 1..60u32, flags, 0..5u64).prop_map(
        |(tcp, transfer, maximum_window, (delayed_acks, ecn), jitter_ms)| TcpConfig {
            transfer: Some(transfer),
            initial_window: maximum_window.min(2),
            maximum_window,
            delayed_acks,
            ecn,
            send_jitter: Duration::from_millis(jitter_ms),
            ..tcp
        },
    )
}

proptest! {
    /// The world checks at each arrival that segments are delivered in order, and each segment
    /// once.
    #[test]
    fn whatever_a_path_does_the_transfer_is_delivered_once_and_in_order(
        tcp in any_connection(), there in any_path(), back in any_path(), seed in 0..1000u64,
        fates in prop::collection::vec(0..4u8, 0..200),
    ) {
        let transfer = tcp.transfer.unwrap();
        let ecn = tcp.ecn || tcp.variant.counts_marks();
        let mut world = World::new(tcp, there, back, seed);
        let mut fates = fates.into_iter();
        world.sender.filter_packets(move |_, packet| {
            let fate = fates.next().unwrap_or(0);
            if fate == 1 && packet.ecn != Ecn::NotCapable {
                packet.ecn = Ecn::Marked;
            }
            fate != 2
        });
        world.run_until(secs(100_000));
        prop_assert!(world.sender.get().is_finished());
        let is_closed = |event: &Event| match event {
            Event::CongestionWindow { packets } => *packets < 1.0,
            _ => false,
        };
        prop_assert!(!world.sender.events().iter().any(|(_, event)| is_closed(event)));
        prop_assert_eq!(world.receiver.get().delivered_segments(), transfer);
        prop_assert_eq!(world.sender.get().acknowledged_segments(), transfer);
        prop_assert!(ecn || world.sender.get().counters().marks_heeded == 0);
        prop_assert_eq!(world.sender.get().poll_timeout(), None);
    }
}
