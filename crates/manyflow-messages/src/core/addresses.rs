//! The addresses at which clients connect to the daemons of the overlay.
//!
//! A daemon announces its own as names of groups, of which it is a member: the overlay carries
//! them to all daemons, and takes them back when the daemon cannot be reached.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bytes::Bytes;
use manyflow_net::address::Address;
use manyflow_overlay::{ClientFrame, GroupId};

use super::DaemonCore;
use crate::nats::interest::GroupName;

/// The beginnings of the names of these groups, over TCP and over WebSocket. The address follows.
const CLIENTS: [&[u8]; 2] = [b"$MF.clients.", b"$MF.clients-ws."];
/// The maximum number of addresses that a client gets: those of others may come from a daemon that
/// lies.
const ADDRESSES_MAX: usize = 128;

/// The addresses that daemons have announced, by their groups, each over WebSocket or not.
#[derive(Debug, Default)]
pub(super) struct ClientAddresses(BTreeMap<GroupId, (bool, String)>);

impl ClientAddresses {
    /// Adds the address of a group that has members now. Returns whether it is one.
    pub(super) fn add(&mut self, group: GroupId, pattern: &[u8]) -> bool {
        for (begin, is_websocket) in CLIENTS.into_iter().zip([false, true]) {
            let address = pattern.strip_prefix(begin);
            let address = address.and_then(|address| core::str::from_utf8(address).ok());
            let address = address.filter(|address| Address::parse(address, None).is_ok());
            if let Some(address) = address {
                self.0.insert(group, (is_websocket, address.to_owned()));
                return true;
            }
        }
        false
    }

    /// Removes the address of a group without members. Returns whether it was one.
    pub(super) fn remove(&mut self, group: GroupId) -> bool {
        self.0.remove(&group).is_some()
    }

    /// Returns the addresses that a client may use which has connected from an address.
    fn of_client(&self, client: IpAddr, is_websocket: bool) -> Vec<&str> {
        let is_here = client.to_canonical().is_loopback();
        let of_kind = self.0.values().filter(|(kind, _)| *kind == is_websocket);
        let mut addresses: Vec<_> = of_kind.map(|(_, address)| address.as_str()).collect();
        // A loopback address leads every other machine to itself.
        addresses.retain(|address| is_here || !is_loopback(address));
        addresses.sort_unstable();
        addresses.truncate(ADDRESSES_MAX);
        addresses
    }
}

fn is_loopback(address: &str) -> bool {
    let (host, _) = address.rsplit_once(':').unwrap_or((address, ""));
    let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
    ip.map_or(host == "localhost", |ip| ip.is_loopback())
}

impl DaemonCore {
    /// Announces the addresses at which clients connect to this daemon: over TCP, over WebSocket.
    pub(crate) fn announce_addresses(&mut self, addresses: &[Vec<String>; 2]) {
        let client = self.daemon.connect(self.clock.now(), 100);
        for (begin, addresses) in CLIENTS.into_iter().zip(addresses) {
            for address in addresses {
                let name = GroupName {
                    pattern: Bytes::from([begin, address.as_bytes()].concat()),
                    queue: None,
                };
                self.join(client, &name);
            }
        }
        self.announcer = Some(client);
        self.pump();
    }

    /// Takes the addresses of this daemon back.
    pub(crate) fn withdraw_addresses(&mut self) {
        if let Some(client) = self.announcer.take() {
            let (now, frame) = (self.clock.now(), ClientFrame::Disconnect);
            self.daemon.handle_client(now, client, &frame, Bytes::new());
            self.pump();
        }
    }

    /// Returns the addresses of all daemons for a client that has connected from an address, over
    /// WebSocket or not.
    pub(crate) fn addresses_of_daemons(&self, client: IpAddr, is_websocket: bool) -> Vec<&str> {
        self.client_addresses.of_client(client, is_websocket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clients_of_this_machine_get_loopback_addresses() {
        let mut addresses = ClientAddresses::default();
        for (number, address) in [
            "127.0.0.1:4222",
            "[::1]:4222",
            "localhost:1",
            "192.0.2.1:4222",
        ]
        .into_iter()
        .enumerate()
        {
            let pattern = format!("$MF.clients.{address}");
            assert!(addresses.add(GroupId(number as u32), pattern.as_bytes()));
        }
        let near = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(addresses.of_client(near, false).len(), 4);
        let far = IpAddr::from([192, 0, 2, 9]);
        assert_eq!(addresses.of_client(far, false), ["192.0.2.1:4222"]);
        assert!(addresses.of_client(near, true).is_empty());
        assert!(addresses.add(GroupId(9), b"$MF.clients-ws.192.0.2.1:8080"));
        assert_eq!(addresses.of_client(far, true), ["192.0.2.1:8080"]);
    }

    #[test]
    fn names_that_are_no_addresses_do_not_count() {
        let mut addresses = ClientAddresses::default();
        for pattern in ["$MF.clients.a", "$MF.clients.a:0", "$MF.daemon.a", "a:1"] {
            assert!(!addresses.add(GroupId(1), pattern.as_bytes()), "{pattern}");
        }
        for number in 0..200 {
            let pattern = format!("$MF.clients.host{number}:4222");
            assert!(addresses.add(GroupId(number), pattern.as_bytes()));
        }
        let client = IpAddr::from([192, 0, 2, 9]);
        assert_eq!(addresses.of_client(client, false).len(), ADDRESSES_MAX);
        assert!(addresses.remove(GroupId(7)) && !addresses.remove(GroupId(7)));
    }
}
