//! The switch: many connections between peers and the members of one service.
//!
//! ```text
//!   peers --UDP--> [ front: (address, number) ] -- SwitchSession: Switch<Bytes> -- [ back: number of its own ] --UDP--> members
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `config.rs`, `source.rs` | the service: its members and its policy; where the addresses come from |
//! | `server.rs` | the thread of a switch: sockets, commands, timer |
//! | `inside.rs` | a switch inside of the process that uses it |
//! | `hub.rs`, `back.rs`, `upkeep.rs` | all connections: datagrams of peers, datagrams of members, periodic work |
//! | `initiators.rs`, `group.rs` | the switch of clients that share a connection to a service; such a connection |
//! | `gate.rs` | datagrams that belong to no connection: cookies and Resets |
//! | `session.rs`, `output.rs` | one connection, and the datagrams that it sends |
//! | `members.rs` | the members and their health |
//! | `routing.rs` | the policy: fragments of a message stay together |
//! | `status.rs` | what a switch reports |
//!
//! A switch is one thread without locks, or a task beside the one endpoint that uses it
//! ([`InsideSwitch`]). Toward the members each connection has numbers of its own,
//! as with network address translation, so two peers may choose the same number. A member that
//! joins a connection again gets another number: late datagrams of its former part are recognised.
//!
//! The switch probes each member every second. A member from which nothing comes for three seconds
//! counts as down: new connections are opened without it. It joins all connections when it answers
//! again.

mod back;
mod config;
mod gate;
mod group;
mod hub;
mod initiators;
mod inside;
mod members;
mod output;
mod routing;
mod server;
mod session;
mod source;
mod status;
mod upkeep;

pub use config::{MemberConfig, PolicyName, ServiceConfig, ServiceError, SwitchOptions};
pub use inside::InsideSwitch;
pub use server::{StartError, SwitchHandle, start, start_initiators};
pub use source::{MemberSource, SourceError};
pub use status::{Counters, MemberStatus, SwitchStatus};
