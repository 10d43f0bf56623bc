//! Multicast between two hosts: network namespaces joined by a veth pair. Skipped without root.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use manyflow_net::multicast::{
    Interface, MulticastError, MulticastReceiver, MulticastSender, ReceiverConfig, SenderConfig,
};
use manyflow_net::train::{Train, Unsent};
use manyflow_testing::{LIMIT, TwoHosts, address};
use tokio::runtime;
use tokio::time::timeout;

const PORT: u16 = 5000;
const MARKER: &[u8] = b"marker";

/// Opens a sender on the sending host, with the source address `source`.
fn sender(hosts: &TwoHosts, group: &str, source: &str) -> MulticastSender {
    let config = SenderConfig {
        interface: Some(Interface::Address(address(source))),
        ..SenderConfig::new(address(group), PORT)
    };
    let sender = hosts.on_sender(|| MulticastSender::open(&config)).unwrap();
    assert_eq!(sender.source(), address(source));
    sender
}

/// Opens a receiver on the current thread's host.
fn receiver(source: &str) -> MulticastReceiver {
    let interface = Some(Interface::Name(TwoHosts::INTERFACE.to_owned()));
    MulticastReceiver::open(ReceiverConfig {
        source: address(source),
        port: PORT,
        interface,
    })
    .unwrap()
}

/// Runs `work` in its own runtime on this thread, because a new socket belongs to the thread's
/// namespace.
fn in_runtime(work: impl AsyncFnOnce()) {
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work());
}

/// Sends one datagram.
fn send(sender: &MulticastSender, group: IpAddr, payload: &[u8]) {
    assert_eq!(sender.send(group, &Train::of(payload)), Unsent::default());
}

fn on_receiver(hosts: &TwoHosts, work: impl AsyncFnOnce() + Send) {
    hosts.on_receiver(|| in_runtime(work));
}

/// Asserts that these datagrams arrive, and none else before a marker that `sender` sends to
/// `group`. Two processors may exchange datagrams on the link, so the marker need not be the last.
async fn assert_received(
    receiver: &mut MulticastReceiver,
    sender: &MulticastSender,
    group: IpAddr,
    mut expected: BTreeMap<Vec<u8>, usize>,
) {
    send(sender, group, MARKER);
    expected.insert(MARKER.to_vec(), 1);
    let mut counts = BTreeMap::new();
    loop {
        let has_all = expected.keys().all(|payload| counts.contains_key(payload));
        let patience = if has_all { Duration::ZERO } else { LIMIT };
        match timeout(patience, receiver.recv()).await {
            Ok(datagram) => {
                let payload = datagram.unwrap().payload.to_vec();
                *counts.entry(payload).or_insert(0) += 1;
            }
            Err(_) => return assert_eq!(counts, expected),
        }
    }
}

/// A receiver gets each datagram of its groups from the session's sender once, and none after it
/// has left. The range of the groups decides whether the kernel or the receiver drops the other
/// host's datagrams.
fn delivers_joined_groups_only(groups: [&str; 2], source: &str, foreign: &str, foreign_seen: u64) {
    let Some(hosts) = TwoHosts::new() else { return };
    let sender = sender(&hosts, groups[0], source);
    let stranger = self::sender(&hosts, groups[0], foreign);
    let [first, second] = groups.map(address);
    on_receiver(&hosts, async || {
        let mut receiver = receiver(source);
        receiver.join(second).unwrap();

        send(&sender, first, b"not joined");
        assert_received(&mut receiver, &sender, second, counts([])).await;

        receiver.join(first).unwrap();
        receiver.join(first).unwrap();
        send(&sender, first, b"joined");
        send(&stranger, first, b"foreign");
        assert_received(&mut receiver, &sender, second, counts([b"joined"])).await;
        assert_eq!(receiver.foreign_datagrams(), foreign_seen);

        receiver.leave(first).unwrap();
        send(&sender, first, b"left");
        assert_received(&mut receiver, &sender, second, counts([])).await;
    });
}

fn counts<const N: usize>(payloads: [&[u8]; N]) -> BTreeMap<Vec<u8>, usize> {
    payloads
        .into_iter()
        .map(|payload| (payload.to_vec(), 1))
        .collect()
}

#[test]
fn ipv4_source_specific_delivers_joined_groups_only() {
    let groups = ["232.1.2.0", "232.1.2.1"];
    delivers_joined_groups_only(groups, TwoHosts::SENDER_V4, TwoHosts::FOREIGN_V4, 0);
}

#[test]
fn ipv4_any_source_delivers_joined_groups_only() {
    let groups = ["239.1.2.0", "239.1.2.1"];
    delivers_joined_groups_only(groups, TwoHosts::SENDER_V4, TwoHosts::FOREIGN_V4, 1);
}

#[test]
fn ipv6_source_specific_delivers_joined_groups_only() {
    let groups = ["ff3e::8000:1", "ff3e::8000:2"];
    delivers_joined_groups_only(groups, TwoHosts::SENDER_V6, TwoHosts::FOREIGN_V6, 0);
}

#[test]
fn ipv6_any_source_delivers_joined_groups_only() {
    let groups = ["ff15::1:1", "ff15::1:2"];
    delivers_joined_groups_only(groups, TwoHosts::SENDER_V6, TwoHosts::FOREIGN_V6, 1);
}

