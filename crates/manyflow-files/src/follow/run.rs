//! The driver of a follower: sources, receivers and the state folder.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use manyflow_net::clock::Clock;
use manyflow_net::description::load::{LoadError, Trust, verify_signer};
use manyflow_net::description::signature;
use manyflow_net::inlet::Route;
use manyflow_net::way::Way;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::machine::{End, Event, Follower, Notice};
use super::record::{Record, StateError, StateFolder};
use super::sources::{Sighting, SourceError, Watch};
use super::{Announcement, Origin, Rules, Source, digest_of};
use crate::completion::Reporting;
use crate::files::Existing;
use crate::sdp::SessionDescription;
use crate::session::{
    FileDone, Progress, ProgressSinks, ReceiveConfig, ReceiveError, Received, flows, receive,
};

/// The number of sightings that wait for the driver. Announcements beyond it wait in the socket.
const SIGHTINGS_MAX: usize = 64;
/// The default state folder, below the output folder.
const STATE_FOLDER: &str = ".manyflow";
/// The number of sessions that are received at a time, unless the caller chooses another.
const AT_ONCE: usize = 4;
/// The kind of announcements that no trusted key has signed.
const UNTRUSTED: &str = "of signers that are not trusted";

/// A session whose files are stored.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The session.
    pub announcement: Announcement,
    /// The folder of its files.
    pub folder: PathBuf,
    /// The files that this attempt has received.
    pub received: Received,
}

/// Work after a session is stored, which ends the reports to its sender, too. If it fails, the
/// session is tried again, which then finds its files.
pub type After = Arc<dyn Fn(Stored, Option<Reporting>) -> AfterEnd + Send + Sync>;

/// The end of the work after a session.
pub type AfterEnd = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Starts the reports of a receiver, of the progress that it reports to the sinks. Gets the folder
/// of the session's files.
pub type Report =
    Box<dyn Fn(&Announcement, &Path, &ProgressSinks) -> Option<Reporting> + Send + Sync>;

/// A standing receiver.
pub struct FollowConfig {
    /// The sources of announcements; at least one.
    pub sources: Vec<Source>,
    /// The keys that may sign sessions, and the authorities of HTTPS servers.
    pub trust: Trust,
    /// Whether announcements of all signers, and without a signature, are accepted. Otherwise
    /// `trust` needs a key.
    pub allow_unsigned: bool,
    /// The sessions that are wanted.
    pub rules: Rules,
    /// The way of packets.
    pub way: Way,
    /// The folder that has a folder for each session.
    pub output: PathBuf,
    /// The folder for the state; `None` for `.manyflow` in the output folder.
    pub state: Option<PathBuf>,
    /// The number of sessions that are received at a time, at least 1.
    pub at_once: usize,
    /// Sets the other parameters of a session's receiver.
    pub configure: Box<dyn Fn(&mut ReceiveConfig) + Send + Sync>,
    /// Starts the reports of a receiver to its session's sender.
    pub report: Option<Report>,
    /// Work after a session is stored.
    pub after: Option<After>,
}

impl FollowConfig {
    /// Returns a follower of these sources that stores sessions below `output`. All sessions of the
    /// trusted signers are wanted, four are received at a time, and their receivers have default
    /// values.
    pub fn new(sources: Vec<Source>, trust: Trust, output: PathBuf) -> FollowConfig {
        FollowConfig {
            sources,
            trust,
            allow_unsigned: false,
            rules: Rules::default(),
            way: Way::default(),
            output,
            state: None,
            at_once: AT_ONCE,
            configure: Box::new(|_| {}),
            report: None,
            after: None,
        }
    }
}

/// The reason why sessions cannot be followed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FollowError {
    /// No key is trusted.
    #[error(
        "no key is trusted, so anyone could announce files: name the keys of signers with --trust, or accept all with --allow-unverified"
    )]
    NoTrust,
    /// A source cannot be used.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The state folder cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
}

