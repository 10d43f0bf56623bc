//! Traces: what endpoints and links tell, one JSON object a line. `docs/scenarios.md` lists the events.

use std::io::{self, Write};

use manyflow_core::anypoint::{Body, Reason};
use manyflow_core::layered::Message;
use manyflow_core::link::{Dropped, LinkConfig};
use manyflow_core::overlay::{self, Control, Frame, Verdict};
use manyflow_core::{
    Channel, Destination, EndReason, EndpointId, Event, Header, Packet, Rate, SlowStartEnd, Time,
};
use serde::ser::{SerializeMap, Serializer};
use serde_json::ser::{CompactFormatter, Compound};
use serde_json::value::RawValue;

use crate::{Change, Incident, LinkId};

/// What endpoints and links are called.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Of each endpoint its node, and the receiver that it belongs to: `webrc/R`.
    pub(crate) endpoints: Vec<(String, String)>,
    /// Of each multicast session.
    pub(crate) sessions: Vec<String>,
    /// Of each link.
    pub(crate) links: Vec<String>,
}

/// Writes a line for each event and incident.
pub(crate) struct Trace<'a> {
    names: Names,
    out: &'a mut dyn Write,
}

/// A line that is being written.
type Line<'l, 'o> = Compound<'l, &'o mut dyn Write, CompactFormatter>;

impl<'a> Trace<'a> {
    pub(crate) fn new(names: Names, out: &'a mut dyn Write) -> Trace<'a> {
        Trace { names, out }
    }

    /// Writes what is left in buffers.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Writes what an endpoint tells.
    pub(crate) fn on_event(
        &mut self,
        now: Time,
        endpoint: EndpointId,
        event: &Event,
    ) -> io::Result<()> {
        let (node, of) = &self.names.endpoints[endpoint.0 as usize];
        write_line(self.out, now, event_name(event), |line| {
            line.serialize_entry("node", node)?;
            line.serialize_entry("of", of)?;
            event_values(event, line)
        })
    }

    /// Writes what happens inside the network.
    pub(crate) fn on_incident(&mut self, now: Time, incident: &Incident) -> io::Result<()> {
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

/// Writes a line: its time with nine digits behind the point, its event, and what `fill` adds.
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
        &self.sessions[channel.session as usize]
    }

    /// What a packet is: whose, how long, and its number.
    fn packet_values(&self, packet: &Packet, line: &mut Line) -> serde_json::Result<()> {
        let of = match packet.destination {
            Destination::Endpoint(id) => &self.endpoints[id.0 as usize].1,
            Destination::Channel(channel) => self.session(channel),
        };
        line.serialize_entry("of", of)?;
        line.serialize_entry("bytes", &packet.wire_bytes())?;
        match packet.header {
            Header::Webrc(cci) => {
                line.serialize_entry("channel", &cci.channel)?;
                line.serialize_entry("psn", &cci.psn)
            }
            Header::Tcp(segment) if packet.payload_bytes == 0 => {
                line.serialize_entry("acknowledgement", &segment.acknowledgement)
            }
            Header::Tcp(segment) => line.serialize_entry("sequence", &segment.sequence),
            Header::Cbr(datagram) => line.serialize_entry("sequence", &datagram.sequence),
            Header::Layered(Message::Data(data)) => {
                line.serialize_entry("group", &data.group)?;
                line.serialize_entry("sequence", &data.sequence)
            }
            Header::Layered(Message::Feedback(feedback)) => {
                line.serialize_entry("group", &feedback.group)?;
                line.serialize_entry("request", &feedback.request)
            }
            Header::Layered(Message::Experiment(experiment)) => {
                line.serialize_entry("group", &experiment.group)
            }
            Header::Anypoint(segment) => segment_values(&segment.body, line),
            Header::Overlay(frame) => frame_values(&frame, line),
        }
    }
}

/// What goes between daemons of an overlay, and its numbers.
fn frame_values(frame: &Frame, line: &mut Line) -> serde_json::Result<()> {
    match frame {
        Frame::Segment { sequence, message } => {
            line.serialize_entry("sequence", &sequence.0)?;
            message_values(message, line)
        }
        Frame::Datagram { number, message } => {
            line.serialize_entry("sequence", &number.0)?;
            message_values(message, line)
        }
        Frame::Direct(message) => message_values(message, line),
        Frame::Ack(ack) => line.serialize_entry("acknowledgement", &ack.acknowledgement.0),
        Frame::Feedback(feedback) => line.serialize_entry("acknowledgement", &feedback.expected.0),
        Frame::Client(_) => line.serialize_entry("kind", "client"),
    }
}

/// A message between daemons of an overlay: a client's by its group and number there.
fn message_values(message: &overlay::Message, line: &mut Line) -> serde_json::Result<()> {
    let kind = match message.body {
        overlay::Body::Data(data) => {
            line.serialize_entry("group", &data.group.0)?;
            return line.serialize_entry("message", &data.sequence.0);
        }
        overlay::Body::Membership(_) => "membership",
        overlay::Body::Welcome(_) => "welcome",
        overlay::Body::Pause(_) => "pause",
        overlay::Body::Control(Control::Cost(_)) => "cost",
        overlay::Body::Control(Control::Report(_)) => "report",
        overlay::Body::Control(Control::RoundTrip(_)) => "round-trip",
    };
    line.serialize_entry("kind", kind)
}

/// What a segment of ACP is, and its numbers.
fn segment_values(body: &Body, line: &mut Line) -> serde_json::Result<()> {
    let kind = match body {
        Body::Data(data) => return line.serialize_entry("sequence", &data.sequence),
        Body::Close { sequence } => return line.serialize_entry("close", sequence),
        Body::Ack(ack) => {
            line.serialize_entry("acknowledgement", &ack.cumulative)?;
            return line.serialize_entry("answers", &ack.of);
        }
        Body::Open { .. } => "open",
        Body::Accept { .. } => "accept",
        Body::Probe => "probe",
        Body::Alive => "alive",
        Body::Reset(_) => "reset",
    };
    line.serialize_entry("kind", kind)
}

fn event_name(event: &Event) -> &'static str {
    match event {
        Event::Joined(_) => "join",
        Event::Left(_) => "leave",
        Event::JoinTimedOut(_) => "join-timeout",
        Event::Rtt { .. } => "rtt",
        Event::LossEvent => "loss-event",
        Event::Rates { .. } => "rates",
        Event::SlowStartEnded(_) => "start-up-end",
        Event::Ended(_) => "end",
        Event::CongestionWindow { .. } => "window",
        Event::RetransmissionTimeout => "retransmission-timeout",
        Event::GroupRate { .. } => "group-rate",
        Event::Finished => "finished",
        Event::Delivered { .. } => "delivered",
        Event::Overflow => "overflow",
        Event::Failed(_) => "failed",
        Event::MemberFailed(_) => "member-failed",
        Event::Sent { .. } => "sent",
        Event::Latency { .. } => "latency",
        Event::Queue { .. } => "queue",
        Event::Acceptable { .. } => "acceptable",
        Event::Allowed { .. } => "allowed",
        Event::View { .. } => "view",
        Event::SlowMember { .. } => "slow-member",
    }
}

