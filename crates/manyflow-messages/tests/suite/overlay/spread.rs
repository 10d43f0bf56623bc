//! Clients that speak Spread's protocol byte by byte, as its libraries do.

use manyflow_messages::spread::wire::{HEADER_BYTES, NAME_BYTES, padded};
use manyflow_messages::{Access, Credentials, DaemonConfig, DaemonHandle, User, start};
use manyflow_net::unix_socket::address_of;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::overlay::stage::{Nats, config, link, wait_for_daemons, within};

const RELIABLE: u32 = 0x02;
const AGREED: u32 = 0x10;
const SAFE: u32 = 0x20;
const SELF_DISCARD: u32 = 0x40;
const JOIN: u32 = 0x1_0000;
const LEAVE: u32 = 0x2_0000;
const KILL: u32 = 0x4_0000;
const MARKS: u32 = 0x8000_0080;
const REJECT: u32 = 0x40_0000;

fn spread_config(name: &str) -> DaemonConfig {
    DaemonConfig {
        clients_spread: Some("127.0.0.1:0".to_owned()),
        ..config(name)
    }
}

/// A connection by TCP or by a Unix socket.
type Socket = Box<dyn Connection>;

trait Connection: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection for S {}

/// A client, as a library on a little-endian or a big-endian machine is one.
struct Spread {
    socket: Socket,
    name: String,
    is_little: bool,
}

/// A message to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Received {
    kind_of_message: u32,
    sender: String,
    names: Vec<String>,
    kind: u16,
    payload: Vec<u8>,
}

impl Spread {
    /// Sends a greeting, and returns the first byte of the answer.
    async fn greet(daemon: &DaemonHandle, greeting: &[u8]) -> (Socket, i8) {
        let addresses = daemon.addresses();
        let mut socket: Socket = match &addresses.spread_socket {
            Some(path) => Box::new(UnixStream::connect(path).await.unwrap()),
            None => {
                let address = addresses.clients_spread.unwrap();
                Box::new(TcpStream::connect(address).await.unwrap())
            }
        };
        socket.write_all(greeting).await.unwrap();
        let first = within(socket.read_i8()).await.unwrap();
        (socket, first)
    }

    /// Connects as version 4.4, with messages about members.
    async fn connect(daemon: &DaemonHandle, name: &str) -> Spread {
        let head = [4, 4, 0, 1, name.len() as u8];
        let greeting = [&head, name.as_bytes()].concat();
        let (mut socket, length) = Spread::greet(daemon, &greeting).await;
        let mut methods = vec![0; length.try_into().expect("the client is welcome")];
        within(socket.read_exact(&mut methods)).await.unwrap();
        assert_eq!(methods, b"NULL IP ");
        let mut wanted = [0; 90];
        wanted[..4].copy_from_slice(b"NULL");
        socket.write_all(&wanted).await.unwrap();
        let mut answer = [0; 5];
        within(socket.read_exact(&mut answer)).await.unwrap();
        assert_eq!(answer[..4], [1, 4, 0, 0]);
        let mut private = vec![0; usize::from(answer[4])];
        within(socket.read_exact(&mut private)).await.unwrap();
        Spread {
            socket,
            name: String::from_utf8(private).unwrap(),
            is_little: true,
        }
    }

    async fn send(&mut self, what: u32, groups: &[&str], kind: u16, payload: &[u8]) {
        let bytes = |number: u32| match self.is_little {
            true => (number).to_le_bytes(),
            false => number.to_be_bytes(),
        };
        let marks = if self.is_little { MARKS } else { 0 };
        let mut all = bytes(what | marks).to_vec();
        all.extend(padded(&self.name));
        let hint = u32::from(kind) << 8 | marks;
        for number in [groups.len() as u32, hint, payload.len() as u32] {
            all.extend(bytes(number));
        }
        all.extend(groups.iter().flat_map(|group| padded(group)));
        all.extend(payload);
        self.socket.write_all(&all).await.unwrap();
    }

    /// Sends a request about a group.
    async fn request(&mut self, what: u32, group: &str) {
        self.send(what, &[group], 0, b"").await;
    }

    async fn receive(&mut self) -> Received {
        within(self.try_receive())
            .await
            .expect("the connection is open")
    }