/// News for the user.
#[derive(Debug)]
pub enum News {
    /// A session was found, refused, has failed or ended.
    Notice(Notice),
    /// A session is being received.
    Started {
        /// The session's name.
        name: String,
        /// The folder of its files.
        folder: PathBuf,
        /// Its progress, until the sender of this channel is dropped.
        progress: watch::Receiver<Progress>,
        /// Its files, as they are stored.
        files: mpsc::UnboundedReceiver<FileDone>,
    },
    /// A session is stored.
    Done(Box<Stored>),
}

/// Follows sessions until `stop` is ready, and then stops those that are being received. They
/// continue at the next run.
///
/// # Errors
/// See [`FollowError`]. Sessions that fail are reported as news, and tried again.
pub async fn follow(
    config: FollowConfig,
    news: mpsc::UnboundedSender<News>,
    stop: impl Future<Output = ()>,
) -> Result<(), FollowError> {
    if config.trust.signers.is_empty() && !config.allow_unsigned {
        return Err(FollowError::NoTrust);
    }
    let (found, sightings) = mpsc::channel(SIGHTINGS_MAX);
    let mut watches = JoinSet::new();
    for (id, source) in config.sources.iter().enumerate() {
        let (interface, ca) = (config.way.interface.as_ref(), config.trust.ca.as_deref());
        let watch = Watch::open(id, source, interface, ca, found.clone())?;
        watches.spawn(watch.run());
    }
    let mut driver = Driver::start(config, news)?;
    let result = driver.run(sightings, &mut watches, stop).await;
    watches.abort_all();
    driver.end().await?;
    result
}

struct Driver {
    config: Arc<FollowConfig>,
    news: mpsc::UnboundedSender<News>,
    clock: Clock,
    follower: Follower,
    state: StateFolder,
    /// The attempts under way: the folder and the end of each.
    attempts: JoinSet<(String, End)>,
    /// Ends the attempt of a folder when it is dropped.
    stops: BTreeMap<String, oneshot::Sender<()>>,
    /// The number of texts that were not accepted, by kind.
    refused: HashMap<&'static str, u64>,
}

impl Driver {
    fn start(
        config: FollowConfig,
        news: mpsc::UnboundedSender<News>,
    ) -> Result<Driver, FollowError> {
        let folder = config.state.clone();
        let folder = folder.unwrap_or_else(|| config.output.join(STATE_FOLDER));
        let state = StateFolder::open(&folder)?;
        let mut driver = Driver {
            follower: Follower::new(config.rules.clone(), config.at_once),
            config: Arc::new(config),
            news,
            clock: Clock::start(),
            state,
            attempts: JoinSet::new(),
            stops: BTreeMap::new(),
            refused: HashMap::new(),
        };
        for record in driver.state.read()? {
            driver.restore(record);
        }
        Ok(driver)
    }

