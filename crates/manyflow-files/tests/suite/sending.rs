//! Sessions of files as `manyflow send` and the Python package set them up.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;

use manyflow_core::units::Rate;
use manyflow_files::completion::{Audience, Identity, ReceiverStatus, ReportPlan, Reporting};
use manyflow_files::sdp::SessionDescription;
use manyflow_files::sending::{
    Conflict, Difference, OpenError, Opened, Prepared, RelayAddress, ResumeError, SendConfig,
};
use manyflow_files::session::{ProgressSinks, ReceiveConfig, Received, SendProgress, receive};
use manyflow_net::group_key::GroupKey;
use manyflow_net::inlet::Route;
use manyflow_net::multicast::{Groups, Interface};
use manyflow_testing::LIMIT;
use manyflow_webrc::SessionConfig;
use tempfile::TempDir;
use tokio::time::timeout;

/// The files of the folder to send.
const FILES: [(&str, &[u8]); 3] = [
    ("read.me", b"a text"),
    ("parts/one.bin", &[1; 70_000]),
    ("parts/deeper/empty", b""),
];

/// Returns a folder named `site` in a temporary folder.
fn site() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in FILES {
        let path = folder.path().join("site").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    folder
}

/// A session of the folder, which has no way to receivers yet.
fn config(folder: &TempDir) -> SendConfig {
    let webrc = SessionConfig {
        packet_bytes: 1_400,
        ..SessionConfig::lan(Rate::from_bits_per_s(50_000_000))
    };
    SendConfig::new(vec![folder.path().join("site")], webrc)
}

/// Any free port on loopback.
fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn through_relay(folder: &TempDir) -> SendConfig {
    SendConfig {
        relay: Some(RelayAddress::new(loopback())),
        ..config(folder)
    }
}

/// A session for the groups of a range, which needs no free port.
fn by_multicast(folder: &TempDir, range: &str) -> SendConfig {
    let groups = Groups {
        range: range.parse().unwrap(),
        interface: Some(Interface::Address(Ipv4Addr::LOCALHOST.into())),
        hop_limit: 1,
    };
    SendConfig {
        multicast: Some(groups),
        ..config(folder)
    }
}

async fn refused(config: SendConfig) -> OpenError {
    Opened::open(config).await.map(drop).unwrap_err()
}

async fn prepared(config: SendConfig) -> Prepared {
    let opened = Opened::open(config).await.unwrap();
    opened.prepare().await.map_err(drop).unwrap()
}

async fn prepare_error(config: SendConfig) -> OpenError {
    let opened = Opened::open(config).await.unwrap();
    opened.prepare().await.map(drop).unwrap_err()
}

/// Receives the described session into `folder`.
async fn receive_into(
    folder: &Path,
    description: SessionDescription,
    group_key: Option<GroupKey>,
) -> Received {
    let relay = description.amt_relay.as_ref().unwrap().authority();
    let config = ReceiveConfig {
        group_key,
        threads: 1,
        patience: LIMIT,
        ..ReceiveConfig::new(description, Route::Relays(vec![relay]), folder.to_owned())
    };
    let (sinks, _progress, _files) = ProgressSinks::channels();
    let receiving = receive(config, sinks, std::future::pending());
    timeout(LIMIT, receiving).await.unwrap().unwrap()
}

