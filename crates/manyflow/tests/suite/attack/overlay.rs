//! Overlays of `manyflow daemon` on loopback, NATS clients, and bystanders that must be served
//! during an attack.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use crate::common::{LIMIT, Manyflow, manyflow, run, text};

/// The options of CONNECT without credentials.
pub(crate) const OPEN: &str = "{\"verbose\":false,\"headers\":true}";
/// The time after which a probe of a path is repeated.
const PROBE_INTERVAL: Duration = Duration::from_millis(200);

/// The options of CONNECT of a user, whose password is the name.
pub(crate) fn user(name: &str) -> String {
    format!("{{\"verbose\":false,\"user\":\"{name}\",\"pass\":\"{name}\"}}")
}

/// A running daemon.
pub(crate) struct Daemon {
    pub(crate) process: Manyflow,
    /// Where NATS clients connect.
    pub(crate) clients: SocketAddr,
    /// Where other daemons connect.
    pub(crate) daemons: SocketAddr,
}

/// Daemons on loopback, and the folder of their files.
pub(crate) struct Overlay {
    pub(crate) folder: TempDir,
    /// More lines of each daemon's file: keys first, then tables.
    keys: String,
    tables: String,
    is_secured: bool,
    /// More arguments of each daemon.
    arguments: &'static [&'static str],
}

impl Overlay {
    /// Returns an overlay whose links have neither TLS nor passwords.
    pub(crate) fn open() -> Overlay {
        Overlay {
            folder: tempfile::tempdir().unwrap(),
            keys: "insecure = true\n".to_owned(),
            tables: String::new(),
            is_secured: false,
            arguments: &[],
        }
    }

    /// Returns an overlay in which each of these daemons has a certificate.
    pub(crate) fn secured(names: &[&str]) -> Overlay {
        let mut overlay = Overlay::open();
        let mut arguments = vec!["keygen", "--certificates", text(overlay.folder.path())];
        let named: Vec<_> = names
            .iter()
            .map(|name| format!("{name}=127.0.0.1"))
            .collect();
        arguments.extend(named.iter().flat_map(|name| ["--daemon", name]));
        run(&arguments).succeeded("keygen");
        overlay.is_secured = true;
        overlay
    }

