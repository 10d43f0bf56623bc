//! Relays that take the place of SIM's routers, without sockets.
//!
//! ```text
//!   sender, or parent relay
//!      ^ reports, experiments, echoes      | data, soundings
//!      |                                   v
//!   ReportingEnd                      (the driver's AMT gateway)
//!      ^                                   | observe_data: requests
//!      | summaries                         | push: once for each child that has joined
//!   one aggregator per session             v
//!      ^                              one Hop per child: marks, drops from the top, pace
//!      | reports, experiments              |
//!   child  <------------------------------ + data, soundings, experiments
//! ```
//!
//! A [`StreamRelay`] has children by address, as an AMT relay has gateways (RFC 7450), and a hop to
//! each ([`hop`](crate::hop)). Its items are whole AMT Multicast Data messages; the hop marks the
//! IP header inside. The same type is the sender's end of a tree: without a parent, summaries go to
//! [`poll_feedback`](StreamRelay::poll_feedback). A receiver, and the way up of a relay, is a
//! [`ReportingEnd`].
//!
//! | file | contents |
//! |---|---|
//! | `stream.rs` | [`StreamRelay`] |
//! | `child.rs` | a child: its hop, its reports and marks, batches of equal messages |
//! | `session.rs` | the aggregator of a session, and the requests that have passed |
//! | `strangers.rs` | receivers without a hop, which report directly |
//! | `reporting.rs` | [`ReportingEnd`] |
//! | `inner.rs` | the ECN field and the payload of the datagram inside a message |
//!
//! # Feedback
//!
//! - A request counts when it first passes here, in a packet of any group.
//! - Feedback is accepted if it answers one of the last four requests that have passed here. A
//!   child cannot begin a round that the sender has not begun.
//! - A round ends when all children that have joined the session have answered, or after twice the
//!   longest RTT below (section III-A4 of SIM's paper). Children that have not answered the last
//!   four requests, such as gateways of other software, are not awaited.
//! - The relay numbers its children, and puts these numbers in place of the sources of their
//!   reports. A child is therefore one reporter per session, with at most 32 answers to each
//!   request. Reports that leave carry the relay's own number, and do not depend on the order of
//!   the receivers below.
//! - A report from a child carries the nonce of its hop, and must be newer than the last one. A
//!   report from an address without a hop is accepted if its MAC is right, or if there is no key.
//! - A child can neither hide congestion nor invent it. If packets of its top group were marked in
//!   a round, by its hop or before, all its receivers in that group count as congested in its
//!   report of that round: they have seen the marks, unless they lie. A receiver sees no other
//!   marks, and without them it does not count as congested. The hops below a relay mark packets,
//!   too, so what a relay reports counts. A relay states times, and receivers do not. In the paper,
//!   only the receiver says whether it is congested.
//! - A relay reports at once that a hop of a known rate has dropped a packet of the lowest group,
//!   if the hop carries far less than that group. Neither a request nor an answer waits in the full
//!   queue then. It does so once in a round, as it passes on early reports of others.
//! - A sender that has restarted begins with old requests. After 32 data packets in a row with old
//!   requests, the relay forgets the requests before them.
//!
//! # Repair
//!
//! A relay sends packets again that its children miss, and asks its parent for those that it misses
//! itself ([`repair`](crate::repair)).
//!
//! # Experiments of RLM
//!
//! An experiment that a child announces is passed to all other children that have the session and
//! to the parent, ten per second at most.

mod child;
mod config;
mod inner;
mod reporting;
mod session;
mod strangers;
mod stream;

pub use config::{Datagrams, RelayConfig, RelayError, SessionInfo, Where};
pub use inner::{inner_ecn, inner_payload};
pub use reporting::ReportingEnd;
pub use stream::{HopStatus, StreamRelay};
