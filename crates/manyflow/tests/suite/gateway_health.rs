//! Servers that refuse, are silent or stop behind living members, and members that stop: no client
//! waits for them longer than it must.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use crate::http_stage::{
    ANY, Client, Server, Stage, listen_address, read_metric, start_gateway, start_member,
    start_member_with, start_switch, wait_for,
};
use manyflow_net::reserved::ReservedAddress;
use nix::sys::signal::Signal;

/// The clients that ask at the same time, and the requests of each.
const CLIENTS: usize = 8;
const REQUESTS: usize = 25;

/// Lets clients ask at the same time, every fifth time with a POST. Returns the answers by their
/// texts; each has status 200.
fn ask_all(gateway: SocketAddr) -> Vec<String> {
    let ask = move |_| {
        thread::spawn(move || {
            let mut client = Client::connect(gateway);
            let ask = |number| {
                let answer = match number % 5 {
                    0 => client.post("/post", b"posted"),
                    _ => client.ask("GET", "/"),
                };
                assert_eq!(answer.status(), 200, "{answer:?}");
                answer.text()
            };
            (0..REQUESTS).map(ask).collect::<Vec<_>>()
        })
    };
    let clients: Vec<_> = (0..CLIENTS).map(ask).collect();
    let answers = clients.into_iter().map(|client| client.join().unwrap());
    answers.flatten().collect()
}

fn metric(metrics: &str, name: &str) -> u64 {
    read_metric(metrics, &format!("manyflow_gateway_{name}"))
}

#[test]
fn no_request_fails_while_a_server_refuses_and_its_member_gets_requests_when_it_is_back() {
    let held = Arc::default();
    let good = Server::start("good", &held);
    let free = ReservedAddress::new().unwrap();
    let (_member, whole) = start_member(good.address, ANY);
    let (_broken, broken) = start_member(free.get(), ANY);
    let members = [&whole, &broken].map(listen_address);
    let (_switch, at) = start_switch(&members, "affinity");
    let (_gateway, address, metrics) = start_gateway(at, &[]);
    assert_eq!(ask_all(address).len(), CLIENTS * REQUESTS);
    wait_for(|| (metric(&metrics, "members") == 1).then_some(()));
    let refused = metric(&metrics, "refused_total");
    assert!(refused > 0, "some requests had to find out");
    ask_all(address);
    assert_eq!(metric(&metrics, "refused_total"), refused, "no more do");
    assert_eq!(metric(&metrics, "failed_total"), 0);

    let back = Server::start_at(free.get(), "back", &held);
    wait_for(|| (metric(&metrics, "members") == 2).then_some(()));
    let answers = ask_all(address);
    assert!(answers.contains(&"back".to_owned()), "it has a share again");
    assert!(!back.seen.lock().unwrap().is_empty());
}

/// Starts a server that accepts connections and never answers. Returns its address, and counts its
/// connections.
fn start_silent() -> (SocketAddr, Arc<std::sync::atomic::AtomicUsize>) {
    let listener = TcpListener::bind(ANY).unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    // The thread ends with the test's process.
    thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            open.push(stream);
        }
    });
    (address, count)
}

#[test]
fn a_server_that_never_answers_is_left_out_after_the_first_requests() {
    let good = Server::start("good", &Arc::default());
    let (silent, connections) = start_silent();
    let (_member, whole) = start_member(good.address, ANY);
    let (_stuck, stuck) = start_member_with(silent, ANY, &["--answer-within", "1s"]);
    let members = [&whole, &stuck].map(listen_address);
    let (_switch, at) = start_switch(&members, "affinity");
    let (_gateway, address, metrics) = start_gateway(at, &["--hedge-after", "200ms"]);
    let mut client = Client::connect(address);
    wait_for(|| {
        assert_eq!(client.ask("GET", "/").text(), "good");
        (metric(&metrics, "ejected_total") > 0).then_some(())
    });
    assert!(metric(&metrics, "hedged_total") > 0);
    let before = connections.load(std::sync::atomic::Ordering::Relaxed);
    // No POST is tried at the server that was ejected.
    for _ in 0..20 {
        assert_eq!(client.post("/", b"text").text(), "text");
    }
    assert_eq!(
        connections.load(std::sync::atomic::Ordering::Relaxed),
        before
    );
    assert_eq!(metric(&metrics, "failed_total"), 0);
}

