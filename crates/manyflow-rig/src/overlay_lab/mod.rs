//! Daemons of an overlay as processes, thin links between them, and clients that check what they
//! read: for `manyflow demo overlay` and `manyflow-rig soak overlay`.
//!
//! | file | contents |
//! |---|---|
//! | `network.rs` | the processes, their links, and what they report |
//! | `client.rs` | one connection of a client, which sends to a group and reads it |
//! | `ledger.rs` | what all connections have sent and read |
//! | `faults.rs` | the faults of a run, and the daemons that they separated |
//! | `check.rs` | whether members have read what they should |
//! | `payload.rs` | a message's number, time and checksum |
//! | `process.rs` | a server as a process, which is killed on drop |
//! | `wire.rs` | the NATS client protocol, as far as the clients need it |

mod check;
mod client;
mod faults;
mod ledger;
mod network;
mod payload;
mod process;
pub mod wire;

pub use check::{Judge, Judged, daemon_name, is_all_read, wait_until_read};
pub use client::{Pace, run_life};
pub use faults::{Faults, Part};
pub use ledger::{Ledger, Life, Seat};
pub use network::{LinkPlan, Network};
pub use payload::PAYLOAD_BYTES;
pub use process::Process;
