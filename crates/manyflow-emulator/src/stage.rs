//! A network whose hosts are namespaces.

use manyflow_netsim::NodeId;
use manyflow_scenario::Network;

use crate::drive::Drive;
use crate::error::EmulateError;
use crate::fabric::{Addresses, Fabric};
use crate::netns::Namespace;

/// A network of links, and a namespace for each of its hosts. Everything is removed on drop.
pub struct Stage {
    hosts: Vec<Host>,
    /// The main loop.
    pub drive: Drive,
}

struct Host {
    node: NodeId,
    namespace: Namespace,
}

impl Stage {
    /// Makes a namespace with a device for each of `hosts`, and starts the clock. The network has
    /// `nodes` nodes, whose addresses are those of [`Addresses::of_scenario`]; all except `hosts`
    /// are routers.
    ///
    /// # Errors
    /// Returns an error if a namespace or a device cannot be made.
    pub fn new(network: Network, nodes: u32, hosts: &[NodeId]) -> Result<Stage, EmulateError> {
        let addresses = Addresses::of_scenario();
        let (mut made, mut ports) = (Vec::new(), Vec::new());
        for &node in hosts {
            let namespace = Namespace::create()?;
            ports.push((node, namespace.add_device(addresses.of(node))?));
            made.push(Host { node, namespace });
        }
        let fabric = Fabric::new(network, nodes, hosts, addresses);
        Ok(Stage {
            hosts: made,
            drive: Drive::new(fabric, ports),
        })
    }

    /// Returns the namespace of a host.
    ///
    /// # Panics
    /// Panics if the node is not one of the hosts.
    pub fn namespace(&self, node: NodeId) -> &Namespace {
        let host = self.hosts.iter().find(|host| host.node == node);
        &host.expect("the node is a host").namespace
    }
}
