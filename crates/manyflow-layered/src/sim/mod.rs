//! SIM, layered multicast with selective participation, intra-group transmission adjustment and
//! menu adaptation (Gorinsky, Ramakrishnan and Vin).
//!
//! ```text
//!   sender      C_0 .. C_(n_g-1), the cumulative rates          <-- one summary per group and round --+
//!     |  data: request r, rate C_g, longest RTT                                                       |
//!     v                                                                                               |
//!   router      marks packets of each session's top group on a link whose queue grows                 |
//!     |                                                                                           aggregator
//!     v                                                                                               ^
//!   receiver    congested in this round? received rate?         --- one report per round (Table I) ---+
//! ```
//!
//! | mechanism | by, how often | section | file |
//! |---|---|---|---|
//! | intra-group transmission adjustment | the sender, every two longest round-trip times (a round) | III-B | `rates.rs`, `sender.rs` |
//! | selective participation | each receiver, every 20 longest round-trip times | III-C | `receiver.rs`, `trials.rs` |
//! | menu adaptation | the sender, every 50 longest round-trip times | III-D | `menu.rs` |
//! | feedback aggregation | routers | III-A4 | `aggregator.rs`, `round.rs` |
//!
//! The paper leaves the following open. These are our choices (`docs/history.md` has figures):
//!
//! - **Each C_g is adjusted by itself.** C_g is the rate of group g and all groups below it. It is
//!   the rate that receivers with top group g cause at a bottleneck, so the control of one group
//!   does not disturb the next. The own rate of a group is C_g - C_(g-1), and never below a
//!   minimum.
//! - **Steps.** A rate increases by TCP's one packet per round-trip time in each round-trip time,
//!   and decreases to 15/16. DECbit's 7/8, which the authors cite, gives the same picture with a
//!   lower efficiency, because a queue of a few packets bridges less of a deeper decrease. The
//!   round after a decrease is ignored: its reports are from before the decrease took effect
//!   (DECbit does the same).
//! - **Start.** Until a group is congested for the first time, its rate grows by a factor of 1.25
//!   in each round; the paper has only addition. Otherwise it would take minutes to find the rate
//!   of a fast link behind the round-trip times of slow ones. `start_factor = 1` is the paper's
//!   rule. A group whose rate exceeds that of its last congestion by a quarter, without being
//!   congested, starts again: its path has become faster, or the receivers that were congested have
//!   left. It does so only as long as its slowest receiver gets the rate, and neither with
//!   `tcp_fair` nor with the paper's decrease, which takes many rounds to end an overshoot.
//! - **A step is at most 1/16 of the rate** (`step_max`). One packet per round-trip time in each
//!   round-trip time is 400 kbit/s in a round of 80 ms. That is 40 % of the capacity of a receiver
//!   behind 1 Mbit/s, which lost a tenth of its packets. A large `step_max` is the paper's rule.
//! - **A rate falls to the received rate** if that is lower than 15/16 of it, but by one decrease
//!   to at most a quarter (`decrease_min`). If the received rate is below 80 % of the rate, the
//!   round after a decrease counts, too. Otherwise a capacity that falls by more than 1/16 costs
//!   losses until many decreases have followed. Received rates are not averaged by default
//!   (`rate_weight`), because an average is late; the paper averages them. A round with fewer than
//!   four packets is too coarse to count. A lowest rate far below the group's in three rounds in a
//!   row without congestion contradicts itself, and does not count until one is near it again.
//! - **A group that loses can be left at once.** With a `loss_max` below 1, a receiver drops its
//!   top group after three rounds in a row in which it lost more than this share and the rate of
//!   the group did not fall. The paper waits for the end of the selection interval, and so does the
//!   default: a small `loss_max` also moves honest receivers into a group that a liar keeps slow.
//! - **A failed trial is repeated later.** If a receiver drops a group in the selection interval in
//!   which it added the group, it adds the group again after 2^n - 1 intervals at the earliest,
//!   after n failures in a row (`backoffs`). This prevents needless changes where capacities are
//!   close, and losses from trials.
//! - **After a change of subscription**, a receiver is silent, because its measurements still
//!   belong to the old subscription: for two rounds after a drop, for one after an addition, and
//!   not at all when it enters the session. Otherwise a receiver that has just left a group would
//!   decrease the next lower group while its queue drains.
//! - **Late reports** count as reports of the present round. Behind a long queue all reports are
//!   late; without them, the rate that fills the queue would never decrease.
//! - **A fall of a path to the lowest group** can be reported before the round ends, by a relay
//!   whose hop drops this group's packets ([`relay`](crate::relay)). One congested
//!   receiver makes the group congested, so the sender need not wait for other reports. The paper
//!   has no early reports.
//! - **Rounds of each group** (`group_rounds`, off by default). Each group has requests, rounds and
//!   a round-trip time of its own, those of the receivers whose top group it is, so that a receiver
//!   behind a slow link sets the pace of its own group only. Only the packets of a group carry its
//!   requests (`cycle.rs`). An aggregator therefore needs the packets of all groups below it, as a
//!   relay has them. With rounds of its own,
//!   - a group that has not been congested for some rounds takes larger steps;
//!   - a round is lossy only if more is lost than a TCP at this rate would lose, by two standard
//!     deviations of as few packets, and more than the last fall of the rate will end; a receiver
//!     leaves its group after six such rounds, because rounds are short;
//!   - a receiver that hears no request for eight round-trip times and a second leaves the group: a
//!     full queue drops from the top;
//!   - a receiver to which fewer packets come than are missing, for a round-trip time, leaves at
//!     once all groups but those that what comes is enough for (`overload.rs`).
//! - **Fairness to TCP on each path** (`tcp_fair`, off by default). A round is as long as the
//!   slowest receiver needs. On a path with a tenth of that round-trip time, an increase of one
//!   packet per round-trip time of the session is far less than TCP's, and at TCP's share of marks
//!   nearly every round is congested. With `tcp_fair`, the sender takes the round-trip time of the
//!   receivers of each group, and the decrease with which TCP's rate stays the same on average.
//! - **"Congested over the last selection interval"** means in at least nine rounds of ten, because
//!   AIMD alone marks each receiver now and then. "Not congested" means in no round, or in at most
//!   a given share of them (`calm_share`): beside TCP, every receiver sees marks in some rounds.
//! - **"The rate of its top subscribed group decreases"** means a decrease that other receivers
//!   caused. A decrease within three rounds of a receiver's own report of congestion may be its own
//!   effect. Without this rule, a receiver whose group oscillates more slowly than a selection
//!   interval takes the last decrease that it caused as a sign of free capacity, and receivers end
//!   up one group too high. A receiver that has just joined has caused no decrease.
//! - **A receiver with a `loss_max` below 1** that is congested while the rate increases also must
//!   have lost more than this share in the interval to drop its top group: marks alone cost it
//!   nothing, and the group below may carry far less.
//! - **The range of the menu** is that of the average reports of a menu adaptation interval. A rate
//!   above it counts at once. Otherwise a receiver that has just joined is held to the rates of
//!   those before it for up to two intervals.
//! - **A group at the bound of its menu** falls back by one step. Otherwise its rate would be
//!   constant there, and its receivers would never see the decrease that is their sign of a higher
//!   group's capacity.
//! - **A group at its minimum** is raised a little in the round after a decrease, for the same
//!   reason.
//! - **A group without reports** keeps its rate for four rounds. Then the rate falls by one
//!   decrease in each round, to the initial rate at the lowest, and the next receivers of the group
//!   start it again. Otherwise a rate that is too high for all receivers would remain. A session
//!   without any reports decreases all rates in each round, from the fifth such round on. Rounds
//!   whose request no packet of the group has carried do not count: at low rates and short
//!   round-trip times, packets are rarer than rounds.
//! - **A session without receivers** takes the initial round-trip time for that of its next
//!   receiver, if it is longer than the last one, and its rounds begin with a packet of the lowest
//!   group. Otherwise the reports of the next receiver would all be too late to count.
//! - **A rate that is not used does not grow**, with `group_rounds`. The paper's sources always
//!   have data. If a driver offers less than a group may send, a round without congestion says
//!   nothing about the rest of its rate: the rate grows to one step above what is used, in a start
//!   to twice as much, and what receivers get counts as a share of what was sent (`usage.rs`).
//!   Otherwise a stream of 4 Mbit/s has groups of 50, in which slower receivers find none for their
//!   links.
//! - **The tree of reports** is set up by the world: each receiver and aggregator gets the endpoint
//!   of its parent. An aggregator knows its children by their reports, and forgets a child that has
//!   missed four rounds.

