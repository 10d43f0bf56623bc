//! Stands in for the client of the overlay until it is there.
use core::time::Duration;
use std::collections::VecDeque;

use manyflow_core::overlay::{ClientFrame, Frame, GroupId};
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

pub(super) struct ClientEndpoint {
    application: Application,
    daemon: EndpointId,
    begun: bool,
    /// When the next message is ready.
    next: Option<Time>,
    left: Option<u32>,
    actions: VecDeque<Packet>,
    events: VecDeque<Event>,
}

impl ClientEndpoint {
    pub(super) fn new(
        application: Application,
        daemon: EndpointId,
        _: u64,
    ) -> Result<ClientEndpoint, ConfigError> {
        let _ = (application.crash, application.service);
        Ok(ClientEndpoint {
            left: application.sends.as_ref().and_then(|sends| sends.messages),
            next: Some(application.start),
            application,
            daemon,
            begun: false,
            actions: VecDeque::new(),
            events: VecDeque::new(),
        })
    }

    fn say(&mut self, frame: ClientFrame, payload_bytes: u32) {
        self.actions.push_back(Packet {
            source: EndpointId::UNSET,
            destination: Destination::Endpoint(self.daemon),
            ecn: Ecn::NotCapable,
            header: Header::Overlay(Frame::Client(frame)),
            payload_bytes,
        });
    }
}

impl Endpoint for ClientEndpoint {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        let Header::Overlay(Frame::Client(frame)) = packet.header else {
            return;
        };
        match frame {
            ClientFrame::Ready => {
                let Some(sends) = &self.application.sends else {
                    return;
                };
                let bytes = sends.message_bytes;
                self.events.push_back(Event::Sent { bytes });
                let gap = sends.rate.map_or(0.0, |rate| {
                    f64::from(bytes) * 8.0 / rate.bits_per_s() as f64
                });
                self.left = self.left.map(|left| left - 1);
                if self.left != Some(0) {
                    self.next = Some(now + Duration::from_secs_f64(gap));
                }
            }
            ClientFrame::Deliver { data, .. } => {
                let now_us = (now.as_nanos() / 1000) as u32;
                let seconds = f64::from(now_us.wrapping_sub(data.sent_us)) / 1e6;
                self.events.push_back(Event::Delivered {
                    bytes: packet.payload_bytes,
                });
                self.events.push_back(Event::Latency { seconds });
                self.say(ClientFrame::Took { messages: 1 }, 0);
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if !self.begun && now >= self.application.start {
            self.begun = true;
            let priority = self.application.priority;
            self.say(ClientFrame::Connect { priority }, 0);
            if let Some(group) = self.application.joins {
                self.say(ClientFrame::Join(group), 0);
            }
        }
        if self.application.stop.is_some_and(|stop| now >= stop) {
            self.application.stop = None;
            self.next = None;
            self.say(ClientFrame::Disconnect, 0);
        }
        if self.next.is_some_and(|next| next <= now) {
            self.next = None;
            if let Some(sends) = &self.application.sends {
                let (group, bytes) = (sends.group, sends.message_bytes);
                let sent_us = (now.as_nanos() / 1000) as u32;
                self.say(ClientFrame::Send { group, sent_us }, bytes);
            }
        }
    }

    fn poll_action(&mut self, _: Time) -> Option<Action> {
        self.actions.pop_front().map(Action::Send)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.next.into_iter().chain(self.application.stop).min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
