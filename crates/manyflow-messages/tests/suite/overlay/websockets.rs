//! NATS clients over WebSocket: the NATS project's own client, and frames as they are.

use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_sink::Sink;
use manyflow_messages::{DaemonConfig, DaemonHandle, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_websockets::{Limits, MaybeTlsStream, Message, WebSocketStream};

use crate::nats_clients::make_identity;
use crate::overlay::stage::{Nats, config, link, within};

fn with_websockets(name: &str) -> DaemonConfig {
    DaemonConfig {
        clients_ws: Some("127.0.0.1:0".to_owned()),
        ..config(name)
    }
}

async fn start_with_websockets() -> DaemonHandle {
    start(with_websockets("a")).await.unwrap()
}

async fn async_nats_over(daemon: &DaemonHandle) -> async_nats::Client {
    let url = format!("ws://{}", daemon.addresses().clients_ws.unwrap());
    within(async_nats::connect(url)).await.unwrap()
}

async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    let next = std::future::poll_fn(|context| {
        let stream = std::pin::Pin::new(&mut *stream);
        stream.poll_next(context)
    });
    within(next).await
}

#[tokio::test]
async fn async_nats_exchanges_messages_with_a_client_on_tcp() {
    let daemon = start_with_websockets().await;
    let browser = async_nats_over(&daemon).await;
    let mut news = browser.subscribe("news.>").await.unwrap();
    browser.flush().await.unwrap();
    let mut other = Nats::connect(&daemon).await;
    other.send_and_wait("SUB back 1\r\n").await;
    for number in 0..1000 {
        let text = format!("number {number}");
        let publish = format!("PUB news.{number} {}\r\n{text}\r\n", text.len());
        other.send(&publish).await;
    }
    for number in 0..1000 {
        let message = next(&mut news).await.unwrap();
        assert_eq!(message.subject.as_str(), format!("news.{number}"));
        assert_eq!(message.payload, format!("number {number}"));
    }
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Color", "blue");
    let publish = browser.publish_with_headers("back", headers, "hi".into());
    publish.await.unwrap();
    browser.flush().await.unwrap();
    let (line, payload) = other.message().await;
    assert!(line.starts_with("HMSG back 1 "), "{line}");
    assert!(payload.ends_with(b"Color: blue\r\n\r\nhi"), "{payload:?}");
}

#[tokio::test]
async fn the_longest_message_passes_both_ways() {
    let daemon = start_with_websockets().await;
    let browser = async_nats_over(&daemon).await;
    let mut long = browser.subscribe("long").await.unwrap();
    let payload = Bytes::from(vec![b'x'; browser.server_info().max_payload]);
    for _ in 0..3 {
        browser.publish("long", payload.clone()).await.unwrap();
    }
    browser.flush().await.unwrap();
    for _ in 0..3 {
        assert!(next(&mut long).await.unwrap().payload == payload);
    }
}

#[tokio::test]
async fn with_a_certificate_clients_use_wss() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, identity) = make_identity(folder.path());
    let config = DaemonConfig {
        client_tls: Some(identity),
        ..with_websockets("a")
    };
    let daemon = start(config).await.unwrap();
    let port = daemon.addresses().clients_ws.unwrap().port();
    let options = async_nats::ConnectOptions::new().add_root_certificates(authority);
    let connect = options.connect(format!("wss://localhost:{port}"));
    let browser = within(connect).await.unwrap();
    let mut own = browser.subscribe("a").await.unwrap();
    browser.publish("a", "sealed".into()).await.unwrap();
    assert_eq!(next(&mut own).await.unwrap().payload, "sealed");
    let plain = async_nats::connect(format!("ws://localhost:{port}"));
    assert!(within(plain).await.is_err());
}