//!
//! # Second edition
//!
//! [`Edition::Second`] has other rules for groups, in place of selective participation by trial and
//! of the menu. The other rules are the same. The default is [`Edition::Paper`].
//!
//! | rule | by | file |
//! |---|---|---|
//! | The lowest group is sent in pairs of packets, and data states the rate of the next group. | sender | `sender.rs` |
//! | Intervals are multiples of the minimum of the longest round-trip time: the paper's d is the propagation delay. | sender | `base_rtt.rs` |
//! | A receiver measures the rate that its path carries: from pairs, from arrivals if less arrives than is sent, and as the announced rate while packets are marked. It reports this rate, or the lowest one of a path whose rate varies. | receiver | `path.rs`, `measured.rs` |
//! | On a path with other traffic, pairs show the rate of the whole link. So for ten intervals after a mark that others have caused, at less than nine tenths of the rate of pairs, it reports the announced rate, joins groups by the paper's rule, and after an interval with marks leaves a group that adds less than a twentieth to the one below. | receiver | `measured.rs` |
//! | It joins the next group after an interval without congestion if the average of that group's rate is at most the lowest rate of pairs. | receiver | `measured.rs` |
//! | It leaves groups at once that are announced with more than its path carries, and those of which too much is lost if the group below carries as much. A window of which more is missing than arrives, for a round-trip time, ends at once. For four round-trip times after a far fall of the announced rate, arrivals do not count: the queue of the former rate drains. | receiver | `measured.rs` |
//! | A receiver that leaves the session says so, and is no longer awaited. | receiver | `receiver.rs`, `round.rs` |
//! | A rate grows up to 97 % of the lowest rate that is reported, and falls by one decrease if any receiver is congested, or to four fifths of the reported rate if that is far lower. | sender | `rates/second.rs` |
//! | A receiver of the lowest group reports at once if its path carries far less than the group's rate. The group is congested if any of its receivers is, so that aggregators pass the first such report of a round on, and the sender does not wait for the others. | receiver, aggregators, sender | `measured.rs`, `aggregator.rs`, `rates/second.rs` |
//! | Reports that are not consistent do not count: of congestion in each of 16 rounds by a minority, of a rate below the group's without congestion, of a rate that fits a lower group. | sender | `rates/second.rs` |
//! | An idle group keeps its rate. | sender | `rates/second.rs` |
//! | A group whose rate has risen sends its next packet at the new rate. | sender | `sender.rs` |
//! | Once receivers have joined and left what a menu lets them, the next one is the best for the paths that are known, and hoped for where several are possible. Each menu shows more of them, and is judged after 40 rounds in any case. A rate that nobody joins, although reports say that paths carry it, is not tried again. | sender | `places.rs`, `census.rs` |
//! | The lowest group keeps its rate for some time for receivers that have left the session. | sender | `places.rs` |

mod aggregator;
mod arrivals;
mod base_rtt;
mod census;
mod config;
mod cycle;
mod interval;
mod measured;
mod menu;
mod overload;
mod path;
mod places;
mod rates;
mod receiver;
mod round;
mod sender;
mod trials;
mod usage;

pub use aggregator::Aggregator;
pub(crate) use arrivals::Arrivals;
pub use config::{ConfigError, Edition, ReceiverConfig, SenderConfig};
pub(crate) use measured::EARLY;
pub use receiver::Receiver;
pub(crate) use round::LATE_ROUNDS;
pub use sender::Sender;
