//! New versions of files: receivers keep what their former version has, and the sender sends
//! nothing but what they report to need.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use manyflow_core::units::Rate;
use manyflow_files::completion::{
    Audience, Expected, Identity, ReceiverStatus, ReportPlan, Reporting,
};
use manyflow_files::files::Existing;
use manyflow_files::sdp::SessionDescription;
use manyflow_files::sending::{Opened, RelayAddress, SendConfig};
use manyflow_files::session::{
    Progress, ProgressSinks, ReceiveConfig, ReceiveError, Received, SendProgress, receive,
};
use manyflow_net::inlet::Route;
use manyflow_testing::LIMIT;
use manyflow_webrc::SessionConfig;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::stage::random_file;

/// The length of the file that changes, which takes 8 s as a whole, in the test that measures.
/// `MANYFLOW_BYTES` gives another.
const BYTES: usize = 20_000_000;
/// The length of the file in the other tests.
const SHORT: usize = 6_000_000;

/// A folder with one file that changes, one that does not, and one that is new.
struct Versions {
    home: TempDir,
    rate: Rate,
}

impl Versions {
    fn new(bytes: usize, rate: Rate) -> Versions {
        let home = tempfile::tempdir().unwrap();
        let mut image = random_file("image", bytes, 1).1.to_vec();
        let tree = |version: &str| home.path().join(version).join("tree");
        for version in ["former", "latter"] {
            std::fs::create_dir_all(tree(version)).unwrap();
            std::fs::write(tree(version).join("image"), &image).unwrap();
            let same = random_file("same", 500_000, 2).1;
            std::fs::write(tree(version).join("same"), same).unwrap();
            // One percent changes in 4 places, and what is behind moves.
            for place in 0..4 {
                let at = bytes / 4 * place + 1_234;
                let new = random_file("", bytes / 400, 3 + place as u64).1;
                image.splice(at..at + bytes / 500, new);
            }
        }
        std::fs::write(tree("latter").join("new"), "a new file").unwrap();
        Versions { home, rate }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Returns the folder of a receiver, which has a former version or nothing.
    fn output(&self, name: &str, has_former: bool) -> PathBuf {
        let output = self.path(name);
        std::fs::create_dir_all(output.join("tree")).unwrap();
        if has_former {
            for file in ["image", "same"] {
                let from = self.path("former/tree").join(file);
                std::fs::copy(from, output.join("tree").join(file)).unwrap();
            }
        }
        output
    }

    /// Starts to send the latter version to receivers of these names.
    async fn send(&self, names: &[&str]) -> (SessionDescription, Sending) {
        let webrc = SessionConfig {
            packet_bytes: 1_400,
            ..SessionConfig::lan(self.rate)
        };
        let receivers = names.iter().map(|name| Expected {
            name: name.parse().unwrap(),
            key: None,
        });
        let audience = Audience::Listed {
            receivers: receivers.collect(),
            ends_after: Some(names.len() as u32),
        };
        let loopback = (Ipv4Addr::LOCALHOST, 0).into();
        let config = SendConfig {
            relay: Some(RelayAddress::new(loopback)),
            reports: Some((loopback, audience)),
            ..SendConfig::new(vec![self.path("latter/tree")], webrc)
        };
        let session = Opened::open(config).await.unwrap().prepare().await.unwrap();
        let (description, progress) = (session.description.clone(), session.progress());
        let task = tokio::spawn(async { session.run(std::future::pending()).await.unwrap() });
        (description, Sending { progress, task })
    }

    #[track_caller]
    fn assert_received(&self, output: &Path) {
        for file in ["image", "same", "new"] {
            let sent = std::fs::read(self.path("latter/tree").join(file)).unwrap();
            let received = std::fs::read(output.join("tree").join(file)).unwrap();
            assert!(sent == received, "{file} differs");
        }
        assert_eq!(std::fs::read_dir(output).unwrap().count(), 1);
    }
}

struct Sending {
    progress: watch::Receiver<SendProgress>,
    task: JoinHandle<SendProgress>,
}

/// A receiver that reports under a name.
struct Reporter {
    progress: watch::Receiver<Progress>,
    task: JoinHandle<Result<Received, ReceiveError>>,
}

fn start(description: &SessionDescription, name: &str, output: &Path) -> Reporter {
    let relay = description.amt_relay.as_ref().unwrap().authority();
    let mut config = ReceiveConfig::new(
        description.clone(),
        Route::Relays(vec![relay]),
        output.to_owned(),
    );
    config.existing = Existing::Replace;
    config.threads = 1;
    config.patience = LIMIT;
    let plan = ReportPlan::new(description, None, "").unwrap();
    let identity = Identity::named(name.parse().unwrap());
    let (sinks, progress, _files) = ProgressSinks::channels();
    let reporting = Reporting::start(plan, identity, &sinks);
    let task = tokio::spawn(async {
        let received = receive(config, sinks, std::future::pending()).await?;
        reporting.end(ReceiverStatus::Done).await.unwrap();
        Ok(received)
    });
    Reporter { progress, task }
}

async fn finish(receiver: Reporter) -> Received {
    let ended = timeout(LIMIT, receiver.task).await;
    ended.expect("the receiver ends").unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_with_a_former_version_get_what_changed_and_nothing_else_is_sent() {
    let bytes = std::env::var("MANYFLOW_BYTES").map_or(BYTES, |bytes| bytes.parse().unwrap());
    let versions = Versions::new(bytes, Rate::from_bits_per_s(bytes as u64));
    let (description, mut sending) = versions.send(&["one", "two"]).await;
    let outputs = ["one", "two"].map(|name| versions.output(name, true));
    let one = start(&description, "one", &outputs[0]);
    let two = start(&description, "two", &outputs[1]);
    let focused = sending.progress.wait_for(|progress| progress.is_focused);
    timeout(LIMIT, focused).await.unwrap().unwrap();
    for (receiver, output) in [one, two].into_iter().zip(&outputs) {
        let received = finish(receiver).await;
        versions.assert_received(output);
        let objects = received.progress.objects;
        let length = objects.needed_bytes;
        println!(
            "{} of {length} bytes were received, {} were here, in {:?}",
            objects.received_bytes(),
            objects.earlier_bytes,
            received.elapsed
        );
        assert!(objects.earlier_bytes > length / 100 * 95, "{objects:?}");
        assert!(objects.received_bytes() < length / 20, "{objects:?}");
    }
    let sent = timeout(LIMIT, sending.task).await.unwrap().unwrap();
    println!("{} bytes were sent", sent.bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_without_a_former_version_gets_everything_beside_one_that_has_it() {
    let versions = Versions::new(SHORT, Rate::from_bits_per_s(20_000_000));
    let (description, sending) = versions.send(&["one", "two"]).await;
    let outputs = [("one", true), ("two", false)].map(|(name, has)| versions.output(name, has));
    let one = start(&description, "one", &outputs[0]);
    let two = start(&description, "two", &outputs[1]);
    for (receiver, output) in [one, two].into_iter().zip(&outputs) {
        finish(receiver).await;
        versions.assert_received(output);
    }
    timeout(LIMIT, sending.task).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_was_killed_while_it_got_a_new_version_continues() {
    let versions = Versions::new(SHORT, Rate::from_bits_per_s(20_000_000));
    let (description, _sending) = versions.send(&["one"]).await;
    let output = versions.output("one", true);
    let mut killed = start(&description, "one", &output);
    let has_some = |progress: &Progress| progress.objects.received_bytes() > 0;
    let reached = timeout(LIMIT, killed.progress.wait_for(has_some)).await;
    reached.unwrap().unwrap();
    killed.task.abort();
    let _ = killed.task.await;
    // The decoder's thread releases the spool a little later.
    let received = loop {
        let again = start(&description, "one", &output);
        match timeout(LIMIT, again.task).await.unwrap().unwrap() {
            Ok(received) => break received,
            Err(ReceiveError::Decoder(error)) => println!("{error}"),
            Err(error) => panic!("{error}"),
        }
    };
    versions.assert_received(&output);
    let objects = received.progress.objects;
    assert!(objects.earlier_bytes > objects.needed_bytes / 100 * 90);
}
