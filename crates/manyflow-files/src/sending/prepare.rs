//! Reads the files of a session, and runs the session.

use std::net::IpAddr;
use std::time::SystemTime;

use manyflow_net::description::ntp_seconds;
use manyflow_net::keys::{PublicKey, SigningKey};
use manyflow_net::multicast::Groups;
use manyflow_net::outlets::Outlets;
use manyflow_net::sap;
use manyflow_object::error::ReadError;
use manyflow_object::expiry::expires;
use manyflow_object::ext_auth::EXTENSION_BYTES;
use manyflow_object::fec::BOOKKEEPING_BYTES;
use manyflow_object::sender::{self as object, ImageSender, ObjectSender, SourceFile};
use manyflow_webrc::Session;
use rand::RngExt as _;
use tokio::sync::watch;

use super::open::extension_bytes;
use super::place::is_in_windows;
use super::resume::check_continues;
use super::{OpenError, Opened, SendConfig};
use crate::completion::{Audience, CompletionKey, ReportTaker, Tally};
use crate::files::Scratch;
use crate::image::{ImageInput, read_sections};
use crate::sdp::SessionDescription;
use crate::session::{Content, SendProgress, SessionSender, flows, memory_for_table};

/// The portions of files that are sent in order: a sixteenth of them, within these bounds. A window
/// is too short if its repair symbols are not encoded in time, and too long if they need much room.
const WINDOW_BYTES: std::ops::RangeInclusive<u64> = 4_000_000..=16_000_000;
const WINDOWS: u64 = 16;
/// The first symbols of blocks in a session that is continued: repair symbols that the sender has
/// probably not sent yet, far from the last number, 2^24 - 1.
const FIRST_SYMBOLS: std::ops::Range<u32> = 1 << 17..1 << 23;

/// The memory that receivers of a session need, in bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ReceiverMemory {
    /// The least memory with which receivers accept the table of files.
    pub table: u64,
    /// The memory for the bookkeeping of all files that are sent at the same time. Receivers with
    /// less receive parts of files again.
    pub symbols: u64,
}

/// A session that can start.
pub struct Prepared {
    /// The description, with the digest of the table of files.
    pub description: SessionDescription,
    /// The text of the description, which is signed if there is a key.
    pub text: String,
    /// The number of files.
    pub files: u64,
    /// The length of all files, in bytes.
    pub bytes: u64,
    /// The memory that receivers need.
    pub receiver_memory: ReceiverMemory,
    sender: SessionSender,
    /// The taker of receivers' reports.
    reports: Option<ReportTaker>,
    /// The groups of a signed session, which is announced by SAP.
    announced: Option<Groups>,
}

impl Opened {
    /// Reads the files, and completes the description.
    ///
    /// # Errors
    /// If a file cannot be read, or the session cannot be described.
    pub async fn prepare(mut self) -> Result<Prepared, OpenError> {
        let files = std::mem::take(&mut self.sources.files);
        let entries = files.len();
        let mut receiver_memory = ReceiverMemory {
            table: 0,
            symbols: 0,
        };
        let content: Content = if let Some(image) = self.config.image.take() {
            let (content, key) = begin_image(&self.config, &self.session, image)?;
            self.description.table_key = Some(key);
            content
        } else {
            let objects = read_files(&self.config, &self.session, files).await?;
            receiver_memory = ReceiverMemory {
                table: memory_for_table(entries, objects.table_bytes()),
                symbols: objects.symbols_at_a_time() * BOOKKEEPING_BYTES,
            };
            self.description.table_sha256 = Some(objects.table_sha256());
            objects.into()
        };
        if let Some(earlier) = &self.config.resume {
            check_continues(earlier, &self.description)?;
        }
        let text = match &self.config.signing {
            Some(key) => self.description.to_signed_sdp(key)?,
            None => self.description.to_sdp()?,
        };
        let group = self.config.group.as_ref().map(|(key, _)| key);
        let key = CompletionKey::new(&self.description, group);
        let audience = self.config.reports.map(|(_, audience)| audience);
        let reports = self.reports.zip(key).zip(audience);
        let reports = reports.map(|((server, key), audience)| server.taking(key, audience));
        let outlets = Outlets::new(&flows(&self.description), self.multicast, self.relay);
        let sender = SessionSender::new(self.session, content, outlets)
            .with_threads(self.config.threads.get())
            .with_sealer(self.sealer)
            .with_tally(reports.as_ref().map(ReportTaker::tally));
        // Nobody follows sessions that nobody has signed.
        let announced = self.config.multicast.clone();
        let announced = announced.filter(|_| self.config.signing.is_some());
        Ok(Prepared {
            announced,
            description: self.description,
            text,
            files: self.sources.count,
            bytes: self.sources.bytes,
            receiver_memory,
            sender,
            reports,
        })
    }
}