    /// Starts all daemons with these arguments, too.
    pub(crate) fn with_arguments(mut self, arguments: &'static [&'static str]) -> Overlay {
        self.arguments = arguments;
        self
    }

    /// Lets all daemons use this controller.
    pub(crate) fn with_controller(mut self, name: &str) -> Overlay {
        writeln!(self.keys, "controller = \"{name}\"").unwrap();
        self
    }

    /// Adds a user with these permissions, in TOML. The password is the name.
    pub(crate) fn with_user(mut self, name: &str, permissions: &str) -> Overlay {
        let file = format!("{name}.password");
        std::fs::write(self.folder.path().join(&file), name).unwrap();
        writeln!(
            self.tables,
            "[[users]]\nname = \"{name}\"\npassword-file = \"{file}\"\n{permissions}"
        )
        .unwrap();
        self
    }

    /// Starts a daemon with links to others.
    pub(crate) fn start(&self, name: &str, links: &[(&str, &Daemon)]) -> Daemon {
        let links = links.iter().map(|(other, daemon)| (*other, daemon.daemons));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        self.start_at(name, [any, any], &links.collect::<Vec<_>>())
    }

    /// Starts a daemon at these addresses, for daemons and clients, with links to others.
    pub(crate) fn start_at(
        &self,
        name: &str,
        [listen, clients]: [SocketAddr; 2],
        links: &[(&str, SocketAddr)],
    ) -> Daemon {
        let mut file = format!(
            "name = \"{name}\"\nlisten = \"{listen}\"\nclients = \"{clients}\"\n{}",
            self.keys
        );
        if self.is_secured {
            let tls = ["certificate", "key"].map(|key| {
                let ending = key.replace("certificate", "crt");
                format!("{key} = \"{name}.{ending}\"\n")
            });
            write!(file, "[tls]\nca = \"ca.crt\"\n{}", tls.concat()).unwrap();
        }
        file.push_str("[links]\n");
        for (other, address) in links {
            writeln!(file, "{other} = \"{address}\"").unwrap();
        }
        file.push_str(&self.tables);
        let path = self.folder.path().join(format!("{name}.toml"));
        std::fs::write(&path, file).unwrap();
        let mut command = manyflow(&["daemon", text(&path), "--json"]);
        command.args(self.arguments);
        let mut process = Manyflow::start(command);
        let started = process.wait_for(|line| {
            let event: Value = serde_json::from_str(line).ok()?;
            (event["event"] == "started").then_some(event)
        });
        let address = |key: &str| started[key].as_str().unwrap().parse().unwrap();
        Daemon {
            clients: address("clients"),
            daemons: address("daemons"),
            process,
        }
    }

    /// Starts two daemons with a link, `a` and `b`.
    pub(crate) fn start_two(&self) -> [Daemon; 2] {
        let a = self.start("a", &[]);
        let b = self.start("b", &[("a", &a)]);
        [a, b]
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Returns a field of /proc/PID/status, in KiB: `VmRSS` or `VmHWM`.
fn memory_kib(process: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let line = line.unwrap().trim_start_matches(':').trim();
    line.trim_end_matches(" kB").parse().unwrap()
}

impl Daemon {
    pub(crate) fn resident_kib(&self) -> u64 {
        memory_kib(self.process.id(), "VmRSS")
    }

    pub(crate) fn peak_kib(&self) -> u64 {
        memory_kib(self.process.id(), "VmHWM")
    }
}

/// A NATS client, hostile or not.
pub(crate) struct Nats {
    reader: BufReader<TcpStream>,
}

impl Nats {
    /// Connects and reads INFO.
    pub(crate) fn open(to: SocketAddr) -> Nats {
        Nats::greet(TcpStream::connect(to).unwrap()).0
    }

    /// Connects and returns INFO, too.
    pub(crate) fn open_with_info(to: SocketAddr) -> (Nats, String) {
        Nats::greet(TcpStream::connect(to).unwrap())
    }

    /// Connects from an address of this machine.
    pub(crate) fn open_from(from: IpAddr, to: SocketAddr) -> Nats {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        socket.connect(&to.into()).unwrap();
        Nats::greet(socket.into()).0
    }

    fn greet(stream: TcpStream) -> (Nats, String) {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut nats = Nats {
            reader: BufReader::new(stream),
        };
        let info = nats.line();
        assert!(info.starts_with("INFO {"), "{info}");
        (nats, info)
    }

    /// Connects with the options of CONNECT.
    pub(crate) fn connect(to: SocketAddr, options: &str) -> Nats {
        loop {
            let mut nats = Nats::open(to);
            nats.send(format!("CONNECT {options}\r\nPING\r\n"));
            match nats.line().as_str() {
                "PONG" => return nats,
                // This process did not run for longer than the daemon waits for CONNECT.
                "-ERR 'Authentication Timeout'" => {}
                other => panic!("{other:?} instead of PONG"),
            }
        }
    }

    /// Connects with the options of CONNECT, unless the daemon does not serve or stops meanwhile.
    pub(crate) fn try_connect(to: SocketAddr, options: &str) -> Option<Nats> {
        let stream = TcpStream::connect(to).ok()?;
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        let reader = BufReader::new(stream);
        let mut nats = Nats { reader };
        let is_greeted = nats.line().starts_with("INFO {");
        nats.send(format!("CONNECT {options}\r\nPING\r\n"));
        (is_greeted && nats.line() == "PONG").then_some(nats)
    }

    /// Sends bytes, unless the daemon has closed the connection.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.reader.get_mut().write_all(bytes.as_ref());
    }

    /// Sends operations, and waits until the daemon has handled them.
    pub(crate) fn send_and_wait(&mut self, text: &str) {
        self.send(format!("{text}PING\r\n"));
        assert_eq!(self.line(), "PONG", "after {text:?}");
    }

    /// Reads a line, without the end; an empty one at the end of the connection. Answers PINGs.
    pub(crate) fn line(&mut self) -> String {
        self.try_line().expect("a line arrives")
    }

    /// Like [`line`](Nats::line), or `None` if no line comes in time.
    pub(crate) fn try_line(&mut self) -> Option<String> {
        loop {
            let mut line = Vec::new();
            match self.reader.read_until(b'\n', &mut line) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return None,
                // The daemon has closed the connection before it has read all bytes.
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
                Ok(_) => {}
            }
            let line = String::from_utf8_lossy(&line);
            match line.trim_end_matches("\r\n") {
                "PING" => self.send("PONG\r\n"),
                line => return Some(line.to_owned()),
            }
        }
    }

    /// Returns whether a line is there, or comes soon. It must be this one.
    pub(crate) fn has_line(&mut self, expected: &str) -> bool {
        self.wait_at_most(PROBE_INTERVAL);
        let line = self.try_line();
        self.wait_at_most(LIMIT);
        line.inspect(|line| assert_eq!(line, expected)).is_some()
    }

    /// Reads a message: the line, and the payload.
    pub(crate) fn message(&mut self) -> (String, Vec<u8>) {
        let line = self.line();
        self.payload_of(line)
    }

    /// Reads the payload of a message whose line has been read.
    pub(crate) fn payload_of(&mut self, line: String) -> (String, Vec<u8>) {
        let bytes = line.rsplit(' ').next().unwrap().parse::<usize>();
        let bytes = bytes.unwrap_or_else(|_| panic!("{line:?} is not a message"));
        let mut payload = vec![0; bytes + 2];
        self.reader.read_exact(&mut payload).unwrap();
        assert_eq!(payload.split_off(bytes), b"\r\n", "{line}");
        (line, payload)
    }

    /// Waits until the daemon closes the connection. Nothing else may come before.
    pub(crate) fn assert_closed(&mut self) {
        let mut rest = Vec::new();
        let read = self.reader.read_to_end(&mut rest);
        let is_closed = match read {
            Ok(_) => rest.is_empty(),
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        };
        assert!(is_closed, "{:?}", String::from_utf8_lossy(&rest));
    }

    /// Sets the time for which this waits for a line.
    pub(crate) fn wait_at_most(&self, limit: Duration) {
        self.reader.get_ref().set_read_timeout(Some(limit)).unwrap();
    }
}

