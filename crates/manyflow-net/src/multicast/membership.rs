//! Joining and leaving groups on a socket. Any-source membership uses socket2. Source-specific
//! membership uses the protocol-independent option of RFC 3678 section 5.1.2, which takes the index
//! of an interface in both IP versions; socket2, nix and rustix only have the option for IPv4.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::{io, mem};

use socket2::{InterfaceIndexOrAddress, SockAddr, SockRef};

/// A group that a socket can join and leave.
pub(super) struct Membership {
    pub(super) group: IpAddr,
    /// The only source to receive; `None` for any source.
    pub(super) source: Option<IpAddr>,
    /// The kernel's number of the interface; 0 for the interface of the route.
    pub(super) interface: u32,
}

impl Membership {
    pub(super) fn join(&self, socket: &SockRef<'_>) -> io::Result<()> {
        let interface = InterfaceIndexOrAddress::Index(self.interface);
        match (self.group, self.source) {
            (_, Some(source)) => self.set(socket, libc::MCAST_JOIN_SOURCE_GROUP, source),
            (IpAddr::V4(group), None) => socket.join_multicast_v4_n(&group, &interface),
            (IpAddr::V6(group), None) => socket.join_multicast_v6(&group, self.interface),
        }
    }

    pub(super) fn leave(&self, socket: &SockRef<'_>) -> io::Result<()> {
        let interface = InterfaceIndexOrAddress::Index(self.interface);
        match (self.group, self.source) {
            (_, Some(source)) => self.set(socket, libc::MCAST_LEAVE_SOURCE_GROUP, source),
            (IpAddr::V4(group), None) => socket.leave_multicast_v4_n(&group, &interface),
            (IpAddr::V6(group), None) => socket.leave_multicast_v6(&group, self.interface),
        }
    }

    fn set(&self, socket: &SockRef<'_>, option: libc::c_int, source: IpAddr) -> io::Result<()> {
        let level = match self.group {
            IpAddr::V4(_) => libc::IPPROTO_IP,
            IpAddr::V6(_) => libc::IPPROTO_IPV6,
        };
        let request = libc::group_source_req {
            gsr_interface: self.interface,
            gsr_group: storage(self.group),
            gsr_source: storage(source),
        };
        let length = mem::size_of_val(&request) as libc::socklen_t;
        // SAFETY: the descriptor is open for as long as `socket` borrows it. The kernel only reads
        // the request, which is a fully initialised C struct of the given length and outlives the
        // call.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                level,
                option,
                (&raw const request).cast(),
                length,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

/// Returns the address as a C struct. Memberships ignore its port.
fn storage(address: IpAddr) -> libc::sockaddr_storage {
    let mut storage = SockAddr::from(SocketAddr::new(address, 0)).as_storage();
    // SAFETY: on this platform, the storage is exactly this type.
    unsafe { *storage.view_as::<libc::sockaddr_storage>() }
}
