//! SIM: selective participation, intra-group transmission adjustment, menu adaptation (Gorinsky,
//! Ramakrishnan and Vin).
//!
//! ```text
//!   sender      C_0 .. C_(n_g-1), the cumulative rates          <--- one summary a group and round ---+
//!     |  data: request r, rate C_g, longest RTT                                                       |
//!     v                                                                                               |
//!   router      marks packets of each session's top group on a link whose queue grows (link/)         |
//!     |                                                                                           aggregator
//!     v                                                                                               ^
//!   receiver    congested in this round? received rate?         --- one report a round (Table I) -----+
//! ```
//!
//! | mechanism | who, how often | section | file |
//! |---|---|---|---|
//! | intra-group transmission adjustment | the sender, each two longest round-trip times (a round) | III-B | `rates.rs`, `sender.rs` |
//! | selective participation | each receiver, each 20 round-trip times | III-C | `receiver.rs` |
//! | menu adaptation | the sender, each 50 round-trip times | III-D | `menu.rs` |
//! | feedback aggregation | routers | III-A4 | `aggregator.rs`, `round.rs` |
//!
//! What the paper leaves open, and what was chosen (`docs/fidelity.md` has figures):
//!
//! - **What is adjusted.** Each C_g, the rate of group g and all below it, by itself: it is what a
//!   bottleneck sees of receivers whose top group is g, so that the control of one group does not
//!   disturb the next. A group's own rate is what C_g adds to C_(g-1), and never below a minimum.
//! - **The steps.** Up by TCP's one packet per round-trip time in each round-trip time, down to
//!   15/16. DECbit's 7/8, which the authors cite, gives the same picture with a lower efficiency,
//!   since a queue of a few packets bridges less of a deeper fall. After a decrease, one round is
//!   not acted on: it was reported before the decrease took effect (DECbit does the same).
//! - **Until a group is congested for the first time** its rate grows by a factor of 1.25 a round,
//!   where the paper has addition only: a fast link would otherwise take minutes to be found behind
//!   the round-trip times of slow ones. `start_factor = 1` is the paper's.
//! - **After a change of subscription** a receiver is silent for two rounds: what it sees then is
//!   still the old subscription's doing, and a receiver that has just left a group for a lower one
//!   would otherwise pull that one down while its queue drains.
//! - **Late reports** stand for the present round's: behind a long queue all reports are late, and
//!   without them the rate that fills the queue would never fall.
//! - **"Congested over the last selection interval"** is: in at least nine rounds of ten. AIMD
//!   alone marks all of its receivers now and then. "Not congested" is: in none.
//! - **"The rate of its top subscribed group decreases"** is: on the account of others. A decrease
//!   within three rounds of a receiver's own report of congestion may be its own doing. Without
//!   this, a receiver whose group saws slower than a selection interval takes the last decrease
//!   that it asked for as a sign that there is more, and groups end up one above where they should
//!   be.
//! - **A group at its menu's bound** falls back by one step. It would otherwise stand still there,
//!   and its receivers would never see a rate that decreases, which is their sign that there is
//!   more above.
//! - **A group without reports** keeps its rate; a session without any falls by the decrease each
//!   round, from the fifth such round on.
//! - **Who reports to whom** is set up by the world: each receiver and aggregator is given the
//!   endpoint of its parent. An aggregator knows its children by their reports, and forgets one
//!   that has missed four rounds.

mod aggregator;
mod config;
mod menu;
mod rates;
mod receiver;
mod round;
mod sender;

pub use aggregator::Aggregator;
pub use config::{Conduct, ConfigError, ReceiverConfig, SenderConfig};
pub use receiver::Receiver;
pub use sender::Sender;
