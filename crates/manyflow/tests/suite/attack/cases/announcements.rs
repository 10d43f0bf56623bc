//! Forged announcements by SAP against a standing receiver: they start nothing.

use std::path::Path;

use manyflow_amt::Flow;
use manyflow_files::sdp::SessionDescription;
use manyflow_net::keys::SigningKey;
use manyflow_net::sap::{self, Packet, PacketKind};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::attack::attacker::{Attack, open_raw, send_ip};
use crate::attack::trial::some_files;
use crate::attack::world::{Host, INTERFACE, SENDER, World};
use crate::common::{Manyflow, PATIENT, assert_same, manyflow, run, text, wait_until};

/// Forged announcements in a second.
const PER_S: u32 = 500;
/// The receiver's `--memory`, and the maximum of its resident memory as in other attacks.
const MEMORY: &str = "64MiB";
const PEAK_MAX_KIB: u64 = 128 << 10;

/// Sends the packets in turn, from the sender's address to the group of announcements.
fn start_attack(world: &World, packets: Vec<Vec<u8>>) -> Attack {
    let raw = world.on(Host::Attacker, open_raw);
    let group = sap::group_for("232.1.2.0".parse().unwrap());
    let flow = Flow {
        source: (SENDER, 4_000).into(),
        group: (group, sap::PORT).into(),
    };
    Attack::start(PER_S, move |number| {
        if let Some(number) = number {
            send_ip(&raw, &flow, &packets[number as usize % packets.len()]);
        }
    })
}

/// Returns announcements that anyone can make who knows a description with its signature: by
/// another key, changed, without a signature, with lines behind it, cut, and a deletion.
fn forge(genuine: &str, key: &SigningKey) -> Vec<Vec<u8>> {
    let description = SessionDescription::parse(genuine).unwrap();
    let announce = |text: &str| Packet::announcement(SENDER.into(), text).encode();
    let mut stranger = description.clone();
    stranger.name = "stranger".to_owned();
    stranger.version += 100;
    let unsigned = description.to_sdp().unwrap();
    let deletion = Packet {
        kind: PacketKind::Deletion,
        ..Packet::announcement(SENDER.into(), genuine)
    };
    vec![
        announce(&stranger.to_signed_sdp(key).unwrap()),
        announce(&genuine.replace("\ns=", "\ns=x")),
        announce(&genuine.replace("232.1.2.0", "232.9.9.0")),
        announce(&format!("{genuine}a=tool:forged\r\n")),
        announce(&unsigned),
        announce(&"a=x\r\n".repeat(300)),
        announce("v=0"),
        deletion.encode(),
        vec![0xff; 40],
        Vec::new(),
    ]
}

/// Starts a sender of a folder whose sessions the key signs, and returns it with its description.
fn send(world: &World, folder: &Path, key: &Path) -> (Manyflow, String) {
    let file = key.with_extension("sdp");
    let _ = std::fs::remove_file(&file);
    let mut command = manyflow(&["send", text(folder), "--sign", text(key)]);
    command.args(["--multicast", "232.1.2.0/24", "--interface", INTERFACE]);
    command.args(["--session", text(&file)]);
    let sender = world.on(Host::Sender, || Manyflow::start(command));
    wait_until("the description", || file.exists());
    (sender, std::fs::read_to_string(file).unwrap())
}

#[test]
fn forged_and_old_announcements_start_nothing_and_the_true_one_is_received() {
    let Some(world) = World::new() else { return };
    let stage = tempfile::tempdir().unwrap();
    let path = |name: &str| stage.path().join(name);
    for key in ["own.key", "strange.key"] {
        run(&["keygen", text(&path(key))]).succeeded("keygen");
    }
    some_files(&path("files"));
    // The attacker has recorded the description of an earlier session, and that of the present one.
    let (mut earlier, old) = send(&world, &path("files"), &path("own.key"));
    earlier.kill();
    let written = SessionDescription::parse(&old).unwrap().version;
    wait_until("the next second", || {
        manyflow_net::description::ntp_seconds(std::time::SystemTime::now()) > written
    });

    let mut follow = manyflow(&["recv", "--follow", "sap", "--json", "--memory", MEMORY]);
    follow.args([
        "--interface",
        INTERFACE,
        "--trust",
        text(&path("own.key.pub")),
    ]);
    follow
        .args(["--output", text(&path("output"))])
        .args(PATIENT);
    let mut follower = world.on(Host::Receiver, || Manyflow::start(follow));
    wait_until("the state folder", || {
        path("output/.manyflow/lock").exists()
    });
    let strange = SigningKey::read(&path("strange.key")).unwrap();
    let first = start_attack(&world, forge(&old, &strange));
    follower.wait_for_message("not trusted");
    follower.wait_for_message("invalid");
    let (_sender, genuine) = send(&world, &path("files"), &path("own.key"));
    let received = |line: &str| line.contains(r#""event":"received""#).then_some(());
    follower.wait_for(received);
    assert_same(&path("files"), &path("output/files/files"), "under attack");
    assert!(first.stop() > 10, "the attack has run");

    // The old session is announced again, with its valid signature, then something that is noticed.
    let replayed = Packet::announcement(SENDER.into(), &old).encode();
    let second = start_attack(&world, [vec![replayed], forge(&genuine, &strange)].concat());
    follower.wait_for(|line| line.contains("not newer").then_some(()));
    assert!(second.stop() > 0);
    follower.signal(Signal::SIGTERM);
    let ended = follower.finish().succeeded("follower");
    let events = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let started: Vec<_> = events
        .filter(|event| event["event"] == "receiving")
        .collect();
    assert_eq!(started.len(), 1, "{started:?}");
    assert!(
        ended.stderr.lines().count() < 8,
        "the log is bounded: {}",
        ended.stderr
    );
    assert!(
        ended.peak_memory_kib < PEAK_MAX_KIB,
        "{} KiB",
        ended.peak_memory_kib
    );
    let folders = std::fs::read_dir(path("output")).unwrap().count();
    assert_eq!(folders, 2, "the session and the state");
}
