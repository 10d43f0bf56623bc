//! Addresses in the options of all roles: refused ones, taken ones, and those of neighbours that
//! are known by a link-local address only.

use std::net::{TcpListener, UdpSocket};

use manyflow_testing::TwoHosts;

use crate::common::{
    Ended, LIMIT, Manyflow, PATIENT, assert_same, folder_with_file, manyflow, run,
};

/// A role's words before the value of an option, and those behind it.
struct Role(&'static str, &'static str);

/// Each option with an address to listen on. Words are separated by spaces.
const LISTENERS: &[Role] = &[
    Role("send file --for 1s --listen", ""),
    Role("send file --for 1s --listen 127.0.0.1:0 --publish", ""),
    Role("send file --for 1s --listen 127.0.0.1:0 --metrics", ""),
    Role(
        "send file --for 1s --listen 127.0.0.1:0 --until-done 1 --reports",
        "",
    ),
    Role("stream send --pattern --for 1s --listen", ""),
    Role(
        "stream send --pattern --for 1s --listen 127.0.0.1:0 --publish",
        "",
    ),
    Role(
        "stream send --pattern --for 1s --listen 127.0.0.1:0 --metrics",
        "",
    ),
    Role(
        "relay --source 127.0.0.1 --groups 232.1.2.0/24 --interface lo --listen",
        "",
    ),
    Role("daemon --name x --insecure --clients", ""),
    Role(
        "daemon --name x --insecure --clients 127.0.0.1:0 --listen",
        "",
    ),
    Role(
        "daemon --name x --insecure --clients 127.0.0.1:0 --metrics",
        "",
    ),
    Role("switch --member a=127.0.0.1:1 --listen", ""),
    Role(
        "switch --member a=127.0.0.1:1 --listen 127.0.0.1:0 --metrics",
        "",
    ),
    Role("router --listen", "--to 127.0.0.1:1 --rate 1Mbit/s"),
    Role("store --dir folder --listen", ""),
    Role("member --http http://127.0.0.1:1 --listen", ""),
    Role("gateway --listen", "--to 127.0.0.1:1"),
];

/// Each option with an address to connect to.
const CONNECTORS: &[Role] = &[
    Role("recv session.sdp --relay", ""),
    Role("stream recv session.sdp --relay", ""),
    Role(
        "relay --session session.sdp --listen 127.0.0.1:0 --relay",
        "",
    ),
    Role("pub a b --server", ""),
    Role("sub a --server", ""),
    Role("router --listen 127.0.0.1:0 --rate 1Mbit/s --to", ""),
    Role("gateway --listen 127.0.0.1:0 --to", ""),
    Role("put file --to", ""),
    Role("get a --from", ""),
];

impl Role {
    fn with(&self, value: &str) -> Ended {
        let words = self.0.split(' ').chain([value]);
        let words: Vec<_> = words.chain(self.1.split_whitespace()).collect();
        // Roles may leave files where they run.
        let folder = folder_with_file(1_000);
        let mut command = manyflow(&words);
        command.current_dir(folder.path());
        Manyflow::start(command).finish()
    }

    fn option(&self) -> &'static str {
        self.0.rsplit(' ').next().unwrap()
    }

    /// Asserts that the role refuses `value` in one line that names the option and the value.
    fn refuses(&self, value: &str, code: i32, problem: &str) {
        let ended = self.with(value);
        let label = format!("{} {value:?}: {ended:?}", self.0);
        assert_eq!(ended.code(), code, "{label}");
        assert_eq!(ended.stderr.trim_end().lines().count(), 1, "{label}");
        for part in ["error: ", self.option(), value, problem] {
            assert!(ended.stderr.contains(part), "{part}: {label}");
        }
    }
}

#[test]
fn a_wrong_address_is_refused_in_one_line_with_option_and_examples() {
    for role in LISTENERS.iter().chain(CONNECTORS) {
        for (value, problem) in [
            ("127.0.0.1:99999", "1 to 65535"),
            ("[::1]:26003x", "1 to 65535"),
            (":80", "has no host"),
            ("127.1:80", "four decimal numbers"),
            ("http://127.0.0.1:80", "write HOST:PORT, such as 192.0.2.1:"),
            ("127.0.0.1 :80", "space"),
        ] {
            role.refuses(value, 2, problem);
        }
    }
    for role in LISTENERS {
        for value in ["nonsense", "127.0.0.1", "[::1]"] {
            role.refuses(value, 2, "has no port");
        }
    }
    for role in CONNECTORS {
        role.refuses("127.0.0.1:0", 2, "port 0");
    }
}

#[test]
fn an_address_that_is_taken_or_not_ours_is_named_with_its_option() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = tcp.local_addr().unwrap().to_string();
    let udp = UdpSocket::bind(&taken);
    for role in LISTENERS {
        if udp.is_ok() {
            role.refuses(&taken, 1, "or choose another address or port");
        }
        role.refuses("192.0.2.1:26002", 1, "`ip address` lists those it has");
    }
}

#[test]
fn a_name_or_an_interface_that_is_missing_now_has_exit_code_1() {
    for role in LISTENERS {
        role.refuses("[fe80::1%nosuch0]:5", 1, "no interface `nosuch0`");
    }
    LISTENERS[0].refuses("no-such-host.invalid:5", 1, "cannot find");
}

