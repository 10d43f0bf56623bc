//! Datagrams that wait to be sent together: one open train for each destination and class of
//! length.

use std::net::{IpAddr, SocketAddr};

use super::train::{Train, Unsent};
use super::udp::Port;

/// Maximum number of open trains. Datagrams to more destinations are sent earlier.
const TRAINS_MAX: usize = 64;
/// Datagrams up to this length in bytes have trains of their own, so that an acknowledgement does
/// not end a train of frames.
const SHORT_BYTES: usize = 64;

/// The trains that are not sent yet. The trains of one destination and class keep their order.
#[derive(Debug, Default)]
pub(crate) struct Trains {
    open: Vec<OpenTrain>,
    /// The number of trains in `open` that have a destination. The others keep their memory.
    used: usize,
    /// The place of the train that took the last datagram.
    last: usize,
    unsent: Unsent,
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
    pub(crate) fn push(
        &mut self,
        port: &Port,
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
        let place = self.find_or_open(port, key);
        let open = &mut self.open[place];
        if !open.train.push_parts(header, payload) {
            send(port, open, &mut self.unsent);
            open.train.push_parts(header, payload);
        }
    }

    fn find_or_open(&mut self, port: &Port, key: Key) -> usize {
        let is_last = self.last < self.used && self.open[self.last].key == key;
        if !is_last {
            let mut used = self.open[..self.used].iter();
            self.last = match used.position(|open| open.key == key) {
                Some(place) => place,
                None => self.open(port, key),
            };
        }
        self.last
    }

    fn open(&mut self, port: &Port, key: Key) -> usize {
        if self.used == TRAINS_MAX {
            self.flush(port);
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
    pub(crate) fn flush(&mut self, port: &Port) {
        for open in &mut self.open[..self.used] {
            send(port, open, &mut self.unsent);
        }
        self.used = 0;
    }

    /// Returns the numbers of datagrams that the kernel did not take so far.
    pub(crate) fn unsent(&self) -> Unsent {
        self.unsent
    }
}

fn send(port: &Port, open: &mut OpenTrain, unsent: &mut Unsent) {
    if open.train.is_empty() {
        return;
    }
    let Key {
        source,
        destination,
        ..
    } = open.key;
    let lost = port.send(source, destination, open.train.bytes(), open.train.length());
    unsent.too_long += lost.too_long;
    unsent.refused += lost.refused;
    open.train.clear();
}
