//! `manyflow lab` without a browser: its answers, and a run beside the same run of `manyflow sim`.
//! `scripts/lab-test` tests the page.

use crate::common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use common::{Manyflow, get, manyflow, run};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn start(arguments: &[&str]) -> (Manyflow, String) {
    let mut command = manyflow(&["lab", "--json"]);
    command.args(arguments);
    let mut lab = Manyflow::start(command);
    let url = lab.wait_for(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        let url = event["url"]
            .as_str()
            .filter(|_| event["event"] == "started");
        url.map(str::to_owned)
    });
    (lab, url)
}

/// Sends JSON, and returns the answer.
fn post(url: &str, body: &Value) -> Value {
    let (host, path) = url["http://".len()..].split_once('/').unwrap();
    let body = body.to_string();
    let mut stream = TcpStream::connect(host).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(body).unwrap()
}

/// Returns the events of a run that has ended, each with its kind.
fn events(url: &str) -> Vec<(String, Value)> {
    let (_, body) = get(url);
    // The body has chunks, whose lengths stand on lines of their own.
    let mut kinds = body.lines().filter_map(|line| line.strip_prefix("event: "));
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let parse = |data| serde_json::from_str(data).unwrap();
    data.map(|data| (kinds.next().unwrap().to_owned(), parse(data)))
        .collect()
}

/// Returns the rows that `manyflow sim` would write for the points of a run's first plot.
fn rows(events: &[(String, Value)]) -> Vec<(String, f64, f64)> {
    let mut names = Vec::new();
    let mut rows = Vec::new();
    let samples = events.iter().filter(|(kind, _)| kind == "samples");
    for sample in samples.flat_map(|(_, samples)| samples.as_array().unwrap()) {
        for begun in sample["series"].as_array().into_iter().flatten() {
            let of = begun["of"].as_str().unwrap().to_owned();
            names.push((begun["plot"] == 0).then_some(of));
        }
        for points in sample["points"].as_array().into_iter().flatten() {
            let Some(of) = &names[points[0].as_u64().unwrap() as usize] else {
                continue;
            };
            let points = points[1].as_array().unwrap().iter();
            let number = |value: &Value| value.as_f64().unwrap();
            rows.extend(points.map(|point| (of.clone(), number(&point[0]), number(&point[1]))));
        }
    }
    rows
}

/// Reads the rows of a plot's table.
fn printed(path: &Path) -> Vec<(String, f64, f64)> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    let place = |name: &str| columns.iter().position(|column| *column == name).unwrap();
    let [of, time, value] = ["of", "time (s)", "value"].map(place);
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |place: usize| fields[place].parse().unwrap();
        (fields[of].to_owned(), number(time), number(value))
    };
    lines.map(row).collect()
}

#[test]
fn a_run_has_the_series_of_the_command() {
    let (lab, url) = start(&[]);
    let scenarios = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let file = format!("{scenarios}/webrc-9.toml");
    let (_, text) = get(&format!("{url}text?webrc-9"));
    let text = text.as_str();
    assert_eq!(text, std::fs::read_to_string(&file).unwrap());
    let wanted = json!({"text": text, "file": "webrc-9.toml", "fast": true, "cell": 3, "seed": 1});
    let started = post(&format!("{url}runs"), &wanted);
    let events = events(&format!("{url}runs/{}/events", started["run"]));
    assert_eq!(events.last().unwrap().0, "done", "{:?}", events.last());

    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let sim = [
        "sim", &file, "--fast", "--cell", "3", "--seed", "1", "--out", out,
    ];
    run(&sim);
    let mut expected = printed(&folder.path().join("webrc-9/throughput.csv"));
    let mut found = rows(&events);
    assert!(found.len() > 500, "{}", found.len());
    let order = |a: &(String, f64, f64), b: &(String, f64, f64)| a.partial_cmp(b).unwrap();
    expected.sort_by(order);
    found.sort_by(order);
    assert_eq!(found, expected);
    lab.signal(Signal::SIGINT);
    assert!(lab.finish().status.success());
}

/// Reads events of a page until one for which `is_last` holds.
fn read_events(url: &str, mut is_last: impl FnMut(&Value) -> bool) {
    let (host, path) = url["http://".len()..].split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(common::LIMIT)).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    for line in BufReader::new(stream).lines() {
        let line = line.unwrap();
        let data = line.strip_prefix("data: ");
        if data.is_some_and(|data| is_last(&serde_json::from_str(data).unwrap())) {
            return;
        }
    }
    panic!("{url} has ended");
}

#[test]
fn members_of_ordered_groups_get_messages_and_a_view_when_a_daemon_is_cut_off() {
    let (_lab, url) = start(&[]);
    let events = format!("{url}order/events");
    let mut has_all = [false; 3];
    let place = |event: &Value| event["at"].as_u64().unwrap() as usize;
    read_events(&events, |event| {
        let members = event["members"].as_array().map_or(0, Vec::len);
        has_all[place(event)] |= event["group"] == "orders" && members == 3;
        has_all == [true; 3]
    });
    let message =
        json!({"member": 1, "groups": ["orders", "stock"], "service": "safe", "text": "17"});
    post(&format!("{url}order/send"), &message);
    let mut got = [0; 3];
    read_events(&events, |event| {
        got[place(event)] += u32::from(event["payload"] == "17");
        got == [1; 3]
    });
    let cut = json!({"daemon": 2, "is_cut": true});
    post(&format!("{url}order/cut"), &cut);
    let mut is_alone = false;
    read_events(&events, |event| {
        is_alone |= event["cause"] == "network"
            && event["at"] == 2
            && event["members"].as_array().unwrap().len() == 1;
        is_alone
    });
}

#[test]
fn an_error_has_the_line_and_the_message_of_the_command() {
    let (_lab, url) = start(&[]);
    let text = "title = \"t\"\nrun.duration = \"10 s\"\nnodes.nam = [\"A\"]\n";
    let answer = post(
        &format!("{url}check"),
        &json!({"text": text, "file": "a.toml"}),
    );
    assert_eq!(answer["problem"]["line"], 3);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.toml");
    std::fs::write(&file, text).unwrap();
    let command = run(&["sim", file.to_str().unwrap()]);
    let message = answer["problem"]["message"].as_str().unwrap();
    assert!(
        command.stderr.contains(&format!(":3: {message}")),
        "{} / {message}",
        command.stderr
    );
}

#[test]
fn requests_without_the_token_or_with_another_host_are_refused() {
    let (_lab, url) = start(&[]);
    let (origin, _) = url.rsplit_once('/').unwrap().0.rsplit_once('/').unwrap();
    let (head, _) = get(&format!("{origin}/"));
    assert!(head.starts_with("http/1.1 403"), "{head}");
    let (head, _) = get(&url);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(
        head.contains("content-security-policy: default-src 'none'"),
        "{head}"
    );
    let (host, path) = url["http://".len()..].split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(
        stream,
        "GET /{path} HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}