fn assert_site(folder: &Path) {
    for (name, content) in FILES {
        let received = std::fs::read(folder.join("site").join(name)).unwrap();
        assert!(received == content, "{name} differs");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_arrives_through_the_relay() {
    let (folder, into) = (site(), tempfile::tempdir().unwrap());
    let session = prepared(through_relay(&folder)).await;
    let bytes: usize = FILES.iter().map(|(_, content)| content.len()).sum();
    assert_eq!((session.files, session.bytes), (3, bytes as u64));
    let parsed = SessionDescription::parse(&session.text).unwrap();
    assert_eq!(parsed, session.description);
    assert_eq!(parsed.name, "site");
    let sending = tokio::spawn(session.run(std::future::pending()));
    let received = receive_into(into.path(), parsed, None).await;
    sending.abort();
    assert_eq!(received.files.len(), FILES.len());
    assert_site(into.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_encrypted_session_shows_no_name_and_arrives_with_its_key() {
    let (folder, into) = (site(), tempfile::tempdir().unwrap());
    let key = GroupKey::generate(&folder.path().join("group.key")).unwrap();
    let session = prepared(SendConfig {
        group: Some((key.clone(), true)),
        in_order: Some(true),
        ..through_relay(&folder)
    })
    .await;
    let description = session.description.clone();
    assert_eq!(description.name, "files");
    assert!(!session.text.contains("site"), "{}", session.text);
    let sending = tokio::spawn(session.run(std::future::pending()));
    receive_into(into.path(), description, Some(key)).await;
    sending.abort();
    assert_site(into.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_of_all_receivers_end_the_session() {
    let folder = site();
    let session = prepared(SendConfig {
        reports: Some((loopback(), Audience::Number(2))),
        ..through_relay(&folder)
    })
    .await;
    let plan = ReportPlan::new(&session.description, None, "").unwrap();
    let sending = tokio::spawn(session.run(std::future::pending()));
    for name in ["a", "a", "b"] {
        let (sinks, _progress, _files) = ProgressSinks::channels();
        let identity = Identity::named(name.parse().unwrap());
        let reporting = Reporting::start(plan.clone(), identity, &sinks);
        let reported = reporting.end(ReceiverStatus::Done);
        timeout(LIMIT, reported).await.unwrap().unwrap();
    }
    let sent: SendProgress = timeout(LIMIT, sending).await.unwrap().unwrap().unwrap();
    assert_eq!(sent.receivers.done(), 2);
}

#[tokio::test]
async fn a_session_that_nobody_can_receive_is_refused() {
    let error = refused(config(&site())).await;
    assert!(matches!(error, OpenError::NoOutlet), "{error}");
}

#[tokio::test]
async fn packets_without_room_for_data_are_refused() {
    let folder = site();
    let mut small = through_relay(&folder);
    small.webrc.packet_bytes = 64;
    let error = refused(small).await;
    assert!(matches!(error, OpenError::Packet(64)), "{error}");

    // The extension of a group key takes room, too.
    let sized = |packet_bytes| {
        let mut config = through_relay(&folder);
        config.webrc.packet_bytes = packet_bytes;
        config
    };
    let least = async {
        for packet_bytes in (64..200).step_by(4) {
            if Opened::open(sized(packet_bytes)).await.is_ok() {
                return packet_bytes;
            }
        }
        panic!("no packet has room for data");
    };
    let least = least.await;
    let key = GroupKey::generate(&folder.path().join("group.key")).unwrap();
    let error = refused(SendConfig {
        group: Some((key, false)),
        ..sized(least)
    })
    .await;
    assert!(matches!(error, OpenError::Packet(size) if size == least));
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let folder = site();
    let holder = UdpSocket::bind(loopback()).unwrap();
    let taken = holder.local_addr().unwrap();
    let error = refused(SendConfig {
        relay: Some(RelayAddress::new(taken)),
        ..config(&folder)
    })
    .await;
    assert!(matches!(error, OpenError::Listen { address, .. } if address == taken));
    let error = refused(SendConfig {
        reports: Some((taken, Audience::Number(1))),
        ..through_relay(&folder)
    })
    .await;
    assert!(matches!(error, OpenError::ListenForReports { address, .. } if address == taken));
}

#[tokio::test]
async fn a_range_with_fewer_groups_than_channels_is_refused() {
    let folder = site();
    let error = refused(by_multicast(&folder, "232.1.2.0/30")).await;
    let OpenError::Range { channels } = error else {
        panic!("{error}");
    };
    assert!(channels > 4);
    for range in ["232.1.2.0/24", "232.1.2.0"] {
        Opened::open(by_multicast(&folder, range)).await.unwrap();
    }
}

#[tokio::test]
async fn sessions_with_the_same_tsi_or_group_conflict() {
    let folder = site();
    let open = async |tsi, range, port| {
        let config = by_multicast(&folder, range);
        Opened::open(SendConfig {
            tsi,
            port,
            ..config
        })
        .await
        .unwrap()
    };
    let one = open(1, "232.1.2.0/24", 5445).await;
    let same_tsi = open(1, "232.1.3.0/24", 5445).await;
    assert_eq!(one.conflict(&same_tsi), Some(Conflict::Tsi(1)));
    let same_groups = open(2, "232.1.2.0/24", 5445).await;
    let group = ([232, 1, 2, 0], 5445).into();
    let source = Ipv4Addr::LOCALHOST.into();
    let conflict = Some(Conflict::Group { group, source });
    assert_eq!(one.conflict(&same_groups), conflict);
    let other_port = open(2, "232.1.2.0/24", 5446).await;
    assert_eq!(one.conflict(&other_port), None);
    let other_groups = open(2, "232.1.3.0/24", 5445).await;
    assert_eq!(one.conflict(&other_groups), None);
}

#[tokio::test]
async fn a_session_continues_with_its_tsi_only_if_all_is_as_it_was() {
    let folder = site();
    let again = || by_multicast(&folder, "232.1.2.0/24");
    let earlier = prepared(again()).await.description;
    let resumed = || SendConfig {
        resume: Some(earlier.clone()),
        ..again()
    };
    assert_eq!(prepared(resumed()).await.description.tsi, earlier.tsi);

    let mut other_rate = resumed();
    other_rate.webrc.session_rate = Rate::from_bits_per_s(40_000_000);
    let other_port = SendConfig {
        port: 5446,
        ..resumed()
    };
    let reports = Some((loopback(), Audience::Number(1)));
    let other_reports = SendConfig {
        reports,
        ..resumed()
    };
    let relay = Some(RelayAddress::new(loopback()));
    let other_relay = SendConfig { relay, ..resumed() };
    for (config, difference) in [
        (other_rate, Difference::Parameters),
        (other_port, Difference::Addresses),
        (other_reports, Difference::Reports),
        (other_relay, Difference::Relay),
    ] {
        let error = prepare_error(config).await;
        let OpenError::Resume(ResumeError::Differs(found)) = error else {
            panic!("{error}");
        };
        assert_eq!(found, difference);
    }
    std::fs::write(folder.path().join("site/read.me"), "another text").unwrap();
    let error = prepare_error(resumed()).await;
    let files = ResumeError::Differs(Difference::Files);
    assert!(matches!(error, OpenError::Resume(error) if error == files));
}

#[tokio::test]
async fn sessions_with_a_group_key_or_a_long_tsi_cannot_be_continued() {
    let folder = site();
    let config = || by_multicast(&folder, "232.1.2.0/24");
    let key = GroupKey::generate(&folder.path().join("group.key")).unwrap();
    let with_key = || SendConfig {
        group: Some((key.clone(), false)),
        ..config()
    };
    let sealed = prepared(with_key()).await.description;
    let open = prepared(config()).await.description;
    let long = SessionDescription {
        tsi: 1 << 32,
        ..open.clone()
    };
    for (earlier, config, expected) in [
        (sealed, config(), ResumeError::GroupKey),
        (open, with_key(), ResumeError::GroupKey),
        (long, config(), ResumeError::LongTsi),
    ] {
        let resume = Some(earlier);
        let error = refused(SendConfig { resume, ..config }).await;
        assert!(matches!(error, OpenError::Resume(error) if error == expected));
    }
}
