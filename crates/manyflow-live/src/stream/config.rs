//! The parameters of SIM on networks.

use manyflow_layered::sim::{ReceiverConfig, SenderConfig};

/// Returns the parameters of a sender on networks: those of the paper, in packets that fill an
/// Ethernet frame together with the headers of a tunnel.
pub fn live_sender_config() -> SenderConfig {
    SenderConfig {
        packet_bytes: 1400,
        ..SenderConfig::default()
    }
}

/// Returns the parameters of a receiver on networks: those of the paper.
pub fn live_receiver_config() -> ReceiverConfig {
    ReceiverConfig::default()
}
