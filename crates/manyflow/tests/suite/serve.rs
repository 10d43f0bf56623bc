//! Several sessions of one process, as a file describes them. Everything runs on loopback.

use crate::common;

use std::fs::File;
use std::net::{TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::{Ended, Manyflow, assert_same, get, manyflow, run, text, write_random};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// A folder with the file `sessions.toml`, and with files to send in `one` and `two`.
struct Service {
    folder: TempDir,
}

impl Service {
    fn new(config: &str) -> Service {
        let folder = tempfile::tempdir().unwrap();
        write_random(&folder.path().join("one/file"), 300_000, 1);
        write_random(&folder.path().join("two/file"), 2_000_000, 2);
        let service = Service { folder };
        std::fs::write(service.path("sessions.toml"), config).unwrap();
        service
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts the service in another folder than that of its file.
    fn start(&self, arguments: &[&str]) -> Manyflow {
        // The tests may run under `nohup`, which has SIGHUP ignored.
        let mut command = Command::new("env");
        command.args([
            "--default-signal=HUP",
            env!("CARGO_BIN_EXE_manyflow"),
            "serve",
        ]);
        command.arg(self.path("sessions.toml")).args(arguments);
        command.current_dir("/").stdin(Stdio::null());
        Manyflow::start(command)
    }

    /// Starts a receiver of `url` with an output folder of its own.
    fn receive(&self, url: &str, output: &str) -> Manyflow {
        let output = self.path(output);
        Manyflow::start(manyflow(&[
            "recv",
            url,
            "--json",
            "--output",
            text(&output),
        ]))
    }

    /// Runs the service, which must fail with `code` and one line that has all of `parts`, before
    /// it announces a session.
    #[track_caller]
    fn fails(&self, code: i32, parts: &[&str]) {
        assert_fails(&self.start(&[]).finish(), code, parts);
    }
}

#[track_caller]
fn assert_fails(ended: &Ended, code: i32, parts: &[&str]) {
    assert_eq!(ended.code(), code, "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    assert_eq!(ended.stdout, "", "{ended:?}");
    for part in parts {
        assert!(ended.stderr.contains(part), "no {part:?} in {ended:?}");
    }
}

/// Waits for an event of this kind and session on standard output.
fn wait_for_event(process: &mut Manyflow, kind: &str, session: &str) -> Value {
    process.wait_for(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        let is_expected = event["event"] == kind && event["session_name"] == session;
        is_expected.then_some(event)
    })
}

/// Waits for the URL of a session that a service with `--json` prints.
fn url(service: &mut Manyflow, session: &str) -> String {
    let published = wait_for_event(service, "published", session);
    published["url"].as_str().unwrap().to_owned()
}

/// Waits until a receiver has bytes of files.
fn wait_for_bytes(receiver: &mut Manyflow) {
    receiver.wait_for(|line| {
        let progress: Value = serde_json::from_str(line).unwrap();
        (progress["bytes"].as_u64() > Some(0)).then_some(())
    });
}

const TWO_SESSIONS: &str = r#"
    publish = "127.0.0.1:0"

    [defaults]
    listen = "127.0.0.1:0"
    sign = "builds.key"

    [session.one]
    paths = ["one"]
    session = "one.sdp"

    [session.two]
    paths = "two"
    rate = "20Mbit/s"
    profile = "lan"
    exclude = ["*.tmp", ".git"]
    archive = true
    tsi = 0x17
"#;

#[test]
fn two_sessions_of_one_file_are_received() {
    let service = Service::new(TWO_SESSIONS);
    run(&["keygen", text(&service.path("builds.key"))]).succeeded("keygen");
    let mut running = service.start(&["--json"]);
    let receivers = ["one", "two"].map(|name| {
        let url = url(&mut running, name);
        assert!(url.ends_with(&format!("/{name}.sdp")), "{url}");
        (name, service.receive(&url, &format!("received-{name}")))
    });
    for (name, receiver) in receivers {
        let received = receiver.finish().succeeded(name);
        assert!(received.stdout.contains("ed25519:"), "{received:?}");
        let output = service.path(&format!("received-{name}/{name}"));
        assert_same(&service.path(name), &output, name);
    }
    let started = wait_for_event(&mut running, "started", "two");
    let description = std::fs::read_to_string(service.path("one.sdp")).unwrap();
    assert_ne!(started["session"], description.as_str());
    assert_eq!(
        wait_for_event(&mut running, "started", "one")["session"],
        description.as_str()
    );
    wait_for_event(&mut running, "progress", "two");
    let base = url(&mut running, "one").replace("/one.sdp", "");
    let (_, list) = get(&format!("{base}/"));
    for name in ["one", "two"] {
        let command = format!("    manyflow recv {base}/{name}.sdp\n");
        assert!(list.contains(&command), "{list}");
    }
    let (head, _) = get(&format!("{base}/session.sdp"));
    assert!(head.starts_with("http/1.1 404"), "{head}");
    running.signal(Signal::SIGTERM);
    let ended = running.finish().succeeded("service");
    for name in ["one", "two"] {
        let is_done = |line: &str| {
            let event: Value = serde_json::from_str(line).unwrap();
            event["event"] == "done" && event["session_name"] == name
        };
        assert!(ended.stdout.lines().any(is_done), "{ended:?}");
    }
}

/// Starts two sessions at a rate that leaves both receivers incomplete for 16 s.
fn start_slow(lines_of_one: &str) -> (Service, Manyflow) {
    let service = Service::new(&format!(
        "publish = \"127.0.0.1:0\"\n\
         [defaults]\n\
         listen = \"127.0.0.1:0\"\n\
         rate = \"1Mbit/s\"\n\
         [session.one]\n\
         paths = [\"one\"]\n\
         {lines_of_one}\n\
         [session.two]\n\
         paths = [\"two\"]\n"
    ));
    write_random(&service.path("one/file"), 2_000_000, 1);
    let running = service.start(&["--json"]);
    (service, running)
}

#[test]
fn each_signal_ends_all_sessions() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let (service, mut running) = start_slow("");
        let receivers = ["one", "two"].map(|name| {
            let url = url(&mut running, name);
            service.receive(&url, &format!("received-{name}"))
        });
        let receivers = receivers.map(|mut receiver| {
            wait_for_bytes(&mut receiver);
            receiver
        });
        running.signal(signal);
        running.finish().succeeded(signal.as_str());
        for receiver in receivers {
            // The sender has announced the end.
            assert_eq!(receiver.finish().code(), 3, "{signal}");
        }
    }
}

