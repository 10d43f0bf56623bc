//! Hostile NATS clients of two daemons. `messages` has the subscriber that does not read.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use serde_json::Value;

use crate::attack::overlay::{Bystanders, Daemon, Nats, OPEN, Overlay, user};
use crate::common::wait_until;

const UNKNOWN: &str = "-ERR 'Unknown Protocol Operation'";
/// The beginning of an error that concerns one message or one subscription.
const REFUSED: &str = "-ERR 'Permissions Violation for ";
/// Maximum of the memory that a connection without CONNECT may take.
const SILENT_KIB_MAX: u64 = 64;
/// Maximum of a daemon's memory when one user has taken all subscriptions that it may.
const GREEDY_KIB_MAX: u64 = 512 << 10;

/// Each publisher has an error and is closed. The members, which read every subject at both
/// daemons, see nothing of it.
#[test]
fn bytes_that_a_publisher_hides_reach_no_subscriber_of_two_daemons() {
    let daemons = Overlay::open().start_two();
    let mut bystanders = Bystanders::new(daemons.each_ref(), OPEN, ">");
    let attacks: &[(&[u8], &str)] = &[
        // Three characters, and four bytes.
        (b"PUB a 3\r\nf\xc3\xbcr\r\n", UNKNOWN),
        (b"PUB a 2\r\nhiMSG orders.buy 1 1\r\nx\r\n", UNKNOWN),
        (b"PUB a 2\r\nhi\n\n", UNKNOWN),
        (b"HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\n\n", UNKNOWN),
        (b"HPUB a 10 12\r\nno headershi\r\n", UNKNOWN),
        (b"HPUB a 11 13\r\nNATS/1.0\r\n\r\nhi\r\n", UNKNOWN),
        (b"CONNECT {broken\r\n", "-ERR 'Invalid CONNECT options'"),
        (b"GET / HTTP/1.1\r\n\r\n", UNKNOWN),
        (b"PUB a 99999999\r\n", "-ERR 'Maximum Payload Violation'"),
    ];
    for (bytes, error) in attacks {
        for daemon in &daemons {
            let mut publisher = Nats::connect(daemon.clients, OPEN);
            publisher.send(bytes);
            assert_eq!(publisher.line(), *error, "{}", bytes.escape_ascii());
            publisher.assert_closed();
        }
        bystanders.assert_served();
    }
}

/// Each name is refused. The client remains connected: the end of its operation is known.
#[test]
fn names_that_others_would_misread_are_refused_and_nobody_sees_them() {
    let daemons = Overlay::open().start_two();
    let mut bystanders = Bystanders::new(daemons.each_ref(), OPEN, ">");
    for byte in [0, 0x0b, 0x0c, 0x7f, 0xff] {
        let mut client = Nats::connect(daemons[0].clients, OPEN);
        for (before, after) in [
            ("PUB a", "b 1\r\nx\r\n"),
            ("PUB a r", " 1\r\nx\r\n"),
            ("HPUB a", "b 12 13\r\nNATS/1.0\r\n\r\nx\r\n"),
            ("SUB a", "b 1\r\n"),
            ("SUB a q", "b 1\r\n"),
        ] {
            client.send([before.as_bytes(), &[byte], after.as_bytes()].concat());
            let line = client.line();
            assert!(line.starts_with(REFUSED), "{byte:#x} {before:?}: {line}");
        }
        client.send_and_wait("");
    }
    for length in [1_025, 2_000, 4_000] {
        let mut client = Nats::connect(daemons[1].clients, OPEN);
        let name = "n".repeat(length);
        for operation in [format!("SUB {name} 1\r\n"), format!("SUB a {name} 2\r\n")] {
            client.send(&operation);
            let line = client.line();
            assert!(line.starts_with(REFUSED), "{length}: {line}");
        }
        client.send_and_wait("");
        // A message may have a subject that no group can have.
        client.send_and_wait(&format!("PUB {name} 1\r\nx\r\n"));
        bystanders.assert_next(&name, "x");
    }
    bystanders.assert_served();
}

