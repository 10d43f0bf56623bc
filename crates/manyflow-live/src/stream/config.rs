//! The parameters of live streams: one place for senders, receivers and relays.
//!
//! The defaults of [`sim`], [`rlm`] and [`hop`](manyflow_layered::hop) are those of the papers'
//! simulations. The functions here change a few of them for real paths.

use manyflow_core::units::Rate;
use manyflow_layered::hop::HopConfig;
use manyflow_layered::{rlm, sim};

/// The length of a packet in bytes, headers included. In an AMT tunnel it has 30 bytes more, which
/// leaves room for further headers below the MTU of Ethernet.
pub const LIVE_PACKET_BYTES: u32 = 1400;

/// The cumulative rates of [`live_rlm_sender_config`], in kbit/s.
const RLM_CUMULATIVE_KBIT: [u64; 5] = [250, 750, 2_000, 5_000, 9_000];

/// Returns the parameters of a live sender of SIM: those of the paper, in longer packets.
pub fn live_sender_config() -> sim::SenderConfig {
    sim::SenderConfig {
        packet_bytes: LIVE_PACKET_BYTES,
        ..sim::SenderConfig::default()
    }
}

/// Returns the parameters of a live receiver of SIM.
pub fn live_receiver_config() -> sim::ReceiverConfig {
    sim::ReceiverConfig::default()
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
pub fn live_hop_config() -> HopConfig {
    HopConfig {
        packet_bytes: LIVE_PACKET_BYTES,
        ..HopConfig::default()
    }
}
