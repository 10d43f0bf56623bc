//! The chunk store of `manyflow-store` on disks and connections.
//!
//! | module | what it holds |
//! |---|---|
//! | `disk` | a member's folder: one file for each chunk and each manifest |
//! | `frames` | what the store needs of a connection: frames with a key, in and out |
//! | `live` | connections to a service behind a switch |
//! | `session` | the client's connection, opened again when it is lost |
//! | `put`, `get` | a file into the store, and out of it |
//! | `pack` | many small files into the store |
//! | `client`, `range` | a client that keeps its connections; parts of files, in order |
//! | `listing`, `remove` | the names of the store |
//! | `census`, `repair`, `sweep` | maintenance: what the files need; missing copies; garbage |
//! | `serve` | a member's answers on one connection |
//! | `memory` | a service in this process, for tests and for trying the store out |

mod census;
mod client;
mod disk;
mod error;
mod frames;
mod get;
mod listing;
mod live;
mod memory;
mod pack;
mod put;
mod range;
mod remove;
mod repair;
mod serve;
mod session;
mod sweep;

pub use client::{StoreClient, next_version};
pub use disk::{DiskError, DiskShelf};
pub use error::StoreError;
pub use frames::{Connect, Frames};
pub use get::{GetError, GetOptions, GetReport, get};
pub use listing::{Listed, Page};
pub use live::LiveService;
pub use memory::MemoryService;
pub use pack::PACKED_BYTES_MAX;
pub use put::{PutError, PutOptions, PutReport, put};
pub use repair::{RepairMode, RepairOptions, RepairProgress, RepairReport};
pub use serve::serve_member;
pub use session::{Progress, SessionError};
pub use sweep::{GcOptions, GcReport};
