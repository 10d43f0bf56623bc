//! A session on the network. WEBRC decides when to send and on which channel, the object layer
//! decides which bytes, and a transport carries them.
//!
//! ```text
//!   webrc::Sender --Send(packet)--> ObjectSender --datagram--> multicast socket, AMT relay
//!
//!   webrc::Receiver <--packet--    multicast socket    --datagram--> decoder thread --> files
//!                   --Join, Leave--> or AMT gateway
//! ```
//!
//! LENP_B, the packet length in which rates are counted, is the length of the UDP payload: a whole
//! ALC packet.

mod cipher;
mod config;
mod content;
mod decoder;
mod focus;
mod group;
mod image;
mod limits;
mod needs;
mod numbers;
mod overload;
mod patience;
mod progress;
mod queue;
mod receive;
mod send;
mod storer;
mod transport;

use std::time::Duration;

use manyflow_core::Ecn;
use manyflow_core::time::seconds;
use manyflow_core::units::Rate;
use manyflow_webrc::{self as webrc, Session, SessionConfig, SessionError};

pub use config::ReceiveConfig;
pub use content::Content;
pub use decoder::{DecoderError, FileDone};
pub use group::{GroupOpener, GroupSealer};
pub use limits::memory_for_table;
pub use progress::{PacketCounts, Progress, ProgressSinks, Received};
pub use receive::{ReceiveError, receive};
pub use send::{SendProgress, SessionSender};
pub use transport::flows;

use crate::sdp::{CciFormat, WebrcParameters};

/// Returns the parameters that describe `session`, whose receivers use epochs of `epoch`.
pub fn describe(session: &Session, epoch: Duration) -> WebrcParameters {
    WebrcParameters {
        wave_slots: session.active_slots() as u16,
        quiescent_slots: session.quiescent_slots() as u16,
        time_slot_s: session.time_slot_s(),
        base_rate_packets_per_s: session.base_rate(),
        decay_per_slot: session.decrease(),
        packet_bytes: session.config().packet_bytes as u16,
        session_rate_bits_per_s: session.config().session_rate.bits_per_s(),
        constant_rate: session.config().constant_aggregate,
        cci: match session.cci_format() {
            webrc::CciFormat::Short => CciFormat::Short,
            webrc::CciFormat::Long => CciFormat::Long,
        },
        epoch_s: epoch.as_secs_f64(),
        packet_trains: session.config().packet_trains,
    }
}

/// Returns the session with these parameters.
///
/// # Errors
/// If the parameters contradict each other.
pub fn session_of(parameters: &WebrcParameters) -> Result<Session, SessionError> {
    let time_slot = seconds(parameters.time_slot_s);
    Session::new(SessionConfig {
        session_rate: Rate::from_bits_per_s(parameters.session_rate_bits_per_s),
        packet_bytes: parameters.packet_bytes.into(),
        base_rate_packets_per_s: parameters.base_rate_packets_per_s,
        time_slot,
        quiescence: time_slot * u32::from(parameters.quiescent_slots),
        decrease: parameters.decay_per_slot,
        constant_aggregate: parameters.constant_rate,
        active_slots: Some(parameters.wave_slots.into()),
        cci_format: Some(match parameters.cci {
            CciFormat::Short => webrc::CciFormat::Short,
            CciFormat::Long => webrc::CciFormat::Long,
        }),
        packet_trains: parameters.packet_trains,
        // Receivers find it in the packets.
        ecn: Ecn::NotCapable,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_derive_the_senders_session_from_its_description() {
        for rate in ["1 Mbit/s", "37 Mbit/s", "200 Mbit/s", "2 Gbit/s"] {
            for profile in [SessionConfig::wan, SessionConfig::lan] {
                let session = profile(rate.parse().unwrap()).with_packet_trains(16);
                let session = Session::new(session).unwrap();
                let back = session_of(&describe(&session, Duration::from_millis(50))).unwrap();
                assert_eq!(back.active_slots(), session.active_slots());
                assert_eq!(back.wave_channels(), session.wave_channels());
                assert_eq!(back.cci_format(), session.cci_format());
                assert_eq!(
                    back.base_packets_per_slot(),
                    session.base_packets_per_slot()
                );
                assert_eq!(back.config().packet_trains, Some(16));
            }
        }
    }
}
