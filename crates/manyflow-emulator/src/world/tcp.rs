//! The TCP sessions of a scenario, as connections of the kernel.

use std::net::SocketAddrV4;
use std::time::Instant;

use manyflow_core::{EndpointId, Time};
use manyflow_scenario::protocols::{HostEvent, TcpVariant};
use manyflow_scenario::{Connection, Observable};

use crate::error::EmulateError;
use crate::fabric::Addresses;
use crate::kernel::tcp::{Bulk, CongestionControl, Running};
use crate::stage::Stage;

/// The port of endpoint 0 at any node. The other endpoints follow.
const FIRST_PORT: u16 = 20_000;

/// The observables that the kernel reports of a connection.
pub(super) const REPORTED: [Observable; 3] = [
    Observable::Cwnd,
    Observable::Rtt,
    Observable::Retransmissions,
];

/// A connection of the kernel, with its state when it was last observed.
pub(super) struct TcpSession {
    sending: EndpointId,
    running: Running,
    has_begun: bool,
    has_ended: bool,
    retransmissions: u32,
}

impl TcpSession {
    /// Begins a connection, which sends when it is time.
    pub(super) fn begin(
        connection: &Connection,
        stage: &mut Stage,
    ) -> Result<TcpSession, EmulateError> {
        for (endpoint, node) in [connection.sending, connection.receiving] {
            stage
                .drive
                .fabric_mut()
                .claim(node, port(endpoint), endpoint);
            let ecn = if connection.config.ecn { "1" } else { "2" };
            stage.namespace(node).set("net/ipv4/tcp_ecn", ecn)?;
        }
        let [from, to] = [connection.sending, connection.receiving];
        let [sender, receiver] = [from, to].map(|(_, node)| stage.namespace(node));
        Ok(TcpSession {
            sending: from.0,
            running: bulk(connection, stage.drive.start()).begin(sender, receiver)?,
            has_begun: false,
            has_ended: false,
            retransmissions: 0,
        })
    }

    /// Reports the present state of the connection.
    pub(super) fn observe(
        &mut self,
        report: &mut dyn FnMut(EndpointId, HostEvent),
    ) -> Result<(), EmulateError> {
        if self.has_ended {
            return Ok(());
        }
        let info = self.running.info();
        let info = info.map_err(|error| EmulateError::Socket("TCP_INFO".to_owned(), error))?;
        let again = info.retransmissions - self.retransmissions;
        if again > 0 {
            self.retransmissions = info.retransmissions;
            let event = HostEvent::Counted(Observable::Retransmissions, again.into());
            report(self.sending, event);
        }
        if !info.is_sending {
            // A connection that is not sending has not begun yet, or it has ended.
            self.has_ended = self.has_begun;
            if self.has_ended {
                report(self.sending, HostEvent::Ended);
            }
            return Ok(());
        }
        self.has_begun = true;
        let window = HostEvent::Measured(Observable::Cwnd, info.window.into());
        report(self.sending, window);
        if !info.rtt.is_zero() {
            let rtt = HostEvent::Measured(Observable::Rtt, info.rtt.as_secs_f64());
            report(self.sending, rtt);
        }
        Ok(())
    }
}

/// Returns the port of an endpoint.
fn port(endpoint: EndpointId) -> u16 {
    FIRST_PORT + endpoint.0 as u16
}

/// Returns the kernel's connection for one of a scenario.
fn bulk(connection: &Connection, start: Instant) -> Bulk {
    let addresses = Addresses::of_scenario();
    let socket = |(endpoint, node)| SocketAddrV4::new(addresses.of(node).v4, port(endpoint));
    let config = &connection.config;
    let at = |time: Time| start + (time - Time::ZERO);
    let segment_bytes = u64::from(config.segment_bytes);
    Bulk {
        from: socket(connection.sending),
        to: socket(connection.receiving),
        congestion_control: match connection.variant {
            TcpVariant::NewReno | TcpVariant::Sack => CongestionControl::Reno,
            TcpVariant::Cubic => CongestionControl::Cubic,
            TcpVariant::Bbr => CongestionControl::Bbr,
            TcpVariant::Bbr3 | TcpVariant::Dctcp | TcpVariant::Prague => {
                unreachable!("the world takes only connections of the kernel")
            }
        },
        segment_bytes: Some(config.segment_bytes),
        start: at(config.start),
        stop: config.stop.map(at),
        transfer: config
            .transfer
            .map(|segments| u64::from(segments) * segment_bytes),
    }
}
