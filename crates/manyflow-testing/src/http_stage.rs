//! A service for tests: HTTP servers in this process, and members, a gateway and perhaps a switch
//! as processes.

use std::collections::HashMap;
use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::programs::{LIMIT, Manyflow, get, manyflow};

/// An address of loopback with a free port.
pub const ANY: &str = "127.0.0.1:0";
/// The length of `/large`.
pub const LARGE: usize = 30_000_000;

/// The number of bytes after which a [`pattern`] repeats.
const PERIOD: usize = 251 * 241;

/// Returns bytes in which a piece that is missing, twice or elsewhere shows: they repeat only after
/// 251 * 241 bytes. One period is computed and then copied, because tests are not optimised.
pub fn pattern(length: usize) -> Vec<u8> {
    let byte = |place| (place % 251) as u8 ^ (place % 241) as u8;
    let period: Vec<u8> = (0..PERIOD.min(length)).map(byte).collect();
    let mut bytes = period.repeat(length.div_ceil(PERIOD));
    bytes.truncate(length);
    bytes
}

/// Returns the body of `/large`.
pub fn large() -> &'static [u8] {
    static BODY: LazyLock<Vec<u8>> = LazyLock::new(|| pattern(LARGE));
    &BODY
}

/// A request that a server has seen: its line and headers, in lower case.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The first line.
    pub line: String,
    /// The headers by their names.
    pub headers: HashMap<String, String>,
}

/// An HTTP/1.1 server. `/hold` is answered only at the second time on all servers with the same
/// `held`.
pub struct Server {
    /// Where the server listens.
    pub address: SocketAddr,
    /// All requests so far.
    pub seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// Starts a server, which puts `name` into its answers.
    pub fn start(name: &'static str, held: &Arc<Mutex<usize>>) -> Server {
        Server::start_at(ANY.parse().unwrap(), name, held)
    }

    /// Starts a server at this address.
    pub fn start_at(address: SocketAddr, name: &'static str, held: &Arc<Mutex<usize>>) -> Server {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (log, held) = (Arc::clone(&seen), Arc::clone(held));
        // The thread ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (log, held) = (Arc::clone(&log), Arc::clone(&held));
                thread::spawn(move || serve(name, stream, &log, &held));
            }
        });
        Server { address, seen }
    }

    /// Waits until the server has seen a request whose line contains `text`.
    pub fn has_seen(&self, text: &str) -> bool {
        let seen = self.seen.lock().unwrap();
        seen.iter().any(|request| request.line.contains(text))
    }
}

/// Reads the lines of a head. Returns `None` at the end of the stream.
fn read_head(reader: &mut impl std::io::BufRead) -> Option<Seen> {
    let mut line = String::new();
    reader
        .read_line(&mut line)
        .ok()
        .filter(|length| *length > 0)?;
    let mut seen = Seen {
        line: line.trim_end().to_owned(),
        ..Seen::default()
    };
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            return Some(seen);
        };
        let name = name.to_ascii_lowercase();
        seen.headers.insert(name, value.to_owned());
    }
}

/// Reads a body by its length, in chunks, or to the end. Returns `None` if it is cut.
fn read_body(reader: &mut impl std::io::BufRead, head: &Seen) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    if let Some(length) = head.headers.get("content-length") {
        body.resize(length.parse().unwrap(), 0);
        reader.read_exact(&mut body).ok()?;
        return Some(body);
    }
    if !head.headers.contains_key("transfer-encoding") {
        return Some(body);
    }
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let length = usize::from_str_radix(line.trim_end(), 16).ok()?;
        let begin = body.len();
        body.resize(begin + length + 2, 0);
        reader.read_exact(&mut body[begin..]).ok()?;
        body.truncate(begin + length);
        if length == 0 {
            return Some(body);
        }
    }
}

