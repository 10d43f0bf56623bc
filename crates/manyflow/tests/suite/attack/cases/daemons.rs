//! Daemons that lie, with certificates of their own, and strangers at the port between daemons. The
//! liar is this process; the daemons that it attacks, and those that must go on, are processes.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use manyflow_messages::{
    DaemonConfig, Hello, LinkConfig, LinkSecurity, LinkTls, Resume, daemon_id, start,
};
use manyflow_overlay::{Body, ChangeSeq, DaemonId, Frame, LinkSeq, Message, Summary};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio::runtime::Runtime;

use crate::attack::overlay::{Bystanders, Daemon, Nats, OPEN, Overlay};
use crate::common::{LIMIT, wait_until};

/// Maximum of a daemon's memory while a neighbour announces more groups than one may have: all
/// groups may take 256 MB (`state_bytes`).
const GROUPS_KIB_MAX: u64 = 512 << 10;
/// The number of groups that the liar announces at most: a client may have as many subscriptions.
const GROUPS_MAX: usize = 100_000;
/// Maximum of the memory that a hundred strangers take.
const STRANGERS_KIB_MAX: u64 = 32 << 10;
/// The number of daemons that a daemon knows at most (`daemons_max`).
const DAEMONS_MAX: usize = 1024;

/// A link of the liar to a daemon.
struct Liar {
    stream: StreamOwned<ClientConnection, TcpStream>,
    received: Vec<u8>,
}

/// The incarnation of a daemon that starts now: the seconds since 2020.
fn present_incarnation() -> u32 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    (since_1970.unwrap().as_secs() - 1_577_836_800) as u32
}

