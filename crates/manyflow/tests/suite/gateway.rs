//! `manyflow gateway` and `manyflow member` as processes, before HTTP servers in the test.
//! Everything runs on loopback.

use crate::common;
use crate::http_stage;

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::thread;

use bytes::Bytes;
use common::{LIMIT, get, own_address};
use http_stage::{
    ANY, Client, LARGE, Stage, large, listen_address, pattern, read_metric, start, start_gateway,
    start_member, start_switch, wait_for,
};
use manyflow_ensembles::anypoint::{Options, connect, serve};
use manyflow_net::reserved::ReservedAddress;
use nix::sys::signal::Signal;
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// Signs of life are due at a third of it: a time in which even a busy computer gives one.
const PATIENCE: [&str; 2] = ["--timeout", "10s"];

#[test]
fn requests_reach_the_servers_and_responses_the_clients() {
    let names = ["a", "b", "c", "d"];
    carry_requests(&Stage::start(&names, &[]));
    carry_requests(&Stage::start_with_switch(&names, "affinity", &[]));
}

fn carry_requests(stage: &Stage) {
    let mut client = stage.client();
    let mut names: Vec<_> = (0..8).map(|_| client.ask("GET", "/").text()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names, ["a", "b", "c", "d"], "all members have a share");

    let head = client.ask("HEAD", "/page").head;
    assert_eq!(head.headers["content-length"], "1234");
    assert_eq!(head.headers["via"], "1.1 manyflow");

    let chunks = client.ask("GET", "/chunks");
    assert_eq!(chunks.text(), "abcdefg");
    assert!(!chunks.head.headers.contains_key("keep-alive"));

    let small = client.post("/small", b"a small body");
    assert_eq!(small.text(), "a small body");
    let long = pattern(5_000_000);
    assert!(client.post("/long", &long).body.unwrap() == long);
    client.send(b"POST /chunked HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    for chunk in long.chunks(500_000) {
        client.send(format!("{:x}\r\n", chunk.len()).as_bytes());
        client.send(&[chunk, b"\r\n"].concat());
    }
    client.send(b"0\r\n\r\n");
    assert!(client.answer().body.unwrap() == long);
    assert_eq!(stage.counter("failed"), 0);
}

#[test]
fn headers_are_changed_as_a_proxy_does() {
    let stage = Stage::start(&["a"], &[]);
    let mut client = stage.client();
    client.send(
        b"GET /seen?q=1 HTTP/1.1\r\nHost: example.net\r\nConnection: X-Private, keep-alive\r\n\
        X-Private: 1\r\nUpgrade: websocket\r\nX-Forwarded-For: 192.0.2.7\r\nX-Kept: yes\r\n\r\n",
    );
    assert_eq!(client.answer().text(), "a");
    let seen = stage.servers[0].seen.lock().unwrap()[0].clone();
    assert_eq!(seen.line, "GET /seen?q=1 HTTP/1.1");
    assert_eq!(seen.headers["host"], "example.net");
    assert_eq!(seen.headers["x-forwarded-for"], "192.0.2.7, 127.0.0.1");
    assert_eq!(seen.headers["via"], "1.1 manyflow");
    assert_eq!(seen.headers["x-kept"], "yes");
    for gone in ["x-private", "upgrade", "connection"] {
        assert!(!seen.headers.contains_key(gone), "{seen:?}");
    }
    let refused = client.ask("CONNECT", "example.net:443");
    assert_eq!(refused.status(), 501);
}

