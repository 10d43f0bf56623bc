//! A host with one end of a connection and an application that is a model: what scenarios let send and read.

use core::time::Duration;

use super::config::{AcpConfig, ConfigError};
use crate::endpoint::{Action, Endpoint, Event};
use crate::packet::{EndpointId, Packet};
use crate::time::Time;

/// What an application does.
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// When it has frames to send, as many as the connection takes; in order, apart from each other.
    pub sends: Vec<Span>,
    /// It closes its direction after so many frames; `None` never does.
    pub frames: Option<u32>,
    /// The length of its frames, 1 byte to the connection's longest.
    pub frame_bytes: u32,
    /// Frames per second that it sends at most; `None` is as fast as the connection takes them.
    pub frames_per_s: Option<f64>,
    /// The keys of its frames are drawn from 0 to this, excluded; 0 numbers them 0, 1, 2 and so on.
    pub keys: u32,
    /// How long it works on a frame that it has read, before it reads the next.
    pub service: Service,
}

/// From when until when.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The start.
    pub from: Time,
    /// The end, excluded.
    pub to: Time,
}

/// How long an application works on a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// Always as long.
    Constant(Duration),
    /// `high` in the second half of each period, `low` in the first.
    Square {
        /// In the first half.
        low: Duration,
        /// In the second half.
        high: Duration,
        /// Both halves.
        period: Duration,
    },
}

impl Default for Application {
    /// Sends nothing and reads at once.
    fn default() -> Application {
        Application {
            sends: Vec::new(),
            frames: None,
            frame_bytes: 1024,
            frames_per_s: None,
            keys: 0,
            service: Service::Constant(Duration::ZERO),
        }
    }
}

/// One end of a connection, and its application.
#[derive(Debug)]
pub struct Host {
    _remote: EndpointId,
}

impl Host {
    /// The end that opens connection number `connection` at `start`, to `remote`: the other end, or a switch.
    ///
    /// # Errors
    /// Where a parameter is outside its range.
    pub fn initiator(
        config: AcpConfig,
        application: Application,
        remote: EndpointId,
        connection: u32,
        start: Time,
        seed: u64,
    ) -> Result<Host, ConfigError> {
        let _ = (application, connection, start, seed);
        config.check()?;
        Ok(Host { _remote: remote })
    }

    /// The end that takes one connection, from `remote`: the other end, or a switch.
    ///
    /// # Errors
    /// Where a parameter is outside its range.
    pub fn acceptor(
        config: AcpConfig,
        application: Application,
        remote: EndpointId,
        seed: u64,
    ) -> Result<Host, ConfigError> {
        let _ = (application, seed);
        config.check()?;
        Ok(Host { _remote: remote })
    }

    /// Closes the connection's direction from here: what was handed over is still delivered.
    pub fn close(&mut self) {}

    /// The host dies: from now on it neither sends nor hears anything.
    pub fn crash(&mut self) {}
}

impl Endpoint for Host {
    fn handle_packet(&mut self, _now: Time, _packet: &Packet) {}

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_action(&mut self, _now: Time) -> Option<Action> {
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}
