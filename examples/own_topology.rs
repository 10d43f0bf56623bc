//! A simulated network built by hand: two TCP connections share a bottleneck, which loses its rate
//! for a while.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;

use manyflow_core::link::{LinkConfig, QueueLimit};
use manyflow_core::time::seconds;
use manyflow_core::{EndpointId, Time};
use manyflow_netsim::{Change, NodeId};
use manyflow_tcp::{Event, Receiver, Segment, Sender, TcpConfig};

/// A network in which TCP alone runs.
type Network = manyflow_netsim::Network<Segment, Event>;

fn main() -> Result<(), Box<dyn Error>> {
    let seed = 7;
    let mut network = Network::new(seed);
    let [left, right] = ["left", "right"].map(|name| network.add_node(name));
    let bottleneck = LinkConfig {
        rate: Some("10 Mbit/s".parse()?),
        delay: seconds(0.02),
        queue: QueueLimit::Packets(50),
        ..LinkConfig::default()
    };
    let (link, _) = network.add_duplex(left, right, bottleneck.clone());
    let mut receivers = Vec::new();
    for (name, access_s) in [("near", 0.005), ("far", 0.030)] {
        let host = network.add_node(name);
        let access = LinkConfig {
            delay: seconds(access_s),
            ..LinkConfig::default()
        };
        network.add_duplex(host, left, access);
        receivers.push((name, add_connection(&mut network, host, right)?));
    }
    // A tenth of the rate, from 20 s to 30 s.
    let slow = LinkConfig {
        rate: Some("1 Mbit/s".parse()?),
        ..bottleneck.clone()
    };
    network.at(
        Time::from_secs_f64(20.0),
        Change::Configure(link, slow.into()),
    );
    network.at(
        Time::from_secs_f64(30.0),
        Change::Configure(link, bottleneck.into()),
    );

    let mut before = vec![0; receivers.len()];
    for second in (10..=60).step_by(10) {
        network.run_until(Time::from_secs_f64(f64::from(second)), &mut ())?;
        print!("{second:>3} s:");
        for ((name, receiver), before) in receivers.iter().zip(&mut before) {
            let bytes = network.received(*receiver).bytes;
            let mbit_per_s = (bytes - *before) as f64 * 8.0 / 1e6 / 10.0;
            *before = bytes;
            print!("  {name} {mbit_per_s:.2} Mbit/s");
        }
        println!();
    }
    network.check_accounting()?;
    Ok(())
}

/// Adds both ends of a connection; returns the receiving end.
fn add_connection(
    network: &mut Network,
    from: NodeId,
    to: NodeId,
) -> Result<EndpointId, Box<dyn Error>> {
    let sending = network.next_endpoint();
    let receiving = EndpointId(sending.0 + 1);
    let config = TcpConfig::default();
    let seed = network.stream(&format!("connection {}", sending.0));
    network.add(from, Sender::new(config.clone(), receiving, seed)?);
    Ok(network.add(to, Receiver::new(config, sending)?))
}