fn event_values(event: &Event, line: &mut Line) -> serde_json::Result<()> {
    match event {
        Event::Joined(channel) | Event::Left(channel) | Event::JoinTimedOut(channel) => {
            line.serialize_entry("channel", &channel.number)
        }
        Event::Rtt {
            sample_s,
            average_s,
        } => {
            line.serialize_entry("sample", sample_s)?;
            line.serialize_entry("average", average_s)
        }
        Event::Rates {
            target,
            received,
            loss_probability,
        } => {
            line.serialize_entry("target", &target.bits_per_s())?;
            line.serialize_entry("received", &received.bits_per_s())?;
            line.serialize_entry("loss-probability", loss_probability)
        }
        Event::SlowStartEnded(why) => line.serialize_entry("why", start_up_end(*why)),
        Event::Ended(reason) => end_values(*reason, line),
        Event::CongestionWindow { packets } => line.serialize_entry("packets", packets),
        Event::GroupRate { group, rate } => {
            line.serialize_entry("group", group)?;
            line.serialize_entry("rate", &rate.bits_per_s())
        }
        Event::Delivered { bytes } | Event::Sent { bytes } => line.serialize_entry("bytes", bytes),
        Event::Failed(reason) => line.serialize_entry("why", failure(*reason)),
        Event::MemberFailed(member) => line.serialize_entry("member", &member.0),
        Event::Latency { seconds } => line.serialize_entry("seconds", seconds),
        Event::Queue { link, messages } => {
            line.serialize_entry("overlay-link", &link.0)?;
            line.serialize_entry("messages", messages)
        }
        Event::Acceptable { by, group, rate } => {
            line.serialize_entry("by", &by.0)?;
            line.serialize_entry("group", &group.0)?;
            line.serialize_entry("rate", &rate.map(Rate::bits_per_s))
        }
        Event::Allowed { group, rate } => {
            line.serialize_entry("group", &group.0)?;
            line.serialize_entry("rate", &rate.bits_per_s())
        }
        Event::View { group, members } => {
            line.serialize_entry("group", &group.0)?;
            line.serialize_entry("members", members)
        }
        Event::SlowMember {
            client,
            group,
            verdict,
        } => {
            line.serialize_entry("client", &client.0)?;
            line.serialize_entry("group", &group.0)?;
            line.serialize_entry("verdict", verdict_name(*verdict))
        }
        Event::LossEvent | Event::RetransmissionTimeout | Event::Finished | Event::Overflow => {
            Ok(())
        }
    }
}

fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Blocked => "blocked",
        Verdict::Resumed => "resumed",
        Verdict::Dropped => "dropped",
        Verdict::Evicted => "evicted",
    }
}

fn start_up_end(why: SlowStartEnd) -> &'static str {
    match why {
        SlowStartEnd::Loss => "loss",
        SlowStartEnd::RttIncrease => "rtt-increase",
        SlowStartEnd::MaximumRate => "maximum-rate",
        SlowStartEnd::RateShortfall => "rate-shortfall",
    }
}

fn failure(reason: Reason) -> &'static str {
    match reason {
        Reason::Unknown => "unknown",
        Reason::Refused => "refused",
        Reason::TimedOut => "timed-out",
        Reason::Aborted => "aborted",
    }
}

fn end_values(reason: EndReason, line: &mut Line) -> serde_json::Result<()> {
    let (why, after) = match reason {
        EndReason::NoPackets(after) => ("no-packets", Some(after)),
        EndReason::NoTimeSlotChange(after) => ("no-time-slot-change", Some(after)),
        EndReason::BaseChannelLoss => ("base-channel-loss", None),
    };
    line.serialize_entry("why", why)?;
    match after {
        Some(after) => line.serialize_entry("after", &after.as_secs_f64()),
        None => Ok(()),
    }
}

fn incident_name(incident: &Incident) -> &'static str {
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

fn link_of(incident: &Incident) -> LinkId {
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

/// What a link is like from now on; no rate is no limit.
fn link_values(config: &LinkConfig, line: &mut Line) -> serde_json::Result<()> {
    let rate = config.rate.map(|rate| rate.bits_per_s());
    line.serialize_entry("rate", &rate)?;
    line.serialize_entry("delay", &config.delay.as_secs_f64())
}