#[test]
fn requests_whose_end_or_host_is_in_doubt_are_answered_with_400() {
    let stage = Stage::start(&["a"], &[]);
    let refused: &[&str] = &[
        "GET /x HTTP/1.1\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: user@a\r\n\r\n",
        "GET /x HTTP/1.1\nHost: a\n\n",
        "GET /x HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n",
        "GET /x#y HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
        "POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\na",
    ];
    for request in refused {
        let mut client = stage.client();
        client.send(request.as_bytes());
        // Nothing behind a refused request is a request.
        let _ = client
            .reader
            .get_mut()
            .write_all(b"GET /y HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.answer().status(), 400, "{request:?}");
        assert!(client.try_head().is_none(), "{request:?}: one answer");
    }
    for body in ["5\nhello\r\n0\r\n\r\n", "3\r\nhello\r\n0\r\n\r\n"] {
        let mut client = stage.client();
        let head = "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        client.send([head, body].concat().as_bytes());
        assert_eq!(client.answer().status(), 400, "{body:?}");
    }
    for target in ["http://user@a/x", "https://a/x"] {
        assert_eq!(stage.client().ask("GET", target).status(), 400, "{target}");
    }
    let seen = stage.servers[0].seen.lock().unwrap().len();
    assert_eq!(seen, 0, "no server has seen a request");
    assert_eq!(stage.client().ask("GET", "/").status(), 200);
}

#[test]
fn each_hop_frames_messages_by_their_bodies() {
    let stage = Stage::start(&["a"], &[]);
    let mut client = stage.client();
    let answer = client.ask("GET", "/two-lengths");
    assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"));
    let empty = client.ask("GET", "/no-content");
    assert_eq!(empty.status(), 204);
    assert!(!empty.head.headers.contains_key("content-length"));
    assert_eq!(client.ask("GET", "/upgraded").status(), 502);

    client.send(b"GET /named HTTP/1.1\r\nHost: example.net\r\nConnection: Host\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
    client.send(b"GET http://other.example/absolute HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
    client.send(b"GET http://other.example?absolute-query HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
    client.send(b"OPTIONS /far HTTP/1.1\r\nHost: a\r\nMax-Forwards: 1\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
    client.send(b"OPTIONS /near HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
    let seen = stage.servers[0].seen.lock().unwrap().clone();
    let find = |path: &str| seen.iter().find(|request| request.line.contains(path));
    assert_eq!(find("/named").unwrap().headers["host"], "example.net");
    assert_eq!(find("/absolute").unwrap().headers["host"], "other.example");
    let target = &find("absolute-query").unwrap().line;
    assert_eq!(target, "GET /?absolute-query HTTP/1.1");
    assert_eq!(find("/far").unwrap().headers["max-forwards"], "0");
    assert!(find("/near").is_none(), "it ends at the gateway");
}

#[test]
fn heads_with_up_to_128_headers_pass_in_both_directions() {
    let stage = Stage::start(&["a"], &[]);
    let mut client = stage.client();
    let answer = client.ask("GET", "/many-headers");
    assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"));
    // The gateway adds Via and X-Forwarded-For.
    for (others, expected) in [(125, 200), (126, 431), (128, 431)] {
        let others = "X: 1\r\n".repeat(others);
        let mut client = stage.client();
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{others}\r\n").as_bytes());
        assert_eq!(client.answer().status(), expected, "{} B", others.len());
    }
}

#[test]
fn six_hundred_slow_clients_take_bounded_memory() {
    let stage = Stage::start(&["a"], &[]);
    let mut slow: Vec<_> = (0..600).map(|_| stage.client()).collect();
    for client in &mut slow {
        client.send(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    for client in &mut slow {
        assert_eq!(client.head().headers["content-length"], LARGE.to_string());
    }
    let peak = read_peak_kib(stage.gateway.id());
    println!("600 slow clients: the gateway took {peak} KiB");
    assert!(peak < 300 << 10, "the gateway took {peak} KiB");
}

#[test]
fn a_slow_client_gets_its_whole_response_and_delays_no_other() {
    let stage = Stage::start(&["a", "b"], &[]);
    let mut slow: Vec<_> = (0..4).map(|_| stage.client()).collect();
    for client in &mut slow {
        client.send(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(client.head().headers["content-length"], LARGE.to_string());
    }
    // While four clients read nothing, others are served on the same members.
    let mut fast = stage.client();
    for _ in 0..4 {
        let body = fast.ask("GET", "/large").body.unwrap();
        assert!(body == large());
    }
    let peak = read_peak_kib(stage.gateway.id());
    assert!(peak < 100 << 10, "the gateway took {peak} KiB");
    for client in &mut slow {
        let mut body = vec![0; LARGE];
        client.reader.read_exact(&mut body).unwrap();
        assert!(body == large());
    }
}

fn read_peak_kib(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

#[test]
fn a_get_whose_member_died_is_answered_by_another() {
    let mut stage = Stage::start_with_switch(&["a", "b"], "affinity", &PATIENCE);
    let mut client = stage.client();
    client.send(b"GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    let place = stage.wait_for_server("/hold");
    stage.members[place].kill();
    let answer = client.answer();
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert_eq!(answer.text(), ["b", "a"][place]);
    // The other member has got a copy long before the time-out.
    let counters = ["hedged", "retried", "silent", "failed"].map(|name| stage.counter(name));
    assert_eq!(counters, [1, 0, 0, 0]);
}

#[test]
fn a_post_whose_member_died_is_answered_with_the_reason() {
    let mut stage = Stage::start(&["a", "b"], &PATIENCE);
    let mut client = stage.client();
    client.send(b"POST /hold HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi");
    let place = stage.wait_for_server("/hold");
    stage.members[place].kill();
    let answer = client.answer();
    assert_eq!(answer.status(), 502);
    let text = answer.text();
    assert!(text.contains("the member has died"), "{text}");
    assert!(text.contains("POST is not sent again"), "{text}");
    assert_eq!(stage.counter("failed"), 1);
    // The gateway and the other member go on.
    assert_eq!(client.ask("GET", "/").text(), ["b", "a"][place]);
}

#[test]
fn a_server_that_takes_its_time_is_waited_for() {
    let stage = Stage::start(&["a"], &PATIENCE);
    let mut client = stage.client();
    client.send(b"GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    stage.wait_for_server("/hold");
    // More than twice the time-out: signs of life keep the request.
    client
        .reader
        .get_mut()
        .set_read_timeout(Some(std::time::Duration::from_secs(25)))
        .unwrap();
    let mut byte = [0];
    let error = client.reader.get_mut().read(&mut byte).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(stage.counter("silent"), 0);
    assert_eq!(stage.client().ask("GET", "/").text(), "a");
}

#[test]
fn a_server_that_is_down_is_reported_with_its_address() {
    let free = ReservedAddress::new().unwrap();
    let (_member, started) = start_member(free.get(), ANY);
    let (_switch, at) = start_switch(&[listen_address(&started)], "affinity");
    let (_gateway, address, _) = start_gateway(at, &[]);
    for method in ["GET", "DELETE"] {
        let answer = Client::connect(address).ask(method, "/");
        assert_eq!(answer.status(), 502);
        let text = answer.text();
        assert!(text.contains(&free.get().to_string()), "{text}");
        assert!(text.contains("No server has handled"), "{text}");
    }
}

#[test]
fn a_member_whose_server_is_down_passes_its_requests_to_others() {
    let stage = Stage::start(&["a"], &[]);
    let free = ReservedAddress::new().unwrap();
    let (_broken, broken) = start_member(free.get(), ANY);
    let (_member, whole) = start_member(stage.servers[0].address, ANY);
    let members = [listen_address(&broken), listen_address(&whole)];
    let (_switch, at) = start_switch(&members, "affinity");
    let (_gateway, address, metrics) = start_gateway(at, &[]);
    let mut client = Client::connect(address);
    for _ in 0..10 {
        assert_eq!(client.post("/", b"once").text(), "once");
    }
    assert!(read_metric(&metrics, "manyflow_gateway_refused_total") > 0);
}

#[test]
fn a_response_that_the_server_cuts_is_cut_for_the_client() {
    let stage = Stage::start(&["a"], &[]);
    for path in ["/cut", "/cut-chunks"] {
        let mut client = stage.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        // The gateway may learn of the end before it has sent the head, and then sends nothing.
        let body = client.try_head().and_then(|head| client.body(&head));
        assert_eq!(body, None, "{path}");
    }
    assert_eq!(stage.counter("aborted"), 2);
}

#[test]
fn messages_that_are_not_valid_are_counted_and_change_nothing() {
    let stage = Stage::start(&["a"], &[]);
    let (_member, started) = start_member(stage.servers[0].address, ANY);
    let metrics = started["metrics"].as_str().unwrap();
    let runtime = Runtime::new().unwrap();
    let garbage = [
        Bytes::from_static(b"x"),
        Bytes::from(vec![0; 100_000]),
        Bytes::from_static(&[
            1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 255, 255, 255, 255,
        ]),
    ];
    let connection = runtime.block_on(async {
        let opened = connect(listen_address(&started), Options::default());
        let connection = timeout(LIMIT, opened).await.unwrap().unwrap();
        for message in garbage.clone() {
            connection.send_frame(1, message).await.unwrap();
        }
        connection
    });
    wait_for(|| {
        (read_metric(metrics, "manyflow_member_malformed_messages_total") == 3).then_some(())
    });
    let to = listen_address(&started);
    let (_gateway, address, _) = start_gateway(to, &[]);
    assert_eq!(Client::connect(address).ask("GET", "/").text(), "a");
    drop(connection);
}

#[test]
fn a_member_that_answers_nonsense_leads_to_a_502() {
    let runtime = Runtime::new().unwrap();
    let _guard = runtime.enter();
    let mut member = serve(ANY.parse().unwrap(), Options::default()).unwrap();
    let at = member.local_address();
    runtime.spawn(async move {
        let connection = member.accept().await.unwrap();
        while let Ok(Some(message)) = connection.recv_frame().await {
            let _ = connection.send_frame(message.key, "nonsense".into()).await;
        }
    });
    let (_gateway, address, metrics) = start_gateway(at, &["--timeout", "500ms"]);
    let answer = Client::connect(address).ask("GET", "/");
    assert_eq!(answer.status(), 502);
    assert!(answer.text().contains("sent twice"), "{answer:?}");
    // The request and its Cancel, twice.
    wait_for(|| {
        let count = read_metric(&metrics, "manyflow_gateway_malformed_messages_total");
        (count >= 2).then_some(())
    });
}

#[test]
fn a_switch_that_restarts_leads_to_503_until_it_is_back() {
    let stage = Stage::start(&["a"], &[]);
    let members = [stage.servers[0].address].map(|server| start_member(server, ANY));
    let addresses: Vec<_> = members.iter().map(|(_, e)| listen_address(e)).collect();
    let member = format!("m={}", addresses[0]);
    let free = own_address();
    let listen = free.to_string();
    let arguments = ["switch", "--listen", &listen, "--member", &member];
    let (mut switch, _) = start(&arguments);
    let (_gateway, address, metrics) = start_gateway(free, &PATIENCE);
    assert_eq!(Client::connect(address).ask("GET", "/").text(), "a");
    switch.kill();
    let mut last = Client::connect(address).ask("GET", "/");
    wait_for(|| {
        let answer = Client::connect(address).ask("GET", "/");
        let is_unavailable = answer.status() == 503;
        is_unavailable.then(|| assert_eq!(answer.head.headers["retry-after"], "1"))
    });
    let (_switch, _) = start(&arguments);
    wait_for(|| {
        let answer = Client::connect(address).ask("GET", "/");
        (answer.status() == 200).then(|| assert_eq!(answer.text(), "a"))
    });
    assert!(last.body.take().is_some(), "{last:?}");
    assert!(read_metric(&metrics, "manyflow_gateway_connections_lost_total") >= 1);
}

#[test]
fn responses_in_progress_end_after_sigterm_and_no_more_begin() {
    // A gateway with one client waits until it may take another one, instead of for a client.
    for clients_max in ["1", "10"] {
        let limits = ["--clients-max", clients_max, "--grace", "90s"];
        let stage = Stage::start(&["a"], &limits);
        let mut client = stage.client();
        client.send(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
        client.head();
        stage.gateway.signal(Signal::SIGTERM);
        wait_for(|| std::net::TcpStream::connect(stage.address).err());
        let mut body = vec![0; LARGE];
        client.reader.read_exact(&mut body).unwrap();
        assert!(body == large());
        let ended = stage.gateway.finish();
        assert_eq!(ended.code(), 0, "{}", ended.stderr);
    }
}

#[test]
fn a_second_signal_ends_requests_in_progress() {
    let stage = Stage::start(&["a"], &["--grace", "1h"]);
    let mut client = stage.client();
    client.send(b"GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    stage.wait_for_server("/hold");
    stage.gateway.signal(Signal::SIGTERM);
    wait_for(|| std::net::TcpStream::connect(stage.address).err());
    stage.gateway.signal(Signal::SIGTERM);
    assert_eq!(stage.gateway.finish().code(), 0);
}

#[test]
fn a_gateway_whose_switch_is_silent_says_so() {
    let silent = std::net::UdpSocket::bind(ANY).unwrap();
    let at = silent.local_addr().unwrap().to_string();
    let (mut gateway, _) = start(&["gateway", "--listen", ANY, "--to", &at]);
    gateway.wait_for_message(&format!("the switch at {at} has not been reachable for"));
}

#[test]
fn a_draining_member_gives_its_requests_to_others() {
    let mut stage = Stage::start(&["a", "b"], &[]);
    let held = {
        let address = stage.address;
        // No second member gets it, however busy this host is: it is not sent again.
        thread::spawn(move || Client::connect(address).post("/hold", b"once").status())
    };
    let place = stage.wait_for_server("/hold");
    stage.members[place].signal(Signal::SIGTERM);
    let mut client = stage.client();
    for _ in 0..20 {
        assert_eq!(client.post("/", b"once").text(), "once");
    }
    assert!(!held.is_finished(), "the draining member still has it");
    // If its member ended first, the gateway would answer. It has ended, so the waiting client has
    // no answer.
    stage.gateway.kill();
    assert!(held.join().is_err());
}

#[test]
fn a_policy_that_divides_requests_is_named_in_the_reason() {
    let stage = Stage::start_with_switch(&["a", "b"], "round-robin", &[]);
    let mut client = stage.client();
    assert_eq!(
        client.ask("GET", "/").status(),
        200,
        "one message is enough"
    );
    let long = vec![7; 3_000_000];
    let answer = client.post("/", &long);
    assert_eq!(answer.status(), 502);
    assert!(answer.text().contains("--policy affinity"), "{answer:?}");
}

#[test]
fn requests_are_sealed_and_need_the_same_key() {
    let folder = tempfile::tempdir().unwrap();
    let [key, other] = ["service.key", "other.key"].map(|name| {
        let path = folder.path().join(name).to_str().unwrap().to_owned();
        common::run(&["keygen", "--shared-key", &path]).succeeded("keygen");
        path
    });
    let stage = Stage::start(&["a"], &[]);
    let url = format!("http://{}", stage.servers[0].address);
    let member = ["member", "--http", &url, "--listen", ANY, "--key", &key];
    let (_member, started) = start(&member);
    let at: SocketAddr = listen_address(&started);
    let (_gateway, address, _) = start_gateway(at, &["--key", &key]);
    assert_eq!(Client::connect(address).ask("GET", "/").text(), "a");
    let (_stranger, address, _) = start_gateway(at, &["--key", &other, "--timeout", "500ms"]);
    assert_eq!(Client::connect(address).ask("GET", "/").status(), 502);
}

#[test]
fn the_metrics_count_requests() {
    let stage = Stage::start(&["a"], &[]);
    let mut client = stage.client();
    for _ in 0..3 {
        assert_eq!(client.ask("GET", "/").text(), "a");
    }
    let counters = ["requests", "answered", "failed"].map(|name| stage.counter(name));
    assert_eq!(counters, [3, 3, 0]);
    let (head, _) = get(&format!("http://{}/metrics", stage.address));
    assert!(head.contains("200 ok"), "clients see the servers' pages");
}
