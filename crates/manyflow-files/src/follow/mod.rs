//! Standing receivers: each session that a trusted signer announces is received, without a command
//! for it.
//!
//! ```text
//! SAP, catalogue, folder --text--> signature --> Follower --Start--> session::receive
//!                                                   |  <--End-----'
//!                                               state folder
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `machine.rs` | [`Follower`]: which sessions are received, and when; no clock, socket or file |
//! | `rules.rs` | [`Rules`]: which sessions are wanted |
//! | `sources.rs` | [`Source`]: where announcements come from |
//! | `catalogue.rs` | [`catalogue`]: lists of sessions on HTTP servers |
//! | `record.rs` | [`Record`]: what the state folder holds |
//! | `run.rs` | [`follow`]: the driver |
//!
//! # Example
//!
//! A sender puts the description of its session into a folder, and a follower receives it.
//!
//! ```
//! use std::future::pending;
//!
//! use manyflow_core::units::Rate;
//! use manyflow_files::follow::{FollowConfig, News, Source, follow};
//! use manyflow_files::sending::{Opened, RelayAddress, SendConfig};
//! use manyflow_net::description::load::Trust;
//! use manyflow_net::keys::SigningKey;
//! use manyflow_webrc::SessionConfig;
//! use tokio::sync::mpsc;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = |name: &str| folder.path().join(name);
//! # std::fs::create_dir(path("announced"))?;
//! std::fs::write(path("news.txt"), "all is well")?;
//! let signer = SigningKey::generate(&path("news.key"))?;
//! let rate = SessionConfig::lan(Rate::from_bits_per_s(50_000_000));
//! let mut config = SendConfig::new(vec![path("news.txt")], rate);
//! config.relay = Some(RelayAddress::new("127.0.0.1:0".parse()?));
//! config.signing = Some(SigningKey::read(&path("news.key"))?);
//! let session = Opened::open(config).await?.prepare().await?;
//! std::fs::write(path("announced/news.sdp"), &session.text)?;
//! let sending = tokio::spawn(session.run(pending()));
//!
//! let sources = vec![Source::Folder(path("announced"))];
//! let trust = Trust { signers: vec![signer], ca: None };
//! let config = FollowConfig::new(sources, trust, path("received"));
//! let (told, mut news) = mpsc::unbounded_channel();
//! let following = tokio::spawn(follow(config, told, pending()));
//! while let Some(news) = news.recv().await {
//!     if let News::Done(stored) = news {
//!         let text = std::fs::read_to_string(stored.folder.join("news.txt"))?;
//!         assert_eq!(text, "all is well");
//!         break;
//!     }
//! }
//! following.abort();
//! sending.abort();
//! # Ok(())
//! # }
//! ```
//!
//! # What an attacker can do
//!
//! Anyone can announce anything by SAP, and a server can list anything. The signature of the
//! description decides: one that no trusted key has signed starts nothing. An old description that
//! is announced again is refused, because a newer one of the same signer and name is known, also
//! after a restart. So an attacker can only withhold sessions, which anyone on the way can.
//! Deletions of SAP are ignored: anyone can send them.
//!
//! # Folders
//!
//! The files of a session are in a folder below the output folder that has the session's name. A
//! newer session of the same signer and name replaces them one by one, each in one step; files that
//! it does not have remain. A session of another signer with the same name is refused.

mod bucket;
pub mod catalogue;
mod machine;
mod record;
mod rules;
mod run;
mod sources;

use std::net::SocketAddr;
use std::path::PathBuf;

use manyflow_net::keys::PublicKey;
use manyflow_net::sap;
use manyflow_object::name::COMPONENT_BYTES_MAX;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::sdp::SessionDescription;

pub use machine::{End, Event, Follower, Notice, Refusal, SourceId};
pub use record::{Progress, Record, StateError};
pub use rules::Rules;
pub use run::{After, AfterEnd, FollowConfig, FollowError, News, Report, Stored, follow};
pub use sources::{Source, SourceError};