#[test]
fn a_session_that_ends_leaves_the_others_running() {
    let (service, mut running) = start_slow("for = \"100ms\"");
    wait_for_event(&mut running, "done", "one");
    let mut receiver = service.receive(&url(&mut running, "two"), "received");
    wait_for_bytes(&mut receiver);
    running.signal(Signal::SIGTERM);
    running.finish().succeeded("service");
}

#[test]
fn a_session_that_fails_leaves_the_others_running() {
    let (service, mut running) = start_slow("");
    let url_of_one = url(&mut running, "one");
    File::create(service.path("one/file")).unwrap();
    let _receiver = service.receive(&url_of_one, "received-one");
    let failed = wait_for_event(&mut running, "failed", "one");
    assert!(failed["error"].as_str().unwrap().contains("one/file"));

    let mut receiver = service.receive(&url(&mut running, "two"), "received-two");
    wait_for_bytes(&mut receiver);
    running.signal(Signal::SIGTERM);
    let ended = running.finish();
    assert_eq!(ended.code(), 1, "{ended:?}");
    let lines: Vec<_> = ended.stderr.lines().collect();
    let [logged, error] = lines[..] else {
        panic!("{ended:?}");
    };
    assert!(
        logged.contains("session=\"one\"") && logged.contains("one/file"),
        "{ended:?}"
    );
    assert!(error.contains("1 of 2 sessions failed (one)"), "{ended:?}");
}

#[test]
fn an_error_in_the_file_names_its_line_session_and_key() {
    for (line, parts) in [
        ("rat = 3", &["`rat`", "did you mean `rate`"][..]),
        ("colour = 3", &["`colour`", "manyflow help serve"]),
        ("rate = \"fast\"", &["--rate", "`fast`", "3.2 Mbit/s"]),
        ("rate = [\"1Mbit/s\"]", &["`rate`", "one value"]),
        ("rate = 1979-05-27", &["`rate`", "one value"]),
        ("archive = \"yes\"", &["`archive`", "true or false"]),
        ("exclude = [1, [2]]", &["`exclude`", "list of texts"]),
        ("fec = \"x\"", &["--fec", "raptorq"]),
        ("packet = -1", &["--packet", "128..=65000"]),
        ("metrics = \"127.0.0.1:0\"", &["`metrics`", "whole service"]),
        ("json = true", &["`json`"]),
        ("listen = \"127.0.0.1:1\"", &["`listen` appears twice"]),
    ] {
        let service = Service::new(&format!(
            "publish = \"127.0.0.1:0\"\n\
             [session.images]\n\
             paths = [\"one\"]\n\
             listen = \"127.0.0.1:0\"\n\
             {line}\n"
        ));
        service.fails(2, &[&["sessions.toml:5: "], parts].concat());
        if !line.starts_with("listen") {
            service.fails(2, &["sessions.toml:5: session images: "]);
        }
    }
}

