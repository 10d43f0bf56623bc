//! Sessions of scenarios that are programs.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use manyflow_testing::may_make_namespaces;

use super::emulate;
use crate::common::{LIMIT, Manyflow, manyflow, run};
use crate::emulate::scenario::{emulate_file, scenario_file};

/// A scenario with a server and a client, which ends with the exit code 3.
const COMMANDS: &str = r#"
title = "A server and a client on emulated links"
run.duration = "20 s"
run.steady-from = "0 s"
nodes.names = ["A", "r-1", "B"]
[[links]]
chain = ["A", "r-1", "B"]
delay = "5 ms"
rate = "8 Mbit/s"
[[sessions]]
name = "server"
protocol = "command"
sender = "B"
command.run = '''
trap 'echo ended; exit 0' TERM
echo $$
python3 -c '
import socket
with socket.create_server(("", 5000)) as server:
    client, address = server.accept()
    print(address[0], sum(iter(lambda: len(client.recv(65536)), 0)), flush=True)
'
while true; do sleep 0.05; done
'''
[[sessions]]
name = "client"
protocol = "command"
sender = "A"
start = "1 s"
command.run = '''
echo $MANYFLOW_ADDRESS $MANYFLOW_NODE_r_1
python3 -c '
import os, socket, time
while True:
    try:
        server = socket.create_connection((os.environ["MANYFLOW_NODE_B"], 5000))
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
server.sendall(bytes(300_000))
'
exit 3
'''
[[measure]]
name = "client"
what = "exit-code"
of = "client"
[[measure]]
name = "server"
what = "exit-code"
of = "server"
[[measure]]
name = "carried"
what = "link-rate"
of = "r-1-B"
[[expect]]
what = "the client's exit code is observed"
value = "mean(client)"
at-least = 3
at-most = 3
source = "test"
[[expect]]
what = "its packets are counted at the link"
value = "mean(carried)"
at-least = "0.1 Mbit/s"
source = "test"
"#;

/// Returns what a session's command of the only run has printed.
pub(crate) fn printed(folder: &tempfile::TempDir, session: &str) -> String {
    let outputs = folder.path().join("results/shared/cell-0-seed-1");
    std::fs::read_to_string(outputs.join(format!("{session}.stdout"))).unwrap()
}

#[test]
fn commands_of_a_scenario_talk_over_its_links_and_end_with_the_run() {
    if !may_make_namespaces() {
        return;
    }
    let (folder, ended) = emulate_file(COMMANDS);
    assert_eq!(printed(&folder, "client"), "10.0.0.1 10.0.0.2\n");
    let server = printed(&folder, "server");
    let [pid, received, end] = server.lines().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!((received, end), ("10.0.0.1 300000", "ended"));
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    if ended.stderr.contains("could not keep time") {
        println!("not judged: other programs kept this machine busy");
        return;
    }
    let ended = ended.succeeded("emulate");
    assert_eq!(ended.stdout.matches("  met ").count(), 2, "{ended:?}");
}

#[test]
fn a_command_that_cannot_be_run_fails_with_session_and_command() {
    if !may_make_namespaces() {
        return;
    }
    let missing = COMMANDS.replacen("trap 'echo", "exec no-such-program; trap 'echo", 1);
    let (_folder, ended) = emulate_file(&missing);
    assert_eq!(ended.code(), 1, "{ended:?}");
    for part in [
        "session `server`: cannot run",
        "no-such-program",
        "not found",
    ] {
        assert!(ended.stderr.contains(part), "{part}: {ended:?}");
    }
}

