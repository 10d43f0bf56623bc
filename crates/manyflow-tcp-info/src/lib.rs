//! The state of a TCP connection as the kernel reports it: TCP_INFO of tcp(7).
//!
//! ```
//! use std::net::{TcpListener, TcpStream};
//!
//! use manyflow_tcp_info::TcpInfo;
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let socket = TcpStream::connect(listener.local_addr()?)?;
//! if let Ok(info) = TcpInfo::of(&socket) {
//!     println!("{:?} round trip, {} retransmissions", info.rtt, info.retransmissions);
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// The states in which a sender has data to send or to retransmit (`TCP_ESTABLISHED` and
/// `TCP_FIN_WAIT1` of the kernel's `net/tcp_states.h`).
#[cfg(target_os = "linux")]
const SENDING: [u8; 2] = [1, 4];

/// The state of a connection at its sender.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpInfo {
    /// Whether the connection is established, and the sender's last data is not acknowledged yet.
    pub is_sending: bool,
    /// The congestion window in segments.
    pub window: u32,
    /// The smoothed round-trip time; zero before the first measurement.
    pub rtt: Duration,
    /// The number of segments sent again so far.
    pub retransmissions: u32,
}

impl TcpInfo {
    /// Returns the state of a TCP socket.
    ///
    /// # Errors
    /// Returns an error if this is no TCP socket, or if the system is not Linux.
    #[cfg(target_os = "linux")]
    pub fn of(socket: &impl AsFd) -> io::Result<TcpInfo> {
        use std::os::fd::AsRawFd;
        // SAFETY: `tcp_info` is a struct of integers, for which zeros are valid.
        let mut info: libc::tcp_info = unsafe { core::mem::zeroed() };
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to `info`, and both pointers are valid
        // during the call. A kernel with a shorter struct leaves zeros.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info).cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(TcpInfo {
            is_sending: SENDING.contains(&info.tcpi_state),
            window: info.tcpi_snd_cwnd,
            rtt: Duration::from_micros(info.tcpi_rtt.into()),
            retransmissions: info.tcpi_total_retrans,
        })
    }

    /// Returns the state of a TCP socket.
    ///
    /// # Errors
    /// Returns an error, because the system is not Linux.
    #[cfg(not(target_os = "linux"))]
    pub fn of(_: &impl AsFd) -> io::Result<TcpInfo> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_over_loopback_has_a_window_and_a_round_trip_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        sender.write_all(b"data").unwrap();
        receiver.read_exact(&mut [0; 4]).unwrap();
        let info = TcpInfo::of(&sender).unwrap();
        assert!(info.is_sending && info.window > 0, "{info:?}");
        assert!(info.rtt > Duration::ZERO, "{info:?}");
        drop(receiver);
        assert_eq!(sender.read(&mut [0]).unwrap(), 0);
        sender.shutdown(std::net::Shutdown::Write).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(TcpInfo::of(&file).is_err());
    }
}
