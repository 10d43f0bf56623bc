//! The one list of protocols, and the types that are sums over it.
//!
//! A protocol that is added here has to implement [`Framed`] and [`Traced`] for its header, and
//! [`Reported`] for its event.

use core::convert::Infallible;

use manyflow_anypoint as anypoint;
use manyflow_core::xcp::Congestion;
use manyflow_core::{Endpoint, Header};
use manyflow_layered as layered;
use manyflow_overlay as overlay;
use manyflow_tcp as tcp;
use manyflow_tcp::cbr;
use manyflow_tfmcc as tfmcc;
use manyflow_webrc as webrc;

use super::{Observed, Reported, Topic};
use crate::capture::{Flow, Framed};
use crate::engine::{BoxedEndpoint, Holds, Lift};
use crate::scenario::observables::Observable;
use crate::trace::{Line, Traced};

macro_rules! protocols {
    ($($(#[$doc:meta])* $name:ident: $header:ty, $event:ty;)*) => {
        /// The header of a packet of any protocol.
        #[derive(Copy, Clone, Debug, PartialEq)]
        pub enum AnyHeader {
            $($(#[$doc])* $name($header),)*
        }

        /// An event of any protocol.
        #[derive(Clone, Debug, PartialEq)]
        pub enum AnyEvent {
            $($(#[$doc])* $name($event),)*
        }

        $(
            impl From<$header> for AnyHeader {
                #[inline]
                fn from(header: $header) -> AnyHeader {
                    AnyHeader::$name(header)
                }
            }

            impl Holds<$header> for AnyHeader {
                #[inline]
                fn get(&self) -> Option<$header> {
                    match *self {
                        AnyHeader::$name(header) => Some(header),
                        _ => None,
                    }
                }
            }

            impl From<$event> for AnyEvent {
                #[inline]
                fn from(event: $event) -> AnyEvent {
                    AnyEvent::$name(event)
                }
            }
        )*

        impl Header for AnyHeader {
            #[inline]
            fn wire_bytes(&self) -> u32 {
                match self {
                    $(AnyHeader::$name(header) => Header::wire_bytes(header),)*
                }
            }

            #[inline]
            fn layer(&self) -> Option<u8> {
                match self {
                    $(AnyHeader::$name(header) => header.layer(),)*
                }
            }

            #[inline]
            fn congestion(&mut self) -> Option<&mut Congestion> {
                match self {
                    $(AnyHeader::$name(header) => header.congestion(),)*
                }
            }
        }

        impl Framed for AnyHeader {
            fn is_tcp(&self) -> bool {
                match self {
                    $(AnyHeader::$name(header) => header.is_tcp(),)*
                }
            }

            fn adjust_ports(&self, flow: &mut Flow) {
                match self {
                    $(AnyHeader::$name(header) => header.adjust_ports(flow),)*
                }
            }

            fn encode(&self, flow: &Flow, payload_bytes: u32, frame: &mut Vec<u8>) {
                match self {
                    $(AnyHeader::$name(header) => Framed::encode(header, flow, payload_bytes, frame),)*
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

        impl Reported for AnyEvent {
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

            #[inline]
            fn observe(&self, what: Observable) -> Option<Observed> {
                match self {
                    $(AnyEvent::$name(event) => event.observe(what),)*
                }
            }

            fn is_end(&self) -> bool {
                match self {
                    $(AnyEvent::$name(event) => event.is_end(),)*
                }
            }

            #[inline]
            fn is_about(&self, topic: Topic) -> bool {
                match self {
                    $(AnyEvent::$name(event) => event.is_about(topic),)*
                }
            }
        }
    };
}

protocols! {
    /// Wave and equation based rate control (RFC 3738).
    Webrc: webrc::Cci, webrc::Event;
    /// TCP: data or acknowledgement.
    Tcp: tcp::Segment, tcp::Event;
    /// A source without congestion control.
    Cbr: cbr::Datagram, cbr::Event;
    /// Layered multicast, by SIM or RLM.
    Layered: layered::Message, layered::Event;
    /// Single-rate multicast (RFC 4654).
    Tfmcc: tfmcc::Message, tfmcc::Event;
    /// Anypoint's transport of frames.
    Anypoint: anypoint::Segment, anypoint::Event;
    /// Messages between an overlay's daemons and clients.
    Overlay: overlay::Frame, overlay::Event;
}

impl From<Infallible> for AnyHeader {
    fn from(never: Infallible) -> AnyHeader {
        match never {}
    }
}

impl From<Infallible> for AnyEvent {
    fn from(never: Infallible) -> AnyEvent {
        match never {}
    }
}

/// A network in which all protocols run.
pub type Network = crate::engine::Network<AnyHeader, AnyEvent>;

/// A packet of any protocol.
pub type Packet = manyflow_core::Packet<AnyHeader>;

/// An endpoint of one of these protocols.
pub trait IntoBoxed {
    /// Makes it an endpoint of a [`Network`].
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
