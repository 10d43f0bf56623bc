//! Numbers of endpoints, as a plan keeps them.

use manyflow_core::EndpointId;

/// Consecutive endpoints.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    first: u32,
    count: u32,
}

/// The endpoints of a receiver. There is one for each membership interval, or two with a unicast
/// protocol: the sending end, which reports round-trip time and window, and the receiving end.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    ids: Ids,
    is_unicast: bool,
}

/// The role of a receiver's endpoint.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The sending end of a unicast flow, which is at the sender's node.
    Sending,
    /// The receiver itself.
    Receiving,
}

impl Ids {
    /// Returns `count` endpoints from this number on.
    pub(super) fn new(first: u32, count: u32) -> Ids {
        Ids { first, count }
    }

    /// Returns the endpoint at a place in the order.
    ///
    /// # Panics
    /// Panics if there are fewer endpoints.
    pub fn at(self, place: usize) -> EndpointId {
        assert!(place < self.count as usize, "no endpoint was allotted");
        EndpointId(self.first + place as u32)
    }

    /// Returns the endpoints in order.
    pub fn iter(self) -> impl Iterator<Item = EndpointId> {
        (self.first..self.first + self.count).map(EndpointId)
    }
}

impl Ends {
    /// Returns the ends of a receiver whose endpoints are `ids`, two for each membership interval
    /// if the protocol `is_unicast`.
    pub fn new(ids: Ids, is_unicast: bool) -> Ends {
        Ends { ids, is_unicast }
    }

    /// Returns the receiving endpoint of a membership interval.
    pub fn receiving_in(self, interval: usize) -> EndpointId {
        match self.is_unicast {
            true => self.ids.at(2 * interval + 1),
            false => self.ids.at(interval),
        }
    }

    /// Returns the sending and the receiving endpoint of a membership interval.
    ///
    /// # Panics
    /// Panics if the protocol is not unicast.
    pub fn pair_in(self, interval: usize) -> (EndpointId, EndpointId) {
        assert!(self.is_unicast, "only unicast protocols have pairs");
        (self.ids.at(2 * interval), self.ids.at(2 * interval + 1))
    }

    /// Returns the receiving endpoints.
    pub fn receiving(self) -> impl Iterator<Item = EndpointId> {
        let receiving = self.all().filter(|(_, role)| *role == Role::Receiving);
        receiving.map(|(id, _)| id)
    }

    /// Returns all endpoints with their roles, in the order of their numbers.
    pub fn all(self) -> impl Iterator<Item = (EndpointId, Role)> {
        self.ids.iter().enumerate().map(move |(place, id)| {
            let is_sending = self.is_unicast && place.is_multiple_of(2);
            let role = match is_sending {
                true => Role::Sending,
                false => Role::Receiving,
            };
            (id, role)
        })
    }
}
