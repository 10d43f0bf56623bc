//! Links of datagrams, under TFRC: losses, reordering, forgeries, and what blocks them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use manyflow_messages::{ControllerConfig, DaemonConfig, DaemonHandle, Hello, Resume, start};
use manyflow_overlay::tfrc::TfrcConfig;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Notify;

use crate::overlay::links::{check_refused, secured};
use crate::overlay::stage::{
    Nats, certificates, config, link, wait_for_daemons, wait_for_path, wait_until, within,
};

fn tfrc(config: DaemonConfig) -> DaemonConfig {
    DaemonConfig {
        controller: ControllerConfig::Tfrc(TfrcConfig::live()),
        ..config
    }
}

fn linked(config: DaemonConfig, name: &str, address: SocketAddr) -> DaemonConfig {
    DaemonConfig {
        links: vec![link(name, address)],
        ..config
    }
}

/// Publishes numbered messages at one daemon, and checks that a member at the other reads each of
/// them once and in order. `disturb` is called now and then.
async fn check_messages(from: &DaemonHandle, to: &DaemonHandle, count: usize, disturb: impl Fn()) {
    let (mut sender, mut member) = (Nats::connect(from).await, Nats::connect(to).await);
    member.send_and_wait("SUB n 1\r\n").await;
    wait_for_path(&mut sender, &mut member, "n").await;
    let sending = async {
        for number in 0..count {
            if number % 500 == 250 {
                disturb();
            }
            // Every tenth is divided into fragments.
            let width = if number % 10 == 0 { 5000 } else { 300 };
            let text = format!("{number:0width$}");
            sender
                .send(&format!("PUB n {}\r\n{text}\r\n", text.len()))
                .await;
        }
    };
    let reading = async {
        for number in 0..count {
            let (_, payload) = member.message().await;
            let arrived: usize = String::from_utf8(payload).unwrap().parse().unwrap();
            assert_eq!(arrived, number);
        }
    };
    tokio::join!(sending, reading);
}

#[tokio::test]
async fn messages_pass_through_three_daemons_in_order() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path(), &["a", "b", "c"]);
    for is_secured in [false, true] {
        let of = |name: &str| match is_secured {
            true => tfrc(secured(folder.path(), name, name)),
            false => tfrc(config(name)),
        };
        let a = start(of("a")).await.unwrap();
        let b = start(linked(of("b"), "a", a.addresses().daemons.unwrap()));
        let b = b.await.unwrap();
        let c = DaemonConfig {
            listen: None,
            ..linked(of("c"), "b", b.addresses().daemons.unwrap())
        };
        let c = start(c).await.unwrap();
        wait_for_daemons(&c, 3).await;
        check_messages(&a, &c, 2000, || {}).await;
        check_messages(&c, &a, 2000, || {}).await;
        wait_until(&b, |status| {
            let links = status.links.iter();
            links.map(|link| link.received_messages).min() >= Some(2000)
        })
        .await;
    }
}

/// The harm that a path does to packets.
#[derive(Copy, Clone, Default)]
struct Harm {
    loss: f64,
    /// The share of packets that arrive some milliseconds late.
    delay: f64,
    /// The share of packets that arrive again, changed or unchanged.
    forgery: f64,
}

/// A path between two daemons without TLS: connections and their packets. Breaks all of them
/// whenever `cut` is notified.
async fn path(to: SocketAddr, harm: Harm, cut: Arc<Notify>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (near, _) = listener.accept().await.unwrap();
            let far = TcpStream::connect(to).await.unwrap();
            let cut = Arc::clone(&cut);
            tokio::spawn(async move {
                tokio::select! {
                    _ = carry(near, far, harm) => {}
                    () = cut.notified() => {}
                }
            });
        }
    });
    address
}

/// Carries a connection, and its packets through sockets that the ends know instead of each
/// other's.
async fn carry(near: TcpStream, far: TcpStream, harm: Harm) -> std::io::Result<()> {
    let sockets = [
        UdpSocket::bind("127.0.0.1:0").await?,
        UdpSocket::bind("127.0.0.1:0").await?,
    ];
    let [at_near, at_far] = sockets.map(Arc::new);
    let ports = [&at_near, &at_far].map(|socket| socket.local_addr().unwrap().port());
    let (near_reader, near_writer) = near.into_split();
    let (far_reader, far_writer) = far.into_split();
    let forward = handshake(near_reader, far_writer, ports[1], true);
    let backward = handshake(far_reader, near_writer, ports[0], false);
    let (forward, backward) = tokio::try_join!(forward, backward)?;
    let (mut near_reader, mut far_writer, near_port) = forward;
    let (mut far_reader, mut near_writer, far_port) = backward;
    tokio::select! {
        result = copy(&mut near_reader, &mut far_writer) => result.map(drop),
        result = copy(&mut far_reader, &mut near_writer) => result.map(drop),
        result = packets(&at_near, &at_far, far_port, harm, 1) => result,
        result = packets(&at_far, &at_near, near_port, harm, 2) => result,
    }
}

