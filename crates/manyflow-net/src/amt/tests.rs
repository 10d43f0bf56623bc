use std::net::Ipv4Addr;
use std::time::Duration;

use manyflow_amt::{
    Family, Flow, GatewayConfig, GatewayEvent, LossReason, RelayAddress, RelayConfig,
};
use manyflow_testing::LIMIT;
use tokio::time::timeout;

use super::*;
use crate::reserved::own_address;
use crate::train::Train;

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn flows(family: Family) -> Vec<Flow> {
    let (source, groups) = match family {
        Family::V4 => ("192.0.2.1:40000", ["232.1.1.1:5000", "232.1.1.2:5000"]),
        Family::V6 => ("[2001:db8::1]:40000", ["[ff3e::1]:5000", "[ff3e::2]:5000"]),
    };
    let source = source.parse().unwrap();
    groups
        .map(|group| Flow {
            source,
            group: group.parse().unwrap(),
        })
        .to_vec()
}

fn server(address: SocketAddr, family: Family) -> RelayServer {
    RelayServer::bind(address, RelayConfig::default(), flows(family)).unwrap()
}

fn client(relay: RelayAddress, family: Family) -> GatewayClient {
    let fast = Duration::from_millis(100);
    GatewayClient::connect(GatewayConfig {
        initial_timeout: fast,
        ..GatewayConfig::new(relay, family)
    })
    .unwrap()
}

/// Waits until a condition holds, for a bounded time.
async fn until(mut holds: impl FnMut() -> bool) {
    let poll = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, poll)
        .await
        .expect("the condition holds in time");
}

async fn next(client: &mut GatewayClient) -> Incoming {
    timeout(LIMIT, client.recv())
        .await
        .expect("something comes in time")
        .unwrap()
}

async fn expect_event(client: &mut GatewayClient, expected: GatewayEvent) {
    match next(client).await {
        Incoming::Event(event) => assert_eq!(event, expected),
        other => panic!("{other:?} instead of {expected:?}"),
    }
}

async fn expect_datagram(client: &mut GatewayClient, flow: Flow, payload: &[u8]) {
    let datagram = match client.next_datagram() {
        // Received together with the one before.
        Some(datagram) => datagram,
        None => {
            assert_eq!(next(client).await, Incoming::Datagrams);
            client.next_datagram().expect("a datagram")
        }
    };
    assert_eq!((datagram.flow, datagram.payload), (flow, payload));
}

#[tokio::test]
async fn gateways_receive_what_they_joined_until_they_leave() {
    for family in [Family::V4, Family::V6] {
        let (server, flows) = (server(loopback(), family), flows(family));
        let sender = server.sender();
        let relay = RelayAddress::Unicast(server.local_addr());
        let mut clients = [client(relay, family), client(relay, family)];
        for (client, flow) in clients.iter_mut().zip(&flows) {
            client.join(*flow).unwrap();
            expect_event(client, GatewayEvent::Ready).await;
        }
        until(|| server.stats().joins == 2).await;
        sender.send(0, &Train::of(b"to the first")).unwrap();
        sender.send(1, &Train::of(b"to the second")).unwrap();
        let [first, second] = &mut clients;
        expect_datagram(first, flows[0], b"to the first").await;
        expect_datagram(second, flows[1], b"to the second").await;

        first.leave(flows[0]);
        until(|| server.stats().joins == 1).await;
        first.join(flows[1]).unwrap();
        until(|| server.stats().joins == 2).await;
        sender.send(0, &Train::of(b"to nobody")).unwrap();
        sender.send(1, &Train::of(b"to both")).unwrap();
        assert_eq!(server.stats().counters.forwarded, 2 + 2);
        expect_datagram(first, flows[1], b"to both").await;
        expect_datagram(second, flows[1], b"to both").await;
    }
}

#[tokio::test]
async fn closing_takes_the_gateway_off_the_relay() {
    let server = server(loopback(), Family::V4);
    let mut client = client(RelayAddress::Unicast(server.local_addr()), Family::V4);
    client.join(flows(Family::V4)[0]).unwrap();
    expect_event(&mut client, GatewayEvent::Ready).await;
    until(|| server.stats().gateways == 1).await;
    timeout(LIMIT, client.close()).await.expect("closing ends");
    until(|| server.stats().gateways == 0).await;
}

#[tokio::test]
async fn discovery_finds_a_relay_bound_to_any_address() {
    for (any, host) in [
        ("0.0.0.0:0", "127.0.0.1"),
        ("[::]:0", "::1"),
        ("[::]:0", "127.0.0.1"),
    ] {
        let server = server(any.parse().unwrap(), Family::V4);
        let address = SocketAddr::new(host.parse().unwrap(), server.local_addr().port());
        let mut client = client(RelayAddress::Discovery(address), Family::V4);
        client.join(flows(Family::V4)[0]).unwrap();
        expect_event(&mut client, GatewayEvent::Ready).await;
        until(|| server.stats().joins == 1).await;
    }
}

#[tokio::test]
async fn a_relay_that_is_gone_is_reported_and_found_again_when_it_is_back() {
    let address = own_address().unwrap();
    let server = server(address, Family::V4);
    let config = GatewayConfig {
        initial_timeout: Duration::from_millis(20),
        maximum_timeout: Duration::from_millis(100),
        ..GatewayConfig::new(RelayAddress::Unicast(address), Family::V4)
    };
    let mut client = GatewayClient::connect(config).unwrap();
    expect_event(&mut client, GatewayEvent::Ready).await;
    drop(server);
    // Nobody listens at the relay's port when the join arrives.
    client.join(flows(Family::V4)[0]).unwrap();
    expect_event(&mut client, GatewayEvent::RelayLost(LossReason::Silent)).await;
    let server = self::server(address, Family::V4);
    expect_event(&mut client, GatewayEvent::Ready).await;
    until(|| server.stats().joins == 1).await;
}

/// The gateway would repeat a lost Request only after a day.
#[tokio::test]
async fn the_first_request_is_not_lost() {
    for _ in 0..10 {
        let relay = tokio::net::UdpSocket::bind(loopback()).await.unwrap();
        let patient = GatewayConfig {
            initial_timeout: Duration::from_secs(86_400),
            ..GatewayConfig::new(
                RelayAddress::Unicast(relay.local_addr().unwrap()),
                Family::V4,
            )
        };
        let mut client = GatewayClient::connect(patient).unwrap();
        let mut request = [0; 100];
        let received = async {
            tokio::select! {
                received = relay.recv(&mut request) => received.unwrap(),
                _ = client.recv() => panic!("nobody answers"),
            }
        };
        let length = timeout(LIMIT, received).await.expect("a Request comes");
        assert!(matches!(
            manyflow_amt::wire::Message::decode(&request[..length]),
            Ok(manyflow_amt::wire::Message::Request { .. })
        ));
    }
}

/// Loopback carries 65,536 bytes; no UDP datagram over IPv4 has more than 65,507.
#[tokio::test]
async fn a_message_longer_than_the_mtu_is_dropped_and_counted() {
    let server = server(loopback(), Family::V4);
    let mut client = client(RelayAddress::Unicast(server.local_addr()), Family::V4);
    client.join(flows(Family::V4)[0]).unwrap();
    expect_event(&mut client, GatewayEvent::Ready).await;
    until(|| server.stats().joins == 1).await;
    server.sender().send(0, &Train::of(&[0; 65_500])).unwrap();
    server.sender().send(0, &Train::of(b"short")).unwrap();
    expect_datagram(&mut client, flows(Family::V4)[0], b"short").await;
    assert_eq!((server.stats().too_long, server.stats().unsent), (1, 0));
}