/// A publisher at one daemon, and a member at each that reads everything that it may. They are
/// connected before an attack.
pub(crate) struct Bystanders {
    publisher: Nats,
    members: Vec<Nats>,
    sent: u32,
}

impl Bystanders {
    /// Connects a publisher to the first daemon, and a member of `pattern` to each. The pattern
    /// includes `well`.
    pub(crate) fn new<const N: usize>(
        daemons: [&Daemon; N],
        options: &str,
        pattern: &str,
    ) -> Bystanders {
        let members = daemons.iter().map(|daemon| {
            let mut member = Nats::connect(daemon.clients, options);
            member.send_and_wait(&format!("SUB {pattern} 1\r\n"));
            member
        });
        let mut bystanders = Bystanders {
            members: members.collect(),
            publisher: Nats::connect(daemons[0].clients, options),
            sent: 0,
        };
        bystanders.wait_for_paths();
        bystanders
    }

    /// Publishes until each member has got a message: joins may be under way until then.
    fn wait_for_paths(&mut self) {
        let deadline = Instant::now() + LIMIT;
        for member in &mut self.members {
            member.wait_at_most(PROBE_INTERVAL);
            loop {
                self.publisher.send("PUB well 5\r\nprobe\r\n");
                if let Some(line) = member.try_line() {
                    member.wait_at_most(LIMIT);
                    member.payload_of(line);
                    break;
                }
                assert!(Instant::now() < deadline, "no message arrives");
            }
        }
        // Messages of one publisher are in order.
        self.publisher.send("PUB well 3\r\nend\r\n");
        for member in &mut self.members {
            while member.message().1 != b"end" {}
        }
    }

    /// Asserts that each member gets this message next.
    pub(crate) fn assert_next(&mut self, subject: &str, payload: &str) {
        for member in &mut self.members {
            let (line, read) = member.message();
            assert_eq!(line, format!("MSG {subject} 1 {}", payload.len()));
            assert_eq!(String::from_utf8_lossy(&read), payload);
        }
    }

    /// Asserts that messages go on, and that the members have got nothing else since the last one.
    pub(crate) fn assert_served(&mut self) {
        for _ in 0..3 {
            self.sent += 1;
            let payload = format!("message {}", self.sent);
            let length = payload.len();
            self.publisher
                .send_and_wait(&format!("PUB well {length}\r\n{payload}\r\n"));
            self.assert_next("well", &payload);
        }
    }
}