fn serve(name: &str, stream: TcpStream, log: &Mutex<Vec<Seen>>, held: &Mutex<usize>) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    while let Some(head) = read_head(&mut reader) {
        log.lock().unwrap().push(head.clone());
        let Some(body) = read_body(&mut reader, &head) else {
            return;
        };
        let path = head.line.split(' ').nth(1).unwrap();
        let answered = match path {
            "/large" => send_large(&mut writer),
            "/cut" => {
                return drop(
                    writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"),
                );
            }
            "/cut-chunks" => {
                let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n";
                return drop(writer.write_all(head));
            }
            "/two-lengths" => {
                let head =
                    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n";
                writer.write_all(format!("{head}5\r\nhello\r\n0\r\n\r\n").as_bytes())
            }
            "/no-content" => {
                writer.write_all(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n")
            }
            "/many-headers" => {
                let others = "X: 1\r\n".repeat(127);
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n{others}\r\n");
                writer.write_all(format!("{head}hello").as_bytes())
            }
            "/upgraded" => {
                return drop(writer.write_all(
                    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
                ));
            }
            "/chunks" => {
                let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nKeep-Alive: x\r\n\r\n";
                writer.write_all(format!("{head}3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n").as_bytes())
            }
            "/hold" if first_time(held) => loop {
                thread::sleep(Duration::from_secs(1));
            },
            _ if head.line.starts_with("HEAD") => {
                writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n")
            }
            _ if body.is_empty() => send(&mut writer, name.as_bytes()),
            _ => send(&mut writer, &body),
        };
        if answered.is_err() {
            return;
        }
    }
}

fn first_time(held: &Mutex<usize>) -> bool {
    let mut held = held.lock().unwrap();
    *held += 1;
    *held == 1
}

fn send(writer: &mut TcpStream, body: &[u8]) -> std::io::Result<()> {
    write!(
        writer,
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )?;
    writer.write_all(body)
}

fn send_large(writer: &mut TcpStream) -> std::io::Result<()> {
    write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: {LARGE}\r\n\r\n")?;
    writer.write_all(large())
}

/// A response of the gateway.
#[derive(Debug)]
pub struct Answer {
    /// The first line and the headers.
    pub head: Seen,
    /// `None` if the body was cut.
    pub body: Option<Vec<u8>>,
}

impl Answer {
    /// Returns the status code.
    pub fn status(&self) -> u16 {
        self.head.line.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// Returns the body, which has to be complete.
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone().expect("a whole body")).unwrap()
    }
}

/// A connection of a client to the gateway.
pub struct Client {
    /// The connection.
    pub reader: BufReader<TcpStream>,
}

impl Client {
    /// Opens a connection.
    pub fn connect(gateway: SocketAddr) -> Client {
        let stream = TcpStream::connect(gateway).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Client {
            reader: BufReader::new(stream),
        }
    }

    /// Sends bytes.
    pub fn send(&mut self, request: &[u8]) {
        self.reader.get_mut().write_all(request).unwrap();
    }

    /// Reads the head of a response.
    pub fn head(&mut self) -> Seen {
        self.try_head().expect("the gateway answers")
    }

    /// Reads the head of a response. Returns `None` if the gateway ends the connection instead.
    pub fn try_head(&mut self) -> Option<Seen> {
        read_head(&mut self.reader)
    }

    /// Reads the body behind this head. Returns `None` if it is cut.
    pub fn body(&mut self, head: &Seen) -> Option<Vec<u8>> {
        read_body(&mut self.reader, head)
    }

    /// Reads a response.
    pub fn answer(&mut self) -> Answer {
        let head = self.head();
        let body = read_body(&mut self.reader, &head);
        Answer { head, body }
    }

    /// Sends a request without a body, and reads its answer.
    pub fn ask(&mut self, method: &str, path: &str) -> Answer {
        self.send(format!("{method} {path} HTTP/1.1\r\nHost: example.net\r\n\r\n").as_bytes());
        if method == "HEAD" {
            let (head, body) = (self.head(), Some(vec![]));
            return Answer { head, body };
        }
        self.answer()
    }

    /// Sends a request with a body, and reads its answer.
    pub fn post(&mut self, path: &str, body: &[u8]) -> Answer {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
        self.send(&[head.as_bytes(), body].concat());
        self.answer()
    }
}

/// Starts a command that prints the event `started`, and returns it with that event.
pub fn start(arguments: &[&str]) -> (Manyflow, Value) {
    let mut command = manyflow(arguments);
    command.arg("--json");
    let mut process = Manyflow::start(command);
    let started = process.wait_for(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        (event["event"] == "started" || event.get("listen").is_some()).then_some(event)
    });
    (process, started)
}

/// Returns the address of the event `started`.
pub fn listen_address(started: &Value) -> SocketAddr {
    started["listen"].as_str().unwrap().parse().unwrap()
}

/// Starts a member of a service in front of `server`.
pub fn start_member(server: SocketAddr, listen: &str) -> (Manyflow, Value) {
    start_member_with(server, listen, &[])
}

