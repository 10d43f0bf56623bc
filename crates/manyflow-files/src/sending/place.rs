//! Choices that a sender makes by its place, where its user leaves them open.
//!
//! | choice | from |
//! |---|---|
//! | the session's rate | the speed of the interface, and of this machine |
//! | whether files are sent in windows | the session's rate, and the length of the files |
//! | the address of the relay | the addresses of this machine, and free ports |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use manyflow_core::units::Rate;
use manyflow_net::interfaces::{fastest_speed, interface_towards, reachable_addresses};
use manyflow_net::multicast::{Groups, Interface};
use manyflow_net::train::{Nowhere, Train};
use manyflow_object::sender::{ObjectSender, SenderConfig, SourceFile};
use manyflow_webrc::SessionConfig;

/// The UDP port of relays (RFC 7450 section 7.2).
const RELAY_PORT: u16 = 2268;
/// The speed of interfaces whose speed the kernel does not know.
const UNKNOWN_SPEED: Rate = Rate::from_bits_per_s(1_000_000_000);
/// The relay's rate on such interfaces: their own queue limits it.
const UNLIMITED: Rate = Rate::from_bits_per_s(100_000_000_000);
/// The rate of a session on a machine that sends more slowly.
const RATE_MIN: Rate = Rate::from_bits_per_s(50_000_000);
/// The packets of a train. Longer trains would also show capacities above 0.3 Gbit/s, but paths
/// below 2 Mbit/s would lose packets of them all the time.
const TRAIN_PACKETS: u32 = 4;
/// Sessions above this rate send files of more than this length in windows: to decode a file at
/// its end takes more than a tenth of the time that its packets take. The repair symbols of shorter
/// files fit into memory, and receivers far below the session's rate need fewer packets of them.
const WINDOWS_FROM: Rate = Rate::from_bits_per_s(300_000_000);
const WINDOWS_FROM_BYTES: u64 = 200_000_000;
/// Files of more than this length are sent in windows at every rate: their repair symbols and
/// their bookkeeping would take too much room.
const WINDOWS_ALWAYS_FROM_BYTES: u64 = 1_000_000_000;
/// The length of the file whose packets are measured, and the number of times.
const SAMPLE_BYTES: usize = 1 << 21;
const TRIES: usize = 3;

/// Returns the rate of a session that leaves by multicast to `groups`, through a relay on
/// `relay`, or both. It is nine tenths of the speed of the fastest interface, so that headers and
/// others have room; but at most a part of what a core of this machine makes and sends, which is
/// measured in some milliseconds.
pub fn session_rate(groups: Option<&Groups>, relay: Option<IpAddr>) -> Rate {
    let line = speed(groups, relay).unwrap_or(UNKNOWN_SPEED);
    // The measured packets leave in full trains. Those of a session wait for no others, so their
    // trains are shorter; and the kernel sends those of groups channel by channel, also if nobody
    // has joined them. The rest of the core is for repair symbols and for others.
    let divisor = if groups.is_some() { 12 } else { 8 };
    let core = part(packets_of_a_core(), 1, divisor);
    rounded(part(line, 9, 10).min(core).max(RATE_MIN))
}

/// Returns the rate to all gateways together of a relay on this address: most of what the
/// interface carries, so that the relay's own limit, which is fair to all gateways, is met first.
pub fn relay_rate(relay: IpAddr) -> Rate {
    speed(None, Some(relay)).map_or(UNLIMITED, |speed| part(speed, 19, 20))
}

/// Returns the address on which a relay listens that shall reach everybody: all addresses of this
/// machine, of IPv4 if it has one.
pub fn relay_address() -> SocketAddr {
    SocketAddr::new(any_address(), RELAY_PORT)
}

