//! An S3 surface of the chunk store of [`manyflow_ensembles::store`]: put, get with ranges, head,
//! list, delete, copy and multipart uploads.
//!
//! ```text
//!   aws s3, rclone, restic --- HTTP ---> S3Surface ---> StoreClient --- switch ---> members
//! ```
//!
//! The crate `s3s` speaks the protocol and checks signatures; this crate maps its operations to the
//! store:
//!
//! | S3 | store |
//! |---|---|
//! | bucket `photos` | an empty file `photos/` |
//! | object `2026/a.jpg` in it | the file `photos/2026/a.jpg`; its entity tag, type and metadata are in the manifest |
//! | a part of a multipart upload | a file below `.uploads/`, until the upload is complete |
//! | the complete object | a manifest with the chunks of all parts: their bytes are not copied |
//! | a copy | a manifest with the chunks of its source |
//!
//! | file | what it holds |
//! |---|---|
//! | `surface.rs` | the operations on buckets and objects |
//! | `multipart.rs` | multipart uploads |
//! | `listing.rs` | listings with prefixes and delimiters |
//! | `object.rs` | names, and what a manifest keeps of an object besides its bytes |
//! | `checks.rs` | conditions, ranges, digests and lengths of requests |
//! | `body.rs` | bodies as chunks, and chunks as bodies |
//! | `patience.rs` | a limit for bodies of requests of which nothing comes |
//! | `server.rs` | the HTTP server |
//!
//! Left out: versions, access control lists, tags, encryption by the server, server-side copies of
//! parts, checksums other than MD5. A request for these fails with `NotImplemented`.
//!
//! # Example
//!
//! A service in this process, and its surface on a port of this host:
//!
//! ```
//! use std::time::Duration;
//!
//! use manyflow_ensembles::store::{MemoryService, StoreClient};
//! use manyflow_s3::{Credentials, S3Surface, serve};
//! use manyflow_store::{Member, MemberName, MemoryShelf, StoreConfig};
//! use tokio::net::TcpListener;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let names = ["a", "b", "c"].map(|name| MemberName::new(name).expect("it is short"));
//! let members = names.map(|name| Member::new(name, MemoryShelf::default()));
//! let service = MemoryService::new(members);
//! let client = StoreClient::new(service, StoreConfig::default(), Duration::from_secs(30));
//!
//! let listener = TcpListener::bind("127.0.0.1:0").await?;
//! let credentials = Credentials::parse("AKEXAMPLE a-secret-of-at-least-16-bytes")?;
//! let server = tokio::spawn(serve(listener, S3Surface::new(client), credentials));
//! # server.abort();
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod body;
mod checks;
mod listing;
mod multipart;
mod object;
mod patience;
mod server;
mod surface;

pub use server::{Credentials, CredentialsError, serve};
pub use surface::S3Surface;