    async fn try_receive(&mut self) -> std::io::Result<Received> {
        let mut head = [0; HEADER_BYTES];
        self.socket.read_exact(&mut head).await?;
        let word = |at: usize| u32::from_le_bytes(core::array::from_fn(|byte| head[at + byte]));
        let mut kind_of_message = word(0) & !MARKS;
        assert_eq!(word(0) & MARKS, MARKS, "numbers are little-endian");
        if kind_of_message & REJECT != 0 {
            kind_of_message |= self.socket.read_u32_le().await? & !MARKS;
        }
        let mut names = vec![0; word(36) as usize * NAME_BYTES];
        self.socket.read_exact(&mut names).await?;
        let mut payload = vec![0; word(44) as usize];
        self.socket.read_exact(&mut payload).await?;
        Ok(Received {
            kind_of_message,
            sender: text(&head[4..36]),
            names: names.chunks(NAME_BYTES).map(text).collect(),
            kind: (word(40) >> 8) as u16,
            payload,
        })
    }

    /// Receives a view. Returns its cause, its members, and the member that has come or gone.
    async fn view(&mut self) -> (u32, Vec<String>, String) {
        let received = self.receive().await;
        assert_eq!(
            received.kind_of_message & 0x3f00 & 0x1000,
            0x1000,
            "{received:?}"
        );
        let changed = text(&received.payload[24..24 + NAME_BYTES]);
        let cause = received.kind_of_message & 0xf00;
        (cause, received.names, changed)
    }

    /// Joins a group, and waits for the view.
    async fn join(&mut self, group: &str) -> Vec<String> {
        self.request(JOIN, group).await;
        let (cause, members, changed) = self.view().await;
        assert_eq!((cause, changed), (0x100, self.name.clone()));
        members
    }

    async fn closed(&mut self) {
        let ended = within(self.try_receive()).await;
        assert!(ended.is_err(), "{ended:?}");
    }
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap();
    String::from_utf8(field[..end].to_vec()).unwrap()
}

#[tokio::test]
async fn members_see_views_and_messages_of_each_service_in_one_order() {
    let daemon = start(spread_config("d")).await.unwrap();
    let mut ada = Spread::connect(&daemon, "ada").await;
    let mut bob = Spread::connect(&daemon, "bob").await;
    bob.is_little = false;
    assert_eq!(ada.name, "#ada#d");
    assert_eq!(ada.join("g").await, ["#ada#d"]);
    assert_eq!(bob.join("g").await, ["#ada#d", "#bob#d"]);
    let joined = (
        0x100,
        vec![ada.name.clone(), bob.name.clone()],
        bob.name.clone(),
    );
    assert_eq!(ada.view().await, joined);
    for service in [0x01, RELIABLE, 0x04, 0x08, AGREED, SAFE] {
        let (kind, payload) = (service as u16 + 300, [service as u8; 3]);
        bob.send(service, &["g"], kind, &payload).await;
        for member in [&mut ada, &mut bob] {
            let expected = Received {
                kind_of_message: service,
                sender: "#bob#d".to_owned(),
                names: vec!["g".to_owned()],
                kind,
                payload: payload.to_vec(),
            };
            assert_eq!(member.receive().await, expected);
        }
    }
    // Long messages, and those of several senders, come in one order.
    let long = vec![7; 143_000];
    for round in 0..20 {
        ada.send(AGREED, &["g"], round, &long[..1000 * usize::from(round)])
            .await;
        bob.send(SAFE, &["g"], round, b"").await;
    }
    ada.send(AGREED, &["g"], 99, &long).await;
    let mut seen = [Vec::new(), Vec::new()];
    for (seen, member) in seen.iter_mut().zip([&mut ada, &mut bob]) {
        for _ in 0..41 {
            seen.push(member.receive().await);
        }
    }
    assert!(seen[0] == seen[1], "one order");
    daemon.stop().await;
}

