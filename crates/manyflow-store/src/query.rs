//! Questions that maintenance asks of every member, and their answers: the bodies of frames behind
//! the fixed header of [`wire`](crate::wire).
//!
//! ```text
//!   Holds     | flags: 1 read, 2 refresh | addresses: kind u8, SHA-256 |
//!   Names     | 1 whole manifests, else 0 | length u16 | prefix | after |
//!   Versions  | names: length u16, name |
//!   Chunks    | nothing, or the SHA-256 to begin after |
//!   Remove    | age in seconds u32 | length u8 | member | kind u8, SHA-256, version u64 of each |
//!   Usage     | nothing |
//!
//!   Held      | 0 or 1 for each address |
//!   Summaries | 1 if more follow, else 0 | summaries |
//!   Manifests | 1 if more follow, else 0 | manifests: length u32, manifest |
//!   Versions  | version u64 of each name |
//!   Chunks    | 1 if more follow, else 0 | chunks: SHA-256, length u32, age in seconds u32 |
//!   Removed   | number u32 | bytes u64 |
//!   Usage     | chunks, their bytes, names, their bytes, damaged files, free bytes, bytes of the disk: u64 each |
//! ```

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut, TryGetError};

use crate::summary::Summary;
use crate::wire::decode_address;
use crate::{Address, Hash, MemberName};

/// The most addresses or names in one query.
pub const QUERY_ITEMS_MAX: usize = 4096;

/// A question that is asked of every member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Which of these addresses does the member have?
    Holds {
        /// The addresses, at most [`QUERY_ITEMS_MAX`].
        addresses: Vec<Address>,
        /// Whether to read the bytes and compare them with their digests.
        is_deep: bool,
        /// Whether to make them as young as if they were put now, so that no garbage collection
        /// removes them meanwhile.
        refreshes: bool,
    },
    /// Which files does the member know? It answers in the order of their names.
    Names {
        /// The beginning of their names.
        prefix: String,
        /// Only names behind this one; empty for all.
        after: String,
        /// Whether to answer with whole manifests instead of [`Summary`]s.
        is_full: bool,
    },
    /// Which versions of these names does the member have? At most [`QUERY_ITEMS_MAX`].
    Versions(Vec<String>),
    /// Which chunks does the member have, in the order of their digests, behind this one?
    Chunks(Option<Hash>),
    /// Removes bytes, unless they are younger than this.
    Remove {
        /// The age in seconds, by the member's clock.
        age_s: u32,
        /// The only member that shall do it; `None` for all.
        member: Option<MemberName>,
        /// The addresses, at most [`QUERY_ITEMS_MAX`]. A manifest is removed if its version is at
        /// most the one given; the version of a chunk is 0.
        items: Vec<(Address, u64)>,
    },
    /// How much does the member hold, and how much room is left?
    Usage,
}

/// The answer to a [`Query`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Whether the member has each of the addresses.
    Held(Vec<bool>),
    /// Summaries of files in the order of their names.
    Summaries {
        /// The summaries; at least one if more follow.
        files: Vec<Summary>,
        /// Whether the member has further names.
        has_more: bool,
    },
    /// Manifests in the order of their names.
    Manifests {
        /// The encoded manifests; at least one if more follow.
        files: Vec<Bytes>,
        /// Whether the member has further names.
        has_more: bool,
    },
    /// The version of each name; 0 if the member has none.
    Versions(Vec<u64>),
    /// Chunks in the order of their digests.
    Chunks {
        /// The chunks; at least one if more follow.
        chunks: Vec<HeldChunk>,
        /// Whether the member has further chunks.
        has_more: bool,
    },
    /// The outcome of a removal.
    Removed {
        /// The number of addresses.
        count: u32,
        /// Their bytes.
        bytes: u64,
    },
    /// The bytes on the member.
    Usage(Usage),
}

/// A chunk on a member.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct HeldChunk {
    /// Its digest.
    pub hash: Hash,
    /// Its length in bytes.
    pub bytes: u32,
    /// The time since it was put last, in seconds; saturates.
    pub age_s: u32,
}

