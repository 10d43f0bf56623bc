//! Parameters of ends on real networks: 1 Mbit/s to some Gbit/s, and paths of Ethernet.

use std::time::Duration;

use manyflow_anypoint::{
    AcpConfig, Control, DATA_HEADER_BYTES, FlowControl, JUMBO_BYTES, SoftConfig,
};
use manyflow_net::group_key::GroupKey;

/// The longest frame in bytes, fragment header included: a jumbo frame of 9,000 bytes with the
/// headers of IPv6, UDP and ACP. Smaller paths get shorter frames.
pub const FRAME_BYTES_MAX: u32 = (JUMBO_BYTES - DATA_HEADER_BYTES) as u32;
/// The longest message of an application in bytes.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The parameters of an end.
#[derive(Clone, Debug)]
pub struct Options {
    /// The rule by which the congestion window changes. [`Control::Auto`] follows routers that
    /// speak XCP, and losses elsewhere. [`Control::Xcp`] needs such routers: without them only
    /// losses lower the window.
    pub control: Control,
    /// The send buffer in bytes.
    pub send_buffer: u32,
    /// The receive buffer in bytes.
    pub receive_buffer: u32,
    /// The key under which messages are sealed; `None` sends them readable.
    pub key: Option<GroupKey>,
    /// The maximum number of connections that one socket serves.
    pub connections_max: usize,
}

impl Default for Options {
    /// Returns XCP where routers answer and CUBIC elsewhere, soft flow control, buffers of 4 MiB,
    /// no key, and 100,000 connections.
    fn default() -> Options {
        Options {
            control: Control::Auto,
            send_buffer: 4 << 20,
            receive_buffer: 4 << 20,
            key: None,
            connections_max: 100_000,
        }
    }
}

impl Options {
    /// Returns the parameters of ACP.
    pub(super) fn acp(&self) -> AcpConfig {
        AcpConfig {
            control: self.control,
            flow: match self.control {
                Control::Auto | Control::Xcp => FlowControl::Soft(SoftConfig::default()),
                Control::Reno => FlowControl::Credit,
            },
            frame_bytes_max: FRAME_BYTES_MAX,
            send_buffer: self.send_buffer,
            receive_buffer: self.receive_buffer,
            // RFC 6928.
            initial_window: 10,
            minimum_rto: Duration::from_millis(100),
            keep_alive: Duration::from_secs(10),
            attempts: 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_controls_are_valid() {
        for control in [Control::Auto, Control::Reno, Control::Xcp] {
            let options = Options {
                control,
                ..Options::default()
            };
            assert_eq!(options.acp().check(), Ok(()));
        }
    }
}
