//! The reasons for which operations on a whole store fail.

use manyflow_core::ConfigError;
use manyflow_store::{DownloadError, ManifestError, MemberName, UploadError};

use super::{GetError, SessionError};

/// The reason why an operation on a store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// An option is outside its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The service cannot be reached.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A manifest cannot be found or read.
    #[error(transparent)]
    Find(#[from] GetError),
    /// A chunk has no copy left, or no member answers.
    #[error(transparent)]
    Download(#[from] DownloadError),
    /// Too few members have stored a chunk, or another put was faster.
    #[error(transparent)]
    Upload(#[from] UploadError),
    /// A manifest cannot be stored.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A member could not answer a question.
    #[error("member {member} failed: {reason}; see its log, and try again")]
    Member {
        /// The member.
        member: MemberName,
        /// Its reason.
        reason: String,
    },
    /// Not every member has answered, so nobody knows what the others hold.
    #[error(
        "only {} have answered ({}); start the others, or remove them from the switch, and try again. With more \
         than 16 members, this cannot be done at all",
        members(answered),
        list(answered)
    )]
    Incomplete {
        /// The members that have answered.
        answered: Vec<MemberName>,
    },
    /// Files name members that do not answer.
    #[error(
        "{} that files name {} not answer: {}; start them, or repair the store without them, and collect then",
        members(missing), if missing.len() == 1 { "does" } else { "do" }, list(missing)
    )]
    Missing {
        /// The members that are missing.
        missing: Vec<MemberName>,
    },
}

fn members(members: &[MemberName]) -> String {
    match members.len() {
        1 => "1 member".to_owned(),
        count => format!("{count} members"),
    }
}

fn list(members: &[MemberName]) -> String {
    let names: Vec<_> = members.iter().map(MemberName::as_str).collect();
    names.join(", ")
}
