//! Joining and leaving groups on a socket. Any-source membership is socket2's. Source-specific membership goes through
//! the protocol-independent option of RFC 3678 section 5.1.2, which takes an interface by its index in both IP versions;
//! socket2, nix and rustix offer the IPv4-only option alone.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::{io, mem};

use socket2::{InterfaceIndexOrAddress, SockAddr, SockRef};

/// Joins `group` on the interface with this index (0: the one the routes say), from `source` alone if given.
pub(super) fn join(
    socket: &SockRef<'_>,
    group: IpAddr,
    source: Option<IpAddr>,
    interface: u32,
) -> io::Result<()> {
    match (group, source) {
        (_, Some(source)) => source_specific(
            socket,
            libc::MCAST_JOIN_SOURCE_GROUP,
            group,
            source,
            interface,
        ),
        (IpAddr::V4(group), None) => {
            socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(interface))
        }
        (IpAddr::V6(group), None) => socket.join_multicast_v6(&group, interface),
    }
}

/// Undoes [`join`] with the same arguments.
pub(super) fn leave(
    socket: &SockRef<'_>,
    group: IpAddr,
    source: Option<IpAddr>,
    interface: u32,
) -> io::Result<()> {
    match (group, source) {
        (_, Some(source)) => source_specific(
            socket,
            libc::MCAST_LEAVE_SOURCE_GROUP,
            group,
            source,
            interface,
        ),
        (IpAddr::V4(group), None) => {
            socket.leave_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(interface))
        }
        (IpAddr::V6(group), None) => socket.leave_multicast_v6(&group, interface),
    }
}

fn source_specific(
    socket: &SockRef<'_>,
    option: libc::c_int,
    group: IpAddr,
    source: IpAddr,
    interface: u32,
) -> io::Result<()> {
    let level = match group {
        IpAddr::V4(_) => libc::IPPROTO_IP,
        IpAddr::V6(_) => libc::IPPROTO_IPV6,
    };
    let request = libc::group_source_req {
        gsr_interface: interface,
        gsr_group: storage(group),
        gsr_source: storage(source),
    };
    // SAFETY: the descriptor is open for as long as `socket` borrows it, and the kernel only reads the request, which
    // is a fully initialised C struct of exactly the length given and outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const request).cast(),
            mem::size_of_val(&request) as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The address in C's form; the port means nothing in a membership.
fn storage(address: IpAddr) -> libc::sockaddr_storage {
    let mut storage = SockAddr::from(SocketAddr::new(address, 0)).as_storage();
    // SAFETY: on this platform the storage is this very type.
    unsafe { *storage.view_as::<libc::sockaddr_storage>() }
}