/// Starts a member of a service in front of `server`, with more arguments.
pub fn start_member_with(server: SocketAddr, listen: &str, more: &[&str]) -> (Manyflow, Value) {
    let url = format!("http://{server}");
    let mut member = vec!["member", "--http", &url, "--listen", listen];
    member.extend(["--metrics", ANY]);
    member.extend(more);
    start(&member)
}

/// Returns the options that name these members.
fn named(members: &[SocketAddr]) -> Vec<String> {
    let members = members.iter().enumerate();
    members
        .flat_map(|(place, member)| ["--member".to_owned(), format!("m{place}={member}")])
        .collect()
}

/// Starts a switch; returns it with its address.
pub fn start_switch(members: &[SocketAddr], policy: &str) -> (Manyflow, SocketAddr) {
    let members = named(members);
    let mut arguments = vec!["switch", "--listen", ANY, "--policy", policy];
    arguments.extend(members.iter().map(String::as_str));
    let (switch, started) = start(&arguments);
    (switch, listen_address(&started))
}

/// Starts a gateway before a switch, or before one member. Without `--timeout`, it gives no request
/// up before the test ends.
pub fn start_gateway(to: SocketAddr, more: &[&str]) -> (Manyflow, SocketAddr, String) {
    start_gateway_before(&["--to".to_owned(), to.to_string()], more)
}

fn start_gateway_before(service: &[String], more: &[&str]) -> (Manyflow, SocketAddr, String) {
    let mut arguments = vec!["gateway", "--listen", ANY, "--metrics", ANY];
    arguments.extend(service.iter().map(String::as_str));
    if !more.contains(&"--timeout") {
        arguments.extend(["--timeout", "90s"]);
    }
    arguments.extend(more);
    let (mut gateway, started) = start(&arguments);
    gateway.wait_for(|line| line.contains("connected").then_some(()));
    let metrics = started["metrics"].as_str().unwrap().to_owned();
    (gateway, listen_address(&started), metrics)
}

/// Servers, members and a gateway.
pub struct Stage {
    /// The HTTP servers.
    pub servers: Vec<Server>,
    /// A member for each server.
    pub members: Vec<Manyflow>,
    /// The switch, if it is a process of its own.
    _switch: Option<Manyflow>,
    /// The gateway.
    pub gateway: Manyflow,
    /// Where the gateway listens.
    pub address: SocketAddr,
    metrics: String,
}

impl Stage {
    /// Starts a server of each name, and a gateway with more arguments that has their members.
    pub fn start(names: &[&'static str], more: &[&str]) -> Stage {
        Stage::start_before(names, more, |members| (None, named(members)))
    }

    /// Starts the same with a switch between gateway and members.
    pub fn start_with_switch(names: &[&'static str], policy: &str, more: &[&str]) -> Stage {
        Stage::start_before(names, more, |members| {
            let (switch, at) = start_switch(members, policy);
            (Some(switch), vec!["--to".to_owned(), at.to_string()])
        })
    }

    fn start_before(
        names: &[&'static str],
        more: &[&str],
        service: impl FnOnce(&[SocketAddr]) -> (Option<Manyflow>, Vec<String>),
    ) -> Stage {
        let held = Arc::default();
        let servers: Vec<_> = names
            .iter()
            .map(|name| Server::start(name, &held))
            .collect();
        let started = servers
            .iter()
            .map(|server| start_member(server.address, ANY));
        let (members, events): (Vec<_>, Vec<_>) = started.unzip();
        let addresses: Vec<_> = events.iter().map(listen_address).collect();
        let (switch, service) = service(&addresses);
        let (gateway, address, metrics) = start_gateway_before(&service, more);
        Stage {
            servers,
            members,
            _switch: switch,
            gateway,
            address,
            metrics,
        }
    }

    /// Connects a client to the gateway.
    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Returns a counter of the gateway.
    pub fn counter(&self, name: &str) -> u64 {
        read_metric(&self.metrics, &format!("manyflow_gateway_{name}_total"))
    }

    /// Returns the place of the server that has seen a request.
    pub fn wait_for_server(&self, text: &str) -> usize {
        wait_for(|| self.servers.iter().position(|server| server.has_seen(text)))
    }
}

/// Returns a value of the metrics at this address.
pub fn read_metric(address: &str, name: &str) -> u64 {
    let (_, text) = get(&format!("http://{address}/metrics"));
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value
        .unwrap_or_else(|| panic!("no {name}"))
        .trim()
        .parse()
        .unwrap()
}

/// Waits until `find` returns a value.
pub fn wait_for<T>(mut find: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < deadline, "the condition never held");
        thread::sleep(Duration::from_millis(20));
    }
}
