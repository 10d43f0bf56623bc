//! Streams of video: files, pipes, datagrams and folders, and from end to end over loopback.

use std::fs;
use std::future::pending;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use manyflow_net::inlet::Route;
use manyflow_streams::{
    Input, OpenedStream, Output, Sink, SinkError, Source, SourceConfig, SourceError, SourceUnit,
    StreamReceiveConfig, StreamReceiveProgress, StreamSendConfig, receive,
};
use manyflow_testing::LIMIT;
use manyflow_video::{Format, Player, Splitter};
use tokio::sync::{mpsc, watch};

/// Two groups of 30 pictures, a second each.
const PYRAMID: &str = "../manyflow-video/tests/fixtures/pyramid.h264";

fn open(input: &str) -> Result<Source, SourceError> {
    let input = Input::Video(input.to_owned());
    Source::open(SourceConfig { input, fps: None })
}

/// The units of a stream, as a library gives them.
fn units() -> Vec<Bytes> {
    let mut splitter = Splitter::new(None);
    splitter.push(&fs::read(PYRAMID).unwrap()).unwrap();
    splitter.finish().unwrap();
    std::iter::from_fn(|| splitter.poll_unit())
        .map(|unit| unit.bytes.into())
        .collect()
}

/// The pictures of a byte stream of MPEG-TS, as Annex B.
fn pictures(stream: &[u8]) -> Vec<u8> {
    let mut splitter = Splitter::new(None);
    splitter.push(stream).unwrap();
    splitter.finish().unwrap();
    let (mut player, mut out) = (Player::new(Format::AnnexB), Vec::new());
    for number in 0.. {
        let Some(unit) = splitter.poll_unit() else {
            break;
        };
        player.play(number, &unit.bytes, &mut out).unwrap();
    }
    out
}

/// Writes units to an output, and waits for its end.
async fn write(output: &str, units: &[Bytes]) -> Result<(), SinkError> {
    let mut sink = Sink::open(Output::Video(output.to_owned()))?;
    for (number, unit) in (0..).zip(units) {
        sink.push(number, unit.clone())?;
    }
    sink.finish().await.map(|_| ())
}

#[tokio::test(start_paused = true)]
async fn a_file_of_video_gives_its_groups_of_pictures_at_their_times() {
    let mut source = open(PYRAMID).unwrap();
    let wanted = units();
    let mut times = Vec::new();
    for unit in &wanted {
        assert_eq!(source.next().await.unwrap().as_ref(), Some(unit));
        times.push(tokio::time::Instant::now());
        assert_eq!(source.interval(), Duration::from_secs(1));
    }
    assert!(source.next().await.unwrap().is_none());
    assert_eq!(times[1] - times[0], Duration::from_secs(1));
    assert_eq!(
        times[1].elapsed(),
        Duration::from_secs(1),
        "the last unit has its time"
    );
}

#[tokio::test]
async fn a_file_that_is_missing_or_no_video_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    fs::write(&text, [b'x'; 1_000]).unwrap();
    for path in [folder.path().join("missing"), text] {
        let name = path.to_str().unwrap();
        // Nobody is invited to a file that is missing; another one is not read before.
        let error = match open(name) {
            Ok(mut source) => source.next().await.unwrap_err(),
            Err(error) => error,
        };
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[tokio::test]
async fn pictures_go_to_files_as_their_names_say() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["out.ts", "out.h264"] {
        write(path(name).to_str().unwrap(), &units()).await.unwrap();
    }
    let bytes = fs::read(path("out.h264")).unwrap();
    assert_eq!(pictures(&fs::read(path("out.ts")).unwrap()), bytes);
    assert_eq!(bytes, pictures(&fs::read(PYRAMID).unwrap()));
    let error = write(path("no/such.ts").to_str().unwrap(), &units()).await;
    assert!(
        matches!(error, Err(SinkError::Unwritable { .. })),
        "{error:?}"
    );
    let error = write(
        path("x.ts").to_str().unwrap(),
        &[Bytes::from_static(b"text")],
    )
    .await;
    assert!(matches!(error, Err(SinkError::Video(0, _))), "{error:?}");
}

