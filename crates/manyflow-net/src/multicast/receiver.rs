//! The receiving side: a pool of sockets, because the kernel limits the number of groups that one
//! socket may join.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll};
use std::time::Instant;

use manyflow_core::Ecn;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::interface::LocalInterface;
use super::is_source_specific;
use super::membership::Membership;
use super::silence::Silence;
use super::{Choice, Interface, MulticastError, check_multicast, check_same_version};
use crate::udp::{Arrival, Inbox, Port, SOCKET_BUFFER_BYTES, grow_receive_buffer};

/// Linux's default limit of groups per socket (net.ipv4.igmp_max_memberships).
const GROUPS_PER_SOCKET: usize = 20;

const JOIN_ADVICE: &str = "name the interface that leads to the sender, and see that \
    net.ipv4.igmp_max_memberships is at least 20";

/// The session to receive.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// The sender's address. Datagrams from other hosts are dropped.
    pub source: IpAddr,
    /// The UDP port of all groups.
    pub port: u16,
    /// The interface towards the sender; `None` takes the interface of the route to the source
    /// ([`Choice`]).
    pub interface: Option<Interface>,
}

/// A datagram that has arrived.
#[derive(Clone, Debug)]
pub struct Datagram<'a> {
    /// The UDP payload.
    pub payload: &'a [u8],
    /// Source of the datagram: the session's sender.
    pub source: SocketAddr,
    /// The group to which the datagram was sent.
    pub group: IpAddr,
    /// The ECN field of the datagram.
    pub ecn: Ecn,
    /// Time at which the datagram was taken from the kernel.
    pub received_at: Instant,
    /// Time at which the kernel got the datagram; `received_at` if the kernel does not say. It
    /// comes from the system's clock, so it suits only differences between datagrams.
    pub arrived_at: Instant,
}

/// A receiver of the joined groups, from the session's sender only.
#[derive(Debug)]
pub struct MulticastReceiver {
    config: ReceiverConfig,
    /// The kernel's number of the interface.
    interface: u32,
    sockets: Vec<Member>,
    /// The number of the interface at the last check.
    seen: Option<u32>,
    /// Whether the interface did not exist at the last check.
    is_gone: bool,
    /// The socket to poll first, so that a busy one does not starve the others.
    first: usize,
    inbox: Inbox,
    foreign_datagrams: u64,
    silence: Silence,
}

/// A socket and the groups that it has joined.
#[derive(Debug)]
struct Member {
    port: Port,
    groups: Vec<IpAddr>,
}

impl MulticastReceiver {
    /// Opens the first socket of the pool, without joining a group.
    ///
    /// # Panics
    ///
    /// If called outside of a tokio runtime; so does [`join`](Self::join).
    pub fn open(config: ReceiverConfig) -> Result<Self, MulticastError> {
        let interface = index_towards(&config)?;
        let sockets = vec![Member::open(&config)?];
        Ok(Self {
            config,
            interface,
            seen: None,
            is_gone: false,
            sockets,
            first: 0,
            inbox: Inbox::default(),
            foreign_datagrams: 0,
            silence: Silence::default(),
        })
    }

    /// Opens the sockets again and joins their groups if the interface was removed and made again:
    /// the kernel has forgotten its memberships then. The caller calls this once a second or so.
    pub fn follow_interface(&mut self) {
        if self.sockets.iter().all(|member| member.groups.is_empty()) {
            return;
        }
        let present = self.present_interface();
        let is_other = present.is_some() && present != self.seen;
        let is_first = self.seen.is_none() && !self.is_gone;
        self.is_gone = present.is_none();
        self.seen = present;
        if !is_other || is_first {
            return;
        }
        match self.reopen() {
            Ok(()) => tracing::info!(
                "the interface towards {} was made again or is another one; the groups are joined there",
                self.config.source
            ),
            Err(error) => {
                tracing::debug!(%error, "the groups cannot be joined again yet");
                (self.seen, self.is_gone) = (None, true);
            }
        }
    }

    /// Looks whether a session with joined groups is silent. After ten seconds, leaves the groups,
    /// so that routers forget them; [`follow_rejoin`](Self::follow_rejoin) joins them again. The
    /// caller calls this once a second or so while nothing comes.
    pub(crate) fn check_silence(&mut self) {
        let has_groups = self.sockets.iter().any(|member| !member.groups.is_empty());
        if !has_groups || !self.silence.begins_rejoin(Instant::now()) {
            return;
        }
        for group in self.groups() {
            let left = self.set_membership(group, Membership::leave);
            if let Err(error) = left {
                tracing::debug!(%group, %error, "a silent group cannot be left");
            }
        }
    }

