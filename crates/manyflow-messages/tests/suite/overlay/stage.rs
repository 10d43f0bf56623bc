//! Daemons on loopback, and clients that speak NATS line by line.

use std::io;
use std::path::Path;
use std::time::Duration;

use manyflow_core::units::Rate;
use manyflow_messages::{
    ControllerConfig, DaemonConfig, DaemonHandle, DaemonStatus, LinkConfig, LinkSecurity, start,
};
use manyflow_net::thin_link::{ThinLink, ThinLinkConfig};
use manyflow_overlay::OverlayConfig;
use manyflow_testing::LIMIT;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Returns the configuration of a daemon without a controller, which listens on loopback.
pub(crate) fn config(name: &str) -> DaemonConfig {
    DaemonConfig {
        listen: Some("127.0.0.1:0".to_owned()),
        clients: Some("127.0.0.1:0".to_owned()),
        overlay_name: "test".to_owned(),
        connections_max: 20_000,
        overlay: OverlayConfig::default(),
        controller: ControllerConfig::Open,
        ..DaemonConfig::new(name, LinkSecurity::Insecure)
    }
}

/// Returns a link to the daemon `name` at an address.
pub(crate) fn link(name: &str, address: impl ToString) -> LinkConfig {
    LinkConfig {
        name: name.to_owned(),
        id: None,
        address: address.to_string(),
        weight: 1,
    }
}

/// Starts daemons `a`, `b` and so on in a line, and waits until each has its links.
pub(crate) async fn line(count: usize) -> Vec<DaemonHandle> {
    let mut daemons: Vec<DaemonHandle> = Vec::new();
    for place in 0..count {
        let mut own = config(&name(place));
        if let Some(last) = daemons.last() {
            let address = last.addresses().daemons.unwrap();
            own.links = vec![link(&name(place - 1), address)];
        }
        daemons.push(start(own).await.unwrap());
    }
    for daemon in &daemons {
        wait_for_daemons(daemon, count).await;
    }
    daemons
}

/// Starts daemons `a` and `b`, which have a link with this delay, and waits until both know it.
/// Dropping the link ends it.
pub(crate) async fn two_with_delay(delay: Duration) -> ([DaemonHandle; 2], ThinLink) {
    let a = start(config("a")).await.unwrap();
    let wire = ThinLinkConfig {
        rate: Rate::from_bits_per_s(100_000_000),
        delay,
        queue_packets: 100,
    };
    let to = a.addresses().daemons.unwrap();
    let wire = ThinLink::start(to, wire).await.unwrap();
    let b = DaemonConfig {
        links: vec![link("a", wire.address())],
        ..config("b")
    };
    let daemons = [a, start(b).await.unwrap()];
    for daemon in &daemons {
        wait_for_daemons(daemon, 2).await;
    }
    (daemons, wire)
}

/// Waits until this is done.
pub(crate) async fn within<T>(done: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(LIMIT, done);
    done.await.expect("it ends in time")
}

pub(crate) fn name(place: usize) -> String {
    char::from(b'a' + place as u8).to_string()
}

/// Waits until a daemon knows a number of daemons, itself included.
pub(crate) async fn wait_for_daemons(daemon: &DaemonHandle, count: usize) {
    wait_until(daemon, |status| status.daemons.len() == count).await;
}

/// Waits until a daemon has such a status.
pub(crate) async fn wait_until(
    daemon: &DaemonHandle,
    is_reached: impl FnMut(&DaemonStatus) -> bool,
) {
    let mut status = daemon.status();
    within(status.wait_for(is_reached)).await.unwrap();
}

/// A NATS client.
pub(crate) struct Nats {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl Nats {
    /// Connects without credentials.
    pub(crate) async fn connect(daemon: &DaemonHandle) -> Nats {
        let options = r#"{"verbose":false,"headers":true,"no_responders":true}"#;
        Nats::connect_with(daemon, options).await
    }

    /// Connects with the options of CONNECT.
    pub(crate) async fn connect_with(daemon: &DaemonHandle, options: &str) -> Nats {
        loop {
            let mut nats = Nats::open(daemon).await;
            let connect = format!("CONNECT {options}\r\nPING\r\n");
            let _ = nats.try_send(&connect).await;
            match nats.line().await.as_str() {
                "PONG" => return nats,
                // This process did not run for longer than the daemon waits for CONNECT.
                "-ERR 'Authentication Timeout'" => {}
                other => panic!("{other:?} instead of PONG"),
            }
        }
    }

