//! The sockets of a multicast router on one network: IGMP from its hosts, and packets to them.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use manyflow_amt::Flow;
use manyflow_core::Ecn;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockRef, Socket, Type};
use tokio::net::UdpSocket;

use super::interface::LocalInterface;
use super::sender::{MulticastSender, SenderConfig};
use super::{Interface, MulticastError, ROUTER_ADVICE};
use crate::train::{Train, Unsent};

/// Maximum length of an IGMP message with its IP header: that of an interface's MTU.
const IGMP_BYTES_MAX: usize = 65_535;
/// Protocol number of IGMP.
const IGMP: i32 = 2;
/// The group of IGMPv3's reports (RFC 3376, section 4.2.14).
const IGMPV3_REPORTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);

/// The sockets of a router on one interface. Needs the capability CAP_NET_RAW. IPv4 only.
#[derive(Debug)]
pub(crate) struct MulticastRouter {
    interface: Interface,
    address: Ipv4Addr,
    hop_limit: u8,
    /// A raw socket. tokio has no type for it, but receives and sends on it as on a UDP socket.
    igmp: UdpSocket,
    /// A socket for each source address.
    senders: BTreeMap<IpAddr, MulticastSender>,
    buffer: Box<[u8]>,
}

impl MulticastRouter {
    /// Opens the socket for IGMP on an interface, and sockets that send packets of `flows` to at
    /// most `hop_limit` hops.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub(crate) fn open(
        interface: &Interface,
        hop_limit: u8,
        flows: &[Flow],
    ) -> Result<Self, MulticastError> {
        let local = LocalInterface::find(interface)?;
        let address = local.ipv4()?;
        let igmp = open_igmp(&local, address).and_then(|raw| UdpSocket::from_std(raw.into()));
        let igmp = igmp.map_err(MulticastError::refused(
            format!("receive IGMP on {}", local.name()),
            ROUTER_ADVICE,
        ))?;
        let mut router = Self {
            interface: interface.clone(),
            address,
            hop_limit,
            igmp,
            senders: BTreeMap::new(),
            buffer: vec![0; IGMP_BYTES_MAX].into(),
        };
        flows.iter().try_for_each(|flow| router.add_sender(*flow))?;
        Ok(router)
    }

    /// Opens the socket that sends packets from the source of `flow`.
    fn add_sender(&mut self, flow: Flow) -> Result<(), MulticastError> {
        let source = flow.source.ip();
        if self.senders.contains_key(&source) {
            return Ok(());
        }
        let config = SenderConfig {
            interface: Some(self.interface.clone()),
            hop_limit: self.hop_limit,
            ..SenderConfig::new(flow.group.ip(), flow.group.port())
        };
        let sender = MulticastSender::open_for(&config, source)?;
        self.senders.insert(source, sender);
        Ok(())
    }

    /// Returns the interface's address.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Waits for an IGMP message, and returns the IP datagram with it. Cancel safe.
    pub(crate) async fn recv(&mut self) -> io::Result<&[u8]> {
        let length = self.igmp.recv(&mut self.buffer).await?;
        Ok(&self.buffer[..length])
    }

    /// Sends an IP datagram with an IGMP message to all hosts. The kernel writes its source
    /// address and checksum. A datagram that is not sent counts as lost.
    pub(crate) fn send_igmp(&self, datagram: &[u8]) {
        let all_hosts = SocketAddr::from((Ipv4Addr::new(224, 0, 0, 1), 0));
        // tokio's `try_send_to` fails until tokio has polled the socket: the first query would be
        // lost.
        let socket = SockRef::from(&self.igmp);
        if let Err(error) = socket.send_to(datagram, &all_hosts.into()) {
            tracing::debug!(%error, "an IGMP query was not sent");
        }
    }

    /// Passes the payloads of a flow to the kernel, with the flow's source address and this ECN
    /// field. Never waits.
    pub(crate) fn send(&self, flow: Flow, ecn: Ecn, payloads: &Train) -> Unsent {
        match self.senders.get(&flow.source.ip()) {
            Some(sender) => sender.send_to(flow.group, ecn, payloads),
            None => Unsent::default(),
        }
    }
}

/// Opens a raw socket that receives IGMPv3 reports on the interface, and sends there.
fn open_igmp(interface: &LocalInterface, address: Ipv4Addr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(IGMP)))?;
    socket.set_nonblocking(true)?;
    socket.set_header_included_v4(true)?;
    socket.bind_device(Some(interface.name().as_bytes()))?;
    socket.set_multicast_if_v4(&address)?;
    socket.set_multicast_loop_v4(false)?;
    let on_interface = InterfaceIndexOrAddress::Index(interface.index);
    socket.join_multicast_v4_n(&IGMPV3_REPORTS, &on_interface)?;
    Ok(socket)
}