#[test]
fn a_user_who_may_publish_one_subject_makes_nobody_see_another() {
    let overlay = Overlay::open()
        .with_user("low", "publish = [\"news.low\"]\nsubscribe = []")
        .with_user("all", "");
    let daemons = overlay.start_two();
    let mut bystanders = Bystanders::new(daemons.each_ref(), &user("all"), ">");
    let mut low = Nats::connect(daemons[0].clients, &user("low"));
    low.send("PUB orders.buy 1\r\nx\r\n");
    let error = "-ERR 'Permissions Violation for Publish to \"orders.buy\"'";
    assert_eq!(low.line(), error);
    low.send("HPUB orders.buy 12 13\r\nNATS/1.0\r\n\r\nx\r\n");
    assert_eq!(low.line(), error);
    bystanders.assert_served();
    for hidden in [
        "PUB news.low 2\r\nhiPUB orders.buy 1\r\nx\r\n",
        "PUB news.low 2\r\nhi MSG orders.buy 1 1\r\nx\r\n",
        "HPUB news.low 9 11\r\nNATS/1.0\nhi\r\nMSG orders.buy 1 1\r\nx\r\n",
    ] {
        let mut low = Nats::connect(daemons[1].clients, &user("low"));
        low.send(hidden);
        assert_eq!(low.line(), UNKNOWN, "{hidden:?}");
        low.assert_closed();
        bystanders.assert_served();
    }
}

/// The fields and their types, which docs/nats.md lists beside those of nats-server.
#[test]
fn info_of_a_process_has_the_fields_of_the_client_protocol() {
    let daemon = Overlay::open().start("a", &[]);
    let (_client, info) = Nats::open_with_info(daemon.clients);
    let info = info.strip_prefix("INFO ").unwrap();
    let info: BTreeMap<String, Value> = serde_json::from_str(info).unwrap();
    let kind = |value: &Value| match value {
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        _ => "other",
    };
    let found = info
        .iter()
        .map(|(name, value)| (name.clone(), kind(value).to_owned()));
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/nats.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("### Fields of INFO").unwrap();
    let rows = section.split("\n#").next().unwrap().lines();
    let listed = rows.filter_map(|row| {
        let mut cells = row.strip_prefix("| `")?.split(" | ");
        let name = cells.next()?.trim_end_matches('`').to_owned();
        let kind = cells.nth(1)?.to_owned();
        (kind != "-").then_some((name, kind))
    });
    let listed: BTreeMap<_, _> = listed.collect();
    assert_eq!(found.collect::<BTreeMap<_, _>>(), listed);
    for field in ["server_id", "version", "go", "host", "port", "max_payload"] {
        assert!(listed.contains_key(field), "{field}");
    }
}

/// Subscribes to names of 900 bytes until the daemon refuses one. Returns their number.
fn subscribe_until_refused(client: &mut Nats, first: usize) -> usize {
    // The errors of a batch fit into the buffers of the connection.
    const BATCH: usize = 50;
    let padding = "x".repeat(900);
    for begin in (0..).step_by(BATCH) {
        let subscribe = |number| {
            let name = first + number;
            format!("SUB news.{name}{padding} {number}\r\n")
        };
        let batch: String = (begin..begin + BATCH).map(subscribe).collect();
        client.send(format!("{batch}PING\r\n"));
        let line = client.line();
        if line != "PONG" {
            let is_refusal = line.ends_with("\": maximum subscriptions exceeded'");
            assert!(line.starts_with(REFUSED) && is_refusal, "{line}");
            return begin;
        }
    }
    unreachable!("the numbers do not end")
}

#[test]
fn a_user_who_takes_all_group_names_that_it_may_leaves_room_for_others() {
    let overlay = Overlay::open()
        .with_user("greedy", "publish = []\nsubscribe = [\"news.*\"]")
        .with_user("ann", "");
    let daemons = overlay.start_two();
    let mut bystanders = Bystanders::new(daemons.each_ref(), &user("ann"), "well");
    let mut greedy = Vec::new();
    for first in [1_000_000, 2_000_000] {
        let taken = {
            let mut client = Nats::connect(daemons[0].clients, &user("greedy"));
            subscribe_until_refused(&mut client, first)
        };
        assert!(taken < 64 << 10, "names of {taken} KB");
        // A connection that asks for less hears of no refusal.
        let mut client = Nats::connect(daemons[0].clients, &user("greedy"));
        let padding = "x".repeat(900);
        let subscribe = |number| format!("SUB news.{}{padding} {number}\r\n", first + number);
        let all: String = (0..taken.saturating_sub(500)).map(subscribe).collect();
        client.send(all);
        client.send_and_wait("");
        greedy.push((client, taken));
    }
    let kib: Vec<_> = daemons.iter().map(|daemon| daemon.peak_kib()).collect();
    let taken: Vec<_> = greedy.iter().map(|(_, taken)| *taken).collect();
    println!("{taken:?} subscriptions of 900 bytes; the daemons took {kib:?} KiB");
    assert!(kib.iter().all(|kib| *kib < GREEDY_KIB_MAX), "{kib:?}");
    bystanders.assert_served();
    let mut others = Bystanders::new(daemons.each_ref(), &user("ann"), "*");
    others.assert_served();
}