#[test]
fn the_commands_of_a_killed_emulator_end_with_the_next_run() {
    if !may_make_namespaces() {
        return;
    }
    let (folder, file) = scenario_file(&COMMANDS.replacen("20 s", "1000 s", 1));
    let out = folder.path().join("results");
    let [file, results] = [&file, &out].map(|path| path.to_str().unwrap());
    let mut killed = Manyflow::start(manyflow(&["emulate", file, "--out", results]));
    let begun = out.join("shared/cell-0-seed-1/server.stdout");
    let deadline = Instant::now() + LIMIT;
    let pid = loop {
        let lines = std::fs::read_to_string(&begun).unwrap_or_default();
        if let Some((pid, _)) = lines.split_once('\n') {
            break PathBuf::from(format!("/proc/{pid}"));
        }
        assert!(Instant::now() < deadline, "the command has not begun");
        thread::sleep(Duration::from_millis(10));
    };
    killed.kill();
    emulate(&[], "true").succeeded("the next run");
    while pid.exists() {
        assert!(Instant::now() < deadline, "the command still runs");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_simulator_refuses_commands() {
    let (folder, file) = scenario_file(COMMANDS);
    let out = folder.path().join("results");
    let [file, results] = [&file, &out].map(|path| path.to_str().unwrap());
    let ended = run(&["sim", file, "--out", results]);
    assert_eq!(ended.code(), 1);
    let error = "`sessions.server.protocol`: `command` runs a program";
    assert!(ended.stderr.contains(error), "{ended:?}");
}

/// A WEBRC session over two routers, of which one receiver leaves and joins again.
const WEBRC: &str = r#"
title = "WEBRC as programs"
run.duration = "30 s"
run.steady-from = "3 s"
nodes.names = ["S", "r1", "r2", "R", "L"]
[[links]]
chain = ["S", "r1", "r2", "R"]
delay = "5 ms"
rate = "4 Mbit/s"
queue = "40 packets"
[[links]]
between = ["r2", "L"]
delay = "5 ms"
rate = "4 Mbit/s"
[[sessions]]
name = "webrc"
protocol = "webrc"
sender = "S"
receivers = [{ node = "R" }, { node = "L", stop = "14 s", every = "15 s" }]
webrc = { session-rate = "2 Mbit/s", packet = "1000 B", time-slot = "1 s", quiescence = "5 s", base-rate = "4 packets/s" }
[[measure]]
name = "rate"
what = "received-rate"
of = "webrc/R"
[[measure]]
name = "joins"
what = "joins"
of = "webrc"
from = "0 s"
combine = "min"
[[measure]]
name = "again"
what = "received-packets"
of = "webrc/L"
from = "15 s"
to = "29 s"
[[measure]]
name = "rtt"
what = "rtt"
of = "webrc/R"
[[measure]]
name = "target"
what = "target-rate"
of = "webrc/R"
[[expect]]
what = "the receiver receives waves"
value = "mean(rate)"
at-least = "1 kbit/s"
at-most = "2.2 Mbit/s"
source = "test"
[[expect]]
what = "both receivers join channels"
value = "mean(joins)"
at-least = 2
source = "test"
[[expect]]
what = "a receiver that joins again receives again"
value = "mean(again)"
at-least = "1 packets"
source = "test"
[[expect]]
what = "the program prints its round-trip time"
value = "mean(rtt)"
at-least = "5 ms"
source = "test"
[[expect]]
what = "the program does not print its target rate"
value = "mean(target)"
at-least = "0 Mbit/s"
source = "test"
"#;

#[test]
fn webrc_sessions_of_a_scenario_are_send_and_recv() {
    if !may_make_namespaces() {
        return;
    }
    let (folder, ended) = emulate_file(WEBRC);
    if ended.stderr.contains("could not keep time") {
        println!("not judged: other programs kept this machine busy");
        return;
    }
    assert_eq!(ended.stdout.matches("  met ").count(), 4, "{ended:?}");
    let unobserved = "MISSED the program does not print its target rate: no value";
    assert!(ended.stdout.contains(unobserved), "{ended:?}");
    let outputs = folder.path().join("results/shared/cell-0-seed-1");
    assert!(outputs.join("webrc.sdp").exists());
    assert!(!outputs.join("webrc.data").exists());
}

#[test]
fn webrc_receivers_that_programs_cannot_be_are_refused_with_the_key() {
    if !may_make_namespaces() {
        return;
    }
    let whole = WEBRC.replacen(
        "{ node = \"L\",",
        "{ node = \"L\", whole-session = true,",
        1,
    );
    let twice = WEBRC.replacen("{ node = \"R\" }", "\"R\", \"R\"", 1);
    for (text, error) in [(whole, "cannot join all channels"), (twice, "at one node")] {
        let (_folder, ended) = emulate_file(&text);
        assert_eq!(ended.code(), 1, "{ended:?}");
        for part in ["`sessions.webrc.receivers`", error, "--in-process"] {
            assert!(ended.stderr.contains(part), "{part}: {ended:?}");
        }
    }
}