/// The bytes on a member, and its room.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The number of chunks.
    pub chunks: u64,
    /// Their bytes.
    pub chunk_bytes: u64,
    /// The number of manifests.
    pub names: u64,
    /// Their bytes.
    pub name_bytes: u64,
    /// The number of files that did not match their digest when they were read.
    pub damaged: u64,
    /// The free bytes of the disk; 0 if the system does not say.
    pub free_bytes: u64,
    /// The size of the disk in bytes; 0 if the system does not say.
    pub disk_bytes: u64,
}

const HOLDS: u8 = 16;
const NAMES: u8 = 17;
const VERSIONS: u8 = 18;
const CHUNKS: u8 = 19;
const REMOVE: u8 = 20;
const USAGE: u8 = 21;
const HELD: u8 = 32;
const SUMMARIES: u8 = 33;
const MANIFESTS: u8 = 34;
const VERSIONS_OF: u8 = 35;
const CHUNKS_OF: u8 = 36;
const REMOVED: u8 = 37;
const USAGE_OF: u8 = 38;

const READ: u8 = 1;
const REFRESH: u8 = 2;

impl Query {
    /// Returns the type of the frame.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Query::Holds { .. } => HOLDS,
            Query::Names { .. } => NAMES,
            Query::Versions(_) => VERSIONS,
            Query::Chunks(_) => CHUNKS,
            Query::Remove { .. } => REMOVE,
            Query::Usage => USAGE,
        }
    }

    /// Returns whether frames of this type are queries.
    pub(crate) fn is_kind(kind: u8) -> bool {
        (HOLDS..=USAGE).contains(&kind)
    }

    /// Appends the body.
    pub(crate) fn encode(&self, frame: &mut BytesMut) {
        match self {
            Query::Holds {
                addresses,
                is_deep,
                refreshes,
            } => {
                frame.put_u8((u8::from(*is_deep) * READ) | (u8::from(*refreshes) * REFRESH));
                addresses.iter().for_each(|address| address.encode(frame));
            }
            Query::Names {
                prefix,
                after,
                is_full,
            } => {
                frame.put_u8(u8::from(*is_full));
                put_text(frame, prefix);
                frame.put_slice(after.as_bytes());
            }
            Query::Versions(names) => names.iter().for_each(|name| put_text(frame, name)),
            Query::Chunks(after) => frame.put_slice(after.as_ref().map_or(&[][..], |hash| &hash.0)),
            Query::Remove {
                age_s,
                member,
                items,
            } => {
                frame.put_u32(*age_s);
                let member = member.as_ref().map_or("", |member| member.as_str());
                frame.put_u8(member.len() as u8);
                frame.put_slice(member.as_bytes());
                for (address, version) in items {
                    address.encode(frame);
                    frame.put_u64(*version);
                }
            }
            Query::Usage => {}
        }
    }

    /// Decodes the body of a frame of this type. `None` if no query has this encoding.
    pub(crate) fn decode(kind: u8, body: &[u8]) -> Option<Query> {
        Query::read(kind, &mut { body }).ok().flatten()
    }

    /// Reads a query. The error means that the body ends too early.
    fn read(kind: u8, body: &mut &[u8]) -> Result<Option<Query>, TryGetError> {
        let query = match kind {
            HOLDS => {
                let flags = body.try_get_u8()?;
                if flags > READ | REFRESH {
                    return Ok(None);
                }
                let Some(addresses) = read_all(body, read_address)? else {
                    return Ok(None);
                };
                Query::Holds {
                    addresses,
                    is_deep: flags & READ != 0,
                    refreshes: flags & REFRESH != 0,
                }
            }
            NAMES => return read_names(body),
            VERSIONS => return Ok(read_all(body, read_text)?.map(Query::Versions)),
            CHUNKS if body.is_empty() => Query::Chunks(None),
            CHUNKS => Query::Chunks(Some(read_hash(body)?)),
            REMOVE => return read_remove(body),
            USAGE => Query::Usage,
            _ => return Ok(None),
        };
        Ok(body.is_empty().then_some(query))
    }
}