/// Returns the unspecified address of the IP version with which others reach this machine.
pub fn any_address() -> IpAddr {
    let others = reachable_addresses(Ipv6Addr::UNSPECIFIED.into());
    match others.iter().any(IpAddr::is_ipv4) || others.is_empty() {
        true => Ipv4Addr::UNSPECIFIED.into(),
        false => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Returns the parameters of a session of this rate for local networks, with packet trains.
pub fn lan(rate: Rate) -> SessionConfig {
    SessionConfig::lan(rate).with_packet_trains(TRAIN_PACKETS)
}

/// Whether files of this length in all are sent in windows, one after another.
pub(super) fn is_in_windows(rate: Rate, bytes: u64) -> bool {
    let is_fast = rate > WINDOWS_FROM && bytes > WINDOWS_FROM_BYTES;
    is_fast || bytes > WINDOWS_ALWAYS_FROM_BYTES
}

/// Returns the speed of the fastest interface by which packets leave; `None` if it is not known.
fn speed(groups: Option<&Groups>, relay: Option<IpAddr>) -> Option<Rate> {
    let of_route = |groups: &Groups| {
        let towards = interface_towards(groups.range.first).ok()?;
        Some(Interface::Name(towards.interface))
    };
    let of_groups = groups.and_then(|groups| groups.interface.clone().or_else(|| of_route(groups)));
    fastest_speed(|own| {
        let carries_groups = of_groups.as_ref().is_some_and(|interface| match interface {
            Interface::Name(name) => *name == own.interface,
            Interface::Address(address) => *address == own.ip,
        });
        let carries_tunnels = relay.is_some_and(|relay| match relay.is_unspecified() {
            true => !own.is_loopback,
            false => relay == own.ip,
        });
        carries_groups || carries_tunnels
    })
}

/// Measures the rate at which a core of this machine makes packets of a file and sends them in
/// trains: the best of some tries, since others may use the core, too.
fn packets_of_a_core() -> Rate {
    let best = (0..TRIES).filter_map(|_| time_of_a_file()).min();
    let seconds = best.map_or(f64::INFINITY, |time| time.as_secs_f64());
    Rate::from_bits_per_s((SAMPLE_BYTES as f64 * 8.0 / seconds) as u64)
}

/// Returns the time that the packets of a small file take.
fn time_of_a_file() -> Option<Duration> {
    let nowhere = Nowhere::open().ok()?;
    let config = SenderConfig::new(0, 1, 0);
    let cci = vec![0; config.cci_length];
    let file = SourceFile::new("sample", vec![0; SAMPLE_BYTES]);
    let mut sender = ObjectSender::new(config, vec![file]).ok()?;
    let (mut datagram, mut train) = (Vec::new(), Train::default());
    let start = Instant::now();
    // Source symbols only: repair symbols are encoded by other cores.
    for _ in 0..sender.symbols() {
        datagram.clear();
        sender.next_datagram(0, &cci, &mut datagram).ok()?;
        if !train.push(&datagram) {
            nowhere.send(&mut train);
        }
    }
    Some(start.elapsed())
}

fn part(rate: Rate, numerator: u64, denominator: u64) -> Rate {
    Rate::from_bits_per_s(rate.bits_per_s() / denominator * numerator)
}

/// Returns a rate with two digits that are not 0, which is short in a description.
fn rounded(rate: Rate) -> Rate {
    let bits = rate.bits_per_s();
    let unit = 10_u64.pow(bits.max(10).ilog10() - 1);
    Rate::from_bits_per_s(bits / unit * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBIT: u64 = 1_000_000_000;

    #[test]
    fn a_session_is_no_faster_than_its_interface_and_no_slower_than_before() {
        let loopback = session_rate(None, Some(Ipv4Addr::LOCALHOST.into()));
        // The kernel gives no speed for the loopback interface.
        assert!(
            (50_000_000..=900_000_000).contains(&loopback.bits_per_s()),
            "{loopback}"
        );
        assert_eq!(relay_rate(Ipv4Addr::LOCALHOST.into()), UNLIMITED);
    }

    #[test]
    fn rates_are_short() {
        let rounded = |bits| rounded(Rate::from_bits_per_s(bits)).bits_per_s();
        assert_eq!(rounded(2_873_123_456), 2_800_000_000);
        assert_eq!(rounded(900_000_000), 900_000_000);
        assert_eq!((rounded(7), rounded(19)), (7, 19));
    }

    #[test]
    fn large_files_of_fast_sessions_are_sent_in_windows() {
        let rate = Rate::from_bits_per_s;
        assert!(is_in_windows(rate(GBIT), 300_000_000));
        assert!(
            !is_in_windows(rate(GBIT), 10_000_000),
            "decoding takes no time"
        );
        assert!(
            !is_in_windows(rate(50_000_000), 100_000_000),
            "packets take longer"
        );
        assert!(
            is_in_windows(rate(50_000_000), 10 * GBIT),
            "symbols take much room"
        );
    }
}