#[tokio::test]
async fn datagrams_have_whole_packets_of_mpeg_ts() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let output = format!("udp://{}", socket.local_addr().unwrap());
    let (mut stream, mut buffer) = (Vec::new(), [0; 2_000]);
    let writing = tokio::spawn(async move { write(&output, &units()).await });
    let wanted = pictures(&fs::read(PYRAMID).unwrap());
    let reading = tokio::task::spawn_blocking(move || {
        // Without its last picture, which nothing ends.
        while pictures(&stream).len() < wanted.len() - 100 {
            let length = socket.recv(&mut buffer).unwrap();
            assert_eq!(length % 188, 0);
            stream.extend_from_slice(&buffer[..length]);
        }
    });
    reading.await.unwrap();
    writing.await.unwrap().unwrap();
}

fn listed(folder: &Path) -> Vec<PathBuf> {
    let playlist = fs::read_to_string(folder.join("live.m3u8")).unwrap();
    let names = playlist.lines().filter(|line| !line.starts_with('#'));
    names.map(|name| folder.join(name)).collect()
}

#[tokio::test]
async fn a_folder_has_a_page_and_a_playlist_of_the_last_units() {
    let folder = tempfile::tempdir().unwrap();
    let all: Vec<Bytes> = units().into_iter().cycle().take(30).collect();
    write(folder.path().to_str().unwrap(), &all).await.unwrap();
    assert!(folder.path().join("index.html").exists());
    let segments = listed(folder.path());
    assert_eq!(segments.len(), 8);
    assert!(segments[7].ends_with("0000000029.ts"));
    for segment in &segments {
        assert!(!pictures(&fs::read(segment).unwrap()).is_empty());
    }
    let playlist = fs::read_to_string(folder.path().join("live.m3u8")).unwrap();
    assert!(
        playlist.contains("#EXT-X-MEDIA-SEQUENCE:22\n"),
        "{playlist}"
    );
    assert!(!playlist.contains("#EXT-X-DISCONTINUITY\n"), "{playlist}");
    let kept = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(kept, 12 + 2, "older segments are removed");
}

#[tokio::test]
async fn a_stream_of_video_arrives_as_it_was_sent() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.h264");
    let mut config = StreamSendConfig::new("video", None);
    config.listen = Some("127.0.0.1:0".parse().unwrap());
    let OpenedStream {
        description,
        sender,
    } = OpenedStream::open(config).unwrap();
    let (sending, taken) = mpsc::channel(2);
    let sender = tokio::spawn(sender.run(taken, pending()));
    let relay = description.amt_relay.as_ref().unwrap().authority();
    let (into, mut received) = mpsc::channel(16);
    let config = StreamReceiveConfig::new(description, Route::Relays(vec![relay]));
    let progress = watch::Sender::new(StreamReceiveProgress::default());
    let receiver = tokio::spawn(receive(config, into, progress, pending()));
    // The groups of the sender find their rates first.
    let feed = tokio::spawn(async move {
        for unit in units().into_iter().cycle() {
            let interval = Some(Duration::from_millis(100));
            let sent = sending
                .send(SourceUnit {
                    bytes: unit,
                    interval,
                })
                .await;
            if sent.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let mut sink = Sink::open(Output::Video(out.to_str().unwrap().to_owned())).unwrap();
    let mut whole = 0;
    while whole < 4 {
        let unit = tokio::time::timeout(LIMIT, received.recv())
            .await
            .unwrap()
            .unwrap();
        whole += u32::from(unit.complete);
        sink.push(unit.number, unit.prefix).unwrap();
    }
    sink.finish().await.unwrap();
    for task in [
        feed.abort_handle(),
        sender.abort_handle(),
        receiver.abort_handle(),
    ] {
        task.abort();
    }
    let (written, sent) = (fs::read(out).unwrap(), fs::read(PYRAMID).unwrap());
    let group = &pictures(&sent)[..300];
    let groups = written
        .windows(group.len())
        .filter(|bytes| *bytes == group)
        .count();
    assert!(groups > 0, "{} bytes", written.len());
}