#[test]
fn a_file_that_describes_no_service_is_refused() {
    let own_listen = "listen = \"127.0.0.1:0\"";
    for (config, parts) in [
        ("", &["no session", "[session.NAME]"][..]),
        ("rate = 1\n[session.a]", &[":1: ", "`rate`", "[defaults]"]),
        ("session = 1", &[":1: ", "[session.NAME]"]),
        ("publish = \"nowhere\"\n[session.a]", &[":1: ", "--publish"]),
        ("publish = x", &[":1: "]),
        ("[session.\"../a\"]", &[":1: session ../a", "letters"]),
        ("[session.a]", &[":1: session a", "add paths"]),
        (
            "[session.a]\npaths = [\"one\"]",
            &[":1: session a", "publish ="],
        ),
        (
            "publish = \"127.0.0.1:0\"\n[defaults]\nttl = 2\n[session.a]\npaths = [\"one\"]",
            &[":4: session a", "--multicast"],
        ),
        (
            "tls-cert = \"c\"\n[session.a]\npaths = [\"one\"]",
            &["sessions.toml", "--publish"],
        ),
    ] {
        Service::new(config).fails(2, parts);
    }
    let sessions = |one: &str, two: &str| {
        let config = format!(
            "publish = \"127.0.0.1:0\"\n\
             [defaults]\n\
             paths = [\"one\"]\n\
             [session.a]\n{one}\n\
             [session.b]\n{two}\n"
        );
        Service::new(&config)
    };
    let same_port = sessions("listen = \"127.0.0.1:2268\"", "listen = \"0.0.0.0:2268\"");
    same_port.fails(2, &["session b", "session `a`", "2268"]);
    let group = |group: &str| format!("multicast = \"{group}\"\ninterface = \"127.0.0.1\"");
    let same_groups = sessions(&group("232.1.2.0/24"), &group("232.1.2.10"));
    same_groups.fails(2, &["`a` and `b`", "232.1.2.10:5445", "--multicast"]);
    let tsi = format!("{own_listen}\ntsi = 7");
    sessions(&tsi, &tsi).fails(2, &["`a` and `b`", "TSI 7"]);
    let reports = format!("{own_listen}\nuntil-done = 3");
    sessions(&reports, &reports).fails(2, &["session b", "session `a`", "5446", "reports ="]);
    let file = format!("{own_listen}\nsession = \"x.sdp\"");
    sessions(&file, &file).fails(2, &["session b", "x.sdp", "session `a`"]);
}

#[test]
fn nothing_starts_if_something_cannot_be_opened() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp = udp.local_addr().unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = tcp.local_addr().unwrap();
    let config = |head: &str, line: &str| {
        let config = format!(
            "{head}\n\
             [defaults]\n\
             paths = [\"one\"]\n\
             listen = \"127.0.0.1:0\"\n\
             [session.a]\n\
             session = \"a.sdp\"\n\
             [session.b]\n\
             session = \"b.sdp\"\n\
             {line}\n"
        );
        Service::new(&config)
    };
    let in_b = ":7: session b: ";
    for (line, part) in [
        ("paths = [\"no/such\"]".to_owned(), "no/such"),
        (format!("listen = \"{udp}\""), "choose another address"),
    ] {
        let service = config("", &line);
        service.fails(1, &[in_b, part]);
        assert!(!service.path("a.sdp").exists(), "{line}");
    }
    config("", "exclude = \"[\"").fails(2, &[in_b]);
    config("", "sign = \"no.key\"").fails(2, &[in_b, "no.key"]);
    let address = tcp.to_string();
    config(&format!("publish = \"{tcp}\""), "").fails(1, &[&address, "choose another"]);
    config(&format!("metrics = \"{tcp}\""), "").fails(1, &[&address, "choose another"]);
    let ended = run(&["serve", "no/such/file.toml"]);
    assert_fails(&ended, 2, &["no/such/file.toml", "check the path"]);
}

#[test]
fn the_examples_of_help_and_documentation_are_accepted() {
    let help = run(&["help", "serve"]).succeeded("help").stdout;
    let documentation = include_str!("../../../../docs/operating.md");
    for (text, start, end) in [
        (help.as_str(), "# sessions.toml\n", "The keys"),
        (documentation, "# /etc/manyflow/sessions.toml\n", "```"),
    ] {
        let (_, rest) = text.split_once(start).unwrap();
        let (config, _) = rest.split_once(end).unwrap();
        assert!(config.contains("[session.images]"), "{config}");
        let ended = Service::new(config).start(&[]).finish();
        // The example's keys are missing here, but nothing is wrong in the file: the help has none,
        // and its paths are missing.
        let code = if config.contains("builds.key") { 2 } else { 1 };
        assert_fails(&ended, code, &["No such file or directory"]);
    }
}
