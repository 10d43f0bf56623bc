//! `manyflow top`, and what daemons show and log.
use crate::common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use common::{Ended, LIMIT, Manyflow, manyflow, run, wait_until};
use manyflow_net::reserved::ReservedAddress;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::http_stage::wait_for;

/// A daemon whose links, clients and metrics are on loopback.
struct Daemon {
    process: Manyflow,
    daemons: String,
    clients: String,
    pages: String,
}

impl Daemon {
    fn start(name: &str, arguments: &[&str]) -> Daemon {
        let mut command = manyflow(&["daemon", "--insecure", "--json", "--name", name]);
        let any = "127.0.0.1:0";
        command.args(["--listen", any, "--clients", any, "--metrics", any]);
        command.args(arguments);
        let mut process = Manyflow::start(command);
        let pages = process.wait_for_event("metrics");
        let started = process.wait_for_event("started");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Daemon {
            process,
            daemons: text(&started["daemons"]),
            clients: text(&started["clients"]),
            pages: text(&pages["url"]).replace("/metrics", ""),
        }
    }

    /// Starts two daemons with a link, a member of the group `n` at the second one, and a sender
    /// of it at the first.
    fn pair() -> ([Daemon; 2], [Manyflow; 2]) {
        let a = Daemon::start("a", &[]);
        let b = Daemon::start("b", &["--link", &format!("a={}", a.daemons)]);
        let sub = manyflow(&["sub", "n", "--json", "--server", &b.clients]);
        let mut sub = Manyflow::start(sub);
        sub.wait_for_event("joined");
        let mut publish = manyflow(&["pub", "n", "--size", "100B", "--count", "1000000"]);
        publish.args(["--rate", "500", "--server", &a.clients]);
        let publish = Manyflow::start(publish);
        sub.wait_for_event("message");
        // A status is up to half a second old.
        for daemon in [&a, &b] {
            daemon.wait_for_status("\"is_up\":true");
        }
        ([a, b], [sub, publish])
    }

    /// Waits until the status contains a text.
    fn wait_for_status(&self, part: &str) {
        wait_until(part, || self.get("/status.json").contains(part));
    }

    /// Returns a page with its header.
    fn get(&self, path: &str) -> String {
        let address = self.pages.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    }
}

/// The requests that nats-top sends, and one that cannot be answered.
#[test]
fn nats_servers_pages_are_beside_the_others() {
    let daemon = Daemon::start("a", &[]);
    for (path, key) in [
        ("/varz", "\"server_name\":\"a\""),
        ("/connz?limit=1024&sort=cid&subs=1", "\"limit\":1024"),
        ("/subsz", "\"num_subscriptions\":0"),
        ("/healthz", "\"status\":\"ok\""),
    ] {
        let page = daemon.get(path);
        assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
        assert!(page.contains("content-type: application/json"), "{page}");
        assert!(page.contains(key), "{page}");
    }
    let refused = daemon.get("/connz?sort=size");
    assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");
    let error = "{\"error\":\"invalid sorting option: size\"}";
    assert!(refused.ends_with(error), "{refused}");
    assert!(daemon.get("/routez").starts_with("HTTP/1.1 404 "));
}

/// Returns the row of a table whose first words are these.
fn row<'a>(ended: &'a Ended, first: &[&str]) -> Vec<&'a str> {
    let lines = ended.stdout.lines();
    let mut rows = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.find(|row| row.starts_with(first))
        .unwrap_or_else(|| panic!("no row {first:?}: {ended:?}"))
}