#[tokio::test]
async fn members_see_who_leaves_and_who_disconnects() {
    let daemon = start(spread_config("d")).await.unwrap();
    let mut ada = Spread::connect(&daemon, "ada").await;
    let mut bob = Spread::connect(&daemon, "bob").await;
    ada.join("g").await;
    bob.join("g").await;
    ada.view().await;
    // A member that leaves learns it; the other gets a view.
    bob.request(LEAVE, "g").await;
    let left = bob.receive().await;
    assert_eq!((left.kind_of_message, &left.sender[..]), (0x200, "g"));
    assert_eq!((left.names.len(), left.payload.len()), (0, 0));
    assert_eq!(
        ada.view().await,
        (0x200, vec!["#ada#d".to_owned()], "#bob#d".to_owned())
    );
    // And one that disconnects, with or without KILL.
    bob.join("g").await;
    ada.view().await;
    bob.request(KILL, "#bob#d").await;
    bob.closed().await;
    assert_eq!(
        ada.view().await,
        (0x400, vec!["#ada#d".to_owned()], "#bob#d".to_owned())
    );
    let mut cat = Spread::connect(&daemon, "cat").await;
    cat.join("g").await;
    ada.view().await;
    drop(cat);
    assert_eq!(
        ada.view().await,
        (0x400, vec!["#ada#d".to_owned()], "#cat#d".to_owned())
    );
    daemon.stop().await;
}

#[tokio::test]
async fn messages_go_to_private_groups_and_to_several_groups_once() {
    let daemon = start(spread_config("d")).await.unwrap();
    let mut ada = Spread::connect(&daemon, "ada").await;
    let mut any = Spread::connect(&daemon, "").await;
    assert!(
        any.name.starts_with("#r") && any.name.ends_with("#d"),
        "{}",
        any.name
    );
    ada.send(AGREED, &[&any.name], 0, b"you").await;
    let received = any.receive().await;
    assert_eq!(
        (&received.sender[..], &received.payload[..]),
        ("#ada#d", &b"you"[..])
    );
    any.join("g").await;
    any.join("h").await;
    ada.join("g").await;
    any.view().await;
    let groups = ["g", "h", "nobody", "#ada#d"];
    any.send(SAFE | SELF_DISCARD, &groups, 0, b"all").await;
    any.send(RELIABLE, &[], 0, b"to nobody").await;
    any.send(SAFE, &["g"], 0, b"end").await;
    let received = ada.receive().await;
    assert_eq!(
        (&received.names[..], &received.payload[..]),
        (&groups.map(String::from)[..], &b"all"[..])
    );
    assert_eq!(ada.receive().await.payload, b"end");
    assert_eq!(
        any.receive().await.payload,
        b"end",
        "it has discarded its own message"
    );
    // Spread clients and NATS clients are in the same groups.
    let mut nats = Nats::connect(&daemon).await;
    nats.send("SUB $MF.agreed.g 1\r\n").await;
    let (_, members, joined) = ada.view().await;
    assert_eq!(members.len(), 3);
    assert!(joined.starts_with("#nats-"), "{joined}");
    ada.send(AGREED, &["g"], 0, b"hello").await;
    assert!(nats.message().await.1.ends_with(b"hello"));
    daemon.stop().await;
}

