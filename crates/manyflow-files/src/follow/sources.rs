//! The sources of announcements: multicast, servers and folders.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use manyflow_net::description::load::{LoadError, fetch};
use manyflow_net::description::read_text;
use manyflow_net::multicast::{Interface, MulticastError};
use manyflow_net::sap::{Listener, Packet, PacketKind};
use rand::RngExt as _;
use tokio::sync::mpsc;

use super::catalogue::{self, CatalogueError, Listed};
use super::{Digest, Origin, SourceId, digest_of};

/// The average time between two looks at a catalogue. Looks are spread by a third, so that many
/// receivers do not ask together.
const CATALOGUE_INTERVAL: Duration = Duration::from_secs(30);
/// The time between two looks at a folder.
const FOLDER_INTERVAL: Duration = Duration::from_secs(2);
/// The ending of descriptions in a folder.
const ENDING: &str = "sdp";
/// The maximum number of descriptions in a folder.
const FILES_MAX: usize = 4_096;

/// A source of announcements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Announcements by SAP (RFC 2974).
    Sap,
    /// The catalogue at this `http://` or `https://` URL.
    Catalogue(String),
    /// The files `*.sdp` in this folder.
    Folder(PathBuf),
}

impl FromStr for Source {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Source, Infallible> {
        Ok(match text {
            "sap" => Source::Sap,
            url if url.contains("://") => Source::Catalogue(url_of_catalogue(url)),
            folder => Source::Folder(folder.into()),
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Sap => f.write_str("announcements by SAP"),
            Source::Catalogue(url) => write!(f, "the catalogue {url}"),
            Source::Folder(folder) => write!(f, "the folder {}", folder.display()),
        }
    }
}

/// Returns the URL of the catalogue: that of the server, if the URL has no path.
fn url_of_catalogue(url: &str) -> String {
    let host = url.find("://").map_or(0, |place| place + 3);
    match url[host..].split_once('/') {
        None => format!("{url}{}", manyflow_net::publish::CATALOGUE_PATH),
        Some((_, "")) => {
            let server = url.trim_end_matches('/');
            format!("{server}{}", manyflow_net::publish::CATALOGUE_PATH)
        }
        Some(_) => url.to_owned(),
    }
}

/// The reason why a source cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// Announcements cannot be received.
    #[error(transparent)]
    Multicast(#[from] MulticastError),
    /// The server cannot be asked.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The server has no catalogue.
    #[error("{url}: {error}")]
    Catalogue {
        /// The URL.
        url: String,
        /// The reason.
        error: CatalogueError,
    },
    /// The folder cannot be read.
    #[error(
        "{folder}: cannot be read ({cause}); name a folder with descriptions, an http:// or https:// URL, or sap"
    )]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The system's reason.
        cause: std::io::Error,
    },
}

impl SourceError {
    /// Whether a later look may succeed.
    pub fn may_pass(&self) -> bool {
        match self {
            SourceError::Load(error) => error.may_pass(),
            SourceError::Multicast(_) | SourceError::Catalogue { .. } => false,
            SourceError::Folder { .. } => false,
        }
    }
}

/// Something that a source has found.
#[derive(Debug)]
pub(super) enum Sighting {
    /// A text that may be a description.
    Text {
        source: SourceId,
        origin: Origin,
        text: String,
    },
    /// All texts that the source has at present.
    Listing {
        source: SourceId,
        digests: BTreeSet<Digest>,
    },
}

/// A source with what it has found so far.
pub(super) struct Watch {
    id: SourceId,
    found: mpsc::Sender<Sighting>,
    kind: Kind,
}

enum Kind {
    Sap {
        listeners: Vec<Listener>,
    },
    Catalogue {
        url: String,
        ca: Option<PathBuf>,
        /// The descriptions that were fetched, by their URLs.
        fetched: HashMap<String, Digest>,
    },
    Folder {
        folder: PathBuf,
        /// The files that were read, with their times and lengths.
        read: BTreeMap<PathBuf, (SystemTime, u64, Option<Digest>)>,
    },
}

