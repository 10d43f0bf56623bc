//! RLC, Receiver-driven Layered Congestion control: groups have fixed rates that double, and each
//! receiver adds or drops the top one at signals in the data.
//!
//! Source: Vicisano, Rizzo and Crowcroft, "TCP-like Congestion Control for Layered Multicast Data
//! Transfer", INFOCOM 1998, here called the paper. It is cited from memory. SIM's authors expect
//! their conclusions about RLM to hold for RLC (section IV-H of their paper).
//!
//! ```text
//!   group 0   ...|||| |||| ||||........|||| |||| ||||        cumulative rate R
//!   group 1   ...|||| |||| ||||........|||| |||| ||||        2 R
//!                           |  |       |
//!                           |  |       synchronisation point of groups 0 and 1
//!                           |  relaxation: nothing is sent
//!                           burst: twice the rate, as if one more group were joined
//! ```
//!
//! - **Synchronisation points.** A receiver adds a group only at a synchronisation point of its top
//!   group. Receivers behind one bottleneck do so at the same time, without messages. The distance
//!   between the points of group g is 2^g times that of group 0, so that a rate that is twice as
//!   high needs four times as many packets without a loss: the square root of TCP's equation. A
//!   point of a group is one of all groups below it.
//! - **Bursts.** Before a point, the groups that have it send at twice their rate, as if their
//!   receivers had already added the next group, and then nothing for the same time. A path that
//!   does not carry the next group loses packets of the burst, which prevents the addition and has
//!   no other consequence.
//! - **Losses.** A receiver that loses packets outside of a burst drops its top group. It is then
//!   deaf for a while: it neither adds nor drops a group, because losses go on until the leave
//!   takes effect.
//!
//! Choices where the paper leaves something open, or where our memory of it is uncertain:
//!
//! - The distance of the points of group 0 is 500 ms, a burst lasts for a quarter of that, and a
//!   receiver is deaf for 1 s.
//! - A receiver adds a group at the second point of its top group after the join of that group or
//!   the end of a deaf time, so that it has seen a whole burst.
//! - A gap belongs to a burst if the packet before or after it does.
//! - Group 0 is never dropped.
//! - A point is the first packet of its group after the relaxation. It carries the number
//!   [`POINT`] in its field of the request, packets of a burst the number [`BURST`].
//! - A gap counts as loss at once, as with RLM: a path that reorders packets looks congested.
//! - Packets leave at random points of their intervals, as those of [RLM](crate::rlm).

mod config;
mod receiver;
mod sender;

pub use config::{ConfigError, ReceiverConfig, SenderConfig};
pub use receiver::Receiver;
pub use sender::Sender;

/// The request field of a packet that is a synchronisation point of its group.
pub const POINT: u16 = 1;
/// The request field of a packet that belongs to a burst.
pub const BURST: u16 = 2;