#[test]
fn the_table_shows_daemons_links_and_addresses_that_do_not_answer() {
    let ([a, b], _programs) = Daemon::pair();
    let reserved = ReservedAddress::new().unwrap();
    let silent = reserved.get().to_string();
    // daemon, overlay, up (two words), topology, daemons, clients, groups, published/s, ...
    let rows = |ended: &Ended| {
        let of = |first| row(ended, first).into_iter().map(str::to_owned).collect();
        [&["a", "manyflow"][..], &["b", "manyflow"], &["a", ">", "b"]].map(of)
    };
    // A busy computer may publish nothing between the two looks of `top`.
    let ended = wait_for(|| {
        let ended = run(&["top", "--once", &a.pages, &b.pages, &silent]).succeeded("top");
        println!("{}", ended.stdout);
        let [a, b, link]: [Vec<String>; 3] = rows(&ended);
        let (published_per_s, delivered_per_s) = (&a[8], &b[9]);
        let has_rtt = !cfg!(target_os = "linux") || link[7] == "ms";
        (published_per_s != "0" && delivered_per_s != "0" && has_rtt).then_some(ended)
    });
    let [a, b, link] = rows(&ended);
    assert_eq!((&*a[5], &*b[5]), ("2", "2"), "daemons");
    assert_eq!((&*a[6], &*b[6]), ("1", "1"), "clients");
    assert_eq!(link[3], "up");
    let expected = format!("http://{silent} does not answer: cannot connect: ");
    assert!(ended.stdout.contains(&expected), "{ended:?}");
}

#[test]
fn json_lines_have_the_state_of_each_daemon_and_rates() {
    let ([a, b], _programs) = Daemon::pair();
    let reserved = ReservedAddress::new().unwrap();
    let silent = reserved.get().to_string();
    let arguments = [
        "top",
        "--json",
        "--interval",
        "500ms",
        &a.pages,
        &b.pages,
        &silent,
    ];
    let mut top = Manyflow::start(manyflow(&arguments));
    let event = top.wait_for(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["event"], "status");
        let published = event["daemons"][0]["rates"]["published_per_s"].as_f64()?;
        let sent = event["daemons"][0]["rates"]["links"]["b"]["sent_messages_per_s"].as_f64()?;
        (published > 0.0 && sent > 0.0).then_some(event)
    });
    let daemons = event["daemons"].as_array().unwrap();
    assert_eq!(daemons.len(), 3);
    assert_eq!(daemons[1]["status"]["name"], "b");
    assert_eq!(daemons[1]["status"]["links"][0]["is_up"], true);
    assert_eq!(daemons[1]["error"], Value::Null);
    assert_eq!(daemons[2]["status"], Value::Null);
    assert!(
        daemons[2]["error"]
            .as_str()
            .unwrap()
            .starts_with("cannot connect")
    );
    top.signal(Signal::SIGINT);
    top.finish().succeeded("top");
}

