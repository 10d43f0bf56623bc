//! A receiver that lies: its messages are rewritten between it and its relay. No shipped program
//! can lie.

use std::net::SocketAddr;

use anyhow::Result;
use manyflow_layered::hop::{Direction, HopMessage};
use manyflow_netsim::models::Lie;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// The longest datagram.
const DATAGRAM_MAX: usize = 65_536;

/// Returns a datagram of the receiver with the lie in it. Datagrams without reports are unchanged.
fn rewrite(lie: Lie, datagram: &[u8]) -> Vec<u8> {
    let decoded = HopMessage::decode(datagram, Direction::Up, None);
    let Ok(HopMessage::Report(stamp, feedbacks)) = decoded else {
        return datagram.to_vec();
    };
    let feedbacks: Vec<_> = feedbacks.iter().map(|known| lie.falsify(known)).collect();
    let mut message = Vec::new();
    stamp.encode_report(&feedbacks, None, &mut message);
    message
}

/// The bytes before the IPv4 header in an AMT Multicast Data message (RFC 7450, section 5.1.6).
const INNER_AT: usize = 2;
/// The kind of such a message.
const MULTICAST_DATA: u8 = 6;

/// Removes the mark of the IPv4 datagram in an AMT Multicast Data message, if there is one.
fn clear_mark(message: &mut [u8]) {
    let is_data = message.first() == Some(&MULTICAST_DATA);
    let Some(header) = message.get_mut(INNER_AT..INNER_AT + 20) else {
        return;
    };
    if !is_data || header[0] >> 4 != 4 || header[1] & 3 != 3 {
        return;
    }
    header[1] &= !1;
    // The second byte has decreased by 1, so the checksum increases by 1 (RFC 1624).
    let sum = u16::from_be_bytes([header[10], header[11]]);
    let (sum, carry) = sum.overflowing_add(1);
    header[10..12].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
}

/// A proxy between one receiver and its relay, which ends when it is dropped.
pub(super) struct Liar {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Liar {
    /// Starts a proxy in front of `relay`.
    ///
    /// # Errors
    /// If no socket can be opened.
    pub(super) async fn start(relay: SocketAddr, lie: Lie) -> Result<Liar> {
        let inner = UdpSocket::bind("127.0.0.1:0").await?;
        let outer = UdpSocket::bind("127.0.0.1:0").await?;
        outer.connect(relay).await?;
        Ok(Liar {
            address: inner.local_addr()?,
            task: tokio::spawn(forward(inner, outer, lie)),
        })
    }

    /// Returns the address that the receiver sends to.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Forwards datagrams until it is aborted. Errors of one datagram are losses.
async fn forward(inner: UdpSocket, outer: UdpSocket, lie: Lie) {
    let (mut up, mut down) = (vec![0; DATAGRAM_MAX], vec![0; DATAGRAM_MAX]);
    let mut receiver = None;
    loop {
        tokio::select! {
            Ok((length, from)) = inner.recv_from(&mut up) => {
                receiver = Some(from);
                let _ = outer.send(&rewrite(lie, &up[..length])).await;
            }
            Ok(length) = outer.recv(&mut down) => {
                if !lie.sees_marks() {
                    clear_mark(&mut down[..length]);
                }
                if let Some(receiver) = receiver {
                    let _ = inner.send_to(&down[..length], receiver).await;
                }
            }
            else => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manyflow_layered::Feedback;
    use manyflow_layered::hop::Stamp;

    #[test]
    fn only_reports_are_changed() {
        let honest = Feedback {
            source: 1,
            session: 7,
            group: 2,
            more: false,
            request: 3,
            reports: 1,
            congested: 0,
            minimum: 1_000,
            maximum: 1_000,
            population: 1,
            hold_us: 0,
            rtt_us: 0,
        };
        let mut report = Vec::new();
        Stamp::default().encode_report(&[honest], None, &mut report);
        let lied = rewrite(Lie::AlwaysCongested, &report);
        let Ok(HopMessage::Report(_, feedbacks)) = HopMessage::decode(&lied, Direction::Up, None)
        else {
            panic!("no longer a report");
        };
        assert_eq!(feedbacks.iter().next().unwrap().congested, 1);
        assert_eq!(rewrite(Lie::NeverCongested, &lied), report);
        assert_eq!(rewrite(Lie::AlwaysCongested, b"else"), b"else");
    }

    #[test]
    fn a_cleared_mark_leaves_a_right_checksum() {
        let sum = |header: &[u8]| {
            let words = header.chunks_exact(2);
            let sum: u32 = words
                .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
                .sum();
            (sum & 0xffff) + (sum >> 16)
        };
        for last in 0..=255 {
            let mut message = vec![6, 0, 0x45, 3, 0, 20, 0, 0, 0, 0, 9, 17, 0, 0];
            message.extend([127, 0, 0, 1, 232, 1, 3, last]);
            let checksum = !(sum(&message[2..]) as u16);
            message[12..14].copy_from_slice(&checksum.to_be_bytes());
            clear_mark(&mut message);
            assert_eq!((message[3], sum(&message[2..])), (2, 0xffff));
        }
    }
}
