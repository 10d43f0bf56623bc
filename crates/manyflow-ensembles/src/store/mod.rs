//! The chunk store of `manyflow-store` on disks and connections.
//!
//! | module | what it holds |
//! |---|---|
//! | `disk` | a member's folder: one file for each chunk and each manifest |
//! | `frames` | what the store needs of a connection: frames with a key, in and out |
//! | `live` | connections to a service behind a switch |
//! | `session` | the client's connection, opened again when it is lost |
//! | `put`, `get` | a file into the store, and out of it |
//! | `serve` | a member's answers on one connection |
//! | `memory` | a service in this process, for tests and for trying the store out |

mod disk;
mod frames;
mod get;
mod live;
mod memory;
mod put;
mod serve;
mod session;

pub use disk::{DiskError, DiskShelf};
pub use frames::{Connect, Frames};
pub use get::{GetError, GetOptions, GetReport, get};
pub use live::LiveService;
pub use memory::MemoryService;
pub use put::{PutError, PutOptions, PutReport, put};
pub use serve::serve_member;
pub use session::{Progress, SessionError};