#[test]
fn the_url_that_a_daemon_prints_is_an_address_for_clients() {
    let mut command = manyflow(&["daemon", "--insecure", "--name", "a"]);
    command.args(["--clients", "localhost:0"]);
    let mut daemon = Manyflow::start(command);
    let url = wait_for_message(&mut daemon, "connect at ");
    assert!(url.starts_with("nats://127.0.0.1:"), "{url}");
    for server in [url.clone(), format!("{url}/"), url.replace("nats://", "")] {
        run(&["pub", "a", "b", "--server", &server]).succeeded("pub");
    }
    let by_name = url.replace("127.0.0.1", "localhost");
    run(&["pub", "a", "b", "--server", &by_name]).succeeded("pub");
}

/// Waits for a line of standard error with `label`, and returns the rest of the line.
fn wait_for_message(program: &mut Manyflow, label: &str) -> String {
    program.wait_for_message(label);
    let lines = program.messages();
    let found = lines.iter().find_map(|line| line.split_once(label));
    found.unwrap().1.to_owned()
}

/// Gives the hosts link-local addresses, and returns the sender's, with the receiver's interface.
fn link_local(hosts: &TwoHosts) -> String {
    let wire = TwoHosts::INTERFACE;
    let add = |ip| manyflow_testing::ip_here(&format!("-6 address add {ip}/64 dev {wire} nodad"));
    hosts.on_sender(|| add("fe80::77:1"));
    hosts.on_receiver(|| add("fe80::77:2"));
    format!("fe80::77:1%{wire}")
}

#[test]
fn neighbours_exchange_files_by_link_local_addresses() {
    let Some(hosts) = TwoHosts::new() else { return };
    let folder = folder_with_file(200_000);
    let own = link_local(&hosts);
    let mut command = manyflow(&["send", "file", "--listen", &format!("[{own}]:0")]);
    command.args(["--publish", &format!("[{own}]:0")]);
    command.current_dir(folder.path());
    let mut sender = hosts.on_sender(|| Manyflow::start(command));
    let url = sender.url();
    assert!(url.contains(&own), "{url}");
    // The interface is that of the receiver, as users or as URLs write it.
    for url in [url.clone(), url.replace('%', "%25")] {
        let output = tempfile::tempdir().unwrap();
        let mut command = manyflow(&["recv", &url, "--output"]);
        command.arg(output.path()).args(PATIENT);
        let receiver = hosts.on_receiver(|| Manyflow::start(command));
        receiver.finish().succeeded("receiver");
        assert_same(folder.path(), output.path(), &url);
    }
}

#[test]
fn neighbours_exchange_messages_by_link_local_addresses() {
    let Some(hosts) = TwoHosts::new() else { return };
    let own = link_local(&hosts);
    let listen = hosts.on_sender(|| UdpSocket::bind("[::]:0").unwrap().local_addr().unwrap());
    let link = format!("[{own}]:{}", listen.port());
    let mut command = manyflow(&["daemon", "--insecure", "--name", "a", "--listen", &link]);
    command.args(["--clients", &format!("[{own}]:0")]);
    let mut one = hosts.on_sender(|| Manyflow::start(command));
    let clients = wait_for_message(&mut one, "NATS clients connect at ");
    let mut command = manyflow(&["daemon", "--insecure", "--name", "b"]);
    command.args(["--link", &format!("a={link}"), "--clients", "127.0.0.1:0"]);
    let mut two = hosts.on_receiver(|| Manyflow::start(command));
    let local = wait_for_message(&mut two, "NATS clients connect at ");
    // The daemon prints the kernel's number of its own interface.
    let port = clients.rsplit(':').next().unwrap();
    let remote = format!("nats://[{own}]:{port}");
    let mut sub = manyflow(&["sub", "a", "--json", "--count", "1", "--server", &remote]);
    sub.stdin(std::process::Stdio::null());
    let mut sub = hosts.on_receiver(|| Manyflow::start(sub));
    sub.wait_for(|line| line.contains("joined").then_some(()));
    let deadline = std::time::Instant::now() + LIMIT;
    // The link between the daemons may not be there yet.
    let ended = loop {
        let publish = manyflow(&["pub", "a", "b", "--server", &local]);
        let publish = hosts.on_receiver(|| Manyflow::start(publish));
        publish.finish().succeeded("pub");
        match sub.finish_within(std::time::Duration::from_millis(200)) {
            Ok(ended) => break ended,
            Err(running) => sub = running,
        }
        assert!(std::time::Instant::now() < deadline, "{:?}", two.messages());
    };
    assert!(ended.succeeded("sub").stdout.contains("\"b\""));
}

#[test]
fn without_a_default_route_the_description_is_at_each_address_of_the_machine() {
    let Some(hosts) = TwoHosts::new() else { return };
    let folder = folder_with_file(1_000);
    let mut command = manyflow(&["send", "file", "--listen", "0.0.0.0:0", "--publish"]);
    command.arg("0.0.0.0:0").current_dir(folder.path());
    let mut sender = hosts.on_sender(|| Manyflow::start(command));
    for address in [TwoHosts::SENDER_V4, TwoHosts::FOREIGN_V4] {
        sender.wait_for(|line| line.contains(&format!("http://{address}:")).then_some(()));
    }
    let lines = sender.lines();
    assert!(
        lines.iter().any(|line| line.contains("no default route")),
        "{lines:?}"
    );
    assert!(
        !lines.iter().any(|line| line.contains("127.0.0.1")),
        "{lines:?}"
    );
}
