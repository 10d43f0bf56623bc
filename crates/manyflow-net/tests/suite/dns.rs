//! Relays and services that a nameserver on loopback names, and multicast that makes relays
//! unnecessary.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use manyflow_amt::Flow;
use manyflow_net::dns::{DnsError, Nameservers, ServiceHost};
use manyflow_net::multicast::{Interface, MulticastSender, SenderConfig};
use manyflow_net::train::Train;
use manyflow_net::way::discover;
use manyflow_testing::LIMIT;
use manyflow_testing::nameserver::{Nameserver, Reply};

const SOURCE: &str = "192.0.2.7";

fn start(reply: Reply) -> (Nameserver, Nameservers) {
    let server = Nameserver::start("127.0.0.1:0", reply);
    let nameservers = Nameservers::new(vec![server.address]);
    (server, nameservers)
}

fn source() -> IpAddr {
    SOURCE.parse().unwrap()
}

/// The records of a near relay, of a far one by name, of none, and of an unknown kind.
fn records() -> Vec<Vec<u8>> {
    let far = b"\x14\x03\x05relay\x07example\x00".to_vec();
    let ipv6: std::net::Ipv6Addr = "2001:db8::15".parse().unwrap();
    vec![
        far,
        [&[12, 2][..], &ipv6.octets()].concat(),
        vec![10, 1, 203, 0, 113, 15],
        vec![5, 0],
        vec![1, 9, 9],
    ]
}

const RELAYS: [&str; 3] = ["203.0.113.15", "[2001:db8::15]", "relay.example"];

#[tokio::test]
async fn relays_of_a_source_are_found_in_their_order() {
    let reply = Reply {
        records: records(),
        is_forged: true,
        ..Reply::default()
    };
    let (server, nameservers) = start(reply);
    assert_eq!(nameservers.relays_of(source()).await.unwrap(), RELAYS);
    let asked = server.asked.lock().unwrap();
    assert_eq!(*asked, ["7.2.0.192.in-addr.arpa"]);
}

#[tokio::test]
async fn an_answer_that_is_cut_is_asked_for_by_tcp() {
    let (_server, nameservers) = start(Reply {
        records: records().into_iter().cycle().take(250).collect(),
        is_cut: true,
        ..Reply::default()
    });
    let relays = nameservers.relays_of(source()).await.unwrap();
    assert_eq!(relays.len(), 16, "no more are taken: {relays:?}");
}

#[tokio::test]
async fn a_source_without_relays_has_none() {
    for code in [0, 3] {
        let (_server, nameservers) = start(Reply {
            code,
            ..Reply::default()
        });
        assert!(nameservers.relays_of(source()).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn another_nameserver_is_asked_if_one_fails() {
    let (failing, alone) = start(Reply {
        code: 2,
        ..Reply::default()
    });
    let error = alone.relays_of(source()).await.unwrap_err();
    assert!(matches!(error, DnsError::Failed { .. }), "{error}");
    assert_eq!(failing.asked.lock().unwrap().len(), 2);
    let (working, _) = start(Reply {
        records: records(),
        ..Reply::default()
    });
    let nobody = manyflow_net::reserved::ReservedAddress::new().unwrap();
    let servers = vec![failing.address, nobody.get(), working.address];
    let nameservers = Nameservers::new(servers);
    assert_eq!(nameservers.relays_of(source()).await.unwrap(), RELAYS);
    let none = Nameservers::new(Vec::new()).relays_of(source()).await;
    assert!(matches!(none, Err(DnsError::None)));
}

#[tokio::test]
async fn hosts_of_a_service_are_found_with_their_ports() {
    let record = |priority: u16, weight: u16, port: u16, target: &[u8]| {
        let numbers = [priority, weight, port].map(u16::to_be_bytes).concat();
        [&numbers[..], target].concat()
    };
    let (server, nameservers) = start(Reply {
        kind: 33,
        records: vec![
            record(0, 5, 7000, b"\x01a\x07example\x00"),
            record(1, 0, 7001, b"\x01b\x07example\x00"),
            record(0, 0, 0, b"\x00"),
        ],
        ..Reply::default()
    });
    let host = |host: &str, port, priority, weight| ServiceHost {
        host: host.to_owned(),
        port,
        priority,
        weight,
    };
    let found = nameservers.hosts_of("_web._udp.example.net").await.unwrap();
    assert_eq!(
        found,
        [host("a.example", 7000, 0, 5), host("b.example", 7001, 1, 0)]
    );
    assert_eq!(*server.asked.lock().unwrap(), ["_web._udp.example.net"]);
    let wrong = nameservers.hosts_of("not a name..").await;
    assert!(matches!(wrong, Err(DnsError::Name(_))), "{wrong:?}");
}

/// A flow on the loopback interface, to a group of its own.
fn flow(group: &str) -> Flow {
    Flow {
        source: "127.0.0.1:40001".parse().unwrap(),
        group: SocketAddr::new(group.parse().unwrap(), 40_001),
    }
}

#[tokio::test]
async fn relays_are_used_only_if_no_multicast_arrives() {
    let (server, nameservers) = start(Reply {
        records: records(),
        ..Reply::default()
    });
    let silent = discover(flow("232.77.0.1"), &nameservers, Duration::from_millis(200));
    assert_eq!(silent.await, RELAYS);
    assert_eq!(server.asked.lock().unwrap().len(), 1);

    let flow = flow("232.77.0.2");
    let sender = MulticastSender::open(&SenderConfig {
        interface: Some(Interface::Name("lo".to_owned())),
        ..SenderConfig::new(flow.group.ip(), flow.group.port())
    });
    let sender = sender.unwrap();
    let sending = async {
        loop {
            sender.send(flow.group.ip(), &Train::of(b"packet"));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let found = tokio::select! {
        found = discover(flow, &nameservers, LIMIT) => found,
        () = sending => unreachable!("sending does not end"),
    };
    assert!(found.is_empty(), "multicast arrives: {found:?}");
}
