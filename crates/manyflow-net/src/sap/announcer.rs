//! Announces a session.

use std::convert::Infallible;
use std::net::IpAddr;

use super::{Listener, PORT, Packet, PacketKind, Schedule, group_for};
use crate::clock::Clock;
use crate::multicast::{Groups, Interface, MulticastError, MulticastSender, SenderConfig};
use crate::train::Train;

/// Announces a session on `groups`, whose packets come from `source`, until the future is dropped.
/// The announcements leave by the session's interface, and reach as far.
///
/// # Errors
/// If the socket cannot be opened.
pub async fn announce(
    groups: &Groups,
    source: IpAddr,
    description: &str,
) -> Result<Infallible, MulticastError> {
    let group = group_for(groups.range.first);
    let named = groups.interface.clone();
    let interface = named.unwrap_or(Interface::Address(source));
    let socket = MulticastSender::open(&SenderConfig {
        group,
        port: PORT,
        hop_limit: groups.hop_limit,
        interface: Some(interface.clone()),
    })?;
    let packet = Packet::announcement(source, description);
    let (bytes, clock) = (packet.encode(), Clock::start());
    let mut schedule = Schedule::new(bytes.len(), rand::random());
    // Other announcements share the bandwidth. Without the right to listen, none are counted.
    let mut listener = Listener::open(group.is_ipv4(), Some(interface)).ok();
    loop {
        if schedule.handle_timeout(clock.now()) {
            let unsent = socket.send(group, &Train::of(&bytes));
            tracing::debug!(%group, ?unsent, "the session is announced");
        }
        tokio::select! {
            heard = hear(&mut listener) => if let Some((origin, hash, length)) = heard
                && (origin, hash) != (source, packet.hash)
            {
                schedule.handle_announcement(clock.now(), origin, hash, length);
            },
            () = clock.sleep_until(Some(schedule.poll_timeout())) => {}
        }
    }
}

/// Waits for another announcement: its origin, hash and length. Waits forever without a listener.
async fn hear(listener: &mut Option<Listener>) -> Option<(IpAddr, u16, usize)> {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    let bytes = listener.recv().await;
    let packet = Packet::decode(bytes).ok()?;
    let counts = packet.kind == PacketKind::Announcement;
    counts.then_some((packet.origin, packet.hash, bytes.len()))
}
