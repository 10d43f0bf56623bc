//! Forged AMT messages to the receiver and to the relay.

use std::net::{IpAddr, Ipv4Addr};

use manyflow_amt::Family;
use manyflow_amt::wire::{GatewayAddress, Message};
use rand::RngExt as _;

use crate::attack::attacker::{Attacker, Way};
use crate::attack::trial::{Trial, some_files, withstand_in_tunnel};
use crate::attack::world::{ATTACKER, RECEIVER};

/// Advertisements, queries and ends of the tunnel under the relay's address.
#[test]
fn forged_messages_of_the_relay_neither_move_nor_end_a_tunnel() {
    let Some(trial) = Trial::start(some_files, &[]) else {
        return;
    };
    withstand_in_tunnel(&trial, 500, |attacker, number| {
        let Way::Tunnel(port) = attacker.way else {
            unreachable!("the attack is on a tunnel");
        };
        let (nonce, mac) = (attacker.random.random(), attacker.random.random());
        let gateway = GatewayAddress::from(std::net::SocketAddr::from((ATTACKER, port)));
        let message = match number % 4 {
            0 => Message::RelayAdvertisement {
                nonce,
                relay: ATTACKER.into(),
            },
            1 | 2 => Message::MembershipQuery {
                limit: number % 4 == 1,
                mac,
                nonce,
                query: &[0; 36],
                gateway: Some(gateway),
            },
            _ => Message::Teardown {
                mac,
                nonce,
                gateway,
            },
        };
        attacker.send_as_relay(&message, port);
    });
}

/// Ends of the receiver's tunnel, and reports that it left, under the receiver's address.
#[test]
fn forged_messages_of_the_receiver_do_not_end_its_tunnel() {
    let Some(trial) = Trial::start(some_files, &[]) else {
        return;
    };
    withstand_in_tunnel(&trial, 500, |attacker, number| {
        let Way::Tunnel(port) = attacker.way else {
            unreachable!("the attack is on a tunnel");
        };
        let (nonce, mac) = (attacker.random.random(), attacker.random.random());
        let receiver = (RECEIVER, port).into();
        let message = match number % 2 {
            0 => Message::Teardown {
                mac,
                nonce,
                gateway: GatewayAddress::from(receiver),
            },
            _ => Message::MembershipUpdate {
                mac,
                nonce,
                report: &[0; 64],
            },
        };
        attacker.send_to_relay(&message, receiver);
    });
}

/// Requests from thousands of addresses and ports of the network, and updates without a MAC.
fn flood_relay(attacker: &mut Attacker) {
    let (nonce, mac) = (attacker.random.random(), attacker.random.random());
    let host: u8 = attacker.random.random_range(100..250);
    let port = attacker.random.random_range(1_024..u16::MAX);
    let source = (IpAddr::V4(Ipv4Addr::new(10, 78, 0, host)), port).into();
    let request = Message::Request {
        nonce,
        family: Family::V4,
    };
    attacker.send_to_relay(&request, source);
    let update = Message::MembershipUpdate {
        mac,
        nonce,
        report: &[0; 64],
    };
    attacker.send_to_relay(&update, source);
}

#[test]
fn a_flood_of_requests_at_the_relay_keeps_no_receiver_from_its_files() {
    let Some(trial) = Trial::start(some_files, &[]) else {
        return;
    };
    withstand_in_tunnel(&trial, 3_000, |attacker, _| flood_relay(attacker));
}

/// The flood begins before the receiver does.
#[test]
fn a_receiver_finds_its_relay_during_a_flood_of_requests() {
    let Some(trial) = Trial::start(some_files, &[]) else {
        return;
    };
    let attacker = trial.attacker(Way::Multicast);
    let attack = attacker.start(3_000, |attacker, _| flood_relay(attacker));
    trial.finish(trial.receive(&[]), attack);
}