    /// Opens a connection and reads INFO.
    pub(crate) async fn open(daemon: &DaemonHandle) -> Nats {
        Nats::open_with_info(daemon).await.0
    }

    /// Opens a connection and returns it with INFO, as JSON.
    pub(crate) async fn open_with_info(daemon: &DaemonHandle) -> (Nats, String) {
        let address = daemon.addresses().clients.unwrap();
        let (reader, writer) = TcpStream::connect(address).await.unwrap().into_split();
        let reader = BufReader::new(reader);
        let mut nats = Nats { reader, writer };
        let line = nats.line().await;
        let info = line.strip_prefix("INFO ");
        let info = info.unwrap_or_else(|| panic!("{line:?} instead of INFO"));
        (nats, info.to_owned())
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.try_send(text).await.unwrap();
    }

    /// Sends operations, unless the daemon has closed the connection.
    pub(crate) async fn try_send(&mut self, text: &str) -> io::Result<()> {
        self.writer.write_all(text.as_bytes()).await
    }

    /// Sends operations, and waits until the daemon has handled them.
    pub(crate) async fn send_and_wait(&mut self, text: &str) {
        self.send(&format!("{text}PING\r\n")).await;
        assert_eq!(self.line().await, "PONG");
    }

    /// Reads a line, without the end. Answers the daemon's PINGs, which come every two minutes.
    pub(crate) async fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            let read = self.reader.read_line(&mut line);
            let read = tokio::time::timeout(LIMIT, read)
                .await
                .expect("a line arrives");
            read.unwrap();
            match line.trim_end_matches("\r\n") {
                "PING" => self.send("PONG\r\n").await,
                line => return line.to_owned(),
            }
        }
    }

    /// Reads a message: the line, and the payload.
    pub(crate) async fn message(&mut self) -> (String, Vec<u8>) {
        let line = self.line().await;
        self.payload_of(line).await
    }

    /// Reads the payload of a message whose line has been read.
    pub(crate) async fn payload_of(&mut self, line: String) -> (String, Vec<u8>) {
        let bytes = line.rsplit(' ').next().unwrap().parse::<usize>();
        let bytes = bytes.unwrap_or_else(|_| panic!("{line:?} is not a message"));
        let mut payload = vec![0; bytes + 2];
        let read = self.reader.read_exact(&mut payload);
        tokio::time::timeout(LIMIT, read)
            .await
            .expect("a payload arrives")
            .unwrap();
        payload.truncate(bytes);
        (line, payload)
    }

    /// Waits until the other end closes the connection.
    pub(crate) async fn closed(&mut self) {
        let mut rest = Vec::new();
        let read = self.reader.read_to_end(&mut rest);
        let read = tokio::time::timeout(LIMIT, read)
            .await
            .expect("the connection closes");
        assert!(
            read.is_err() || rest.is_empty(),
            "{:?}",
            String::from_utf8_lossy(&rest)
        );
    }
}

/// Waits until a message from `sender` arrives at `member`: until then, the join may be under way.
pub(crate) async fn wait_for_path(sender: &mut Nats, member: &mut Nats, subject: &str) {
    let probe = async {
        loop {
            sender.send(&format!("PUB {subject} 5\r\nprobe\r\n")).await;
            let pause = Duration::from_millis(50);
            let arrived = tokio::time::timeout(pause, member.reader.fill_buf()).await;
            if arrived.is_ok() {
                break;
            }
        }
    };
    within(probe).await;
    // The last probe marks the end of the probes: messages of one sender are in order.
    sender.send(&format!("PUB {subject} 3\r\nend\r\n")).await;
    while member.message().await.1 != b"end" {}
}

/// Makes certificates for these names in a folder.
pub(crate) fn certificates(folder: &Path, names: &[&str]) {
    use manyflow_messages::certificates::{Subject, make_certificates};
    let subjects: Vec<_> = names
        .iter()
        .map(|name| Subject {
            name: (*name).to_owned(),
            hosts: vec!["127.0.0.1".to_owned()],
        })
        .collect();
    make_certificates(folder, &subjects, 2026).unwrap();
}
