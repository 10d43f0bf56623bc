//! Sum types over protocols, for networks that run several protocols.

/// Defines a header type and an event type that are sums over protocols, and implements everything
/// that a [`Network`] needs: [`Header`], [`Holds`] and the conversions from each protocol's types.
///
/// ```
/// use manyflow_tcp::cbr;
///
/// manyflow_netsim::protocols! {
///     /// The header of a packet.
///     pub enum AnyHeader;
///     /// An event of an endpoint.
///     pub enum AnyEvent;
///     /// A source without congestion control.
///     Cbr: cbr::Datagram, cbr::Event;
///     /// TCP.
///     Tcp: manyflow_tcp::Segment, manyflow_tcp::Event;
/// }
///
/// let mut network = manyflow_netsim::Network::<AnyHeader, AnyEvent>::new(1);
/// let node = network.add_node("A");
/// network.add(node, cbr::Sink::new(None, manyflow_core::Time::ZERO, None));
/// ```
///
/// [`Network`]: crate::Network
/// [`Header`]: manyflow_core::Header
/// [`Holds`]: crate::Holds
#[macro_export]
macro_rules! protocols {
    (
        $(#[$header_doc:meta])* $header_vis:vis enum $any_header:ident;
        $(#[$event_doc:meta])* $event_vis:vis enum $any_event:ident;
        $($(#[$doc:meta])* $name:ident: $header:ty, $event:ty;)*
    ) => {
        $(#[$header_doc])*
        #[derive(Copy, Clone, Debug, PartialEq)]
        $header_vis enum $any_header {
            $($(#[$doc])* $name($header),)*
        }

        $(#[$event_doc])*
        #[derive(Clone, Debug, PartialEq)]
        $event_vis enum $any_event {
            $($(#[$doc])* $name($event),)*
        }

        $(
            impl From<$header> for $any_header {
                #[inline]
                fn from(header: $header) -> $any_header {
                    $any_header::$name(header)
                }
            }

            impl $crate::Holds<$header> for $any_header {
                #[inline]
                fn get(&self) -> Option<$header> {
                    match *self {
                        $any_header::$name(header) => Some(header),
                        _ => None,
                    }
                }
            }

            impl From<$event> for $any_event {
                #[inline]
                fn from(event: $event) -> $any_event {
                    $any_event::$name(event)
                }
            }
        )*

        // Endpoints that only send receive nothing: no header has the type without values.
        impl $crate::Holds<core::convert::Infallible> for $any_header {
            #[inline]
            fn get(&self) -> Option<core::convert::Infallible> {
                None
            }
        }

        impl From<core::convert::Infallible> for $any_header {
            fn from(never: core::convert::Infallible) -> $any_header {
                match never {}
            }
        }

        impl From<core::convert::Infallible> for $any_event {
            fn from(never: core::convert::Infallible) -> $any_event {
                match never {}
            }
        }

        impl $crate::manyflow_core::Header for $any_header {
            #[inline]
            fn wire_bytes(&self) -> u32 {
                match self {
                    $($any_header::$name(header) => $crate::manyflow_core::Header::wire_bytes(header),)*
                }
            }

            #[inline]
            fn layer(&self) -> Option<u8> {
                match self {
                    $($any_header::$name(header) => $crate::manyflow_core::Header::layer(header),)*
                }
            }

            #[inline]
            fn flow(&self) -> u32 {
                match self {
                    $($any_header::$name(header) => $crate::manyflow_core::Header::flow(header),)*
                }
            }

            #[inline]
            fn congestion(&mut self) -> Option<&mut $crate::manyflow_core::xcp::Congestion> {
                match self {
                    $($any_header::$name(header) => $crate::manyflow_core::Header::congestion(header),)*
                }
            }
        }
    };
}