/// Sixty groups need four sockets. A second receiver on the same host has joined the groups that
/// the first has not. So the host receives all groups, and only the sockets separate them.
#[test]
fn more_groups_than_one_socket_may_join_are_each_received_once() {
    let Some(hosts) = TwoHosts::new() else { return };
    let group = |number: u8| IpAddr::from(Ipv4Addr::new(232, 1, 3, number));
    let sender = sender(&hosts, "232.1.3.0", TwoHosts::SENDER_V4);
    on_receiver(&hosts, async || {
        let (mut even, mut odd) = (receiver(TwoHosts::SENDER_V4), receiver(TwoHosts::SENDER_V4));
        for number in 0..120 {
            let receiver = if number % 2 == 0 { &mut even } else { &mut odd };
            receiver.join(group(number)).unwrap();
        }
        for number in 0..120 {
            send(&sender, group(number), &[number]);
        }
        let expected = |first: u8| {
            (first..120)
                .step_by(2)
                .map(|number| (vec![number], 1))
                .collect()
        };
        assert_received(&mut even, &sender, group(0), expected(0)).await;
        assert_received(&mut odd, &sender, group(1), expected(1)).await;
    });
}

/// A session leaves and joins waves for hours, so sockets must reuse the places of left groups.
#[test]
fn groups_are_joined_and_left_many_times() {
    let Some(hosts) = TwoHosts::new() else { return };
    let group = |number: u8| IpAddr::from(Ipv4Addr::new(232, 1, 4, number));
    let sender = sender(&hosts, "232.1.4.0", TwoHosts::SENDER_V4);
    on_receiver(&hosts, async || {
        let mut receiver = receiver(TwoHosts::SENDER_V4);
        receiver.join(group(255)).unwrap();
        for round in 0..250u8 {
            receiver.join(group(round)).unwrap();
            if let Some(old) = round.checked_sub(30) {
                receiver.leave(group(old)).unwrap();
            }
            send(&sender, group(round), &[round]);
            assert_received(&mut receiver, &sender, group(255), counts([&[round]])).await;
        }
    });
}

/// Both ends on one host, over the link's interface or without any link (only IPv4: IPv6 has no
/// multicast route there).
#[test]
fn a_receiver_on_the_sending_host_gets_the_session() {
    let Some(hosts) = TwoHosts::new() else { return };
    for (interface, group, source) in [
        (TwoHosts::INTERFACE, "232.1.2.0", TwoHosts::SENDER_V4),
        (TwoHosts::INTERFACE, "ff3e::8000:1", TwoHosts::SENDER_V6),
        ("lo", "232.1.2.0", "127.0.0.1"),
        ("lo", "239.1.2.0", "127.0.0.1"),
    ] {
        let sender = sender(&hosts, group, source);
        hosts.on_sender(|| {
            in_runtime(async || {
                let interface = Some(Interface::Name(interface.to_owned()));
                let config = ReceiverConfig {
                    source: address(source),
                    port: PORT,
                    interface,
                };
                let mut receiver = MulticastReceiver::open(config).unwrap();
                receiver.join(address(group)).unwrap();
                assert_received(&mut receiver, &sender, address(group), counts([])).await;
            })
        });
    }
}

#[test]
fn without_a_route_to_the_group_a_sender_needs_an_interface_and_a_receiver_does_not() {
    let Some(hosts) = TwoHosts::new() else { return };
    let group = address("232.1.2.0");
    let config = SenderConfig::new(group, PORT);
    let error = hosts
        .on_sender(|| MulticastSender::open(&config))
        .unwrap_err();
    assert_says(&error, ["cannot reach 232.1.2.0", "name the interface"]);
    on_receiver(&hosts, async || {
        let source = address(TwoHosts::SENDER_V4);
        let config = ReceiverConfig {
            source,
            port: PORT,
            interface: None,
        };
        // The route to the source shows the interface.
        let mut receiver = MulticastReceiver::open(config).unwrap();
        receiver.join(group).unwrap();
    });
}

#[test]
fn addresses_that_do_not_fit_together_are_refused() {
    let config = |group, interface| SenderConfig {
        interface: Some(Interface::Address(address(interface))),
        ..SenderConfig::new(address(group), PORT)
    };
    let error = MulticastSender::open(&config("192.0.2.1", "127.0.0.1")).unwrap_err();
    assert_says(
        &error,
        ["192.0.2.1 is not a multicast group", "232.0.0.0/8"],
    );
    let error = MulticastSender::open(&config("232.1.2.0", "::1")).unwrap_err();
    assert_says(&error, ["232.1.2.0 and ::1", "different IP versions"]);
}

fn assert_says(error: &MulticastError, parts: [&str; 2]) {
    let text = error.to_string();
    assert!(
        parts.iter().all(|part| text.contains(part)) && !text.contains('\n'),
        "{text}"
    );
}

#[test]
fn an_interface_named_without_an_address_gives_the_sender_one_of_its_own() {
    let Some(hosts) = TwoHosts::new() else { return };
    for (group, own) in [
        ("232.1.2.0", [TwoHosts::SENDER_V4, TwoHosts::FOREIGN_V4]),
        ("ff3e::8000:1", [TwoHosts::SENDER_V6, TwoHosts::FOREIGN_V6]),
    ] {
        let interface = Some(Interface::Name(TwoHosts::INTERFACE.to_owned()));
        let config = SenderConfig {
            interface,
            ..SenderConfig::new(address(group), PORT)
        };
        let sender = hosts.on_sender(|| MulticastSender::open(&config)).unwrap();
        assert!(
            own.map(address).contains(&sender.source()),
            "{}",
            sender.source()
        );
    }
}