    /// Joins the groups again that were left because of their silence, after a pause. The caller
    /// calls this once a second or so.
    pub(crate) fn follow_rejoin(&mut self) {
        if !self.silence.ends_rejoin(Instant::now()) {
            return;
        }
        for group in self.groups() {
            if let Err(error) = self.set_membership(group, Membership::join) {
                tracing::warn!("cannot join {group} again: {error}; {JOIN_ADVICE}");
            }
        }
        tracing::info!("the session is silent; its groups were left and are joined again");
    }

    fn groups(&self) -> Vec<IpAddr> {
        let groups = self.sockets.iter().flat_map(|member| &member.groups);
        groups.copied().collect()
    }

    /// Changes the membership in a group on its socket.
    fn set_membership(
        &self,
        group: IpAddr,
        change: impl Fn(&Membership, &SockRef<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut sockets = self.sockets.iter();
        let member = sockets.find(|member| member.groups.contains(&group));
        let member = member.ok_or(io::ErrorKind::NotFound)?;
        change(
            &self.membership(group),
            &SockRef::from(member.port.socket()),
        )
    }

    /// Returns the number of the interface towards the source; `None` if it does not exist.
    fn present_interface(&self) -> Option<u32> {
        index_towards(&self.config).ok()
    }

    fn reopen(&mut self) -> Result<(), MulticastError> {
        let mut opened = Self::open(self.config.clone())?;
        for group in self.sockets.iter().flat_map(|member| &member.groups) {
            opened.join(*group)?;
        }
        (self.sockets, self.interface) = (opened.sockets, opened.interface);
        self.silence.restart();
        self.first = 0;
        Ok(())
    }

    /// Joins `group`, with its source if the group's range is source-specific. Joining again does
    /// nothing.
    pub fn join(&mut self, group: IpAddr) -> Result<(), MulticastError> {
        check_multicast(group)?;
        check_same_version(group, self.config.source)?;
        if self
            .sockets
            .iter()
            .any(|member| member.groups.contains(&group))
        {
            return Ok(());
        }
        let membership = self.membership(group);
        let (is_gone, is_left) = (self.is_gone, self.silence.is_left());
        let member = self.member_with_room()?;
        if is_left {
            // It is joined with the others.
            member.groups.push(group);
            return Ok(());
        }
        let joined = membership.join(&SockRef::from(member.port.socket()));
        // The groups of an interface that does not exist are joined when it is made again.
        if !is_gone {
            joined.map_err(MulticastError::refused(
                format!("join {group}"),
                JOIN_ADVICE,
            ))?;
        }
        member.groups.push(group);
        Ok(())
    }

    /// Leaves `group`. Datagrams that the kernel already holds are still received. Leaving a group
    /// that is not joined does nothing.
    pub fn leave(&mut self, group: IpAddr) -> Result<(), MulticastError> {
        let membership = self.membership(group);
        let Some(member) = self
            .sockets
            .iter_mut()
            .find(|member| member.groups.contains(&group))
        else {
            return Ok(());
        };
        member.groups.retain(|joined| *joined != group);
        let left = membership.leave(&SockRef::from(member.port.socket()));
        if self.is_gone || self.silence.is_left() {
            return Ok(());
        }
        left.map_err(MulticastError::refused(
            format!("leave {group}"),
            "close the receiver",
        ))
    }

    /// Waits for the next datagram of the session. Cancel safe: a datagram that is not returned
    /// remains in the queue.
    ///
    /// # Errors
    /// If a socket fails.
    pub async fn recv(&mut self) -> io::Result<Datagram<'_>> {
        loop {
            self.wait().await?;
            // Borrowed once more below, because the loop may continue.
            if let Some(next) = self.next_arrival() {
                return Ok(self.datagram(next));
            }
        }
    }

    /// Waits until a socket has datagrams, which [`next_datagram`](Self::next_datagram) returns.
    /// Cancel safe.
    pub(crate) async fn wait(&mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// Returns the next datagram of those that were received together.
    pub(crate) fn next_datagram(&mut self) -> Option<Datagram<'_>> {
        self.next_arrival().map(|next| self.datagram(next))
    }

