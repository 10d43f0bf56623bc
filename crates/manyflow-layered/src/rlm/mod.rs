//! RLM, Receiver-driven Layered Multicast: groups have fixed rates, and each receiver finds by
//! trial how many of them its path carries.
//!
//! Sources: McCanne, Jacobson and Vetterli, "Receiver-driven Layered Multicast", SIGCOMM 1996, here
//! called the paper; and its first author's own implementation (`rlm.tcl` of ns-2, 1998) for
//! details and values that the paper leaves open. The paper is cited from memory. SIM's authors
//! compare SIM with RLM (section IV-H of their paper), and so does this project.
//!
//! A [`Receiver`] adds the next group when its join-timer T_J expires: a join experiment. If losses
//! begin within the detection time T_D, the experiment has failed: the receiver leaves the group
//! again and waits alpha times longer before it tries that group again.
//!
//! ```text
//!   T_J: add, announce             loss in our own experiment: drop, back off
//!      +--> +----------+ ----------------------------------------------------> +------+
//!      +--- |  steady  | <------------------------- T_D ---------------------- | drop |
//!   T_D:    +----------+                                                       +------+
//!   relax    |   ^   |                                                            ^
//!     other  |   |   |   other loss, while the top group                          |
//!     loss   |  T_D  +-- was added less than T_D ago --+                          |
//!            |   +-----------------------------+       |                          |
//!            v                                 |       v                          |
//!           +------------+        T_D         +-------------+   more is lost than |
//!           | hysteresis | -----------------> | measurement | --------------------+
//!           +------------+                    +-------------+   the threshold: drop, back off
//! ```
//!
//! To relax means to reduce T_J of the top group to beta T_J. Losses are ignored in hysteresis,
//! because they may end without any action, and after a drop, because they are from before the drop
//! took effect.
//!
//! - **Shared learning.** An experiment is announced to the whole session. A receiver that sees
//!   losses within T_D of another receiver's experiment on a higher group backs off its own
//!   join-timer of that group, as if it had tried. While a group is tried, no receiver tries a
//!   higher one, so that losses have one explanation; the same group or a lower one may be tried.
//! - **Timers.** T_J is drawn again each time: half its interval plus an exponential share, so that
//!   receivers do not try in step. T_D = k1 D + k2 sigma, where D and sigma are the mean and the
//!   deviation of the time from the start of the receiver's own experiment to the loss that ends
//!   it.
//!
//! Deviations and choices, with their reasons:
//!
//! - If several experiments can explain a loss, it is attributed to the latest: losses of the
//!   others would have begun before. `rlm.tcl` takes the highest; then a receiver with losses on a
//!   lower group does not blame its own experiment, and may keep up to 25 % of loss.
//! - T_D starts again with an experiment. In `rlm.tcl` it runs on, and relaxes the join-timer of a
//!   group that was just added.
//! - An announcement goes by unicast to the sender, which forwards it on group 0, because our
//!   channels have one source each. So a receiver that has left group 0 gets no announcements. A
//!   receiver gets the announcement of its own experiment, and ignores it.
//! - A drop restarts the join-timer with the longer interval. In `rlm.tcl` the timer from before
//!   the failure runs on, and the group that just failed can be tried again at once.
//! - The drop that ends a measurement backs off as well, as in the paper but not in `rlm.tcl`.
//! - T_D is the same for all uses, as in the paper; `rlm.tcl` has three factors for the deviation.
//! - Group 0 can be dropped like the others, as in `rlm.tcl`: a path that loses a quarter of its
//!   packets is congested by that group. The group is then tried again like any other. The first
//!   join of group 0 is no experiment.
//! - A gap in the sequence numbers of a group counts as loss at once, as in `rlm.tcl`: a path that
//!   reorders packets looks congested.
//!
//! The sender spaces packets at random within their intervals (see `sender.rs`), as the paper's
//! simulations do.
//!
//! The losses at a level that the path cannot carry can remain below the threshold. If the queue is
//! so long that they begin later than T_D after the join, the receiver keeps the group. This is a
//! property of RLM.

mod config;
mod layer;
mod receiver;
mod sender;

pub use config::{ConfigError, ReceiverConfig, SenderConfig};
pub use receiver::Receiver;
pub use sender::Sender;