/// A WebSocket without a NATS client.
struct Frames(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Frames {
    async fn open(daemon: &DaemonHandle) -> Frames {
        let url = format!("ws://{}/", daemon.addresses().clients_ws.unwrap());
        let builder = tokio_websockets::ClientBuilder::new().uri(&url).unwrap();
        let builder = builder.limits(Limits::unlimited());
        let (stream, _) = within(builder.connect()).await.unwrap();
        let mut frames = Frames(stream);
        let info = frames.text().await.unwrap();
        assert!(info.starts_with("INFO {"), "{info}");
        assert!(!info.contains("connect_urls"), "{info}");
        frames
    }

    /// Sends a message; false if the connection has ended.
    async fn send(&mut self, message: Message) -> bool {
        let mut stream = std::pin::Pin::new(&mut self.0);
        let ready = std::future::poll_fn(|context| stream.as_mut().poll_ready(context));
        if within(ready).await.is_err() || stream.as_mut().start_send(message).is_err() {
            return false;
        }
        let flush = std::future::poll_fn(|context| stream.as_mut().poll_flush(context));
        within(flush).await.is_ok()
    }

    async fn send_text(&mut self, text: &'static str) {
        assert!(self.send(Message::binary(text)).await);
    }

    /// Reads the text of a frame; `None` at the end of the connection.
    async fn text(&mut self) -> Option<String> {
        loop {
            let message = next(&mut self.0).await?.ok()?;
            if message.is_binary() {
                let bytes = message.into_payload();
                return Some(String::from_utf8_lossy(&bytes).into_owned());
            }
            if message.is_close() {
                return None;
            }
        }
    }
}

#[tokio::test]
async fn operations_may_be_cut_anywhere_and_pings_are_answered() {
    let daemon = start_with_websockets().await;
    let mut frames = Frames::open(&daemon).await;
    for part in ["CONN", "ECT {\"verbose\":false}\r", "\nPIN", "", "G\r\n"] {
        frames.send_text(part).await;
    }
    assert_eq!(frames.text().await.as_deref(), Some("PONG\r\n"));
    assert!(frames.send(Message::ping("?")).await);
    let answer = next(&mut frames.0).await.unwrap().unwrap();
    assert!(answer.is_pong(), "{answer:?}");
    let connz = daemon.monitor().page("/connz", "").await.json;
    assert!(connz.contains("\"type\":\"websocket\""), "{connz}");
    // A client that ends its connection leaves the daemon.
    assert!(frames.send(Message::close(None, "")).await);
    let left = async {
        while daemon.status().borrow().clients > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(left).await;
}

#[tokio::test]
async fn a_stranger_has_small_limits_and_a_client_those_of_messages() {
    let daemon = start_with_websockets().await;
    let mut stranger = Frames::open(&daemon).await;
    let long = Bytes::from(vec![b' '; 100_000]);
    // The daemon refuses the frame at its header.
    stranger.send(Message::binary(long.clone())).await;
    assert_eq!(stranger.text().await, None);
    let mut client = Frames::open(&daemon).await;
    client
        .send_text("CONNECT {\"verbose\":false}\r\nPING\r\n")
        .await;
    assert_eq!(client.text().await.as_deref(), Some("PONG\r\n"));
    let publish = [b"PUB a 100000\r\n", &long[..], b"\r\nPING\r\n"].concat();
    assert!(client.send(Message::binary(publish)).await);
    assert_eq!(client.text().await.as_deref(), Some("PONG\r\n"));
    let longest = Bytes::from(vec![b' '; 3 << 20]);
    client.send(Message::binary(longest)).await;
    assert_eq!(client.text().await, None);
}

#[tokio::test]
async fn requests_that_ask_for_no_websocket_are_refused() {
    let daemon = start_with_websockets().await;
    let address = daemon.addresses().clients_ws.unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    within(socket.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    // A header without an end.
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let line = [b"X: ", &[b'x'; 1000][..], b"\r\n"].concat();
    let endless = async { while socket.write_all(&line).await.is_ok() {} };
    within(endless).await;
}

/// Opens a WebSocket as a page of `origin` does. Returns the first byte of the first frame.
async fn open_from(daemon: &DaemonHandle, origin: &str) -> u8 {
    let address = daemon.addresses().clients_ws.unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{origin}\r\n"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let read = async {
        loop {
            let head = bytes.windows(4).position(|part| part == b"\r\n\r\n");
            if let Some(first) = head.and_then(|head| bytes.get(head + 4)) {
                return *first;
            }
            assert!(socket.read_buf(&mut bytes).await.unwrap() > 0, "{bytes:?}");
        }
    };
    within(read).await
}

#[tokio::test]
async fn pages_connect_where_they_were_loaded_from_or_if_they_are_listed() {
    const BINARY: u8 = 0x82;
    const CLOSE: u8 = 0x88;
    let config = DaemonConfig {
        origins: vec!["https://www.example.net".to_owned()],
        ..with_websockets("a")
    };
    let daemon = start(config).await.unwrap();
    let address = daemon.addresses().clients_ws.unwrap();
    for (origin, expected) in [
        (String::new(), BINARY),
        (format!("Origin: http://{address}\r\n"), BINARY),
        ("Origin: https://www.example.net\r\n".to_owned(), BINARY),
        ("Origin: http://www.example.net\r\n".to_owned(), CLOSE),
        ("Origin: null\r\n".to_owned(), CLOSE),
    ] {
        assert_eq!(open_from(&daemon, &origin).await, expected, "{origin}");
    }
}

#[tokio::test]
async fn a_client_learns_where_other_daemons_take_websockets() {
    let first = start_with_websockets().await;
    let second = DaemonConfig {
        links: vec![link("a", first.addresses().daemons.unwrap())],
        advertise_ws: Some("b.example.net:8080".to_owned()),
        ..with_websockets("b")
    };
    let second = start(second).await.unwrap();
    let own = second.addresses().clients_ws.unwrap();
    let urls = async {
        loop {
            let url = format!("ws://{}/", first.addresses().clients_ws.unwrap());
            let builder = tokio_websockets::ClientBuilder::new().uri(&url).unwrap();
            let mut frames = Frames(builder.connect().await.unwrap().0);
            let info = frames.text().await.unwrap();
            let info: serde_json::Value = serde_json::from_str(&info[5..]).unwrap();
            match info.get("connect_urls") {
                Some(urls) => return urls.to_string(),
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let urls = within(urls).await;
    let here = first.addresses().clients_ws.unwrap();
    assert_eq!(urls, format!("[\"{here}\",\"b.example.net:8080\"]"));
    assert!(!urls.contains(&own.to_string()), "{urls}");
}

#[tokio::test]
async fn a_daemon_that_is_full_refuses_the_handshake() {
    let config = DaemonConfig {
        connections_max: 1,
        ..with_websockets("a")
    };
    let daemon = start(config).await.unwrap();
    let _client = Nats::connect(&daemon).await;
    let address = daemon.addresses().clients_ws.unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
    let mut answer = String::new();
    within(socket.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
}
