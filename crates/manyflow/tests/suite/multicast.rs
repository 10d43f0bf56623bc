//! Two hosts: `manyflow send` on one, `manyflow recv` on the other. They are network namespaces,
//! which need root; the tests are skipped without it.

use crate::common;

use common::{Manyflow, PATIENT, assert_same, manyflow, write_random};
use manyflow_testing::TwoHosts;
use nix::sys::signal::Signal;
use std::path::Path;
use tempfile::TempDir;

/// The files to send: a file and a folder.
struct Sources(TempDir);

impl Sources {
    fn new() -> Sources {
        let folder = tempfile::tempdir().unwrap();
        write_random(&folder.path().join("image.bin"), 200_000, 1);
        write_random(&folder.path().join("docs/one byte"), 1, 2);
        write_random(&folder.path().join("docs/deep/Ünïcode.txt"), 5_000, 3);
        write_random(&folder.path().join("docs/empty"), 0, 4);
        Sources(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs `send image.bin docs` with these arguments, publishing on the sending host.
    fn send(&self, hosts: &TwoHosts, arguments: &[&str]) -> Manyflow {
        let mut command = manyflow(&["send", "image.bin", "docs"]);
        command.args(arguments).args(["--publish", "10.77.0.1:0"]);
        command.current_dir(self.path());
        hosts.on_sender(|| Manyflow::start(command))
    }
}

/// A running `recv URL` with an output folder of its own.
struct Receiver {
    running: Manyflow,
    output: TempDir,
}

fn receive(hosts: &TwoHosts, url: &str, arguments: &[&str]) -> Receiver {
    let output = tempfile::tempdir().unwrap();
    let mut command = manyflow(&["recv", url, "--output", output.path().to_str().unwrap()]);
    command.args(PATIENT).args(arguments);
    let running = hosts.on_receiver(|| Manyflow::start(command));
    Receiver { running, output }
}

/// Sends with `arguments` and starts one receiver for each entry of `receivers`; all must succeed.
fn transfer(arguments: &[&str], receivers: &[&[&str]]) {
    let Some(hosts) = TwoHosts::new() else { return };
    let sources = Sources::new();
    let mut sender = sources.send(&hosts, arguments);
    let url = sender.url();
    let running: Vec<_> = receivers
        .iter()
        .map(|arguments| receive(&hosts, &url, arguments))
        .collect();
    for receiver in running {
        receiver.running.finish().succeeded("receiver");
        assert_same(sources.path(), receiver.output.path(), url.as_str());
    }
    sender.signal(Signal::SIGINT);
    let sent = sender.finish().succeeded("sender");
    assert!(sent.stdout.contains("sent "), "{sent:?}");
}

const BY_INTERFACE: &[&str] = &["--interface", TwoHosts::INTERFACE];

#[test]
fn two_receivers_on_one_host_get_files_by_source_specific_multicast() {
    transfer(
        &[
            "--multicast",
            "232.1.2.0/24",
            "--interface",
            TwoHosts::INTERFACE,
        ],
        &[BY_INTERFACE, BY_INTERFACE],
    );
}

#[test]
fn files_arrive_by_any_source_multicast() {
    transfer(
        &[
            "--multicast",
            "239.1.2.0/24",
            "--interface",
            TwoHosts::INTERFACE,
        ],
        &[BY_INTERFACE],
    );
}

#[test]
fn files_arrive_by_ipv6_multicast() {
    transfer(
        &[
            "--multicast",
            "ff3e::8000:0/112",
            "--interface",
            TwoHosts::INTERFACE,
        ],
        &[BY_INTERFACE],
    );
}

#[test]
fn a_relay_on_all_addresses_is_found_where_the_description_came_from() {
    transfer(
        &["--listen", "0.0.0.0:0"],
        &[&[], &["--max-rate", "2Mbit/s"]],
    );
}

/// One sender serves multicast groups and its relay at the same time, also without FEC.
#[test]
fn multicast_and_tunnel_carry_one_session() {
    let both = [
        "--multicast",
        "232.1.2.0/24",
        "--interface",
        TwoHosts::INTERFACE,
        "--listen",
        "10.77.0.1:0",
        "--fec",
        "none",
    ];
    transfer(&both, &[BY_INTERFACE, &[]]);
}

/// A transfer through a relay during which the receiver's network changes. The sender knows nothing
/// of it.
fn goes_on_after(change: impl Fn(&TwoHosts)) {
    let Some(hosts) = TwoHosts::new() else { return };
    let sources = Sources::new();
    write_random(&sources.path().join("docs/long"), 2_000_000, 5);
    let mut sender = sources.send(&hosts, &["--listen", "0.0.0.0:0", "--rate", "4Mbit/s"]);
    let mut receiver = receive(&hosts, &sender.url(), &["--json"]);
    receiver.running.wait_for(|line| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        (event["bytes"].as_u64()? > 200_000).then_some(())
    });
    change(&hosts);
    let ended = receiver.running.finish().succeeded("receiver");
    assert_same(sources.path(), receiver.output.path(), "changed network");
    assert!(!ended.stderr.contains("error"), "{ended:?}");
}

#[test]
fn a_transfer_goes_on_when_the_receivers_address_changes() {
    goes_on_after(|hosts| {
        hosts.on_receiver(|| {
            let wire = TwoHosts::INTERFACE;
            manyflow_testing::ip_here(&format!("address add 10.77.0.9/24 dev {wire}"));
            manyflow_testing::ip_here(&format!("address delete 10.77.0.2/24 dev {wire}"));
            // The kernel deletes secondary addresses of the network with the first one.
            manyflow_testing::ip_here(&format!("address replace 10.77.0.9/24 dev {wire}"));
        });
    });
}

#[test]
fn a_transfer_goes_on_when_the_receivers_interface_is_made_again() {
    goes_on_after(|hosts| {
        hosts.remove_link();
        hosts.make_link();
    });
}

/// Gives a host a second interface, over which its default route leads.
fn add_default_route() {
    manyflow_testing::ip_here("link add decoy type veth peer name decoy-far");
    manyflow_testing::ip_here("address add 10.99.0.2/24 dev decoy");
    manyflow_testing::ip_here("link set decoy up");
    manyflow_testing::ip_here("link set decoy-far up");
    manyflow_testing::ip_here("route add default via 10.99.0.1 dev decoy");
}

#[test]
fn without_an_option_a_receiver_joins_on_the_interface_towards_the_source() {
    let Some(hosts) = TwoHosts::new() else { return };
    hosts.on_receiver(add_default_route);
    let sources = Sources::new();
    let range = ["--multicast", "232.1.2.0/24"];
    let mut sender = sources.send(&hosts, &[&range[..], BY_INTERFACE].concat());
    let url = sender.url();
    let receiver = receive(&hosts, &url, &[]);
    let ended = receiver.running.finish().succeeded("receiver");
    assert_same(sources.path(), receiver.output.path(), &url);
    let said = "multicast from 10.77.0.1 is received on wire (--interface names another: decoy)";
    assert!(ended.stderr.contains(said), "{ended:?}");
}

#[test]
fn a_relay_and_a_stream_join_on_the_interface_towards_the_source() {
    let Some(hosts) = TwoHosts::new() else { return };
    hosts.on_receiver(add_default_route);
    let folder = tempfile::tempdir().unwrap();
    write_random(&folder.path().join("0.unit"), 20_000, 1);
    let mut command = manyflow(&["stream", "send", "--folder", ".", "--repeat", "--json"]);
    command.args(["--multicast", "232.1.3.0/24", "--publish", "10.77.0.1:0"]);
    command.args(BY_INTERFACE).current_dir(folder.path());
    let mut sender = hosts.on_sender(|| Manyflow::start(command));
    let url: String = sender.wait_for(|line| Some(parsed(line)["url"].as_str()?.to_owned()));
    let said = "multicast from 10.77.0.1 is received on wire (--interface names another: decoy)";
    let listen = ["--listen", "127.0.0.1:0"];
    let mut relay = manyflow(&["relay", "--session", &url]);
    relay.args(listen);
    let mut relay = hosts.on_receiver(|| Manyflow::start(relay));
    relay.wait_for_message(said);
    let address = relay.wait_for(|line| Some(line.split_once("--relay ")?.1.to_owned()));
    let recv = manyflow(&["stream", "recv", &url, "--json", "--relay", &address]);
    let mut behind = hosts.on_receiver(|| Manyflow::start(recv));
    behind.wait_for(|line| (parsed(line)["units_complete"].as_u64()? > 0).then_some(()));
    let mut beside = hosts.on_receiver(|| Manyflow::start(manyflow(&["stream", "recv", &url])));
    beside.wait_for_message(said);
}

#[test]
fn a_sender_says_where_its_multicast_leaves() {
    let Some(hosts) = TwoHosts::new() else { return };
    hosts.on_sender(add_default_route);
    let sources = Sources::new();
    let mut sender = sources.send(&hosts, &["--multicast", "232.1.2.0/24", "--ttl", "3"]);
    sender.wait_for(|line| {
        let said = "multicast leaves from 10.99.0.2 on decoy (--interface names another: wire), with TTL 3, for receivers behind at most 2 routers";
        line.contains(said).then_some(())
    });
}

#[test]
fn without_any_route_the_interface_is_refused_with_those_to_choose() {
    let Some(hosts) = TwoHosts::new() else { return };
    let sources = Sources::new();
    let file = sources.path().join("session.sdp");
    let file = file.to_str().unwrap();
    let range = ["--multicast", "232.1.2.0/24", "--session", file];
    let mut sender = sources.send(&hosts, &[&range[..], BY_INTERFACE].concat());
    sender.url();
    hosts.on_receiver(|| {
        add_default_route();
        manyflow_testing::ip_here("route delete default");
        manyflow_testing::ip_here("address flush dev wire");
        manyflow_testing::ip_here("address add 10.66.0.2/24 dev wire");
    });
    let ended = receive(&hosts, file, &[]).running.finish();
    assert_eq!(ended.code(), 1, "{ended:?}");
    for part in ["10.77.0.1", "--interface", "wire", "decoy"] {
        assert!(ended.stderr.contains(part), "{part}: {ended:?}");
    }
}

#[test]
fn a_description_can_be_a_file_instead_of_a_url() {
    let Some(hosts) = TwoHosts::new() else { return };
    let sources = Sources::new();
    let folder = tempfile::tempdir().unwrap();
    let description = folder.path().join("session.sdp");
    let file = description.to_str().unwrap();
    let mut arguments = vec!["--multicast", "232.1.2.0/24", "--session", file];
    arguments.extend(BY_INTERFACE);
    let mut sender = sources.send(&hosts, &arguments);
    sender.url();
    let receiver = receive(&hosts, file, BY_INTERFACE);
    receiver.running.finish().succeeded("receiver");
    assert_same(sources.path(), receiver.output.path(), file);
}

#[test]
fn two_sessions_of_one_service_arrive_by_multicast() {
    let Some(hosts) = TwoHosts::new() else { return };
    let sources = Sources::new();
    let config = format!(
        r#"
        publish = "10.77.0.1:0"
        [defaults]
        interface = "{}"
        [session.image]
        paths = ["image.bin"]
        multicast = "232.1.2.0/25"
        [session.docs]
        paths = ["docs"]
        multicast = "232.1.2.128/25"
        "#,
        TwoHosts::INTERFACE
    );
    let file = sources.path().join("sessions.toml");
    std::fs::write(&file, config).unwrap();
    let command = manyflow(&["serve", file.to_str().unwrap()]);
    let mut sender = hosts.on_sender(|| Manyflow::start(command));
    let receivers = ["image", "docs"].map(|name| {
        let label = format!("{name}: receivers type: manyflow recv ");
        let url = sender.wait_for(|line| Some(line.strip_prefix(&label)?.to_owned()));
        receive(&hosts, &url, BY_INTERFACE)
    });
    let outputs = receivers.map(|receiver| {
        receiver.running.finish().succeeded("receiver");
        receiver.output
    });
    let [image, docs] = &outputs;
    assert_eq!(
        std::fs::read(image.path().join("image.bin")).unwrap(),
        std::fs::read(sources.path().join("image.bin")).unwrap()
    );
    assert_same(
        &sources.path().join("docs"),
        &docs.path().join("docs"),
        "docs",
    );
    sender.signal(Signal::SIGINT);
    sender.finish().succeeded("sender");
}

#[test]
fn a_stream_arrives_by_multicast_and_its_receivers_report_to_the_sender() {
    let Some(hosts) = TwoHosts::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    write_random(&folder.path().join("0.unit"), 20_000, 1);
    let mut command = manyflow(&["stream", "send", "--folder", ".", "--repeat", "--json"]);
    command.args(["--multicast", "232.1.3.0/24", "--interface"]);
    command.args([TwoHosts::INTERFACE, "--publish", "10.77.0.1:0"]);
    command.current_dir(folder.path());
    let mut sender = hosts.on_sender(|| Manyflow::start(command));
    let url: String = sender.wait_for(|line| Some(parsed(line)["url"].as_str()?.to_owned()));
    let mut command = manyflow(&["stream", "recv", &url, "--json"]);
    command.args(BY_INTERFACE);
    let mut receiver = hosts.on_receiver(|| Manyflow::start(command));
    receiver.wait_for(|line| (parsed(line)["units_complete"].as_u64()? > 0).then_some(()));
    sender.wait_for(|line| (parsed(line)["receivers"].as_u64()? == 1).then_some(()));
    for running in [receiver, sender] {
        running.signal(Signal::SIGINT);
        running.finish().succeeded("stream");
    }
}

fn parsed(line: &str) -> serde_json::Value {
    serde_json::from_str(line).unwrap()
}
