//! Adapters for endpoints of one protocol in a network of several.

use core::marker::PhantomData;

use manyflow_core::{Action, Endpoint, Header, Packet, Time};

/// A network's header type that can hold a protocol's header `T`.
pub trait Holds<T>: Header {
    /// Returns the header if it belongs to that protocol.
    fn get(&self) -> Option<T>;
}

/// In a network of one protocol, every header belongs to that protocol.
impl<H: Header> Holds<H> for H {
    #[inline]
    fn get(&self) -> Option<H> {
        Some(*self)
    }
}

/// Adapts an endpoint of one protocol to a network whose headers `H` and events `E` are sums over
/// several protocols.
///
/// Packets of other protocols do not reach the endpoint.
pub struct Lift<X, H, E> {
    endpoint: X,
    network: PhantomData<fn() -> (H, E)>,
}

impl<X, H, E> Lift<X, H, E> {
    /// Adapts `endpoint`.
    pub fn new(endpoint: X) -> Lift<X, H, E> {
        Lift {
            endpoint,
            network: PhantomData,
        }
    }
}

impl<X, H, E> Endpoint for Lift<X, H, E>
where
    X: Endpoint,
    H: Holds<X::Rx> + From<X::Tx>,
    E: From<X::Event>,
{
    type Rx = H;
    type Tx = H;
    type Event = E;

    #[inline]
    fn handle_packet(&mut self, now: Time, packet: &Packet<H>) {
        if let Some(header) = packet.header.get() {
            self.endpoint
                .handle_packet(now, &packet.with_header(header));
        }
    }

    #[inline]
    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
    }

    #[inline]
    fn poll_action(&mut self, now: Time) -> Option<Action<H>> {
        Some(match self.endpoint.poll_action(now)? {
            Action::Send(packet) => Action::Send(packet.map_header(H::from)),
            Action::Join(channel) => Action::Join(channel),
            Action::Leave(channel) => Action::Leave(channel),
        })
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        self.endpoint.poll_timeout()
    }

    #[inline]
    fn poll_event(&mut self) -> Option<E> {
        self.endpoint.poll_event().map(E::from)
    }
}
