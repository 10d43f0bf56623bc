//! Receives many datagrams with one system call, `recvmmsg`, with their control messages.
//!
//! quinn-udp, which sends all datagrams, has this, too. But its memory for the control messages of
//! a datagram has 96 bytes. The kernel needs up to 128 for those of datagrams that it has joined
//! (GRO): time stamp, length, address, and the ECN field, which comes last and would be lost.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

use manyflow_core::Ecn;

/// The maximum number of messages that one call returns.
pub(super) const MESSAGES_MAX: usize = 32;
/// The memory for the control messages of a message, in words of 8 bytes, to which the kernel
/// aligns them.
const CONTROL_WORDS: usize = 24;

/// A datagram, or several of one sender that the kernel has joined.
#[derive(Copy, Clone, Debug)]
pub(super) struct Message {
    /// The length in bytes.
    pub(super) length: usize,
    /// The length of each datagram but the last, which may be shorter.
    pub(super) stride: usize,
    pub(super) source: SocketAddr,
    /// The address to which the message was sent.
    pub(super) destination: Option<IpAddr>,
    pub(super) ecn: Ecn,
    /// The time at which the kernel got the message, since the Unix epoch.
    pub(super) timestamp: Option<Duration>,
}

/// Receives messages into `buffer`, each at a multiple of `room` bytes and as many as fit, and
/// passes them to `take` with their places. Messages of other families than IP are left out.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if no message has arrived.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    room: usize,
    mut take: impl FnMut(usize, &Message),
) -> io::Result<()> {
    let messages = (buffer.len() / room).min(MESSAGES_MAX);
    debug_assert!(messages > 0, "room for a message");
    // SAFETY: all of these are C structures for which zeros are valid.
    let (mut names, mut headers): (
        [libc::sockaddr_storage; MESSAGES_MAX],
        [libc::mmsghdr; MESSAGES_MAX],
    ) = unsafe { (zeroed(), zeroed()) };
    let mut controls = [[0u64; CONTROL_WORDS]; MESSAGES_MAX];
    let mut parts: [libc::iovec; MESSAGES_MAX] = unsafe { zeroed() };
    for (place, part) in buffer.chunks_exact_mut(room).take(messages).enumerate() {
        parts[place].iov_base = part.as_mut_ptr().cast();
        parts[place].iov_len = part.len();
        let header = &mut headers[place].msg_hdr;
        header.msg_name = (&raw mut names[place]).cast();
        header.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
        header.msg_iov = &raw mut parts[place];
        header.msg_iovlen = 1;
        header.msg_control = controls[place].as_mut_ptr().cast();
        header.msg_controllen = size_of::<[u64; CONTROL_WORDS]>() as _;
    }
    let (flags, timeout) = (libc::MSG_DONTWAIT, ptr::null_mut());
    let count = loop {
        // SAFETY: each header has pointers to memory of the lengths that it names, which lives
        // until the call has returned.
        let received = unsafe {
            let headers = headers.as_mut_ptr();
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers,
                messages as u32,
                flags as _,
                timeout,
            )
        };
        match usize::try_from(received) {
            Ok(count) => break count,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    };
    for (place, header) in headers[..count].iter().enumerate() {
        if let Some(source) = address(&names[place]) {
            let mut message = Message {
                length: header.msg_len as usize,
                stride: header.msg_len as usize,
                source,
                destination: None,
                ecn: Ecn::NotCapable,
                timestamp: None,
            };
            read_control(&header.msg_hdr, &mut message);
            take(place, &message);
        }
    }
    Ok(())
}

/// Reads the control messages of a message.
fn read_control(header: &libc::msghdr, message: &mut Message) {
    // SAFETY: the kernel has written `msg_controllen` bytes of whole control messages, and the
    // pointers of the macros of cmsg(3) remain within them.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while let Some(control) = unsafe { next.as_ref() } {
        // SAFETY: the kernel writes a value of the type that belongs to level and type, perhaps
        // not aligned for it.
        unsafe {
            let data = libc::CMSG_DATA(control);
            match (control.cmsg_level, control.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_TOS) => message.ecn = Ecn::from_bits(data.read()),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    message.ecn = Ecn::from_bits(data.cast::<libc::c_int>().read_unaligned() as u8);
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    let octets = info.ipi_addr.s_addr.to_ne_bytes();
                    message.destination = Some(Ipv4Addr::from(octets).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    message.destination = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let stride = data.cast::<libc::c_int>().read_unaligned();
                    message.stride = usize::try_from(stride).unwrap_or(message.length);
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let time = data.cast::<libc::timespec>().read_unaligned();
                    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
                    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
                    message.timestamp = Some(Duration::new(seconds, nanoseconds));
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(header, control);
        }
    }
}

/// Returns the address in a socket address of IP.
fn address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let storage = &raw const *storage;
    // SAFETY: the family says which structure the memory holds, and it has room for either.
    match unsafe { libc::c_int::from((*storage).ss_family) } {
        libc::AF_INET => {
            let v4 = unsafe { storage.cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some((ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            let v6 = unsafe { storage.cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            let scoped = std::net::SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id);
            Some(scoped.into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use quinn_udp::{EcnCodepoint, Transmit, UdpSocketState};

    use super::*;

    /// Sends three datagrams of 100 bytes as one message over loopback, and returns what arrives:
    /// the lengths of datagrams, and the control information of each message.
    fn received(loopback: IpAddr) -> (Vec<usize>, Vec<Message>) {
        let open = || UdpSocket::bind((loopback, 0)).unwrap();
        let (from, to) = (open(), open());
        let (sending, _receiving) = (
            UdpSocketState::new((&from).into()).unwrap(),
            UdpSocketState::new((&to).into()).unwrap(),
        );
        from.set_nonblocking(false).unwrap();
        let transmit = Transmit {
            destination: to.local_addr().unwrap(),
            ecn: Some(EcnCodepoint::Ect0),
            contents: &[7; 300],
            segment_size: (sending.max_gso_segments() > 1).then_some(100),
            src_ip: None,
        };
        sending.try_send((&from).into(), &transmit).unwrap();
        let mut buffer = vec![0; MESSAGES_MAX * 1000];
        let (mut lengths, mut messages) = (Vec::new(), Vec::new());
        while lengths.iter().sum::<usize>() < 300 {
            let taken = receive(to.as_fd(), &mut buffer, 1000, |_, message| {
                let full = message.length / message.stride;
                lengths.extend(std::iter::repeat_n(message.stride, full));
                messages.push(*message);
                assert_eq!(message.source, from.local_addr().unwrap());
            });
            if let Err(error) = taken {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                std::thread::yield_now();
            }
        }
        (lengths, messages)
    }

    #[test]
    fn joined_datagrams_have_their_ecn_field_besides_all_else() {
        for loopback in [IpAddr::from([127, 0, 0, 1]), Ipv6Addr::LOCALHOST.into()] {
            let (lengths, messages) = received(loopback);
            assert!(lengths == [100; 3] || lengths == [300], "{lengths:?}");
            for message in messages {
                assert_eq!(message.ecn, Ecn::Capable, "{message:?}");
                assert_eq!(message.destination, Some(loopback), "{message:?}");
                assert!(message.timestamp.is_some(), "{message:?}");
            }
        }
    }
}
