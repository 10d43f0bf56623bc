//! The NATS client protocol: clients in many languages speak it.
//!
//! | file | what it holds |
//! |---|---|
//! | `parse.rs` | the operations of clients |
//! | `parse/published.rs` | a message as its client wrote it |
//! | `layers.rs` | messages in layers, which the overlay may cut |
//! | `errors.rs` | the errors after which a connection goes on |
//! | `subject.rs` | subjects and patterns |
//! | `session.rs` | one client, its subscriptions and pending messages |
//! | `interest.rs` | the subscriptions of all clients at all daemons, by subject |
//! | `turns.rs` | which member of a queue group gets a message |
//! | `shares.rs` | the memory that subscriptions may take |
//! | `pings.rs` | PINGs that wait for messages before them |
//! | `serve.rs` | the connection of a client |
//! | `operations.rs` | its PUB and SUB |
//! | `ordered.rs` | ordered groups: their subjects, messages and views |

pub(super) mod errors;
// Public for fuzz targets only.
#[doc(hidden)]
pub mod interest;
pub(super) mod layers;
mod operations;
pub(super) mod ordered;
pub mod parse;
mod pings;
pub(super) mod serve;
pub(super) mod session;
pub(super) mod shares;
pub mod subject;
pub(super) mod turns;

pub(super) use session::ConnectOptions;