/// The SHA-256 of an announced text.
pub type Digest = [u8; 32];

/// The way on which an announcement came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// By SAP, so multicast of the announcer arrives here.
    Sap,
    /// From a server: the URL of the description.
    Url(String),
    /// From a folder: the path of the description.
    File(PathBuf),
}

/// A description that was announced, with the key that has signed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Announcement {
    /// The description.
    pub description: SessionDescription,
    /// The description's text.
    pub text: String,
    /// The key that has signed the description; `None` without a signature.
    pub signer: Option<PublicKey>,
    /// The way on which the announcement came.
    pub origin: Origin,
}

impl Announcement {
    /// Returns the SHA-256 of the text.
    pub fn digest(&self) -> Digest {
        digest_of(&self.text)
    }

    /// Returns the place from which a description's relay or server on the unspecified address is
    /// reached: a URL with the host of the description, or with the session's source.
    pub fn base(&self) -> String {
        match &self.origin {
            Origin::Url(url) => url.clone(),
            Origin::Sap | Origin::File(_) => {
                format!(
                    "sap://{}",
                    SocketAddr::new(self.description.source, sap::PORT)
                )
            }
        }
    }

    /// Whether both are sessions of one signer with one name.
    fn has_owner_of(&self, other: &Announcement) -> bool {
        self.signer == other.signer && self.description.name == other.description.name
    }

    /// Names the signer and the session, for messages.
    fn owner(&self) -> String {
        let signer = self.signer.map(|signer| signer.to_string());
        let signer = signer.unwrap_or_else(|| "nobody".to_owned());
        format!("{signer} named {:?}", self.description.name)
    }

    /// Whether both describe the same table of files, and so the same files.
    fn has_content_of(&self, other: &Announcement) -> bool {
        let table = self.description.table_sha256;
        table.is_some() && table == other.description.table_sha256
    }

    /// Whether both describe one session on the network, of which only the way may differ.
    fn is_session_of(&self, other: &Announcement) -> bool {
        let identity = |it: &SessionDescription| (it.source, it.tsi, it.first_group, it.port);
        let (own, its) = (&self.description, &other.description);
        identity(own) == identity(its) && own.protection == its.protection
    }
}

/// Returns the SHA-256 of an announced text.
pub fn digest_of(text: &str) -> Digest {
    Sha256::digest(text).into()
}

/// Returns the folder of sessions with this name: one visible component of a path. Different names
/// can have the same folder.
fn folder_of(name: &str) -> String {
    let mut folder: String = name
        .chars()
        .map(|c| {
            if matches!(c, '/' | '\\' | ':') || c.is_control() {
                '_'
            } else {
                c
            }
        })
        .collect();
    if folder.starts_with('.') || folder.is_empty() {
        folder.insert(0, '_');
    }
    // Room for the ending of the record's file.
    let longest = COMPONENT_BYTES_MAX - 16;
    if let Some((end, _)) = folder
        .char_indices()
        .find(|(at, c)| at + c.len_utf8() > longest)
    {
        folder.truncate(end);
    }
    folder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_one_visible_component() {
        for (name, folder) in [
            ("image.iso", "image.iso"),
            ("../../etc", "_.._.._etc"),
            (".ssh", "_.ssh"),
            ("..", "_.."),
            ("a/b\\c:d", "a_b_c_d"),
            ("tab\there", "tab_here"),
            ("", "_"),
        ] {
            assert_eq!(folder_of(name), folder);
            assert!(manyflow_object::name::check(folder).is_ok());
            assert!(manyflow_object::name::check_visible(folder).is_ok());
        }
        let long = folder_of(&"ä".repeat(300));
        assert!(
            long.len() <= COMPONENT_BYTES_MAX - 16 && long.len() > 230,
            "{}",
            long.len()
        );
    }
}