impl Prepared {
    /// Returns a channel that reports the progress several times per second.
    pub fn progress(&self) -> watch::Receiver<SendProgress> {
        self.sender.progress()
    }

    /// Returns a channel with the receivers and their states; `None` if they are not asked to
    /// report.
    pub fn tally(&self) -> Option<watch::Receiver<Tally>> {
        self.reports.as_ref().map(ReportTaker::tally)
    }

    /// Sends until `stop` is ready, or until enough receivers have reported that they have all
    /// files. Announces the end of the session to receivers then. Meanwhile, a signed session that
    /// is sent by multicast is announced by SAP.
    ///
    /// # Errors
    /// If a file can no longer be read, or has changed.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<SendProgress, ReadError> {
        let all_done = count_receivers(self.reports);
        let source = self.description.source;
        let announcing = announce(self.announced.as_ref(), source, &self.text);
        let ends = async {
            tokio::select! {
                () = stop => {}
                () = all_done => {}
                () = announcing => {}
            }
        };
        self.sender.run(ends).await
    }
}

/// Announces the session, if it has groups. Never ends: a session that cannot be announced is sent.
async fn announce(groups: Option<&Groups>, source: IpAddr, description: &str) {
    if let Some(groups) = groups
        && let Err(error) = sap::announce(groups, source, description).await
    {
        tracing::warn!("the session is not announced by SAP: {error}");
    }
    std::future::pending().await
}

/// Takes the reports of receivers; completes when enough have all files.
async fn count_receivers(reports: Option<ReportTaker>) {
    let Some(taker) = reports else {
        return std::future::pending().await;
    };
    let mut tally = taker.tally();
    // A flood of reports shall not delay packets, which this task sends.
    let _taking = AbortOnDrop(tokio::spawn(taker.run()));
    // An error means that the taker has failed, and no more reports come.
    if tally.wait_for(Tally::is_complete).await.is_err() {
        std::future::pending().await
    }
}

/// A task that ends when this value is dropped.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts to read an image. Returns the public key of its tables, too.
fn begin_image(
    config: &SendConfig,
    session: &Session,
    image: ImageInput,
) -> Result<(Content, PublicKey), OpenError> {
    let objects = object_config(config, session);
    let key = SigningKey::ephemeral();
    let public = key.public();
    let (first, reading) = read_sections(image, &config.sources.scratch, objects.clone(), key)?;
    let sender = ImageSender::new(objects, first)?;
    Ok((Content::of_image(sender, reading), public))
}

/// Returns the parameters of the object layer.
fn object_config(config: &SendConfig, session: &Session) -> object::SenderConfig {
    debug_assert!(extension_bytes(config) <= EXTENSION_BYTES);
    let layers = session.active_slots() as u16 + 1;
    let mut objects = object::SenderConfig::new(config.tsi, layers, config.tsi.into());
    objects.cci_length = session.cci_format().wire_bytes();
    let overhead = object::overhead(objects.cci_length) + extension_bytes(config);
    objects.symbol_length = (session.config().packet_bytes as usize - overhead) as u16;
    objects.scheme = config.scheme;
    objects.expires = expires(ntp_seconds(SystemTime::now()));
    objects.content_md5 = config.content_md5;
    // Other receivers could not say what they need.
    let audience = config.reports.as_ref().map(|(_, audience)| audience);
    objects.content_chunks = audience.is_some_and(Audience::reports_progress);
    if config.resume.is_some() {
        // Receivers that have source symbols already need others.
        objects.first_symbol = rand::rng().random_range(FIRST_SYMBOLS);
    }
    objects
}

/// Reads all files to compute their digests.
async fn read_files(
    config: &SendConfig,
    session: &Session,
    files: Vec<SourceFile>,
) -> Result<ObjectSender<Scratch>, OpenError> {
    let mut objects = object_config(config, session);
    let length: u64 = files.iter().map(|file| file.content.length()).sum();
    let in_windows = || is_in_windows(session.config().session_rate, length);
    let in_order = config.in_order.unwrap_or_else(in_windows);
    let window = (length / WINDOWS).clamp(*WINDOW_BYTES.start(), *WINDOW_BYTES.end());
    let window = window / u64::from(objects.symbol_length);
    objects.window_symbols = in_order.then_some(window);
    let repair = object::repair_bytes(&objects, length);
    let storage = Scratch::create(repair, config.memory_max, &config.sources.scratch)?;
    let read = move || ObjectSender::with_storage(objects, files, storage);
    Ok(tokio::task::spawn_blocking(read).await??)
}
