//! AMT between two hosts, whose addresses and interfaces change: network namespaces joined by a
//! veth pair. Skipped without root.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use manyflow_amt::{Family, Flow, GatewayConfig, GatewayEvent, RelayAddress, RelayConfig};
use manyflow_net::amt::{GatewayClient, Incoming, RelayServer};
use manyflow_net::multicast::{
    Interface, MulticastReceiver, MulticastSender, ReceiverConfig, SenderConfig,
};
use manyflow_net::train::Train;
use manyflow_testing::{LIMIT, TwoHosts, address};
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::{interval, timeout};

const PORT: u16 = 2268;

fn flow() -> Flow {
    Flow {
        source: "192.0.2.1:40000".parse().unwrap(),
        group: "232.1.1.1:5000".parse().unwrap(),
    }
}

/// Runs `work` in its own runtime on this thread, because a new socket belongs to the thread's
/// namespace.
fn in_runtime<T>(work: impl AsyncFnOnce() -> T) -> T {
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work())
}

/// Runs a relay at `bound` on the sending host, which sends a datagram every 20 ms, while `work`
/// runs on the receiving host. Returns the source of the last tunnel.
fn with_relay(hosts: &TwoHosts, bound: &str, work: impl AsyncFnOnce() + Send) {
    let bound = SocketAddr::new(address(bound), PORT);
    let (ready, is_ready) = std::sync::mpsc::channel();
    let (done, is_done) = oneshot::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            hosts.on_sender(|| {
                in_runtime(async || {
                    let server =
                        RelayServer::bind(bound, RelayConfig::default(), vec![flow()]).unwrap();
                    ready.send(()).unwrap();
                    let (sender, mut times) =
                        (server.sender(), interval(Duration::from_millis(20)));
                    let send = async {
                        loop {
                            times.tick().await;
                            sender.send(0, &Train::of(b"data")).unwrap();
                        }
                    };
                    tokio::select! {
                        () = send => {}
                        _ = is_done => {}
                    }
                });
            });
        });
        is_ready.recv().unwrap();
        hosts.on_receiver(|| in_runtime(work));
        drop(done);
    });
}

fn gateway(relay: IpAddr) -> GatewayClient {
    let relay = RelayAddress::Unicast(SocketAddr::new(relay, PORT));
    GatewayClient::connect(GatewayConfig::new(relay, Family::V4)).unwrap()
}

/// Waits for a datagram, and looks at the network as often as a session does.
async fn expect_data(gateway: &mut GatewayClient) {
    let mut checks = interval(Duration::from_millis(100));
    let receive = async {
        loop {
            tokio::select! {
                incoming = gateway.recv() => match incoming.unwrap() {
                    Incoming::Datagrams => return,
                    Incoming::Event(GatewayEvent::Ready) => {}
                    Incoming::Event(lost) => panic!("{lost:?}"),
                },
                _ = checks.tick() => {}
            }
            gateway.follow_network();
        }
    };
    timeout(LIMIT, receive).await.expect("data comes");
}

/// Drops the datagrams that have already arrived.
async fn drain(gateway: &mut GatewayClient) {
    while timeout(Duration::ZERO, gateway.recv()).await.is_ok() {}
}

#[test]
fn a_relay_answers_from_the_address_that_was_asked() {
    for (bound, asked) in [
        ("0.0.0.0", TwoHosts::SENDER_V4),
        ("0.0.0.0", TwoHosts::FOREIGN_V4),
        ("::", TwoHosts::FOREIGN_V4),
        ("::", TwoHosts::SENDER_V6),
        ("::", TwoHosts::FOREIGN_V6),
    ] {
        let Some(hosts) = TwoHosts::new() else { return };
        with_relay(&hosts, bound, async || {
            let mut gateway = gateway(address(asked));
            gateway.join(flow()).unwrap();
            expect_data(&mut gateway).await;
        });
    }
}

#[test]
fn a_tunnel_moves_to_the_hosts_new_address() {
    let Some(hosts) = TwoHosts::new() else { return };
    with_relay(&hosts, "0.0.0.0", async || {
        let mut gateway = gateway(address(TwoHosts::SENDER_V4));
        gateway.join(flow()).unwrap();
        expect_data(&mut gateway).await;
        manyflow_testing::ip_here("address add 10.77.0.9/24 dev wire");
        manyflow_testing::ip_here("address delete 10.77.0.2/24 dev wire");
        manyflow_testing::ip_here("address replace 10.77.0.9/24 dev wire");
        drain(&mut gateway).await;
        expect_data(&mut gateway).await;
    });
}

#[test]
fn a_tunnel_opens_again_when_its_interface_is_made_again() {
    let Some(hosts) = TwoHosts::new() else { return };
    with_relay(&hosts, "0.0.0.0", async || {
        let mut gateway = gateway(address(TwoHosts::SENDER_V4));
        gateway.join(flow()).unwrap();
        expect_data(&mut gateway).await;
        hosts.remove_link();
        drain(&mut gateway).await;
        gateway.follow_network();
        hosts.make_link();
        expect_data(&mut gateway).await;
    });
}

#[test]
fn groups_are_joined_again_when_the_interface_is_made_again() {
    let Some(hosts) = TwoHosts::new() else { return };
    let group = address("232.1.1.1");
    hosts.on_receiver(|| {
        in_runtime(async || {
            let mut receiver = MulticastReceiver::open(ReceiverConfig {
                source: address(TwoHosts::SENDER_V4),
                port: PORT,
                interface: Some(Interface::Name(TwoHosts::INTERFACE.to_owned())),
            })
            .unwrap();
            receiver.join(group).unwrap();
            for is_again in [false, true] {
                if is_again {
                    hosts.remove_link();
                    receiver.follow_interface();
                    hosts.make_link();
                }
                let mut sender: Option<MulticastSender> = None;
                let mut times = interval(Duration::from_millis(50));
                let receive = async {
                    loop {
                        tokio::select! {
                            datagram = receiver.recv() => {
                                let datagram = datagram.unwrap();
                                assert_eq!(datagram.group, group);
                                return;
                            }
                            _ = times.tick() => {}
                        }
                        receiver.follow_interface();
                        let sender = sender.get_or_insert_with(|| open_sender(&hosts, group));
                        sender.send(group, &Train::of(b"data"));
                    }
                };
                timeout(LIMIT, receive).await.expect("data comes");
            }
        });
    });
}

fn open_sender(hosts: &TwoHosts, group: IpAddr) -> MulticastSender {
    let config = SenderConfig {
        interface: Some(Interface::Address(address(TwoHosts::SENDER_V4))),
        ..SenderConfig::new(group, PORT)
    };
    let runtime = runtime::Handle::current();
    hosts.on_sender(|| {
        let _entered = runtime.enter();
        MulticastSender::open(&config).unwrap()
    })
}
