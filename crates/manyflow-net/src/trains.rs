//! Datagrams that wait to be sent together: one open train for each destination and class of
//! length.

use std::net::{IpAddr, SocketAddr};

use manyflow_core::Ecn;

use super::train::Train;
pub use super::train::{Towards, Unsent};

/// A socket, or anything else that takes trains.
pub trait Outlet {
    /// Sends datagrams of `length` bytes, of which the last may be shorter. Never waits.
    fn send_train(&self, to: Towards, train: &[u8], length: usize) -> Unsent;
}

/// Maximum number of open trains. Datagrams to more destinations are sent earlier.
const TRAINS_MAX: usize = 64;
/// Datagrams up to this length in bytes have trains of their own, so that an acknowledgement does
/// not end a train of frames.
const SHORT_BYTES: usize = 64;

/// The trains that are not sent yet. The trains of one destination and class keep their order.
#[derive(Debug, Default)]
pub struct Trains {
    open: Vec<OpenTrain>,
    /// The number of trains in `open` that have a destination. The others keep their memory.
    used: usize,
    /// The place of the train that took the last datagram.
    last: usize,
    unsent: Unsent,
    /// The destination and length of datagrams that were longer than the interface's MTU, until
    /// they are taken. At most [`TRAINS_MAX`].
    too_long: Vec<(SocketAddr, usize)>,
}

#[derive(Debug)]
struct OpenTrain {
    key: Key,
    train: Train,
}

/// A train's source address, destination, and class of length.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Key {
    source: Option<IpAddr>,
    destination: SocketAddr,
    is_short: bool,
}

impl Trains {
    /// Adds a datagram. It is sent at once, with all before it, if it cannot join its train.
    pub fn push(
        &mut self,
        outlet: &impl Outlet,
        source: Option<IpAddr>,
        destination: SocketAddr,
        header: &[u8],
        payload: &[u8],
    ) {
        let is_short = header.len() + payload.len() <= SHORT_BYTES;
        let key = Key {
            source,
            destination,
            is_short,
        };
        let place = self.find_or_open(outlet, key);
        let open = &mut self.open[place];
        if !open.train.push_parts(header, payload) {
            let lost = send(outlet, open);
            open.train.push_parts(header, payload);
            self.note(key.destination, lost);
        }
    }

    fn find_or_open(&mut self, outlet: &impl Outlet, key: Key) -> usize {
        let is_last = self.last < self.used && self.open[self.last].key == key;
        if !is_last {
            let mut used = self.open[..self.used].iter();
            self.last = match used.position(|open| open.key == key) {
                Some(place) => place,
                None => self.open(outlet, key),
            };
        }
        self.last
    }

    fn open(&mut self, outlet: &impl Outlet, key: Key) -> usize {
        if self.used == TRAINS_MAX {
            self.flush(outlet);
        }
        let place = self.used;
        match self.open.get_mut(place) {
            Some(open) => open.key = key,
            None => {
                let train = Train::default();
                self.open.push(OpenTrain { key, train });
            }
        }
        self.used += 1;
        place
    }

    /// Sends everything that waits.
    pub fn flush(&mut self, outlet: &impl Outlet) {
        for place in 0..self.used {
            let lost = send(outlet, &mut self.open[place]);
            self.note(self.open[place].key.destination, lost);
        }
        self.used = 0;
    }

    /// Counts the datagrams of a train that the kernel did not take.
    fn note(&mut self, destination: SocketAddr, (lost, length): (Unsent, usize)) {
        self.unsent.too_long += lost.too_long;
        self.unsent.refused += lost.refused;
        if lost.too_long > 0 && self.too_long.len() < TRAINS_MAX {
            self.too_long.push((destination, length));
        }
    }

    /// Takes the destination and the length of a datagram that was longer than the MTU of its
    /// interface.
    pub fn take_too_long(&mut self) -> Option<(SocketAddr, usize)> {
        self.too_long.pop()
    }

    /// Returns the numbers of datagrams that the kernel did not take so far.
    pub fn unsent(&self) -> Unsent {
        self.unsent
    }
}

/// Sends a train and clears it. Returns what the kernel did not take, and the length of a datagram.
fn send(outlet: &impl Outlet, open: &mut OpenTrain) -> (Unsent, usize) {
    if open.train.is_empty() {
        return (Unsent::default(), 0);
    }
    let to = Towards {
        source: open.key.source,
        destination: open.key.destination,
        ecn: Ecn::NotCapable,
    };
    let length = open.train.length();
    let bytes = open.train.bytes();
    let lost = outlet.send_train(to, bytes, length);
    open.train.clear();
    (lost, length)
}
