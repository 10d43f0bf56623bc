//! The sending side: one socket for all groups of a session.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use manyflow_core::Ecn;
use quinn_udp::UdpSocketState;
use socket2::{Domain, Protocol, Socket, Type};

use super::interface::LocalInterface;
use super::{
    Interface, MulticastError, NAME_THE_INTERFACE, ROUTER_ADVICE, check_multicast,
    check_same_version,
};
use crate::mtu::allow_fragments;
use crate::train::{Train, Unsent};
use crate::udp::SOCKET_BUFFER_BYTES;

/// The destination of a session, and the way to it.
#[derive(Clone, Debug)]
pub struct SenderConfig {
    /// One group of the session. All others have the same IP version and scope.
    pub group: IpAddr,
    /// The UDP port of all groups.
    pub port: u16,
    /// The interface towards the receivers; `None` takes the interface of the route.
    pub interface: Option<Interface>,
    /// Maximum number of hops (IPv4's TTL). Packets with 1 do not leave the link.
    pub hop_limit: u8,
}

impl SenderConfig {
    /// Returns the parameters of a session that does not leave the link of the route's interface.
    pub fn new(group: IpAddr, port: u16) -> Self {
        Self {
            group,
            port,
            interface: None,
            hop_limit: 1,
        }
    }
}

/// A socket that sends datagrams to any group of a session. Receivers on this host get them as
/// well.
#[derive(Debug)]
pub struct MulticastSender {
    socket: UdpSocket,
    state: UdpSocketState,
    source: IpAddr,
    port: u16,
    ecn: Ecn,
}

impl MulticastSender {
    /// Opens the socket, and binds it to the source address of its packets.
    pub fn open(config: &SenderConfig) -> Result<Self, MulticastError> {
        check_multicast(config.group)?;
        if let Some(Interface::Address(address)) = config.interface {
            check_same_version(config.group, address)?;
        }
        let interface = find_interface(config)?;
        let mut source = source_address(config, interface.as_ref())?;
        source.set_port(0);
        let socket = configured(config, interface.as_ref())?;
        Self::bind(config, socket, source, NAME_THE_INTERFACE)
    }

    /// Opens a socket whose packets have the source address of another host, as a router needs it.
    /// Needs the capability CAP_NET_RAW or CAP_NET_ADMIN (`IP_TRANSPARENT` in ip(7)). IPv4 only.
    pub(crate) fn open_for(config: &SenderConfig, source: IpAddr) -> Result<Self, MulticastError> {
        check_multicast(config.group)?;
        check_same_version(config.group, source)?;
        let socket = configured(config, find_interface(config)?.as_ref())?;
        socket
            .set_ip_transparent_v4(true)
            .map_err(MulticastError::refused(
                format!("send packets of {source}"),
                ROUTER_ADVICE,
            ))?;
        Self::bind(config, socket, (source, 0).into(), ROUTER_ADVICE)
    }

    fn bind(
        config: &SenderConfig,
        socket: Socket,
        source: SocketAddr,
        advice: &'static str,
    ) -> Result<Self, MulticastError> {
        socket
            .bind(&source.into())
            .map_err(MulticastError::refused(format!("bind to {source}"), advice))?;
        let state = UdpSocketState::new((&socket).into())
            .and_then(|state| allow_fragments(&socket, source.ip()).map(|()| state));
        Ok(Self {
            state: state.map_err(MulticastError::refused(
                format!("send from {source}"),
                advice,
            ))?,
            socket: socket.into(),
            source: source.ip(),
            port: config.port,
            ecn: Ecn::NotCapable,
        })
    }

    /// Sends packets with this ECN field. Without this call, they do not support ECN.
    pub fn with_ecn(mut self, ecn: Ecn) -> Self {
        self.ecn = ecn;
        self
    }

    /// Returns the source address of the packets, which receivers name in a source-specific join.
    pub fn source(&self) -> IpAddr {
        self.source
    }

    /// Passes datagrams to the kernel, and never waits: a sender that paces its packets counts
    /// those that are not taken as lost.
    pub fn send(&self, group: IpAddr, train: &Train) -> Unsent {
        self.send_to(SocketAddr::new(group, self.port), self.ecn, train)
    }

    /// Passes datagrams to this group and port with this ECN field to the kernel, as
    /// [`send`](Self::send) does.
    pub fn send_to(&self, group: SocketAddr, ecn: Ecn, train: &Train) -> Unsent {
        train.send(&self.socket, &self.state, group, ecn)
    }
}

/// Returns the named interface. `None` leaves the choice to the route.
fn find_interface(config: &SenderConfig) -> Result<Option<LocalInterface>, MulticastError> {
    config
        .interface
        .as_ref()
        .map(LocalInterface::find)
        .transpose()
}

/// Returns the address that the user named, or the kernel's choice. Connecting a datagram socket
/// sends nothing, but makes the kernel choose a route and a source, or report that there is none.
fn source_address(
    config: &SenderConfig,
    interface: Option<&LocalInterface>,
) -> Result<SocketAddr, MulticastError> {
    let probe = UdpSocket::from(configured(config, interface)?);
    let preferred = probe
        .connect((config.group, config.port))
        .and_then(|()| probe.local_addr())
        .map_err(MulticastError::refused(
            format!("reach {}", config.group),
            NAME_THE_INTERFACE,
        ))?;
    match (&config.interface, interface) {
        (Some(Interface::Address(address)), Some(local)) => Ok(local.scoped(*address)),
        _ => Ok(preferred),
    }
}

fn configured(
    config: &SenderConfig,
    interface: Option<&LocalInterface>,
) -> Result<Socket, MulticastError> {
    let ipv4 = match (config.group, interface) {
        (IpAddr::V4(_), Some(interface)) => interface.ipv4()?,
        _ => Ipv4Addr::UNSPECIFIED,
    };
    let socket = || -> io::Result<Socket> {
        let hops = config.hop_limit.into();
        let socket = Socket::new(
            Domain::for_address(SocketAddr::new(config.group, 0)),
            Type::DGRAM,
            Some(Protocol::UDP),
        )?;
        match config.group {
            IpAddr::V4(_) => {
                socket.set_multicast_if_v4(&ipv4)?;
                socket.set_multicast_ttl_v4(hops)?;
                socket.set_multicast_loop_v4(true)?;
            }
            IpAddr::V6(_) => {
                socket.set_multicast_if_v6(interface.map_or(0, |interface| interface.index))?;
                socket.set_multicast_hops_v6(hops)?;
                socket.set_multicast_loop_v6(true)?;
            }
        }
        socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    socket().map_err(MulticastError::refused(
        "open a multicast socket",
        NAME_THE_INTERFACE,
    ))
}