/// Carries one direction of a handshake, and replaces the port in it. Returns the true port.
async fn handshake(
    mut reader: OwnedReadHalf,
    mut writer: OwnedWriteHalf,
    port: u16,
    dials: bool,
) -> std::io::Result<(OwnedReadHalf, OwnedWriteHalf, u16)> {
    let hello = Hello::read(&mut reader).await.unwrap();
    assert_eq!(hello.dials, dials);
    writer.write_all(&hello.encode()).await?;
    let resume = Resume::read(&mut reader).await?;
    resume.write(&mut writer).await?;
    let (true_port, number) = (reader.read_u16().await?, reader.read_u64().await?);
    writer.write_u16(port).await?;
    writer.write_u64(number).await?;
    Ok((reader, writer, true_port))
}

/// Carries packets of one direction: those that arrive at `from` leave through `out` to `port`.
async fn packets(
    from: &UdpSocket,
    out: &Arc<UdpSocket>,
    port: u16,
    harm: Harm,
    seed: u64,
) -> std::io::Result<()> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut buffer = [0; 2000];
    loop {
        let length = from.recv(&mut buffer).await?;
        let to = ("127.0.0.1", port);
        if random.random_bool(harm.loss) {
            continue;
        }
        if random.random_bool(harm.forgery) {
            out.send_to(&buffer[..length], to).await?;
            let mut forged = buffer[..length].to_vec();
            forged.truncate(random.random_range(0..=length));
            if let Some(byte) = forged.get_mut(8..).and_then(|body| body.last_mut()) {
                *byte ^= 0xff;
            }
            // Without a seal, only the number of the packet protects from changes.
            forged[..].iter_mut().take(8).for_each(|byte| *byte ^= 1);
            out.send_to(&forged, to).await?;
        }
        if random.random_bool(harm.delay) {
            let (late, out) = (buffer[..length].to_vec(), Arc::clone(out));
            let delay = Duration::from_millis(random.random_range(1..20));
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                let _ = out.send_to(&late, to).await;
            });
        } else {
            out.send_to(&buffer[..length], to).await?;
        }
    }
}

/// Starts two daemons with a path between them.
async fn pair(harm: Harm, cut: &Arc<Notify>) -> (DaemonHandle, DaemonHandle) {
    let a = start(tfrc(config("a"))).await.unwrap();
    let through = path(a.addresses().daemons.unwrap(), harm, Arc::clone(cut)).await;
    let b = start(linked(tfrc(config("b")), "a", through))
        .await
        .unwrap();
    wait_for_daemons(&b, 2).await;
    (a, b)
}

#[tokio::test]
async fn a_path_that_loses_and_reorders_packets_loses_and_repeats_no_message() {
    let harm = Harm {
        loss: 0.05,
        delay: 0.05,
        ..Harm::default()
    };
    let (a, b) = pair(harm, &Arc::default()).await;
    check_messages(&a, &b, 1500, || {}).await;
    wait_until(&a, |status| {
        status.links[0]
            .retransmissions
            .is_some_and(|count| count > 0)
    })
    .await;
}

#[tokio::test]
async fn repeated_and_forged_packets_change_nothing() {
    let harm = Harm {
        forgery: 0.5,
        ..Harm::default()
    };
    let (a, b) = pair(harm, &Arc::default()).await;
    check_messages(&a, &b, 2000, || {}).await;
    wait_until(&b, |status| status.counters.refused_packets > 100).await;
}

#[tokio::test]
async fn a_link_that_breaks_and_comes_back_loses_and_repeats_nothing() {
    let cut = Arc::new(Notify::new());
    let (a, b) = pair(Harm::default(), &cut).await;
    check_messages(&a, &b, 3000, || cut.notify_waiters()).await;
}

#[tokio::test]
async fn a_path_without_packets_is_reported_and_makes_no_link() {
    let blocked = Harm {
        loss: 1.0,
        ..Harm::default()
    };
    let a = start(tfrc(config("a"))).await.unwrap();
    let through = path(a.addresses().daemons.unwrap(), blocked, Arc::default()).await;
    let b = start(linked(tfrc(config("b")), "a", through))
        .await
        .unwrap();
    wait_until(&b, |status| status.counters.failed_links >= 1).await;
    assert_eq!(b.status().borrow().daemons.len(), 1);
    assert_eq!(a.status().borrow().daemons.len(), 1);
}

#[tokio::test]
async fn daemons_with_another_kind_of_links_are_refused() {
    check_refused(tfrc(config("a")), config("b")).await;
    check_refused(config("a"), tfrc(config("b"))).await;
}

#[tokio::test]
async fn packets_of_strangers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path(), &["a", "b"]);
    let a = start(tfrc(secured(folder.path(), "a", "a"))).await.unwrap();
    let address = a.addresses().daemons.unwrap();
    let b = linked(tfrc(secured(folder.path(), "b", "b")), "a", address);
    let b = start(b).await.unwrap();
    wait_for_daemons(&b, 2).await;
    let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    // Few at a time, so that the socket's buffer has room for them while the daemon does not run.
    let lengths: Vec<usize> = (0..200).collect();
    for (batch, count) in lengths.chunks(20).zip(1..) {
        for length in batch {
            let bytes = vec![*length as u8; 7 * length];
            within(stranger.send_to(&bytes, address)).await.unwrap();
        }
        let refused = |packets| packets >= 20 * count;
        wait_until(&a, |status| refused(status.counters.refused_packets)).await;
    }
    check_messages(&b, &a, 500, || {}).await;
}
