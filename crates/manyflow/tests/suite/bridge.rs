//! `manyflow bridge`, as processes that are killed, between real nats-servers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use manyflow_messages::{
    Client, ClientOptions, DaemonConfig, DaemonHandle, LinkConfig, LinkSecurity, start,
};
use manyflow_testing::nats::NatsServer;
use nix::sys::signal::Signal;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::common::{LIMIT, Manyflow, manyflow, run, text};

/// A site: nats-server, daemon and a bridge as a process.
struct Site {
    nats: Client,
    server: NatsServer,
    daemon: DaemonHandle,
    file: PathBuf,
}

async fn start_daemon(name: &str, neighbour: Option<&Site>) -> DaemonHandle {
    let mut config = DaemonConfig::new(name, LinkSecurity::Insecure);
    config.listen = Some("127.0.0.1:0".to_owned());
    config.clients = Some("127.0.0.1:0".to_owned());
    if let Some(neighbour) = neighbour {
        let address = neighbour.daemon.addresses().daemons.unwrap().to_string();
        config.links = vec![LinkConfig::new("a", &address)];
    }
    start(config).await.unwrap()
}

/// Connects to nats-server by our client, which speaks the same protocol.
async fn connect(server: &NatsServer) -> Client {
    let options = ClientOptions {
        request_timeout: LIMIT,
        ..ClientOptions::default()
    };
    Client::connect(&server.address(), &options).await.unwrap()
}

impl Site {
    /// Starts a site without its bridge; `None` without nats-server. `streams` are lines of the
    /// bridge's file.
    async fn start(
        name: &str,
        streams: &str,
        neighbour: Option<&Site>,
        folder: &Path,
    ) -> Option<Site> {
        let server = NatsServer::start()?;
        let daemon = start_daemon(name, neighbour).await;
        let (nats, clients) = (server.address(), daemon.addresses().clients.unwrap());
        let file = folder.join(format!("{name}.toml"));
        let lines = format!(
            "site = \"{name}\"\nnats = \"{nats}\"\ndaemon = \"{clients}\"\n[[streams]]\nname = \"ORDERS\"\n{streams}\n"
        );
        std::fs::write(&file, lines).unwrap();
        let site = Site {
            nats: connect(&server).await,
            server,
            daemon,
            file,
        };
        // Messages come again long after the window for duplicates, which is the shortest.
        let stream = json!({"name": "ORDERS", "subjects": ["orders.*"], "storage": "file",
            "duplicate_window": 100_000_000});
        site.ask("STREAM.CREATE.ORDERS", &stream).await;
        Some(site)
    }

    /// Sends a request to JetStream; `null` is none.
    async fn ask(&self, what: &str, request: &Value) -> Value {
        let subject = format!("$JS.API.{what}");
        let request = match request {
            Value::Null => String::new(),
            request => request.to_string(),
        };
        let answer = self.nats.request(&subject, request).await.unwrap();
        let answer: Value = serde_json::from_slice(answer.payload()).unwrap();
        assert!(answer["error"].is_null(), "{what}: {answer}");
        answer
    }

    fn start_bridge(&self) -> Manyflow {
        Manyflow::start(manyflow(&["bridge", "--json", text(&self.file)]))
    }

    /// Returns the times at which each text was stored in the stream.
    async fn stored(&self) -> BTreeMap<String, Vec<String>> {
        let info = self.ask("STREAM.INFO.ORDERS", &json!(null)).await;
        let last = info["state"]["last_seq"].as_u64().unwrap();
        let mut stored: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for sequence in 1..=last {
            let got = self
                .ask("STREAM.MSG.GET.ORDERS", &json!({"seq": sequence}))
                .await;
            let data = got["message"]["data"].as_str().unwrap();
            let text = String::from_utf8(BASE64_STANDARD.decode(data).unwrap()).unwrap();
            let time = got["message"]["time"].as_str().unwrap();
            stored.entry(text).or_default().push(time.to_owned());
        }
        stored
    }
}

/// Waits until the bridge has acknowledged all messages of a site's stream. Messages that bridges
/// which were killed have left take long on a busy machine, so the limit is one without progress.
async fn wait_until_acknowledged(site: &Site) {
    let (mut floor, mut since) = (Value::Null, Instant::now());
    loop {
        let info = "CONSUMER.INFO.ORDERS.manyflow-bridge";
        let info = site.ask(info, &json!(null)).await;
        let left = ["num_pending", "num_ack_pending"].map(|key| info[key].as_u64().unwrap());
        if left == [0, 0] {
            return;
        }
        if info["ack_floor"] != floor {
            (floor, since) = (info["ack_floor"].clone(), Instant::now());
        }
        assert!(since.elapsed() < LIMIT, "not acknowledged: {info}");
        sleep(Duration::from_millis(20)).await;
    }
}

