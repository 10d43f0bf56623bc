//! The parameters of live streams: one place for senders, receivers and relays.
//!
//! The defaults of [`sim`], [`rlm`] and [`hop`](manyflow_layered::hop) are those of the papers'
//! simulations. The functions here change a few of them for paths of 0.3 to 10 Mbit/s. These values
//! were chosen after the defaults had missed the bounds of `manyflow-rig bench stream`.

use std::time::Duration;

use manyflow_core::link::RedConfig;
use manyflow_core::units::Rate;
use manyflow_layered::hop::HopConfig;
use manyflow_layered::{rlm, sim};

/// The length of a packet in bytes, headers included. In an AMT tunnel it has 30 bytes more, which
/// leaves room for further headers below the MTU of Ethernet.
pub const LIVE_PACKET_BYTES: u32 = 1400;

/// The bytes that AMT, UDP and IPv4 add to a packet on the way to a child.
const TUNNEL_BYTES: u32 = 30;

/// The cumulative rates of [`live_rlm_sender_config`], in kbit/s.
const RLM_CUMULATIVE_KBIT: [u64; 5] = [250, 750, 2_000, 5_000, 9_000];

/// Returns the parameters of a live sender of SIM whose receivers are behind relays.
///
/// - **Increase**: three packets per round-trip time instead of one. With one, the rate of a group
///   takes half a minute to get from 4 to 10 Mbit/s, because the slowest receiver makes the round
///   long. The maximum step, a sixteenth of the rate, limits slow groups. Fairness to TCP is the
///   task of hops.
/// - **Decrease**: to 0.96 of the rate instead of 15/16. Headers take 7 % of a link, and a deeper
///   decrease leaves less than 85 % of it to units.
/// - **Start**: a rate grows by a factor of 1.15 in each round instead of 1.25, so that the lowest
///   group exceeds the slowest receiver by less when it is congested for the first time.
/// - **First start**: until any group of the session is congested, rates grow by 1.6 in each
///   round. A stream of 2 Mbit/s is then whole after 1.2 s on an empty path; with 1.15 it took 3 s.
///   The price is up to 4 units that a receiver behind 0.3 Mbit/s misses in its first seconds
///   (`stream_shares` of the tests). The factor was chosen after 1.15 had missed the bound.
/// - **Rounds of each group**: a group with receivers behind fast links is adjusted, and its
///   receivers choose their groups, in round-trip times of these links. With the rounds of the
///   session, the slowest link, whose round-trip time is some seconds beside TCP, sets the pace of
///   all.
/// - **Smallest factor of a decrease**: a half, as TCP's, instead of a quarter. Beside TCP, the
///   rate of a hop falls and comes back faster than that of a group.
/// - **Growth of the longest round-trip time**: at most a factor of 2 in a round, so that the late
///   report of a receiver that was stopped does not make the rounds of all long.
pub fn live_sender_config() -> sim::SenderConfig {
    sim::SenderConfig {
        packet_bytes: LIVE_PACKET_BYTES,
        increase: 3.0,
        decrease: 0.96,
        start_factor: 1.15,
        first_factor: 1.6,
        rtt_growth_max: 2.0,
        group_rounds: true,
        decrease_min: 0.5,
        ..sim::SenderConfig::default()
    }
}

/// Returns the parameters of a live sender of SIM over IP multicast.
///
/// No hop keeps these streams fair to TCP. So the sender does, with TCP's increase of one packet
/// per round-trip time, and the decrease that follows from it. `docs/beside-tcp.md` compares them
/// with [`live_sender_config`].
pub fn live_multicast_sender_config() -> sim::SenderConfig {
    sim::SenderConfig {
        tcp_fair: true,
        group_rounds: false,
        decrease_min: 0.25,
        increase: 1.0,
        ..live_sender_config()
    }
}

/// Returns the parameters of a live receiver of SIM behind a relay.
///
/// - **Losses**: a group in which more than a 25th is lost is left after three rounds. Paths lose
///   packets where routers would have marked them. A packet that the relay repairs is not lost.
/// - **Selection interval**: 15 round-trip times instead of 20, which joins the groups of a fast
///   receiver sooner.
pub fn live_receiver_config() -> sim::ReceiverConfig {
    sim::ReceiverConfig {
        selection_rtts: 15,
        loss_max: 0.04,
        repaired: true,
        ..sim::ReceiverConfig::default()
    }
}

/// Returns the parameters of a live receiver of SIM by IP multicast.
///
/// It counts as not congested with marks in up to 35 % of the rounds, because beside TCP most
/// selection intervals have some. In simulations, 25 and 50 % give similar rates.
pub fn live_multicast_receiver_config() -> sim::ReceiverConfig {
    sim::ReceiverConfig {
        calm_share: 0.35,
        repaired: false,
        ..live_receiver_config()
    }
}

/// Returns the parameters of a live sender of RLM: five groups with cumulative rates of 0.25, 0.75,
/// 2, 5 and 9 Mbit/s.
///
/// Each rate is a common one of video, below a common rate of access links (0.3, 1, 3, 6 and 10
/// Mbit/s) by the share that headers and other traffic take. A factor of 2 to 3 between levels is
/// that of the layered codecs in RLM's paper (section 2).
pub fn live_rlm_sender_config() -> rlm::SenderConfig {
    let below = [0].into_iter().chain(RLM_CUMULATIVE_KBIT);
    let own = |(cumulative, below)| Rate::from_bits_per_s(1_000 * (cumulative - below));
    rlm::SenderConfig {
        rates: RLM_CUMULATIVE_KBIT
            .into_iter()
            .zip(below)
            .map(own)
            .collect(),
        packet_bytes: LIVE_PACKET_BYTES,
    }
}

/// Returns the parameters of a live receiver of RLM.
pub fn live_rlm_receiver_config() -> rlm::ReceiverConfig {
    rlm::ReceiverConfig::default()
}

/// Returns the parameters of the hops of live relays.
///
/// - **Thresholds of RED**: 1 and 3 packets instead of 5 and 15. At 300 kbit/s a packet takes
///   38 ms, and the queue of the slowest receiver makes the rounds of the whole session long.
/// - **Weight of RED**: 0.3 instead of 0.1, so that the average of a slow hop follows its queue
///   within a few packets.
/// - **Slot**: on hops above 6 Mbit/s, RED counts slots of 2 ms instead of packets. Packets of
///   several groups often arrive together there, although the path is not congested.
/// - **Queue**: 60 ms or 6 packets. It holds the bytes by which a group can exceed the rate of the
///   path in a round.
pub fn live_hop_config() -> HopConfig {
    HopConfig {
        packet_bytes: LIVE_PACKET_BYTES + TUNNEL_BYTES,
        queue: Duration::from_millis(60),
        queue_packets: 6,
        red: RedConfig {
            minimum_packets: 1.0,
            maximum_packets: 3.0,
            weight: 0.3,
            ..HopConfig::default().red
        },
        red_slot: Duration::from_millis(2),
        ..HopConfig::default()
    }
}