#[test]
fn a_post_to_a_server_that_never_answers_gets_504_and_is_sent_once() {
    let (silent, connections) = start_silent();
    let (_member, started) = start_member_with(silent, ANY, &["--answer-within", "300ms"]);
    let (_gateway, address, _) = start_gateway(listen_address(&started), &[]);
    let answer = Client::connect(address).post("/", b"text");
    assert_eq!(answer.status(), 504);
    let text = answer.text();
    assert!(text.contains("has not answered for 0.3 s"), "{text}");
    assert!(text.contains("POST is not sent again"), "{text}");
    assert_eq!(connections.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn a_server_whose_check_fails_gets_no_requests() {
    let held = Arc::default();
    let [good, sick] = ["good", "sick"].map(|name| Server::start(name, &held));
    let (_member, whole) = start_member_with(good.address, ANY, &["--check", "/"]);
    // The server closes this connection after a part of its answer.
    let (_unfit, unfit) = start_member_with(sick.address, ANY, &["--check", "/upgraded"]);
    let members = [&whole, &unfit].map(listen_address);
    let (_switch, at) = start_switch(&members, "affinity");
    let (_gateway, address, metrics) = start_gateway(at, &[]);
    let of_member = unfit["metrics"].as_str().unwrap();
    wait_for(|| (read_metric(of_member, "manyflow_member_serving") == 0).then_some(()));
    wait_for(|| (metric(&metrics, "members") == 1).then_some(()));
    let answers = ask_all(address);
    assert!(!answers.contains(&"sick".to_owned()), "{answers:?}");
}

#[test]
fn a_stopped_member_delays_no_client_until_the_time_out() {
    // Without the second copies, clients would wait for 90 s, longer than this test may take.
    let stage = Stage::start(&["a", "b"], &["--hedge-after", "0s"]);
    let address = stage.address;
    assert_eq!(ask_all(address).len(), CLIENTS * REQUESTS);
    stage.members[0].signal(Signal::SIGSTOP);
    let mut clients: Vec<_> = (0..32).map(|_| Client::connect(address)).collect();
    for client in &mut clients {
        client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.answer().text(), "b");
    }
    for client in &mut clients {
        assert_eq!(client.ask("GET", "/").text(), "b");
    }
    let counters = ["silent", "failed"].map(|name| stage.counter(name));
    assert_eq!(counters, [0, 0]);
    assert!(stage.counter("hedged") > 0);
    stage.members[0].signal(Signal::SIGCONT);
    wait_for(|| (stage.client().ask("GET", "/").text() == "a").then_some(()));
}

#[test]
fn a_post_reaches_one_server_at_most_when_a_member_stops() {
    let stage = Stage::start(&["a", "b", "c"], &[]);
    let address = stage.address;
    stage.client().ask("GET", "/");
    stage.members[0].signal(Signal::SIGSTOP);
    let post = |number: usize| {
        thread::spawn(move || {
            let answer = Client::connect(address).post(&format!("/post-{number}-"), b"once");
            (number, answer.status(), answer.text())
        })
    };
    let posts: Vec<_> = (0..24).map(post).collect();
    let answers: Vec<_> = posts.into_iter().map(|post| post.join().unwrap()).collect();
    stage.members[0].signal(Signal::SIGCONT);
    // The member has read what came while it was stopped when it answers again.
    wait_for(|| (stage.client().ask("GET", "/").text() == "a").then_some(()));
    let mut lost = 0;
    for (number, status, text) in answers {
        let path = format!("/post-{number}-");
        let servers = stage.servers.iter();
        let seen = servers.map(|server| {
            let seen = server.seen.lock().unwrap();
            seen.iter().filter(|seen| seen.line.contains(&path)).count()
        });
        let seen: usize = seen.sum();
        match status {
            200 => assert_eq!((seen, text.as_str()), (1, "once"), "{path}"),
            502 => {
                assert!(seen <= 1, "{path} was handled {seen} times");
                assert!(text.contains("POST is not sent again"), "{text}");
                lost += 1;
            }
            other => panic!("{path}: {other} {text}"),
        }
    }
    assert!(lost < 24, "the members that go on get most of them");
    println!("{lost} of 24 POSTs were with the member that stopped");
}