#[test]
fn six_hundred_connections_that_say_nothing_take_little_memory_and_keep_nobody_out() {
    let daemons = Overlay::open().start_two();
    let mut bystanders = Bystanders::new(daemons.each_ref(), OPEN, ">");
    let before = daemons[0].resident_kib();
    const COUNT: u64 = 600;
    let mut silent: Vec<_> = (0..COUNT).map(|_| Nats::open(daemons[0].clients)).collect();
    for client in &mut silent {
        client.send("SUB ");
    }
    bystanders.assert_served();
    let kib = daemons[0].peak_kib().saturating_sub(before);
    println!("{COUNT} connections without CONNECT: {kib} KiB");
    assert!(kib < COUNT * SILENT_KIB_MAX, "{kib} KiB");
    Bystanders::new(daemons.each_ref(), OPEN, ">").assert_served();
    for client in &mut silent {
        assert_eq!(client.line(), "-ERR 'Authentication Timeout'");
        client.assert_closed();
    }
}

#[test]
fn the_members_of_a_group_are_shown_only_to_users_who_may_subscribe() {
    let overlay = Overlay::open()
        .with_user("low", "subscribe = [\"inbox\"]")
        .with_user("all", "");
    let daemons = overlay.start_two();
    let mut bystanders = Bystanders::new(daemons.each_ref(), &user("all"), "well");
    let mut low = Nats::connect(daemons[0].clients, &user("low"));
    low.send_and_wait("SUB inbox 1\r\n");
    low.send("PUB $MF.members.well inbox 0\r\n\r\n");
    let error = "-ERR 'Permissions Violation for Subscription to \"well\"'";
    assert_eq!(low.line(), error);
    low.send_and_wait("");
    let mut all = Nats::connect(daemons[0].clients, &user("all"));
    all.send("SUB inbox 1\r\nPUB $MF.members.well inbox 0\r\n\r\n");
    let (line, _) = all.message();
    assert!(line.starts_with("MSG inbox 1 "), "{line}");
    // The answer went to a group that `low` has joined: it may see what is published there.
    bystanders.assert_served();
}

/// Tries a password from an address of the loopback network. Returns whether it is accepted.
fn guess(from: Ipv4Addr, to: SocketAddr, password: &str) -> bool {
    let mut client = Nats::open_from(IpAddr::V4(from), to);
    let options = format!("{{\"user\":\"ann\",\"pass\":\"{password}\"}}");
    client.send(format!("CONNECT {options}\r\nPING\r\n"));
    match client.line().as_str() {
        "PONG" => true,
        "-ERR 'Authorization Violation'" => false,
        other => panic!("{other:?}"),
    }
}

/// Returns the sum of the refusals of an address that the log has named.
fn logged_refusals(daemon: &Daemon, from: Ipv4Addr) -> u32 {
    let begin = format!("refused the credentials of clients at {from} ");
    let messages = daemon.process.messages();
    let counts = messages.iter().filter_map(|line| {
        let (count, _) = line.split_once(&begin)?.1.split_once(" times, the last ")?;
        Some(count.parse::<u32>().unwrap())
    });
    counts.sum()
}

#[test]
fn guesses_of_a_password_are_slowed_and_logged_and_keep_no_other_address_out() {
    let overlay = Overlay::open().with_user("ann", "");
    let daemons = overlay.start_two();
    let mut bystanders = Bystanders::new(daemons.each_ref(), &user("ann"), ">");
    let (guesser, other) = (Ipv4Addr::new(127, 0, 0, 78), Ipv4Addr::new(127, 0, 0, 79));
    let to = daemons[0].clients;
    let mut refused = 0;
    // Beyond some guesses a second, not even the right password is looked at.
    loop {
        for number in 0..50 {
            assert!(!guess(guesser, to, &format!("guess{number}")));
        }
        refused += 50;
        if !guess(guesser, to, "ann") {
            refused += 1;
            break;
        }
        assert!(refused < 5_000, "{refused} guesses were checked");
    }
    assert!(guess(other, to, "ann"), "another address is not slowed");
    bystanders.assert_served();
    wait_until("the log has all guesses", || {
        logged_refusals(&daemons[0], guesser) == refused
    });
    assert_eq!(logged_refusals(&daemons[0], other), 0);
}
