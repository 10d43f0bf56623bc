//! Models for simulations: the parts of a simulated world around ACP's state machines.
//!
//! | file | what it models |
//! |---|---|
//! | `end.rs` | an end of a connection, as an [`Endpoint`](manyflow_core::Endpoint) with an application above it |
//! | `application.rs` | the interface of such an application |
//! | `worker.rs` | an application that sends at given times, and takes time for each frame that it reads |
//! | `liar.rs` | an end that lies to XCP's routers |
//! | `switch.rs` | a switch, as an endpoint whose members come and go at given times |

mod application;
mod end;
mod liar;
mod switch;
mod worker;

pub use application::Application;
pub use end::ModelledEnd;
pub use liar::{Liar, Lie};
pub use switch::{Change, MemberChange, SwitchEndpoint};
pub use worker::{Service, Span, Worker, Workload};
