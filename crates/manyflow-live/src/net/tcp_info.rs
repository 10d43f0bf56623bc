//! The state of a TCP connection as the kernel reports it: TCP_INFO of tcp(7).

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// The states in which a sender has data to send or to retransmit (`TCP_ESTABLISHED` and
/// `TCP_FIN_WAIT1` of the kernel's `net/tcp_states.h`).
const SENDING: [u8; 2] = [1, 4];

/// The state of a connection at its sender.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
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
    /// Returns an error if this is no TCP socket.
    pub fn of(socket: &impl AsFd) -> io::Result<TcpInfo> {
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
}

#[cfg(test)]
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