fn wait_for_event(mut bridge: Manyflow, kind: &str) -> Manyflow {
    bridge.wait_for_event(kind);
    bridge
}

/// Returns the number in a variable of the environment.
fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name);
    text.map_or(default, |text| text.parse().unwrap())
}

/// Publishes numbered messages until the end, and returns their number.
async fn publish_until(end: Arc<AtomicBool>, nats: Client) -> usize {
    let mut number = 0;
    while !end.load(Ordering::Relaxed) {
        let subject = format!("orders.{}", number % 3);
        let sent = nats.request(&subject, number.to_string());
        let stored: Value = serde_json::from_slice(sent.await.unwrap().payload()).unwrap();
        assert!(stored["error"].is_null(), "{stored}");
        number += 1;
        sleep(Duration::from_millis(1)).await;
    }
    number
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_message_of_a_stream_is_stored_once_when_bridges_and_servers_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    let Some(a) = Site::start("a", "to = [\"b\"]", None, folder.path()).await else {
        return;
    };
    let b = Site::start("b", "from = \"a\"", Some(&a), folder.path()).await;
    let mut b = b.expect("there is a nats-server");
    // As the bridge makes it, but messages come again after a second instead of thirty.
    let consumer = json!({"durable_name": "manyflow-bridge", "ack_policy": "explicit",
        "ack_wait": 1_000_000_000});
    let consumer = json!({"stream_name": "ORDERS", "config": consumer});
    let name = "CONSUMER.DURABLE.CREATE.ORDERS.manyflow-bridge";
    a.ask(name, &consumer).await;

    let (kills, seed) = (
        number("MANYFLOW_KILLS", 6),
        number("MANYFLOW_SEED", rand::random()),
    );
    println!("MANYFLOW_KILLS={kills} MANYFLOW_SEED={seed}");
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let end = Arc::new(AtomicBool::new(false));
    let publishing = tokio::spawn(publish_until(Arc::clone(&end), a.nats.clone()));
    let mut bridges = [a.start_bridge(), b.start_bridge()];
    for kill in 0..kills {
        // Also while a bridge starts.
        sleep(Duration::from_millis(random.random_range(0..400))).await;
        match kill % 3 {
            2 => {
                b.server.kill();
                b.server.start_again();
            }
            place => {
                let place = place as usize;
                bridges[place].kill();
                bridges[place] = [&a, &b][place].start_bridge();
            }
        }
    }
    let mut bridges = bridges.map(|bridge| wait_for_event(bridge, "active"));
    end.store(true, Ordering::Relaxed);
    let published = publishing.await.unwrap();
    wait_until_acknowledged(&a).await;
    b.nats = connect(&b.server).await;
    let stored = b.stored().await;
    println!("{published} messages while bridges and a server were killed {kills} times");
    assert_eq!(stored.len(), published, "messages are missing");
    // The times tell how long after the first one it came.
    let again = stored.iter().find(|(_, times)| times.len() > 1);
    assert_eq!(again, None, "stored more than once");
    for bridge in &mut bridges {
        bridge.signal(Signal::SIGTERM);
    }
    for bridge in bridges {
        wait_for_event(bridge, "done").finish().succeeded("bridge");
    }
}

#[tokio::test]
async fn a_bridge_says_once_what_it_lacks_and_refuses_what_is_invalid() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.toml");
    for (lines, problem) in [
        ("site = \"a b\"", "the key `nats` is missing"),
        (
            "site = \"a b\"\nnats = \"127.0.0.1:1\"",
            "the name of a site",
        ),
        ("site = \"a\"\nnats = \"127.0.0.1:1\"", "nothing to carry"),
        (
            "site = \"a\"\nnats = \"127.0.0.1:1\"\nsubjects = [\">\"]",
            "subjects",
        ),
    ] {
        std::fs::write(&file, lines).unwrap();
        let ended = run(&["bridge", text(&file)]);
        assert_eq!(ended.code(), 2, "{ended:?}");
        assert!(ended.stderr.contains(problem), "{ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    }
    let nowhere = [
        "bridge",
        "--site",
        "a",
        "--nats",
        "127.0.0.1:1",
        "--subject",
        "x",
    ];
    let mut bridge = Manyflow::start(manyflow(&nowhere));
    bridge.wait_for(|line| line.contains("127.0.0.1:1").then_some(()));
    // It has tried again in this time.
    sleep(Duration::from_millis(900)).await;
    bridge.signal(Signal::SIGINT);
    let ended = bridge.finish().succeeded("bridge");
    assert_eq!(ended.stderr, "", "the library's log of each attempt is off");
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(
        lines.len(),
        2,
        "one about nats-server, one at the end: {lines:?}"
    );
}
