//! RLM: Receiver-driven Layered Multicast. Groups of fixed rates; each receiver finds by trial how
//! many of them its path carries.
//!
//! Source: McCanne, Jacobson and Vetterli, "Receiver-driven Layered Multicast", SIGCOMM 1996,
//! called the paper here; and its first author's own implementation (`rlm.tcl` of ns-2, 1998) for
//! details and values that the paper leaves open. The paper is cited from memory. SIM's authors
//! compare SIM with RLM (`sim.txt`, section IV-H), and so do we.
//!
//! A [`Receiver`] adds the next group when its join-timer T_J runs out: a join experiment. If loss
//! comes within the detection time T_D, the experiment has failed: the receiver leaves the group
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
//! Relaxing is that T_J of the top group falls to beta T_J. Loss is passed over in hysteresis,
//! since it may pass by itself, and after a drop, since it comes from before the drop had effect.
//!
//! - **Shared learning.** An experiment is announced to the whole session. Who sees loss within T_D
//!   of another's experiment on a higher group backs off its own join-timer of that group, as if it
//!   had tried. While one group is tried, nobody tries a higher one, so that losses have one
//!   explanation; the same group or a lower one may be tried.
//! - **Timers.** T_J is drawn anew each time: half its interval and an exponential share, so that
//!   receivers do not try in step. T_D = k1 D + k2 sigma, where D and sigma are the mean and the
//!   deviation of the time from the start of an experiment of our own to the loss that ends it.
//!
//! Deviations and choices, with their reasons:
//!
//! - Where several experiments can explain a loss, it is put down to the latest: what the others
//!   cause would be seen already. `rlm.tcl` takes the highest; then a receiver that meets loss on a
//!   lower group does not blame its own experiment, and stays with up to 25 % of loss.
//! - T_D begins anew with an experiment. In `rlm.tcl` it runs on, and relaxes the join-timer of a
//!   group that was just added.
//! - An announcement goes by unicast to the sender, which sends it on group 0: our channels have
//!   one source each. So who has left group 0 hears none, and one that starts an experiment hears
//!   its own announcement, which it passes over.
//! - A drop restarts the join-timer with the longer interval. In `rlm.tcl` the timer that was drawn
//!   before the failure runs on, and the group that just failed can be tried again at once.
//! - The drop that ends a measurement backs off as well: the paper says so, `rlm.tcl` does not.
//! - T_D is the same for all uses, as in the paper; `rlm.tcl` has three factors for the deviation.
//! - Group 0 can be dropped like the others, as in `rlm.tcl`: a path that loses a quarter of it is
//!   congested by it. It is then tried again like any group. The first join of it is no experiment.
//! - A gap in a group's sequence numbers is loss at once, as in `rlm.tcl`: a path that reorders
//!   packets is taken for a congested one.
//!
//! The sender spaces packets at random within their intervals (see `sender.rs`), as the paper's
//! simulations do.
//!
//! Losses at a level that the path cannot carry can stay below the threshold. If the queue is so
//! long that they begin later than T_D after the join, the receiver keeps the group: so RLM is.

mod config;
mod layer;
mod receiver;
mod sender;

pub use config::{ConfigError, ReceiverConfig, SenderConfig};
pub use receiver::Receiver;
pub use sender::Sender;