impl Watch {
    /// Opens a source, and looks at it for the first time.
    ///
    /// # Errors
    /// If it cannot be used now or later.
    pub(super) fn open(
        id: SourceId,
        source: &Source,
        interface: Option<&Interface>,
        ca: Option<&Path>,
        found: mpsc::Sender<Sighting>,
    ) -> Result<Watch, SourceError> {
        let kind = match source {
            Source::Sap => Kind::Sap {
                listeners: open_listeners(interface)?,
            },
            Source::Catalogue(url) => Kind::Catalogue {
                url: url.clone(),
                ca: ca.map(Path::to_owned),
                fetched: HashMap::new(),
            },
            Source::Folder(folder) => Kind::Folder {
                folder: folder.clone(),
                read: BTreeMap::new(),
            },
        };
        Ok(Watch { id, found, kind })
    }

    /// Looks at the source again and again. Returns when nobody takes what is found.
    ///
    /// # Errors
    /// If the first look fails for a reason that remains.
    pub(super) async fn run(mut self) -> Result<(), SourceError> {
        let mut was_seen = false;
        let mut is_failing = false;
        loop {
            match self.look().await {
                Ok(true) => {
                    if is_failing {
                        tracing::info!("announcements are read again");
                    }
                    (was_seen, is_failing) = (true, false);
                }
                Ok(false) => return Ok(()),
                Err(error) if !was_seen && !error.may_pass() => return Err(error),
                Err(error) => {
                    if !is_failing {
                        tracing::warn!("{error}; looking again");
                    }
                    is_failing = true;
                }
            }
            self.pause().await;
        }
    }

    /// Looks once. Returns false if nobody takes what is found.
    async fn look(&mut self) -> Result<bool, SourceError> {
        let (id, found) = (self.id, self.found.clone());
        match &mut self.kind {
            Kind::Sap { listeners } => Ok(hear_next(listeners, id, &found).await),
            Kind::Catalogue { url, ca, fetched } => {
                let (listing, texts) = look_at_catalogue(url, ca.as_deref(), fetched).await?;
                Ok(hand_in(id, &found, listing, texts).await)
            }
            Kind::Folder { folder, read } => {
                let folder = folder.clone();
                let mut files = std::mem::take(read);
                let look = move || {
                    let looked = look_at_folder(&folder, &mut files);
                    (files, looked)
                };
                let (files, looked) = tokio::task::spawn_blocking(look)
                    .await
                    .expect("reading a folder does not panic");
                *read = files;
                let (listing, texts) = looked?;
                Ok(hand_in(id, &found, listing, texts).await)
            }
        }
    }

    async fn pause(&self) {
        let pause = match self.kind {
            Kind::Sap { .. } => return,
            Kind::Catalogue { .. } => {
                let spread = rand::rng().random_range(2.0 / 3.0..4.0 / 3.0);
                CATALOGUE_INTERVAL.mul_f64(spread)
            }
            Kind::Folder { .. } => FOLDER_INTERVAL,
        };
        tokio::time::sleep(pause).await;
    }
}

/// Opens listeners of both IP versions. A host without IPv6 has one.
fn open_listeners(interface: Option<&Interface>) -> Result<Vec<Listener>, MulticastError> {
    let first = Listener::open(true, interface.cloned())?;
    let second = Listener::open(false, interface.cloned());
    if let Err(error) = &second {
        tracing::debug!(%error, "no announcements by IPv6");
    }
    Ok([Some(first), second.ok()].into_iter().flatten().collect())
}

/// Hands in the next announcement. Ignores deletions, and packets that announce nothing.
async fn hear_next(
    listeners: &mut [Listener],
    source: SourceId,
    found: &mpsc::Sender<Sighting>,
) -> bool {
    let bytes = match listeners {
        [one, two] => tokio::select! {
            bytes = one.recv() => bytes,
            bytes = two.recv() => bytes,
        },
        [one] => one.recv().await,
        _ => return false,
    };
    let packet = match Packet::decode(bytes) {
        Ok(packet) => packet,
        Err(error) => {
            tracing::debug!(%error, "a packet is no announcement");
            return true;
        }
    };
    if packet.kind == PacketKind::Deletion {
        tracing::debug!("a deletion is ignored: it is not authenticated");
        return true;
    }
    let text = packet.payload.to_owned();
    let origin = Origin::Sap;
    let sighting = Sighting::Text {
        source,
        origin,
        text,
    };
    found.send(sighting).await.is_ok()
}