    async fn run(
        &mut self,
        mut sightings: mpsc::Receiver<Sighting>,
        watches: &mut JoinSet<Result<(), SourceError>>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), FollowError> {
        tokio::pin!(stop);
        loop {
            self.follower.handle_timeout(self.clock.now());
            self.drain_events()?;
            let due = self.follower.poll_timeout();
            tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                Some(ended) = self.attempts.join_next() => {
                    let (folder, end) = ended.expect("receiving does not panic");
                    self.stops.remove(&folder);
                    self.follower.handle_end(self.clock.now(), &folder, end);
                }
                Some(ended) = watches.join_next() => ended.expect("looking does not panic")?,
                Some(sighting) = sightings.recv() => self.handle_sighting(sighting),
                () = self.clock.sleep_until(due) => {}
            }
        }
    }

    /// Stops all attempts, and waits for their end.
    async fn end(&mut self) -> Result<(), FollowError> {
        self.stops.clear();
        while let Some(ended) = self.attempts.join_next().await {
            let (folder, end) = ended.expect("receiving does not panic");
            // A session that has just ended is not started again.
            if matches!(end, End::Done(_)) {
                self.follower.handle_end(self.clock.now(), &folder, end);
            }
        }
        while let Some(event) = self.follower.poll_event() {
            match event {
                Event::Save(record) => self.state.save(&record)?,
                Event::Forget { folder } => self.state.forget(&folder)?,
                Event::Start { .. } | Event::Stop { .. } | Event::Notice(_) => {}
            }
        }
        Ok(())
    }

    fn handle_sighting(&mut self, sighting: Sighting) {
        let now = self.clock.now();
        match sighting {
            Sighting::Listing { source, digests } => {
                self.follower.handle_listing(now, source, &digests);
            }
            Sighting::Text {
                source,
                origin,
                text,
            } => {
                if self.follower.handle_text(now, source, &digest_of(&text)) {
                    return;
                }
                // Anyone can send announcements of SAP, at any rate.
                if origin == Origin::Sap
                    && let Err(error) = self.check_claim(&text)
                {
                    return self.count_refused(UNTRUSTED, &error);
                }
                if origin == Origin::Sap && !self.follower.may_verify(now) {
                    return self.count_refused("at a high rate", &"they are dropped");
                }
                match self.verify(text, origin) {
                    Ok(announcement) => {
                        self.follower.handle_announcement(now, source, announcement);
                    }
                    Err(error @ LoadError::Untrusted { .. }) => {
                        self.count_refused(UNTRUSTED, &error);
                    }
                    Err(error) => self.count_refused("that are invalid", &error),
                }
            }
        }
    }

    /// Checks whether a text claims to be signed by a trusted key, which costs next to nothing.
    fn check_claim(&self, text: &str) -> Result<(), LoadError> {
        let trusted = &self.config.trust.signers;
        let signer = signature::claimed_signer(text);
        match trusted.is_empty() || signer.is_some_and(|signer| trusted.contains(&signer)) {
            true => Ok(()),
            false => Err(LoadError::Untrusted {
                signer,
                trusted: trusted.clone(),
            }),
        }
    }

    fn verify(&self, text: String, origin: Origin) -> Result<Announcement, LoadError> {
        let signer = verify_signer(&text, &self.config.trust.signers)?;
        Ok(Announcement {
            description: SessionDescription::parse(&text)?,
            text,
            signer,
            origin,
        })
    }

    /// Logs the first announcement of a kind that is not accepted. A flood must not fill the log.
    fn count_refused(&mut self, kind: &'static str, reason: &dyn std::fmt::Display) {
        let count = self.refused.entry(kind).or_default();
        *count += 1;
        if *count == 1 {
            tracing::warn!("there are announcements {kind}: {reason} (logged once)");
        } else {
            tracing::debug!(count, "announcements {kind}: {reason}");
        }
    }

    fn restore(&mut self, record: Record) {
        let folder = record.folder;
        match self.verify(record.description, record.origin) {
            Ok(announcement) => {
                let now = self.clock.now();
                self.follower.restore(now, record.progress, announcement);
            }
            Err(error) => tracing::warn!("{folder} is not continued: {error}"),
        }
    }

    fn drain_events(&mut self) -> Result<(), FollowError> {
        while let Some(event) = self.follower.poll_event() {
            match event {
                Event::Start {
                    folder,
                    announcement,
                } => self.start_attempt(folder, *announcement),
                Event::Stop { folder } => drop(self.stops.remove(&folder)),
                Event::Save(record) => self.state.save(&record)?,
                Event::Forget { folder } => self.state.forget(&folder)?,
                Event::Notice(notice) => self.tell(News::Notice(notice)),
            }
        }
        Ok(())
    }

    fn tell(&self, news: News) {
        // The listener may no longer exist.
        let _ = self.news.send(news);
    }

    fn start_attempt(&mut self, folder: String, announcement: Announcement) {
        let (stop, stopped) = oneshot::channel();
        self.stops.insert(folder.clone(), stop);
        let (sinks, progress, files) = ProgressSinks::channels();
        self.tell(News::Started {
            name: announcement.description.name.clone(),
            folder: self.config.output.join(&folder),
            progress: progress.clone(),
            files,
        });
        let attempt = Attempt {
            config: Arc::clone(&self.config),
            news: self.news.clone(),
            announcement,
            folder: self.config.output.join(&folder),
        };
        let end = async move {
            let end = attempt.run(sinks, progress, stopped).await;
            (folder, end)
        };
        self.attempts.spawn(end);
    }
}