impl Reply {
    /// Returns the type of the frame.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Reply::Held(_) => HELD,
            Reply::Summaries { .. } => SUMMARIES,
            Reply::Manifests { .. } => MANIFESTS,
            Reply::Versions(_) => VERSIONS_OF,
            Reply::Chunks { .. } => CHUNKS_OF,
            Reply::Removed { .. } => REMOVED,
            Reply::Usage(_) => USAGE_OF,
        }
    }

    /// Returns whether frames of this type are replies.
    pub(crate) fn is_kind(kind: u8) -> bool {
        (HELD..=USAGE_OF).contains(&kind)
    }

    /// Appends the body.
    pub(crate) fn encode(&self, frame: &mut BytesMut) {
        match self {
            Reply::Held(held) => held.iter().for_each(|held| frame.put_u8(u8::from(*held))),
            Reply::Summaries { files, has_more } => {
                frame.put_u8(u8::from(*has_more));
                files.iter().for_each(|file| file.encode(frame));
            }
            Reply::Manifests { files, has_more } => {
                frame.put_u8(u8::from(*has_more));
                for file in files {
                    frame.put_u32(file.len() as u32);
                    frame.put_slice(file);
                }
            }
            Reply::Versions(versions) => versions.iter().for_each(|v| frame.put_u64(*v)),
            Reply::Chunks { chunks, has_more } => {
                frame.put_u8(u8::from(*has_more));
                for chunk in chunks {
                    frame.put_slice(&chunk.hash.0);
                    frame.put_u32(chunk.bytes);
                    frame.put_u32(chunk.age_s);
                }
            }
            Reply::Removed { count, bytes } => {
                frame.put_u32(*count);
                frame.put_u64(*bytes);
            }
            Reply::Usage(usage) => usage.fields().iter().for_each(|f| frame.put_u64(*f)),
        }
    }

    /// Decodes the body of a frame of this type. `None` if no reply has this encoding.
    pub(crate) fn decode(kind: u8, body: &[u8]) -> Option<Reply> {
        Reply::read(kind, &mut { body }).ok().flatten()
    }

    /// Reads a reply. The error means that the body ends too early.
    fn read(kind: u8, body: &mut &[u8]) -> Result<Option<Reply>, TryGetError> {
        let reply = match kind {
            HELD => read_all(body, read_flag)?.map(Reply::Held),
            SUMMARIES => {
                let more = read_flag(body)?;
                let files = read_all(body, Summary::read)?;
                more.zip(files)
                    .map(|(has_more, files)| Reply::Summaries { files, has_more })
            }
            MANIFESTS => {
                let more = read_flag(body)?;
                let files = read_all(body, read_manifest)?;
                more.zip(files)
                    .map(|(has_more, files)| Reply::Manifests { files, has_more })
            }
            VERSIONS_OF => {
                read_all(body, |body| body.try_get_u64().map(Some))?.map(Reply::Versions)
            }
            CHUNKS_OF => {
                let more = read_flag(body)?;
                let chunks = read_all(body, read_chunk)?;
                more.zip(chunks)
                    .map(|(has_more, chunks)| Reply::Chunks { chunks, has_more })
            }
            REMOVED => {
                let (count, bytes) = (body.try_get_u32()?, body.try_get_u64()?);
                Some(Reply::Removed { count, bytes })
            }
            USAGE_OF => Some(Reply::Usage(Usage::read(body)?)),
            _ => None,
        };
        Ok(reply.filter(|_| body.is_empty()))
    }
}

impl Usage {
    fn fields(&self) -> [u64; 7] {
        [
            self.chunks,
            self.chunk_bytes,
            self.names,
            self.name_bytes,
            self.damaged,
            self.free_bytes,
            self.disk_bytes,
        ]
    }