    /// Returns the source of the session.
    pub(crate) fn source(&self) -> IpAddr {
        self.config.source
    }

    /// Returns the number of datagrams that came to the port from other hosts than the session's
    /// sender.
    pub fn foreign_datagrams(&self) -> u64 {
        self.foreign_datagrams
    }

    fn membership(&self, group: IpAddr) -> Membership {
        let source = is_source_specific(group).then_some(self.config.source);
        Membership {
            group,
            source,
            interface: self.interface,
        }
    }

    fn member_with_room(&mut self) -> Result<&mut Member, MulticastError> {
        let has_room = |member: &Member| member.groups.len() < GROUPS_PER_SOCKET;
        let place = match self.sockets.iter().position(has_room) {
            Some(place) => place,
            None => {
                self.sockets.push(Member::open(&self.config)?);
                self.sockets.len() - 1
            }
        };
        Ok(&mut self.sockets[place])
    }

    /// Polls the sockets in turn, so that each is read as often as the others.
    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let count = self.sockets.len();
        let first = self.first;
        for place in (first..first + count).map(|place| place % count) {
            let port = &self.sockets[place].port;
            if let Poll::Ready(result) = port.poll_recv(&mut self.inbox, context) {
                self.first = place + 1;
                return Poll::Ready(result);
            }
        }
        Poll::Pending
    }

    /// Returns the next datagram that came from the session's sender.
    fn next_arrival(&mut self) -> Option<(Arrival, IpAddr)> {
        while let Some(arrival) = self.inbox.next_arrival() {
            let Some(group) = arrival.destination else {
                continue;
            };
            if arrival.source.ip() == self.config.source {
                self.silence.hear();
                return Some((arrival, group));
            }
            self.foreign_datagrams += 1;
        }
        None
    }

    fn datagram(&self, (arrival, group): (Arrival, IpAddr)) -> Datagram<'_> {
        Datagram {
            payload: self.inbox.bytes(arrival.payload),
            source: arrival.source,
            group,
            ecn: arrival.ecn,
            received_at: arrival.received_at,
            arrived_at: arrival.arrived_at,
        }
    }
}

/// Returns the kernel's number of the interface towards the source: the named one, or that of the
/// route.
fn index_towards(config: &ReceiverConfig) -> Result<u32, MulticastError> {
    match &config.interface {
        Some(interface) => LocalInterface::find(interface).map(|found| found.index),
        None => Choice::towards(config.source)?.index(),
    }
}

impl Member {
    /// Opens a socket of the pool. All sockets of the pool, and of other receivers on this host,
    /// share the port: `SO_REUSEADDR` allows it, and each gets its own copy. `MULTICAST_ALL` is
    /// off, because Linux otherwise delivers the datagrams of every group that any socket on the
    /// host has joined.
    fn open(config: &ReceiverConfig) -> Result<Self, MulticastError> {
        let (any, domain) = match config.source {
            IpAddr::V4(_) => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), Domain::IPV4),
            IpAddr::V6(_) => (IpAddr::V6(Ipv6Addr::UNSPECIFIED), Domain::IPV6),
        };
        let port = || -> io::Result<Port> {
            let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
            socket.set_reuse_address(true)?;
            match config.source {
                IpAddr::V4(_) => socket.set_multicast_all_v4(false)?,
                IpAddr::V6(_) => {
                    socket.set_only_v6(true)?;
                    socket.set_multicast_all_v6(false)?;
                }
            }
            warn_of_small_buffer(grow_receive_buffer(&socket)?);
            socket.bind(&SocketAddr::new(any, config.port).into())?;
            Port::new(socket)
        };
        let port = port().map_err(MulticastError::refused(
            format!("receive on UDP port {}", config.port),
            "end the program that holds the port or choose another",
        ))?;
        Ok(Self {
            port,
            groups: Vec::new(),
        })
    }
}

/// Warns if the receive buffer is smaller than asked for. The kernel caps it silently.
fn warn_of_small_buffer(granted_bytes: usize) {
    if granted_bytes < SOCKET_BUFFER_BYTES {
        tracing::warn!(
            "the kernel grants a receive buffer of {granted_bytes} B instead of {SOCKET_BUFFER_BYTES} B, so bursts are lost: raise it with sysctl -w net.core.rmem_max={SOCKET_BUFFER_BYTES}"
        );
    }
}
