//! Stands in for the endpoints of the overlay until they are there.
use core::time::Duration;
use std::sync::Arc;

use manyflow_core::overlay::controller::Controller;
use manyflow_core::overlay::{ClientFrame, DaemonId, Frame, GroupId, OverlayConfig, Topology};
use manyflow_core::{
    Action, ConfigError, Destination, Ecn, Endpoint, EndpointId, Event, Header, Packet, Rate, Time,
};

pub(super) struct Application {
    pub(super) priority: u16,
    pub(super) start: Time,
    pub(super) stop: Option<Time>,
    pub(super) crash: bool,
    pub(super) joins: Option<GroupId>,
    pub(super) sends: Option<Source>,
    pub(super) service: Duration,
}

pub(super) struct Source {
    pub(super) group: GroupId,
    pub(super) message_bytes: u32,
    pub(super) rate: Option<Rate>,
    pub(super) messages: Option<u32>,
}

pub(super) struct ClientEndpoint(Application, EndpointId, Vec<Packet>, Option<Time>);
pub(super) struct DaemonEndpoint;

impl DaemonEndpoint {
    pub(super) fn new(
        _: &OverlayConfig,
        _: Box<dyn Controller>,
        _: DaemonId,
        _: Arc<Topology>,
        _: Arc<[EndpointId]>,
        _: u64,
    ) -> Result<DaemonEndpoint, ConfigError> {
        Ok(DaemonEndpoint)
    }
}
impl ClientEndpoint {
    pub(super) fn new(
        a: Application,
        daemon: EndpointId,
        _: u64,
    ) -> Result<ClientEndpoint, ConfigError> {
        let start = a.start;
        let _ = (a.priority, a.stop, a.crash, a.joins, a.service);
        let _ = a
            .sends
            .as_ref()
            .map(|s| (s.group, s.message_bytes, s.rate, s.messages));
        Ok(ClientEndpoint(a, daemon, Vec::new(), Some(start)))
    }
}
impl Endpoint for DaemonEndpoint {
    fn handle_packet(&mut self, _: Time, _: &Packet) {}
    fn handle_timeout(&mut self, _: Time) {}
    fn poll_action(&mut self, _: Time) -> Option<Action> {
        None
    }
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}
impl Endpoint for ClientEndpoint {
    fn handle_packet(&mut self, _: Time, _: &Packet) {}
    fn handle_timeout(&mut self, _: Time) {
        self.3 = None;
        self.2.push(Packet {
            source: EndpointId::UNSET,
            destination: Destination::Endpoint(self.1),
            ecn: Ecn::NotCapable,
            header: Header::Overlay(Frame::Client(ClientFrame::Connect {
                priority: self.0.priority,
            })),
            payload_bytes: 0,
        });
    }
    fn poll_action(&mut self, _: Time) -> Option<Action> {
        self.2.pop().map(Action::Send)
    }
    fn poll_timeout(&self) -> Option<Time> {
        self.3
    }
    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}