impl Liar {
    /// Connects with the certificate of the daemon `liar`, in its name.
    fn connect(folder: &Path, to: SocketAddr, incarnation: u32) -> Liar {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(folder.join("ca.crt"));
        roots.add(authority.unwrap()).unwrap();
        let chain = vec![CertificateDer::from_pem_file(folder.join("liar.crt")).unwrap()];
        let key = PrivateKeyDer::from_pem_file(folder.join("liar.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .unwrap();
        let name = ServerName::try_from("b").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let socket = TcpStream::connect(to).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let mut stream = StreamOwned::new(connection, socket);
        let hello = Hello {
            overlay: "manyflow".to_owned(),
            name: "liar".to_owned(),
            id: daemon_id("liar"),
            incarnation,
            dials: false,
            datagrams: false,
        };
        let resume = Resume {
            incarnation: 0,
            received: LinkSeq(0),
        };
        let greeting = [&hello.encode()[..], &resume.encode()].concat();
        // A daemon that refuses this one closes the connection.
        let _ = stream.write_all(&greeting);
        let other = Hello {
            name: "b".to_owned(),
            ..hello
        };
        let mut liar = Liar {
            stream,
            received: Vec::new(),
        };
        let mut answer = vec![0; other.encode().len() + resume.encode().len()];
        let _ = liar.stream.read_exact(&mut answer);
        liar
    }

    /// Offers a state of a daemon.
    fn offer(&mut self, origin: DaemonId, incarnation: u32) {
        let change = ChangeSeq(1);
        let body = Body::Summary(Summary {
            incarnation,
            change,
        });
        let message = Message {
            origin,
            copy: Default::default(),
            body,
        };
        let frame = Frame::Stream(message).encode_framed(0).unwrap();
        self.stream.write_all(frame.as_bytes()).unwrap();
    }

    /// Reads frames until the daemon has asked for this many states.
    fn wait_for_requests(&mut self, count: usize) {
        let mut requests = 0;
        while requests < count {
            let mut bytes = [0; 4_096];
            let length = self.stream.read(&mut bytes).unwrap();
            assert!(length > 0, "the link ended after {requests} requests");
            self.received.extend_from_slice(&bytes[..length]);
            let mut used = 0;
            while let Ok(Some((frame, payload))) = Frame::decode_framed(&self.received[used..]) {
                used += payload.end;
                if let Frame::Stream(message) = frame {
                    requests += usize::from(matches!({ message.body }, Body::Request));
                }
            }
            self.received.drain(..used);
        }
    }

    /// Waits until the daemon closes the link.
    fn assert_closed(&mut self) {
        assert!(self.read_until(LIMIT), "the link remains");
    }

    /// Asserts that the link is up.
    fn assert_open(&mut self) {
        assert!(!self.read_until(Duration::from_millis(100)), "it has ended");
    }

    /// Reads until nothing comes for this time. Returns whether the daemon has closed the link.
    fn read_until(&mut self, pause: Duration) -> bool {
        self.stream.sock.set_read_timeout(Some(pause)).unwrap();
        let mut bytes = [0; 4_096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
    }
}

#[test]
fn a_daemon_that_announces_the_last_incarnation_of_another_is_refused_and_named() {
    let overlay = Overlay::secured(&["a", "b", "liar"]);
    let [a, mut b] = overlay.start_two();
    let mut liar = Liar::connect(overlay.folder(), b.daemons, present_incarnation());
    let mut bystanders = bystanders_of(&a, &b);
    liar.offer(daemon_id("a"), u32::MAX);
    b.process
        .wait_for_message("the link to the daemon liar is refused for a minute");
    b.process
        .wait_for_message("incarnation 4294967295, which is far in the future");
    liar.assert_closed();
    bystanders.assert_served();
    let mut again = Liar::connect(overlay.folder(), b.daemons, present_incarnation());
    again.assert_closed();
    bystanders.assert_served();
}

/// The bystanders of two daemons.
fn bystanders_of(a: &Daemon, b: &Daemon) -> Bystanders {
    Bystanders::new([a, b], OPEN, ">")
}

/// Offers are not signed. A daemon offers more states than there may be daemons, and sends none.
#[test]
fn a_daemon_that_offers_states_and_sends_none_keeps_no_new_daemon_away() {
    let overlay = Overlay::secured(&["a", "b", "c", "liar"]);
    let [a, b] = overlay.start_two();
    let mut bystanders = bystanders_of(&a, &b);
    let mut liar = Liar::connect(overlay.folder(), b.daemons, present_incarnation());
    let real = ["a", "b", "c", "liar"].map(daemon_id);
    let invented = (0..u16::MAX).map(DaemonId).filter(|id| !real.contains(id));
    for origin in invented.take(2 * DAEMONS_MAX) {
        liar.offer(origin, present_incarnation());
    }
    // The daemon asks for as many as it may know, and awaits them now.
    liar.wait_for_requests(DAEMONS_MAX);
    bystanders.assert_served();
    let c = overlay.start("c", &[("b", &b)]);
    let mut with_new = Bystanders::new([&a, &b, &c], OPEN, ">");
    with_new.assert_served();
    // The offers still stand.
    liar.assert_open();
}

/// Returns whether a daemon's log says that it refuses the liar.
fn is_refused(daemon: &Daemon) -> bool {
    let messages = daemon.process.messages();
    let refused = "the link to the daemon liar is refused for a minute";
    messages.iter().any(|line| line.contains(refused))
}

/// The liar is a whole daemon, whose limits are higher than those of the others.
#[test]
fn a_daemon_that_announces_groups_without_end_is_refused_and_named() {
    let overlay = Overlay::secured(&["a", "b", "liar"]);
    let [a, mut b] = overlay.start_two();
    let mut bystanders = Bystanders::new([&a, &b], OPEN, "well");
    let runtime = Runtime::new().unwrap();
    let tls = {
        let file = |name: &str| overlay.folder().join(name);
        LinkTls::read(&file("ca.crt"), &file("liar.crt"), &file("liar.key")).unwrap()
    };
    let mut config = DaemonConfig::new("liar", LinkSecurity::Tls(tls));
    config.clients = Some("127.0.0.1:0".to_owned());
    config.links = vec![LinkConfig::new("b", &b.daemons.to_string())];
    config.overlay.state_bytes = 2_000_000_000;
    let liar = runtime.block_on(start(config));
    let liar = liar.unwrap();
    let mut client = Nats::connect(liar.addresses().clients.unwrap(), OPEN);
    const BATCH: usize = 1_000;
    let mut groups = 0;
    while !is_refused(&b) && groups < GROUPS_MAX {
        let subscribe = |number| format!("SUB {number}.{} {number}\r\n", "g".repeat(900));
        let batch: String = (groups..groups + BATCH).map(subscribe).collect();
        client.send(batch + "PING\r\n");
        groups += BATCH;
        wait_until("the liar takes the groups, or is refused", || {
            is_refused(&b) || client.has_line("PONG")
        });
    }
    println!("refused after {groups} groups");
    b.process
        .wait_for_message("the link to the daemon liar is refused for a minute");
    b.process
        .wait_for_message("more groups than one daemon may have");
    bystanders.assert_served();
    let kib = [&a, &b].map(Daemon::peak_kib);
    println!("the daemons took {kib:?} KiB");
    assert!(kib.iter().all(|kib| *kib < GROUPS_KIB_MAX), "{kib:?}");
    Bystanders::new([&a, &b], OPEN, "*").assert_served();
    drop(client);
}

#[test]
fn garbage_at_the_port_between_daemons_is_refused_and_logged_and_ends_no_link() {
    let garbage: [&[u8]; 6] = [
        &[0xff; 10_000],
        b"GET / HTTP/1.1\r\nHost: b\r\n\r\n",
        b"CONNECT {}\r\nSUB > 1\r\n",
        b"manyflo\x06\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        // A TLS record of the maximum length.
        b"\x16\x03\x01\xff\xff\x01\x00\xff\xfc\x03\x03",
        b"",
    ];
    for overlay in [Overlay::open(), Overlay::secured(&["a", "b"])] {
        let [a, mut b] = overlay.start_two();
        let mut bystanders = bystanders_of(&a, &b);
        let before = b.resident_kib();
        let strangers = garbage.iter().cycle().take(102).map(|bytes| {
            let mut stranger = TcpStream::connect(b.daemons).unwrap();
            stranger.set_read_timeout(Some(LIMIT)).unwrap();
            let _ = stranger.write_all(bytes);
            stranger
        });
        let strangers: Vec<_> = strangers.collect();
        bystanders.assert_served();
        for mut stranger in strangers {
            let mut answer = Vec::new();
            // The daemon may close the connection before it has read all bytes.
            let read = stranger.read_to_end(&mut answer);
            let is_open = read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            assert!(!is_open && answer.len() < 1_000, "{} bytes", answer.len());
        }
        b.process
            .wait_for_message("refused a connection of a daemon");
        bystanders.assert_served();
        let kib = b.peak_kib().saturating_sub(before);
        println!("a hundred strangers: {kib} KiB");
        assert!(kib < STRANGERS_KIB_MAX, "{kib} KiB");
    }
}
