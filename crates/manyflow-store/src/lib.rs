//! A replicated store of chunks over [Anypoint](manyflow_anypoint): a client has one connection to
//! a switch, which spreads the client's requests over the members of the service.
//!
//! ```text
//!                               +--> member a      each chunk is on R members
//!   Upload   ---> switch  ------+--> member b      Member: answers requests from its Shelf
//!   Download <--- ReplicaHash --+--> member c
//! ```
//!
//! A client does not address members. The key of a request's frame holds 28 bits of the chunk's
//! hash and the rank of a copy. The switch's policy
//! [`ReplicaHash`](manyflow_anypoint::switch::ReplicaHash) routes it to the member of that rank in
//! the hash's own order of the members. Answers carry the member's name, so the client counts
//! distinct members, and knows when it has asked all of them.
//!
//! | file | what it holds |
//! |---|---|
//! | `address.rs` | digests, the addresses of stored bytes and their keys, names of members |
//! | `wire.rs` | requests and answers as frames |
//! | `query.rs`, `batch.rs` | questions of maintenance and their answers; several manifests in one request |
//! | `manifest.rs`, `summary.rs` | the chunks of a file, and the members that hold them; a file without its chunks |
//! | `config.rs`, `error.rs` | the parameters of a client, and the reasons of failures |
//! | `upload.rs`, `download.rs`, `lookup.rs` | the client: storing and reading chunks, finding the newest manifest of a name |
//! | `survey.rs` | the client: questions to every member |
//! | `round.rs`, `requests.rs` | the ranks that were asked for a chunk; requests in flight and time-outs |
//! | `yielding.rs` | the window of transfers that yield to others |
//! | `reconnect.rs` | when a client wants another connection |
//! | `member.rs`, `catalogue.rs`, `shelf.rs` | a member, its index of names, and where it keeps bytes |
//!
//! # Promises
//!
//! - [`UploadEvent::Stored`] means that R distinct members have the chunk on disk. While fewer than
//!   R members are gone, a [`Download`] finds it.
//! - A chunk that does not match its hash is never returned; it is asked of another member.
//! - Of several manifests of a name, the one with the highest version is valid. Chunks of earlier
//!   ones remain until a garbage collection.
//! - A chunk that was put or refreshed less than the safe age ago is not removed as garbage.
//! - A PutIf succeeds at one member at a time. While the service has the same members, clients that
//!   send it to the member of rank 0 first never both replace the same version.
//!
//! A client reaches the members that its connection has. A switch that restarts while a connection
//! is being opened can give members up that are alive. A search for a name over that connection may
//! then find an older manifest.
//!
//! A client reaches the members of the first 16 ranks, so in a service of more members a chunk can
//! be out of reach after many of them have joined or left.
//!
//! # Example
//!
//! Two members store a chunk. The loop stands for the connection and the switch.
//!
//! ```
//! use bytes::Bytes;
//! use manyflow_core::Time;
//! use manyflow_store::{Address, Hash, Member, MemberName, MemoryShelf};
//! use manyflow_store::{StoreConfig, Upload, UploadEvent};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let now = Time::ZERO;
//! let mut members = Vec::new();
//! for name in ["a", "b"] {
//!     members.push(Member::new(MemberName::new(name)?, MemoryShelf::default()));
//! }
//! let mut upload = Upload::new(StoreConfig::default(), now)?;
//! let bytes = Bytes::from_static(b"some bytes");
//! let chunk = upload.add(Address::Chunk(Hash::of(&bytes)), bytes);
//!
//! while let Some((key, request)) = upload.poll_transmit(now) {
//!     let member = &mut members[(key & 15) as usize % 2];
//!     let answer = member.handle_request(&request);
//!     upload.handle_answer(now, &answer);
//! }
//! let members = members.iter().map(|member| member.name().clone()).collect();
//! assert_eq!(upload.poll_event(), Some(UploadEvent::Stored { chunk, members }));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod address;
mod batch;
mod catalogue;
mod config;
mod download;
mod error;
mod lookup;
mod manifest;
mod member;
mod query;
mod reconnect;
mod requests;
mod round;
mod shelf;
mod summary;
mod survey;
#[cfg(test)]
mod testing;
mod upload;
mod wire;
mod yielding;

pub use address::{Address, Hash, MemberName, NameError, RANKS};
pub use batch::Batch;
pub use config::StoreConfig;
pub use download::{Download, DownloadCounters};
pub use error::{DownloadError, UploadError};
pub use lookup::{Found, Lookup};
pub use manifest::{
    ChunkEntry, EARLIER_MAX, Earlier, METADATA_BYTES_MAX, Manifest, ManifestError, NAME_BYTES_MAX,
    is_name,
};
pub use member::{Member, MemberCounters};
pub use query::{HeldChunk, QUERY_ITEMS_MAX, Query, Reply, Usage};
pub use shelf::{Held, MemoryShelf, Shelf, ShelfError};
pub use summary::Summary;
pub use survey::{Survey, Surveyed};
pub use upload::{Upload, UploadEvent};
pub use wire::{
    Answer, FRAME_BYTES_MAX, Outcome, REASON_BYTES_MAX, Request, STORED_BYTES_MAX, WireError,
};
