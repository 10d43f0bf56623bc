//! The reasons for which transfers fail.

use core::fmt;
use core::time::Duration;

use crate::{Hash, MemberName};

/// The reason why an [`Upload`](crate::Upload) failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UploadError {
    /// Fewer members than wanted have stored a chunk, and no other member is left.
    #[error(
        "{} has {} of {wanted} copies ({}){}; start more members, or ask for fewer copies",
        Item(*chunk), stored.len(), List(stored), Refusals(failures, *unanswered)
    )]
    TooFewCopies {
        /// The place of the chunk, from 0; `None` for a manifest, which a removal has, too.
        chunk: Option<u32>,
        /// The members that have stored the chunk.
        stored: Vec<MemberName>,
        /// The number of copies that was asked for.
        wanted: u8,
        /// The members that could not store it, and their reasons.
        failures: Vec<(MemberName, String)>,
        /// The number of ranks that did not answer in the last round.
        unanswered: u32,
    },
    /// A manifest was to replace a version that is no longer the present one.
    #[error("the present version is {held}, which another put has stored; read it, and put again")]
    Conflict {
        /// The present version; 0 if there is none.
        held: u64,
    },
    /// No member answered for a long time.
    #[error(
        "no member answered for {} s while chunk {chunk} had {copies} of {wanted} copies; check the switch and its members, and put the file again",
        after.as_secs()
    )]
    Silent {
        /// The time without an answer.
        after: Duration,
        /// The place of the first chunk that waits, from 0.
        chunk: u32,
        /// The number of its copies.
        copies: usize,
        /// The number of copies that was asked for.
        wanted: u8,
    },
}

/// The reason why a [`Download`](crate::Download) or a [`Lookup`](crate::Lookup) failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DownloadError {
    /// No member that can be asked has a chunk.
    #[error(
        "chunk {chunk} ({hash}) has no copy left: {} asked ({}){}; it was stored on {}; start one of these members, or put the file again",
        Count(asked.len(), "member"), List(asked), Refusals(failures, *unanswered), List(stored)
    )]
    NoCopy {
        /// The place of the chunk, from 0.
        chunk: u32,
        /// The digest of the chunk.
        hash: Hash,
        /// The members that answered in the last round.
        asked: Vec<MemberName>,
        /// The members that could not read the chunk, and their reasons.
        failures: Vec<(MemberName, String)>,
        /// The number of ranks that did not answer in the last round.
        unanswered: u32,
        /// The members that stored the chunk when it was put.
        stored: Vec<MemberName>,
    },
    /// No member answered for a long time.
    #[error("no member answered for {} s; check the switch and its members", after.as_secs())]
    Silent {
        /// The time without an answer.
        after: Duration,
    },
}

/// A chunk by its place, or a manifest.
struct Item(Option<u32>);

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(chunk) => write!(f, "chunk {chunk}"),
            None => f.write_str("the manifest"),
        }
    }
}

/// Names, separated by commas.
struct List<'a>(&'a [MemberName]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, member) in self.0.iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(f, "{comma}{member}")?;
        }
        match self.0 {
            [] => f.write_str("none"),
            _ => Ok(()),
        }
    }
}

/// A number with a noun, as in "2 members".
struct Count(usize, &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count(number, noun) = self;
        let plural = if *number == 1 { "" } else { "s" };
        write!(f, "{number} {noun}{plural}")
    }
}

/// Members that refused, with their reasons, and the number of ranks without an answer.
struct Refusals<'a>(&'a [(MemberName, String)], u32);

impl fmt::Display for Refusals<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (member, reason) in self.0 {
            write!(f, "; {member} failed: {reason}")?;
        }
        match self.1 {
            0 => Ok(()),
            unanswered => write!(f, "; {} did not answer", Count(unanswered as usize, "rank")),
        }
    }
}
