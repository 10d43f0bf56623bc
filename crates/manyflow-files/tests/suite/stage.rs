//! One sender with its relay on loopback, for receivers that tests put behind faulty or hostile
//! paths.

use std::fs::File;
use std::io::{PipeReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use manyflow_amt::RelayConfig;
use manyflow_core::Ecn;
use manyflow_core::units::Rate;
use manyflow_files::files::Scratch;
use manyflow_files::image::{ImageInput, ImageOutput};
use manyflow_files::sdp::SessionDescription;
use manyflow_files::sending::{Opened, RelayAddress, SendConfig};
use manyflow_files::session::{
    self, GroupSealer, Progress, ProgressSinks, ReceiveConfig, ReceiveError, Received,
    SessionSender,
};
use manyflow_net::amt::{RelayOptions, RelayServer};
use manyflow_net::group_key::GroupKey;
use manyflow_net::inlet::Route;
use manyflow_net::outlets::Outlets;
use manyflow_object::ext_auth::EXTENSION_BYTES;
use manyflow_object::sender::{ObjectSender, SenderConfig, SourceFile, overhead};
use manyflow_object::storage::MemoryStorage;
use manyflow_testing::LIMIT;
use manyflow_webrc::{ReceiverConfig, Session, SessionConfig};
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The session's identifier.
pub(crate) const TSI: u32 = 7;
const CCI_LENGTH: usize = 4;

/// A file to send: its name and content.
pub(crate) type TestFile = (String, Bytes);

/// A running sender, which stops when it is dropped.
pub(crate) struct Stage {
    /// The session's description for receivers.
    pub(crate) description: SessionDescription,
    /// The address of the sender's relay.
    pub(crate) relay: SocketAddr,
    files: Vec<TestFile>,
    group_key: Option<GroupKey>,
    sending: JoinHandle<()>,
}

/// A running receiver and the folder that it fills.
pub(crate) struct Receiving {
    pub(crate) folder: TempDir,
    pub(crate) progress: watch::Receiver<Progress>,
    task: JoinHandle<Result<Received, ReceiveError>>,
}

impl Stage {
    /// Starts to send `files` at rates up to `rate`, in symbols of `symbol` bytes, with the
    /// parameters for local networks.
    pub(crate) fn start(rate: Rate, symbol: u16, files: Vec<TestFile>) -> Stage {
        Stage::start_in_group(rate, symbol, files, None)
    }

    /// Starts to send as [`Stage::start`] does, with a table of files that expires at `expires`.
    pub(crate) fn start_until(
        rate: Rate,
        symbol: u16,
        files: Vec<TestFile>,
        expires: u32,
    ) -> Stage {
        Stage::start_with((rate, Ecn::NotCapable), symbol, files, None, expires)
    }

    /// Starts to send as [`Stage::start`] does, with packets that have this ECN field.
    pub(crate) fn start_with_ecn(rate: Rate, ecn: Ecn, symbol: u16, files: Vec<TestFile>) -> Stage {
        Stage::start_with((rate, ecn), symbol, files, None, u32::MAX)
    }

    /// Starts to send as [`Stage::start`] does, with packets that a group key seals.
    pub(crate) fn start_in_group(
        rate: Rate,
        symbol: u16,
        files: Vec<TestFile>,
        group: Option<(GroupKey, GroupSealer)>,
    ) -> Stage {
        Stage::start_with((rate, Ecn::NotCapable), symbol, files, group, u32::MAX)
    }

    fn start_with(
        (rate, ecn): (Rate, Ecn),
        symbol: u16,
        files: Vec<TestFile>,
        group: Option<(GroupKey, GroupSealer)>,
        expires: u32,
    ) -> Stage {
        let (group_key, sealer) = group.unzip();
        let extension = sealer.as_ref().map_or(0, |_| EXTENSION_BYTES);
        let packet_bytes = u32::from(symbol) + (overhead(CCI_LENGTH) + extension) as u32;
        let session = Session::new(SessionConfig {
            packet_bytes,
            ecn,
            ..SessionConfig::lan(rate)
        })
        .unwrap();
        assert_eq!(session.cci_format().wire_bytes(), CCI_LENGTH);
        let mut config = SenderConfig::new(TSI, session.active_slots() as u16 + 1, 1);
        config.cci_length = CCI_LENGTH;
        config.symbol_length = symbol;
        config.expires = expires;
        let sources = files
            .iter()
            .map(|(name, content)| SourceFile::new(name, content.clone()));
        let storage = Scratch::Memory(MemoryStorage::default());
        let objects = ObjectSender::with_storage(config, sources.collect(), storage).unwrap();
        let description = SessionDescription {
            name: "test".to_owned(),
            tsi: TSI.into(),
            version: 1,
            source: Ipv4Addr::LOCALHOST.into(),
            first_group: Ipv4Addr::new(232, 1, 0, 0).into(),
            port: 5445,
            ttl: Some(1),
            fec_encoding_id: 6,
            table_sha256: Some(objects.table_sha256()),
            table_key: None,
            protection: sealer.as_ref().map(GroupSealer::protection),
            amt_relay: None,
            completion: None,
            webrc: session::describe(&session, ReceiverConfig::default().epoch(&session)),
        };
        let server = RelayServer::bind_with(
            (Ipv4Addr::LOCALHOST, 0).into(),
            RelayConfig::default(),
            session::flows(&description),
            RelayOptions {
                ecn,
                ..RelayOptions::default()
            },
        )
        .unwrap();
        let relay = server.local_addr();
        let outlets = Outlets::new(&session::flows(&description), None, Some(server));
        let sender = SessionSender::new(session, objects, outlets);
        let sender = sender.with_sealer(sealer);
        let sending = tokio::spawn(async {
            sender.run(std::future::pending()).await.unwrap();
        });
        Stage {
            description,
            relay,
            files,
            group_key,
            sending,
        }
    }

    /// Starts to send an image with the name and content of `image`, which is read from a pipe.
    pub(crate) async fn start_image(rate: Rate, symbol: u16, image: TestFile) -> Stage {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let content = image.1.clone();
        // The sender reads the pipe to its end, unless it ends first.
        std::thread::spawn(move || writer.write_all(&content));
        Stage::start_pipe(rate, symbol, image, reader).await
    }

    /// Starts to send what `pipe` gives, with the name of `image`.
    pub(crate) async fn start_pipe(
        rate: Rate,
        symbol: u16,
        image: TestFile,
        pipe: PipeReader,
    ) -> Stage {
        let webrc = SessionConfig {
            packet_bytes: u32::from(symbol) + overhead(CCI_LENGTH) as u32,
            ..SessionConfig::lan(rate)
        };
        let pipe = File::from(OwnedFd::from(pipe));
        let config = SendConfig {
            image: Some(ImageInput::of_pipe(image.0.clone(), pipe)),
            fits_mtu: false,
            tsi: TSI,
            relay: Some(RelayAddress::new((Ipv4Addr::LOCALHOST, 0).into())),
            ..SendConfig::new(Vec::new(), webrc)
        };
        let session = Opened::open(config).await.unwrap().prepare().await.unwrap();
        let description = session.description.clone();
        assert_eq!(
            u32::from(description.webrc.packet_bytes),
            u32::from(symbol) + overhead(CCI_LENGTH) as u32
        );
        let relay = description.amt_relay.as_ref().unwrap().authority();
        let sending = tokio::spawn(async {
            session.run(std::future::pending()).await.unwrap();
        });
        Stage {
            description,
            relay: relay.parse().unwrap(),
            files: vec![image],
            group_key: None,
            sending,
        }
    }

    /// Starts a receiver that sends to `via` and writes the image to `output`.
    pub(crate) fn receive_image(&self, via: SocketAddr, output: ImageOutput) -> Receiving {
        let folder = tempfile::tempdir().unwrap();
        self.receive_image_in(folder, via, output)
    }

    /// Starts a receiver as [`Stage::receive_image`] does, with a spool in `folder`.
    pub(crate) fn receive_image_in(
        &self,
        folder: TempDir,
        via: SocketAddr,
        output: ImageOutput,
    ) -> Receiving {
        let route = Route::Relays(vec![via.to_string()]);
        let config = ReceiveConfig {
            image: output,
            threads: 1,
            patience: LIMIT,
            ..ReceiveConfig::new(self.description.clone(), route, folder.path().to_owned())
        };
        let (sinks, progress, _files) = ProgressSinks::channels();
        let task = tokio::spawn(session::receive(config, sinks, std::future::pending()));
        Receiving {
            folder,
            progress,
            task,
        }
    }

    /// Starts a receiver that sends to `via` instead of the relay.
    pub(crate) fn receive(&self, via: SocketAddr) -> Receiving {
        self.receive_through(vec![via.to_string()])
    }

    /// Starts a receiver that tries these relays.
    pub(crate) fn receive_through(&self, relays: Vec<String>) -> Receiving {
        self.receive_within(relays, LIMIT)
    }

    /// Starts a receiver that tries these relays and has this patience. It accepts any table of
    /// files if the description identifies none.
    pub(crate) fn receive_within(&self, relays: Vec<String>, patience: Duration) -> Receiving {
        let folder = tempfile::tempdir().unwrap();
        let route = Route::Relays(relays);
        let config = ReceiveConfig {
            allow_unverified: self.description.table_sha256.is_none(),
            group_key: self.group_key.clone(),
            threads: 1,
            patience,
            ..ReceiveConfig::new(self.description.clone(), route, folder.path().to_owned())
        };
        let (sinks, progress, _files) = ProgressSinks::channels();
        let task = tokio::spawn(session::receive(config, sinks, std::future::pending()));
        Receiving {
            folder,
            progress,
            task,
        }
    }

    /// Asserts that `folder` contains the files that were sent, byte for byte, and nothing else.
    pub(crate) fn assert_intact(&self, folder: &Path, label: &str) {
        for (name, content) in &self.files {
            let received = std::fs::read(folder.join(name))
                .unwrap_or_else(|error| panic!("{label}: {name}: {error}"));
            assert!(received == *content, "{label}: {name} differs");
        }
        assert_eq!(
            count_files(folder),
            self.files.len(),
            "{label}: more files than were sent"
        );
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.sending.abort();
    }
}

impl Receiving {
    /// Waits for the receiver's end. Fails if nothing useful arrives for [`LIMIT`].
    pub(crate) async fn finish(mut self, label: &str) -> (TempDir, Received) {
        let useful = |progress: &Progress| {
            (
                progress.objects.files_complete,
                progress.objects.useful_symbols,
            )
        };
        let mut last = None;
        while !self.task.is_finished() {
            let is_news = |progress: &Progress| Some(useful(progress)) != last;
            let news = timeout(LIMIT, self.progress.wait_for(is_news)).await;
            match news.map(|news| news.map(|progress| useful(&progress))) {
                Ok(Ok(progress)) => last = Some(progress),
                // The receiver has ended.
                Ok(Err(_)) => break,
                Err(_) => panic!("{label}: no progress: {:?}", *self.progress.borrow()),
            }
        }
        let result = timeout(LIMIT, self.task).await.expect("the receiver ends");
        let received = result
            .unwrap()
            .unwrap_or_else(|error| panic!("{label}: {error}"));
        (self.folder, received)
    }

    /// Waits for the error with which the receiver gives up.
    pub(crate) async fn give_up(self) -> ReceiveError {
        let result = timeout(LIMIT, self.task).await.expect("the receiver ends");
        result.unwrap().expect_err("the receiver gives up")
    }

    /// Waits until the progress fulfils `condition`.
    pub(crate) async fn until(&mut self, condition: impl FnMut(&Progress) -> bool) {
        let reached = timeout(LIMIT, self.progress.wait_for(condition)).await;
        reached
            .expect("the condition holds in time")
            .expect("the receiver is still at work");
    }
}

/// A file of random bytes.
pub(crate) fn random_file(name: &str, bytes: usize, seed: u64) -> TestFile {
    let mut content = vec![0; bytes];
    Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut content);
    (name.to_owned(), content.into())
}

fn count_files(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| match entry.file_type().unwrap().is_dir() {
            true => count_files(&entry.path()),
            false => 1,
        })
        .sum()
}