#[tokio::test]
async fn clients_and_messages_that_are_not_allowed_are_refused_with_the_codes_of_spread() {
    let daemon = start(spread_config("d")).await.unwrap();
    let mut ada = Spread::connect(&daemon, "ada").await;
    for (greeting, code) in [
        (&[4, 4, 0, 1, 3, b'a', b'd', b'a'][..], -6),
        (&[4, 4, 0, 1, 3, b'a', b'#', b'a'], -5),
        (&[4, 4, 0, 1, 11], -5),
        (&[2, 1], -7),
    ] {
        let (mut socket, first) = Spread::greet(&daemon, greeting).await;
        assert_eq!(first, code, "{greeting:?}");
        assert_eq!(within(socket.read(&mut [0])).await.unwrap(), 0);
    }
    let (mut socket, length) = Spread::greet(&daemon, &[5, 0, 1, 1, 1, b'x']).await;
    let mut wanted = [0; 90];
    wanted[..5].copy_from_slice(b"PWORD");
    socket.write_all(&wanted).await.unwrap();
    let mut answer = Vec::new();
    within(socket.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(answer[length as usize..], [-9_i8 as u8]);
    // Requests that cannot be met come back.
    ada.request(JOIN, "two words").await;
    let rejected = ada.receive().await;
    assert_eq!(rejected.kind_of_message, REJECT | 0x100);
    assert_eq!(rejected.names, ["two words"]);
    ada.send(SAFE, &["two words"], 9, b"text").await;
    let rejected = ada.receive().await;
    assert_eq!(rejected.kind_of_message, REJECT | SAFE);
    assert_eq!((rejected.kind, &rejected.payload[..]), (9, &b"text"[..]));
    // A client that speaks for another one is disconnected, and its name is free again.
    ada.name = "#bob#d".to_owned();
    ada.request(JOIN, "g").await;
    ada.closed().await;
    let again = async {
        loop {
            let greeting = [4, 4, 0, 1, 3, b'a', b'd', b'a'];
            if Spread::greet(&daemon, &greeting).await.1 > 0 {
                break;
            }
        }
    };
    within(again).await;
    daemon.stop().await;
}

#[tokio::test]
async fn clients_of_two_daemons_are_members_of_one_group() {
    let first = start(spread_config("a")).await.unwrap();
    let mut second = spread_config("b");
    second.links = vec![link("a", first.addresses().daemons.unwrap())];
    let second = start(second).await.unwrap();
    wait_for_daemons(&first, 2).await;
    let mut ada = Spread::connect(&first, "ada").await;
    // The same private name at another daemon.
    let mut other = Spread::connect(&second, "ada").await;
    ada.request(JOIN, "g").await;
    other.request(JOIN, "g").await;
    for member in [&mut ada, &mut other] {
        while member.view().await.1.len() < 2 {}
    }
    ada.send(SAFE, &["g", "#ada#b"], 0, b"hello").await;
    for member in [&mut ada, &mut other] {
        assert_eq!(member.receive().await.payload, b"hello");
    }
    second.stop().await;
    let signal = ada.receive().await;
    let received = match signal.kind_of_message {
        0x2000 => {
            assert_eq!((&signal.sender[..], signal.payload.len()), ("g", 12));
            ada.receive().await
        }
        // The daemon that stopped had disconnected its client before.
        _ => signal,
    };
    assert_eq!(received.names, ["#ada#a"]);
    first.stop().await;
}

#[tokio::test]
async fn clients_of_a_unix_socket_and_of_tcp_see_one_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("4803");
    let mut own = spread_config("a");
    own.clients_spread = Some(address_of(&path));
    let a = start(own).await.unwrap();
    assert_eq!(a.addresses().clients_spread, None);
    let mut own = spread_config("b");
    own.links = vec![link("a", a.addresses().daemons.unwrap())];
    let b = start(own).await.unwrap();
    wait_for_daemons(&a, 2).await;
    let mut ada = Spread::connect(&a, "ada").await;
    let mut bob = Spread::connect(&b, "bob").await;
    for member in [&mut ada, &mut bob] {
        member.request(JOIN, "g").await;
    }
    for member in [&mut ada, &mut bob] {
        let mut members = Vec::new();
        while members.len() < 2 {
            members = member.view().await.1;
        }
        members.sort();
        assert_eq!(members, ["#ada#a", "#bob#b"]);
    }
    // Longer than what the kernel buffers for a Unix socket.
    for kind in 0..5 {
        ada.send(AGREED, &["g"], kind, &[1; 120_000]).await;
        bob.send(AGREED, &["g"], kind, &[2; 120_000]).await;
    }
    for _ in 0..10 {
        assert_eq!(ada.receive().await, bob.receive().await);
    }
    b.stop().await;
    a.stop().await;
    assert!(!path.exists(), "the file is removed");
}

#[tokio::test]
async fn a_client_that_sends_many_messages_before_it_reads_does_not_wait_for_itself() {
    let daemon = start(spread_config("d")).await.unwrap();
    let mut ada = Spread::connect(&daemon, "ada").await;
    ada.join("g").await;
    for round in 0..200 {
        ada.send(RELIABLE, &["g"], round, &[1; 50_000]).await;
    }
    for round in 0..200 {
        let received = ada.receive().await;
        assert_eq!((received.kind, received.payload.len()), (round, 50_000));
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_handshake_is_disconnected() {
    let daemon = start(spread_config("d")).await.unwrap();
    let (mut socket, _) = Spread::greet(&daemon, &[4, 4, 0, 1, 1, b'x']).await;
    let mut rest = Vec::new();
    within(socket.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest, b"NULL IP ");
    // The name is free again.
    Spread::connect(&daemon, "x").await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_daemon_with_users_or_a_long_name_serves_no_spread_clients() {
    let credentials = Credentials::Token("secret".to_owned());
    let with_users = DaemonConfig {
        access: Access::Users(vec![User::new(credentials)]),
        ..spread_config("d")
    };
    for (config, reason) in [
        (with_users, "clients-spread"),
        (spread_config("a-name-of-20-letters"), "19 bytes"),
    ] {
        let error = start(config).await.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