/// Texts with their origins.
type Texts = Vec<(Origin, String)>;

/// Fetches the catalogue, and the descriptions that have changed. A description that cannot be
/// fetched is tried again at the next look.
async fn look_at_catalogue(
    url: &str,
    ca: Option<&Path>,
    fetched: &mut HashMap<String, Digest>,
) -> Result<(BTreeSet<Digest>, Texts), SourceError> {
    let text = fetch(url, ca).await?;
    let listed = catalogue::parse(url, &text).map_err(|error| SourceError::Catalogue {
        url: url.to_owned(),
        error,
    })?;
    let mut texts = Vec::new();
    fetched.retain(|url, _| listed.iter().any(|listed| listed.url == *url));
    for Listed { url, digest } in &listed {
        if fetched.get(url) == Some(digest) {
            continue;
        }
        match fetch(url, ca).await {
            Ok(text) if digest_of(&text) == *digest => {
                fetched.insert(url.clone(), *digest);
                texts.push((Origin::Url(url.clone()), text));
            }
            Ok(_) => tracing::debug!(url, "not the description of the catalogue; looking again"),
            Err(error) => tracing::warn!("{error}; the description is fetched again"),
        }
    }
    Ok((listed.iter().map(|listed| listed.digest).collect(), texts))
}

/// Reads the descriptions of a folder that are new or have changed since the last look.
fn look_at_folder(
    folder: &Path,
    known: &mut BTreeMap<PathBuf, (SystemTime, u64, Option<Digest>)>,
) -> Result<(BTreeSet<Digest>, Texts), SourceError> {
    let unreadable = |cause| SourceError::Folder {
        folder: folder.to_owned(),
        cause,
    };
    let mut texts = Vec::new();
    let mut present = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(unreadable)?.take(FILES_MAX) {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_none_or(|ending| ending != ENDING) {
            continue;
        }
        // A file that vanishes is not there.
        let Ok(metadata) = fs::metadata(&path) else {
            continue;
        };
        if !metadata.is_file() {
            continue;
        }
        let stamp = (
            metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            metadata.len(),
        );
        let digest = match known.get(&path) {
            Some((time, length, digest)) if (*time, *length) == stamp => *digest,
            _ => read_description(&path).map(|text| {
                let digest = digest_of(&text);
                texts.push((Origin::File(path.clone()), text));
                digest
            }),
        };
        present.insert(path, (stamp.0, stamp.1, digest));
    }
    *known = present;
    let digests = known.values().filter_map(|(_, _, digest)| *digest);
    Ok((digests.collect(), texts))
}

fn read_description(path: &Path) -> Option<String> {
    let name = path.display().to_string();
    let file = fs::File::open(path);
    let text = file.map_err(|error| format!("{name}: cannot be read ({error})"));
    let text = text.and_then(|file| read_text(file, &name).map_err(|error| error.to_string()));
    text.inspect_err(|error| tracing::warn!("{error}; it is read again when it has changed"))
        .ok()
}

/// Hands in new texts before the list, which then knows them.
async fn hand_in(
    source: SourceId,
    found: &mpsc::Sender<Sighting>,
    digests: BTreeSet<Digest>,
    texts: Texts,
) -> bool {
    for (origin, text) in texts {
        let sighting = Sighting::Text {
            source,
            origin,
            text,
        };
        if found.send(sighting).await.is_err() {
            return false;
        }
    }
    let listing = Sighting::Listing { source, digests };
    found.send(listing).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_named_by_its_form() {
        for (text, expected) in [
            ("sap", Source::Sap),
            ("drop", Source::Folder("drop".into())),
            (
                "http://h:80",
                Source::Catalogue("http://h:80/catalogue.json".into()),
            ),
            (
                "http://h/",
                Source::Catalogue("http://h/catalogue.json".into()),
            ),
            (
                "https://h/x/c.json",
                Source::Catalogue("https://h/x/c.json".into()),
            ),
        ] {
            assert_eq!(text.parse(), Ok(expected));
        }
    }
}