    fn read(body: &mut &[u8]) -> Result<Usage, TryGetError> {
        Ok(Usage {
            chunks: body.try_get_u64()?,
            chunk_bytes: body.try_get_u64()?,
            names: body.try_get_u64()?,
            name_bytes: body.try_get_u64()?,
            damaged: body.try_get_u64()?,
            free_bytes: body.try_get_u64()?,
            disk_bytes: body.try_get_u64()?,
        })
    }
}

/// Reads items up to the end of the body. `None` if one is invalid.
fn read_all<T>(
    body: &mut &[u8],
    mut read: impl FnMut(&mut &[u8]) -> Result<Option<T>, TryGetError>,
) -> Result<Option<Vec<T>>, TryGetError> {
    let mut items = Vec::new();
    while !body.is_empty() {
        let Some(item) = read(body)? else {
            return Ok(None);
        };
        items.push(item);
    }
    Ok(Some(items))
}

fn read_names(body: &mut &[u8]) -> Result<Option<Query>, TryGetError> {
    let (is_full, prefix) = (read_flag(body)?, read_text(body)?);
    let after = core::str::from_utf8(core::mem::take(body)).ok();
    let (Some(is_full), Some(prefix), Some(after)) = (is_full, prefix, after) else {
        return Ok(None);
    };
    let after = after.to_owned();
    Ok(Some(Query::Names {
        prefix,
        after,
        is_full,
    }))
}

fn read_remove(body: &mut &[u8]) -> Result<Option<Query>, TryGetError> {
    let (age_s, length) = (body.try_get_u32()?, body.try_get_u8()?);
    let name = core::str::from_utf8(take(body, length.into())?).unwrap_or_default();
    let member = match length {
        0 => None,
        _ => match MemberName::new(name) {
            Ok(member) => Some(member),
            Err(_) => return Ok(None),
        },
    };
    let items = read_all(body, |body| {
        let address = read_address(body)?;
        let version = body.try_get_u64()?;
        Ok(address.map(|address| (address, version)))
    })?;
    Ok(items.map(|items| Query::Remove {
        age_s,
        member,
        items,
    }))
}

fn read_chunk(body: &mut &[u8]) -> Result<Option<HeldChunk>, TryGetError> {
    Ok(Some(HeldChunk {
        hash: read_hash(body)?,
        bytes: body.try_get_u32()?,
        age_s: body.try_get_u32()?,
    }))
}

fn read_manifest(body: &mut &[u8]) -> Result<Option<Bytes>, TryGetError> {
    let length = body.try_get_u32()? as usize;
    take(body, length).map(|bytes| Some(Bytes::copy_from_slice(bytes)))
}

fn read_address(body: &mut &[u8]) -> Result<Option<Address>, TryGetError> {
    let kind = body.try_get_u8()?;
    Ok(decode_address(kind, read_hash(body)?).ok())
}

fn read_hash(body: &mut &[u8]) -> Result<Hash, TryGetError> {
    let mut hash = Hash([0; 32]);
    body.try_copy_to_slice(&mut hash.0)?;
    Ok(hash)
}

/// Reads 0 or 1; `None` for any other byte.
pub(crate) fn read_flag(body: &mut &[u8]) -> Result<Option<bool>, TryGetError> {
    Ok(match body.try_get_u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    })
}

pub(crate) fn put_text(frame: &mut BytesMut, text: &str) {
    debug_assert!(text.len() <= usize::from(u16::MAX), "names are shorter");
    frame.put_u16(text.len() as u16);
    frame.put_slice(text.as_bytes());
}

/// Reads a text and its length; `None` if it is not UTF-8.
pub(crate) fn read_text(body: &mut &[u8]) -> Result<Option<String>, TryGetError> {
    let length = body.try_get_u16()?;
    let text = core::str::from_utf8(take(body, length.into())?);
    Ok(text.ok().map(str::to_owned))
}

/// Takes bytes from the front.
pub(crate) fn take<'a>(body: &mut &'a [u8], length: usize) -> Result<&'a [u8], TryGetError> {
    let (taken, rest) = body.split_at_checked(length).ok_or(TryGetError {
        requested: length,
        available: body.len(),
    })?;
    *body = rest;
    Ok(taken)
}