/// An attempt to receive a session.
struct Attempt {
    config: Arc<FollowConfig>,
    news: mpsc::UnboundedSender<News>,
    announcement: Announcement,
    folder: PathBuf,
}

impl Attempt {
    async fn run(
        self,
        sinks: ProgressSinks,
        progress: watch::Receiver<Progress>,
        stopped: oneshot::Receiver<()>,
    ) -> End {
        let mut stopped = stopped;
        let config = tokio::select! {
            config = self.receive_config() => config,
            // The sender of this channel is dropped to stop.
            _ = &mut stopped => return End::Stopped,
        };
        let config = match config {
            Ok(config) => config,
            Err(reason) => return End::Unusable(reason),
        };
        let report = self.config.report.as_ref();
        let reporting = report.and_then(|report| report(&self.announcement, &self.folder, &sinks));
        let mut too_large = None;
        let stop = async {
            tokio::select! {
                bytes = self.length_above_limit(progress) => too_large = Some(bytes),
                _ = stopped => {}
            }
        };
        let received = receive(config, sinks, stop).await;
        match (received, too_large) {
            (Ok(received), _) => self.finish(received, reporting).await,
            (Err(_), Some(bytes)) => End::TooLarge(bytes),
            (Err(error), None) => end_of(&error),
        }
    }

    async fn receive_config(&self) -> Result<ReceiveConfig, String> {
        let Announcement {
            description,
            origin,
            ..
        } = &self.announcement;
        let way = &self.config.way;
        let route = match origin {
            // Where the announcement came by multicast, so does the session.
            Origin::Sap if way.relays.is_empty() => Route::Multicast(way.interface.clone()),
            _ => {
                let (base, flow) = (self.announcement.base(), flows(description).last().copied());
                let route = way.route(&base, description.amt_relay.as_ref(), flow).await;
                route.map_err(|error| error.to_string())?
            }
        };
        let mut config = ReceiveConfig::new(description.clone(), route, self.folder.clone());
        config.existing = Existing::Replace;
        (self.config.configure)(&mut config);
        Ok(config)
    }

    /// Waits until the table of files shows that the files are too long together.
    async fn length_above_limit(&self, mut progress: watch::Receiver<Progress>) -> u64 {
        loop {
            let bytes = progress.borrow_and_update().objects.needed_bytes;
            if self.config.rules.is_too_large(bytes) {
                return bytes;
            }
            if progress.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    async fn finish(self, received: Received, reporting: Option<Reporting>) -> End {
        let bytes = received.progress.objects.needed_bytes;
        let stored = Stored {
            announcement: self.announcement,
            folder: self.folder,
            received,
        };
        if let Some(after) = &self.config.after
            && let Err(reason) = after(stored.clone(), reporting).await
        {
            return End::Failed(reason);
        }
        let _ = self.news.send(News::Done(Box::new(stored)));
        End::Done(bytes)
    }
}

/// Returns the end of an attempt that has failed: whether another one may succeed.
fn end_of(error: &ReceiveError) -> End {
    let reason = error.to_string();
    match error {
        ReceiveError::Stopped | ReceiveError::PipeStopped => End::Stopped,
        ReceiveError::Session(_)
        | ReceiveError::Unverified
        | ReceiveError::NoMac
        | ReceiveError::NoGroupKey
        | ReceiveError::Config(_) => End::Unusable(reason),
        _ => End::Failed(reason),
    }
}
