//! The list of protocols, and the types that have a variant for each of them.
//!
//! A protocol in this list has to implement [`Wire`] for its header and [`Reported`] for its event.

use manyflow_anypoint as anypoint;
use manyflow_core::Endpoint;
use manyflow_layered as layered;
use manyflow_netsim::capture::{Flow, Framed};
use manyflow_netsim::trace::{Line, Traced, TracedEvent};
use manyflow_netsim::{BoxedEndpoint, Holds, Lift};
use manyflow_overlay as overlay;
use manyflow_tcp as tcp;
use manyflow_tcp::cbr;
use manyflow_tfmcc as tfmcc;
use manyflow_webrc as webrc;

use super::ip::{HostEvent, IpPacket};
use super::{Observed, Reported, Topic, Wire};
use manyflow_model::observables::Observable;

macro_rules! protocols {
    ($($(#[$doc:meta])* $name:ident: $header:ty, $event:ty;)*) => {
        manyflow_netsim::protocols! {
            /// The header of a packet of any protocol.
            pub enum AnyHeader;
            /// An event of any protocol.
            pub enum AnyEvent;
            $($(#[$doc])* $name: $header, $event;)*
        }

        impl Framed for AnyHeader {
            fn is_tcp(&self) -> bool {
                match self {
                    $(AnyHeader::$name(header) => header.is_tcp(),)*
                }
            }

            fn is_whole(&self) -> bool {
                match self {
                    $(AnyHeader::$name(header) => header.is_whole(),)*
                }
            }

            fn adjust_ports(&self, flow: &mut Flow) {
                match self {
                    $(AnyHeader::$name(header) => header.adjust_ports(flow),)*
                }
            }

            fn encode(&self, flow: &Flow, payload_bytes: u32, frame: &mut Vec<u8>) {
                match self {
                    $(AnyHeader::$name(header) => Wire::encode(header, flow, payload_bytes, frame),)*
                }
            }
        }

        impl Traced for AnyHeader {
            fn trace(&self, payload_bytes: u32, line: &mut Line) -> serde_json::Result<()> {
                match self {
                    $(AnyHeader::$name(header) => header.trace(payload_bytes, line),)*
                }
            }
        }

        impl TracedEvent for AnyEvent {
            fn name(&self) -> &'static str {
                match self {
                    $(AnyEvent::$name(event) => event.name(),)*
                }
            }

            fn trace(&self, line: &mut Line) -> serde_json::Result<()> {
                match self {
                    $(AnyEvent::$name(event) => event.trace(line),)*
                }
            }

        }

        impl AnyEvent {
            /// Returns the change of an observable that the event reports, if any.
            #[inline]
            pub(crate) fn observe(&self, what: Observable) -> Option<Observed> {
                match self {
                    $(AnyEvent::$name(event) => event.observe(what),)*
                }
            }

            /// Returns whether the endpoint has ended, so that its levels no longer hold.
            pub(crate) fn is_end(&self) -> bool {
                match self {
                    $(AnyEvent::$name(event) => event.is_end(),)*
                }
            }

            /// Returns whether the event is about a topic.
            #[inline]
            pub(crate) fn is_about(&self, topic: Topic) -> bool {
                match self {
                    $(AnyEvent::$name(event) => event.is_about(topic),)*
                }
            }
        }
    };
}

protocols! {
    /// Wave and Equation Based Rate Control (RFC 3738).
    Webrc: webrc::Cci, webrc::Event;
    /// TCP: data and acknowledgements.
    Tcp: tcp::Segment, tcp::Event;
    /// A source without congestion control.
    Cbr: cbr::Datagram, cbr::Event;
    /// Layered multicast: SIM or RLM.
    Layered: layered::Message, layered::Event;
    /// TFMCC, single-rate multicast (RFC 4654).
    Tfmcc: tfmcc::Message, tfmcc::Event;
    /// ACP, Anypoint's transport of frames.
    Anypoint: anypoint::Segment, anypoint::Event;
    /// Frames between an overlay's daemons and clients.
    Overlay: overlay::Frame, overlay::Event;
    /// IP packets of programs, in the emulator.
    Ip: IpPacket, HostEvent;
}

/// A network in which all protocols run.
pub type Network = manyflow_netsim::Network<AnyHeader, AnyEvent>;

/// A packet of any protocol.
pub type Packet = manyflow_core::Packet<AnyHeader>;

/// An endpoint of one of these protocols.
pub trait IntoBoxed {
    /// Wraps the endpoint for a [`Network`].
    fn into_boxed(self) -> BoxedEndpoint<AnyHeader, AnyEvent>;
}

impl<X> IntoBoxed for X
where
    X: Endpoint + 'static,
    AnyHeader: Holds<X::Rx> + From<X::Tx>,
    AnyEvent: From<X::Event>,
{
    fn into_boxed(self) -> BoxedEndpoint<AnyHeader, AnyEvent> {
        Box::new(Lift::new(self))
    }
}

const _: () = assert!(size_of::<Packet>() <= 72, "packets are passed by value");