#[test]
fn other_roles_have_their_figures_below_the_daemons() {
    let daemon = Daemon::start("a", &[]);
    daemon.wait_for_status("\"name\":\"a\"");
    // A switch has another status than daemons, and a gateway has none.
    let switch = ["switch", "--member", "one=127.0.0.1:9"];
    let gateway = ["gateway", "--to", "127.0.0.1:9"];
    let [switch, gateway] = [&switch[..], &gateway].map(|arguments| {
        let mut command = manyflow(arguments);
        command.args([
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--metrics",
            "127.0.0.1:0",
        ]);
        let mut process = Manyflow::start(command);
        let url = process.wait_for_event("metrics")["url"].clone();
        let url = url.as_str().unwrap().replace("/metrics", "");
        (process, url)
    });
    let urls = [&*daemon.pages, &switch.1, &gateway.1];
    let ended = run(&[&["top", "--once"], &urls[..]].concat()).succeeded("top");
    assert_eq!(row(&ended, &["a", "manyflow"])[5], "1", "daemons");
    let [_, switch, gateway] = urls;
    for (role, url, figure) in [
        ("switch", switch, "members up"),
        ("gateway", gateway, "switch no connection"),
    ] {
        let row = row(&ended, &[role, url]);
        assert!(row[2..].join(" ").starts_with(figure), "{row:?}");
    }
    let ended = run(&[&["top", "--once", "--json"], &urls[..]].concat()).succeeded("top");
    let event: Value = serde_json::from_str(&ended.stdout).unwrap();
    let (daemon, switch) = (&event["daemons"][0], &event["daemons"][1]);
    assert_eq!(daemon["page"], Value::Null);
    assert_eq!(daemon["status"]["name"], "a");
    assert_eq!(
        (&switch["error"], &switch["status"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(switch["page"]["role"], "switch");
    let accepts = serde_json::json!(["accepts connections", {"good": "yes"}]);
    assert_eq!(switch["page"]["facts"][1], accepts);
}

#[test]
fn wrong_arguments_and_silence_are_reported() {
    let reserved = ReservedAddress::new().unwrap();
    let silent = reserved.get().to_string();
    let ended = run(&["top", "--once", &silent]);
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stdout.contains("does not answer"), "{ended:?}");
    assert!(ended.stderr.contains("no daemon answered"), "{ended:?}");
    for arguments in [["https://a.example.net", "--once"], ["--interval", "10ms"]] {
        let ended = run(&["top", arguments[0], arguments[1]]);
        assert_eq!(ended.code(), 2, "{ended:?}");
    }
}

#[test]
fn a_daemon_announces_its_end_and_ends_well() {
    // nats-server enters its lame duck mode on SIGUSR2.
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGUSR2] {
        let mut a = Daemon::start("a", &["--grace", "80s"]);
        let mut client = TcpStream::connect(&a.clients).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        client.write_all(b"CONNECT {}\r\nPING\r\n").unwrap();
        let mut read = String::new();
        while !read.contains("PONG") {
            read.push_str(&read_some(&mut client));
        }
        a.process.signal(signal);
        a.process.wait_for_event("stopping");
        while !read.contains("\"ldm\":true") {
            let more = read_some(&mut client);
            assert!(!more.is_empty(), "closed before INFO: {read}");
            read.push_str(&more);
        }
        // The grace ends with the last client.
        drop(client);
        a.process.finish().succeeded("daemon");
    }
}

#[test]
fn a_second_signal_ends_a_daemon_at_once() {
    let mut a = Daemon::start("a", &["--grace", "1h"]);
    let mut client = TcpStream::connect(&a.clients).unwrap();
    client.write_all(b"CONNECT {}\r\n").unwrap();
    a.wait_for_status("\"clients\":1");
    a.process.signal(Signal::SIGTERM);
    a.process.wait_for_event("stopping");
    // The handler of the second signal is set soon after that line.
    let ended = loop {
        a.process.signal(Signal::SIGTERM);
        match a.process.finish_within(Duration::from_secs(1)) {
            Ok(ended) => break ended,
            Err(running) => a.process = running,
        }
    };
    ended.succeeded("daemon");
}

fn read_some(stream: &mut TcpStream) -> String {
    let mut bytes = [0; 4096];
    let count = stream.read(&mut bytes).unwrap();
    String::from_utf8(bytes[..count].to_vec()).unwrap()
}

#[test]
fn a_log_in_json_has_fields() {
    let a = Daemon::start("a", &[]);
    let link = format!("a={}", a.daemons);
    let mut command = manyflow(&[
        "daemon",
        "--insecure",
        "--name",
        "b",
        "--log-format",
        "json",
    ]);
    command.args(["--link", &link, "--json", "--clients", "127.0.0.1:0"]);
    command.args(["--grace", "0s", "--metrics", "127.0.0.1:0"]);
    command.env("RUST_LOG", "info");
    let mut b = Manyflow::start(command);
    let pages = b.wait_for_event("metrics")["url"].clone();
    let pages = pages.as_str().unwrap().replace("/metrics", "");
    wait_until("b has a link to a", || {
        let ended = run(&["top", "--once", "--interval", "500ms", &pages]);
        let mut lines = ended.stdout.lines();
        lines.any(|line| line.starts_with("b > a") && line.contains(" up "))
    });
    b.signal(Signal::SIGTERM);
    let ended = b.finish().succeeded("daemon");
    let mut lines = ended.stderr.lines().map(|line| {
        let line: Result<Value, _> = serde_json::from_str(line);
        line.unwrap_or_else(|_| panic!("{ended:?}"))
    });
    let up = lines
        .find(|line| line["message"] == "a link is up")
        .unwrap();
    assert_eq!(up["link"], "a");
    assert_eq!(up["peer"], a.daemons);
}

/// A daemon that does not run is named with its address after two seconds, without any option.
#[test]
fn a_daemon_that_cannot_be_reached_is_named_in_the_log() {
    let mut command = manyflow(&["daemon", "--insecure", "--name", "a", "--json"]);
    command.args(["--link", "b=127.0.0.1:1", "--metrics", "127.0.0.1:0"]);
    let mut daemon = Manyflow::start(command);
    daemon.wait_for_message("the daemon b at 127.0.0.1:1 has not been reachable for ");
    daemon.signal(Signal::SIGTERM);
    daemon.finish().succeeded("daemon");
}
