//! Traces of the events of endpoints and links, with one JSON object per line. `docs/scenarios.md`
//! lists the events.

use std::io::{self, Write};

use manyflow_core::link::{Dropped, LinkConfig};
use manyflow_core::{Channel, Destination, EndpointId, Header, Packet, Time};
use serde::ser::{SerializeMap, Serializer};
use serde_json::ser::{CompactFormatter, Compound};
use serde_json::value::RawValue;

use crate::{Change, Incident, LinkId};

/// The name of endpoints and sessions of programs that an emulator runs besides its scenario.
const OUTSIDE: &str = "outside";

/// The names of endpoints, sessions and links in a trace.
#[derive(Debug, Default)]
pub struct Names {
    /// The node of each endpoint, and the name of the receiver that it belongs to, such as
    /// `webrc/R`.
    pub endpoints: Vec<(String, String)>,
    /// The name of each multicast session.
    pub sessions: Vec<String>,
    /// The name of each link.
    pub links: Vec<String>,
}

/// Writes a line for each event and incident.
pub struct Trace<'a> {
    names: Names,
    out: &'a mut dyn Write,
}

/// A header that traces show.
pub trait Traced {
    /// Writes the numbers that identify the packet.
    ///
    /// # Errors
    /// Returns the errors of the output.
    fn trace(&self, payload_bytes: u32, line: &mut Line) -> serde_json::Result<()>;
}

/// An event that traces show.
pub trait TracedEvent {
    /// Returns the event's name.
    fn name(&self) -> &'static str;

    /// Writes the event's values.
    ///
    /// # Errors
    /// Returns the errors of the output.
    fn trace(&self, line: &mut Line) -> serde_json::Result<()>;
}

/// A line that is being written.
pub type Line<'l, 'o> = Compound<'l, &'o mut dyn Write, CompactFormatter>;

impl<'a> Trace<'a> {
    /// Begins a trace.
    pub fn new(names: Names, out: &'a mut dyn Write) -> Trace<'a> {
        Trace { names, out }
    }

    /// Flushes the output.
    ///
    /// # Errors
    /// Returns the errors of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Writes an event that an endpoint reported.
    ///
    /// # Errors
    /// Returns the errors of the output.
    pub fn on_event(
        &mut self,
        now: Time,
        endpoint: EndpointId,
        event: &impl TracedEvent,
    ) -> io::Result<()> {
        let (node, of) = &self.names.endpoints[endpoint.0 as usize];
        write_line(self.out, now, event.name(), |line| {
            line.serialize_entry("node", node)?;
            line.serialize_entry("of", of)?;
            event.trace(line)
        })
    }

    /// Writes an incident inside the network.
    ///
    /// # Errors
    /// Returns the errors of the output.
    pub fn on_incident<H: Header + Traced>(
        &mut self,
        now: Time,
        incident: &Incident<H>,
    ) -> io::Result<()> {
        let Trace { names, out } = self;
        write_line(*out, now, incident_name(incident), |line| {
            let link = names.links[link_of(incident).0 as usize].as_str();
            line.serialize_entry("link", link)?;
            match incident {
                Incident::Dropped(_, why, packet) => {
                    line.serialize_entry("why", dropped(*why))?;
                    names.packet_values(packet, line)
                }
                Incident::Lost(_, packet) | Incident::Marked(_, packet) => {
                    names.packet_values(packet, line)
                }
                Incident::Grafted(_, channel) | Incident::Pruned(_, channel) => {
                    line.serialize_entry("of", names.session(*channel))?;
                    line.serialize_entry("channel", &channel.number)
                }
                Incident::Changed(Change::Configure(_, config)) => link_values(config, line),
                Incident::Changed(Change::Cut(..)) => Ok(()),
            }
        })
    }
}

/// Writes a line: the time with nine decimal places, the name of the event, and the values that
/// `fill` adds.
fn write_line(
    out: &mut dyn Write,
    now: Time,
    event: &str,
    fill: impl FnOnce(&mut Line) -> serde_json::Result<()>,
) -> io::Result<()> {
    let nanos = now.as_nanos();
    let time = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    let time = RawValue::from_string(time)?;
    let mut serializer = serde_json::Serializer::new(out);
    let mut line = serializer.serialize_map(None)?;
    line.serialize_entry("time", &time)?;
    line.serialize_entry("event", event)?;
    fill(&mut line)?;
    line.end()?;
    serializer.into_inner().write_all(b"\n")
}

impl Names {
    fn session(&self, channel: Channel) -> &str {
        let session = self.sessions.get(channel.session as usize);
        session.map_or(OUTSIDE, String::as_str)
    }

    /// Returns the receiver that an endpoint belongs to.
    fn receiver(&self, id: EndpointId) -> &str {
        let endpoint = self.endpoints.get(id.0 as usize);
        endpoint.map_or(OUTSIDE, |(_, of)| of)
    }

    /// Writes the session, the length and the numbers of a packet.
    fn packet_values<H: Header + Traced>(
        &self,
        packet: &Packet<H>,
        line: &mut Line,
    ) -> serde_json::Result<()> {
        let of = match packet.destination {
            Destination::Endpoint(id) => self.receiver(id),
            Destination::Channel(channel) => self.session(channel),
        };
        line.serialize_entry("of", of)?;
        line.serialize_entry("bytes", &packet.wire_bytes())?;
        packet.header.trace(packet.payload_bytes(), line)
    }
}

fn incident_name<H>(incident: &Incident<H>) -> &'static str {
    match incident {
        Incident::Dropped(..) => "drop",
        Incident::Lost(..) => "loss",
        Incident::Marked(..) => "mark",
        Incident::Grafted(..) => "graft",
        Incident::Pruned(..) => "prune",
        Incident::Changed(Change::Configure(..)) => "change",
        Incident::Changed(Change::Cut(_, true)) => "cut",
        Incident::Changed(Change::Cut(_, false)) => "restore",
    }
}

fn link_of<H>(incident: &Incident<H>) -> LinkId {
    match incident {
        Incident::Dropped(link, ..)
        | Incident::Lost(link, _)
        | Incident::Marked(link, _)
        | Incident::Grafted(link, _)
        | Incident::Pruned(link, _)
        | Incident::Changed(Change::Configure(link, _) | Change::Cut(link, _)) => *link,
    }
}

fn dropped(why: Dropped) -> &'static str {
    match why {
        Dropped::Full => "full",
        Dropped::Early => "early",
        Dropped::Cut => "cut",
    }
}

/// Writes the configuration of a link. The rate is null if it has no limit.
fn link_values(config: &LinkConfig, line: &mut Line) -> serde_json::Result<()> {
    let rate = config.rate.map(|rate| rate.bits_per_s());
    line.serialize_entry("rate", &rate)?;
    line.serialize_entry("delay", &config.delay.as_secs_f64())
}
