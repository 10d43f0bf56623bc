//! Many-to-many TFRC: the messages of all groups with members at a daemon enter at the rate that
//! one TCP would have to that daemon (Anker, Dolev, Shnayderman and Sukhov, "TCP-Friendly
//! Many-to-Many End-to-End Congestion Control", sections 3 and 4).
//!
//! ```text
//!   local clients                   sending daemon (SD)                                    receiving daemon (RD)
//!     | one message                   RTT = (T_now - T_out) - Delta   <---- Report ----      loss events, I_mean, p = 1 / I_mean
//!     v                               X(r) for each RD r               rate, ack, Delta,     rate = Eq. (1) of p and RTT
//!   token bucket <-- max-min of x(g)  x(g) = max-min of X(r)           received bytes
//!                                     for each group g                ---- RoundTrip -->     RTT
//! ```
//!
//! | step | who, how often | section | file |
//! |---|---|---|---|
//! | round-trip times | SD, each report, for each remote daemon | 4.1 | `rtt.rs`, `pair.rs` |
//! | loss event rate | RD, each message, for each origin | 4.2 | `loss.rs` |
//! | acceptable rate, its report | RD, once a round-trip time and at each new loss event | 4.2 | `rate.rs`, `receiver.rs` |
//! | limit of a pair, slow start | SD, each report | 4.2, 4.4 | `pair.rs` |
//! | division among groups | SD, each new limit and each new demand | | `division.rs`, `sender.rs` |
//! | demands, max-min, token buckets | SD, each half second, each new rate | 4.3 | `allocation.rs` |
//!
//! The paper is an overview and builds on RFC 5348. It leaves these points open; the choices are:
//!
//! - **One congestion state for each pair of daemons**, with the messages of all groups. The paper
//!   has one for each pair and group, because groups may have different multicast trees; n groups
//!   of a site then take the rate of n TCPs. In this overlay, all messages of an origin follow one
//!   tree, so that the groups share path, round-trip time and losses. A message is numbered within
//!   its group: losses are gaps of a group, and loss events and intervals are those of the pair. A
//!   pair's limit is divided among the groups that cross it, by max-min with their demands
//!   (`division.rs` has the equations). With one group, its rate is the minimum over all remote
//!   daemons, as in the paper.
//! - **Losses end to end.** Links repair losses, so that a receiving daemon gets every message. It
//!   observes a loss as a gap in an origin's numbers; the copy that fills the gap is flagged as
//!   [repaired](super::Message::copy). As in the paper, a gap counts as a loss at once: a
//!   message that was only late counts as lost.
//! - **Marks** of routers, with [`ecn`](TfrcConfig::ecn), count as losses as soon as the marked
//!   message arrives (RFC 5348 section 5.1). The message itself has arrived, and counts as that. A
//!   message that was marked on one link carries a flag over the others.
//! - **Repaired copies** give no samples of the round-trip time. They count neither as received nor
//!   as lost a second time. The paper leaves to future work whether they are part of the sending
//!   rate. Here they are, because a TCP connection's rate includes its retransmissions, and so does
//!   Eq. (1). New messages may be sent at the reported rate times (1 - share of repaired copies).
//!   [`count_repairs`](TfrcConfig::count_repairs)` = false` is the paper's measurement.
//! - **An interval** includes the lost packet that begins it. The paper counts only the packets
//!   that arrived between loss events. p is then too high by a factor of 1 / (1 - p). After three
//!   losses in a row at a high loss rate, it is 1: Eq. (1) then gives a message in 134 round-trip
//!   times, and recovery takes minutes. [`count_losses`](TfrcConfig::count_losses)` = false`
//!   follows the paper literally.
//! - **Eq. (2) forgets quickly**: half of I_mean is the last interval. The rate therefore varies
//!   strongly. Since low rates last longer, its mean is below Eq. (1) at the mean p: by about 10 %
//!   at p = 0.01, by a quarter and more at 0.05 and above (`tests.rs` prints it).
//!   [`LossAverage::Intervals`] is RFC 5348's average over eight intervals, which varies less, but
//!   takes longer to fall when a slower member joins. The default is the paper's.
//! - **Intervals begin after the event.** As the paper says, packets in the round-trip time of a
//!   loss event do not count for the interval. RFC 5348 section 5.3 counts them, so that p is lower
//!   by the share of a window in an interval. That is noticeable if windows have few packets;
//!   [`whole_intervals`](TfrcConfig::whole_intervals) follows the RFC.
//! - **The first loss.** Eq. (2) needs an I_past. The number of packets before the first loss
//!   depends on the course of slow start. As in RFC 5348 section 6.3.1, I_past is instead the
//!   interval at which Eq. (1) gives the highest rate that was received before the loss.
//! - **Slow start.** A daemon that has seen no loss reports no limit. In each round-trip time, its
//!   limit at the sender then grows at most to twice itself and to twice the rate at which messages
//!   arrive, of which reports count the bytes (RFC 5348 section 4.3); an unused limit does not
//!   grow. After losses, a limit at most doubles in a round-trip time as well, so that the rate
//!   recovers from silence as it starts.
//! - **Silence.** As in RFC 5348 section 4.4, but with 3 s/X instead of 2 s/X: a daemon's limit is
//!   halved after max(4 RTT, 3 s/X) without a report, or after 2 s before its first report, down to
//!   a message in 64 s. With 2 s/X, a single lost report or message would halve the limit wherever
//!   each message is answered separately. If nothing was sent in that time, the limit falls only to
//!   the initial rate. A message in 64 s is the longest one of the clients that send to the daemon.
//! - **Members that join and leave.** A daemon no longer counts once the sender learns that its
//!   last member has left. A daemon with the first member of any group counts from its first report
//!   on, or from the time-out of that report. Until then, the others limit its groups, or the
//!   initial rate does, for all groups without others together: at worst, its path carries the rate
//!   of the others for one round-trip time. Its own limit starts at the rate that its groups are
//!   allowed.
//! - **Before the round-trip time is known**, a receiving daemon reports each message and assumes
//!   half a second.
//! - **Daemons that cannot be reached** limit nobody: their members still count for the hold time,
//!   but nothing goes to them, and they report nothing. A daemon that comes back counts as one that
//!   joins.
//! - **Groups with members at this daemon only.** Their messages do not leave the machine, and
//!   there is no network to share: every message is admitted. A client still has only one message
//!   at a time at its daemon, and the daemon accepts none for a group with slow members. The paper
//!   uses TCP's window there, which between processes is the same back-pressure.
//! - **The average round-trip time** weights the past by 0.5 instead of RFC 5348's 0.9. The RFC
//!   asks for a low weight if its section 4.5 (slower sending while queues grow) is left out, and
//!   in the paper a change takes effect within a round-trip time.
//!   [`damping_history`](TfrcConfig::damping_history) turns that section on: the limit of each
//!   remote daemon is then multiplied by the average square root of its round-trip time over that
//!   of the latest sample.
//! - **Demands.** A client's window is the one message that may wait at its daemon
//!   (`allocation.rs`). A demand doubles as soon as a message must wait although the demand was
//!   met, not only at the next update of all demands; the limits are divided again at once when the
//!   demand of a group has changed by a tenth, which is the paper's delta. Priorities have no
//!   effect, because the paper has none.

mod allocation;
mod config;
mod division;
mod group;
mod loss;
mod pair;
mod rate;
mod receiver;
mod rtt;
mod sender;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

pub use config::{LossAverage, TfrcConfig};
use receiver::{Origin, Reported};
use sender::Sending;

use super::controller::{Audience, Controller, Request, Site};
use super::message::{
    ClientId, Control, DaemonId, Data, GroupId, LinkId, Message, Report, RoundTrip,
};
use crate::Event;
use manyflow_core::ConfigError;
use manyflow_core::time::Time;
use manyflow_core::units::Rate;

/// The many-to-many TFRC controller of one daemon, as a sender and as a receiver.
#[derive(Debug)]
pub struct Tfrc {
    config: TfrcConfig,
    here: DaemonId,
    sending: Sending,
    /// The daemons whose messages arrive for local members.
    origins: BTreeMap<DaemonId, Origin>,
    /// The time at which the earliest report is due, or an earlier time.
    report_due: Option<Time>,
    outbox: Outbox,
}

/// The results that the daemon has not polled yet.
#[derive(Debug, Default)]
struct Outbox {
    ready: VecDeque<ClientId>,
    controls: VecDeque<(Audience, Control)>,
    events: VecDeque<Event>,
}

impl Tfrc {
    /// Returns the controller of the daemon `here`.
    ///
    /// # Errors
    /// Returns an error if a parameter is outside its range.
    pub fn new(config: TfrcConfig, here: DaemonId) -> Result<Tfrc, ConfigError> {
        config.check()?;
        Ok(Tfrc {
            config,
            here,
            sending: Sending::default(),
            origins: BTreeMap::new(),
            report_due: None,
            outbox: Outbox::default(),
        })
    }

    /// Returns the number of groups, pairs of daemons and flows with state. It is zero without
    /// members and senders.
    pub fn state_size(&self) -> usize {
        let flows: usize = self.origins.values().map(Origin::flows).sum();
        self.sending.state_size() + self.origins.len() + flows
    }

    /// Returns the rate at which local clients may send to a group together; `None` if none of them
    /// sends to it, or if no other daemon has members.
    pub fn allowed_rate(&self, group: GroupId) -> Option<Rate> {
        self.sending.allowed(group).map(rate)
    }

    /// Returns the other daemons with members of a group that can be reached.
    fn remote_members(
        here: DaemonId,
        group: GroupId,
        site: &Site,
    ) -> impl Iterator<Item = DaemonId> {
        let daemons = site.reachable(group);
        daemons.filter(move |daemon| *daemon != here)
    }

    fn on_report(&mut self, now: Time, from: DaemonId, report: &Report) {
        let (config, outbox) = (&self.config, &mut self.outbox);
        let measured = self.sending.on_report(now, from, report, (config, outbox));
        let Some(measured) = measured else {
            return;
        };
        if let Some((sample, average)) = measured {
            self.outbox.events.push_back(Event::Rtt {
                sample_s: sample.as_secs_f64(),
                average_s: average.as_secs_f64(),
            });
            let answer = Control::RoundTrip(RoundTrip {
                rtt_us: u32::try_from(average.as_micros()).unwrap_or(u32::MAX),
            });
            self.outbox
                .controls
                .push_back((Audience::One(from), answer));
        }
    }

    /// Sends the report to an origin, if one is due.
    fn send_due_report(&mut self, now: Time, id: DaemonId) {
        let Some(origin) = self.origins.get_mut(&id) else {
            return;
        };
        if let Some(reported) = origin.poll_report(now) {
            self.outbox.push_report(id, reported);
        }
        self.report_due = earliest(self.report_due, origin.poll_timeout());
    }
}

impl Outbox {
    fn push_report(&mut self, to: DaemonId, reported: Reported) {
        let control = Control::Report(reported.report);
        self.controls.push_back((Audience::One(to), control));
        self.events.extend(reported.rates);
    }

    fn report_acceptable(&mut self, by: DaemonId, bytes_per_s: Option<f64>) {
        let rate = bytes_per_s.map(rate);
        self.events.push_back(Event::Acceptable { by, rate });
    }

    fn report_allowed(&mut self, group: GroupId, bytes_per_s: f64) {
        let rate = rate(bytes_per_s);
        self.events.push_back(Event::Allowed { group, rate });
    }
}

/// Returns the earlier of two times.
fn earliest(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    one.into_iter().chain(other).min()
}

/// Converts bytes per second to a [`Rate`].
fn rate(bytes_per_s: f64) -> Rate {
    Rate::from_bits_per_s((bytes_per_s * 8.0 + 0.5) as u64)
}

impl Controller for Tfrc {
    fn add_client(&mut self, _now: Time, _client: ClientId, _priority: f64) {}

    fn remove_client(&mut self, now: Time, client: ClientId) {
        let (config, outbox) = (&self.config, &mut self.outbox);
        self.sending.remove_client(now, client, (config, outbox));
    }

    /// Each group has a share of its own, so that a message enters for each of its groups when this
    /// one's turn comes.
    fn shares_copies(&self) -> bool {
        false
    }

    fn try_admit(&mut self, now: Time, request: &Request, site: &Site) -> bool {
        let mut members = Tfrc::remote_members(self.here, request.groups.first(), site).peekable();
        if members.peek().is_none() {
            return true;
        }
        let (config, outbox) = (&self.config, &mut self.outbox);
        self.sending
            .try_admit(now, request, members, (config, outbox))
    }

    fn on_sent(&mut self, now: Time, data: &Data, bytes: u32, _site: &Site) {
        self.sending.on_sent(now, data.group, data.sequence, bytes);
    }

    fn on_queue(&mut self, _now: Time, _link: LinkId, _messages: usize) {}

    fn heeds_marks(&self) -> bool {
        self.config.ecn
    }

    fn on_arrival(&mut self, now: Time, message: &Message, data: &Data, bytes: u32) {
        let (config, origin) = (&self.config, message.origin);
        let from = self.origins.entry(origin);
        let from = from.or_insert_with(|| Origin::new(now, config));
        if from.on_arrival(now, message, data, bytes) {
            self.outbox.events.push_back(Event::LossEvent);
        }
        self.send_due_report(now, origin);
    }

    fn on_control(&mut self, now: Time, from: DaemonId, control: &Control, _site: &Site) {
        match control {
            Control::Report(report) => self.on_report(now, from, report),
            Control::RoundTrip(round_trip) => {
                if let Some(origin) = self.origins.get_mut(&from) {
                    origin.on_round_trip(Duration::from_micros(u64::from(round_trip.rtt_us)));
                }
            }
            Control::Cost(_) => {}
        }
    }

    fn on_membership(&mut self, now: Time, id: GroupId, site: &Site) {
        if !site.groups.has_member_at(id, self.here) {
            self.origins.retain(|_, origin| origin.remove_flow(id));
        }
        let members = Tfrc::remote_members(self.here, id, site);
        let (config, outbox) = (&self.config, &mut self.outbox);
        self.sending.set_members(now, id, members, (config, outbox));
    }

    fn on_topology(&mut self, now: Time, site: &Site) {
        self.origins
            .retain(|origin, _| site.topology.contains(*origin));
        // A daemon that cannot be reached sends no reports. It must not limit the others.
        let groups: Vec<_> = self.sending.groups().collect();
        for group in groups {
            let members = Tfrc::remote_members(self.here, group, site);
            let (config, outbox) = (&self.config, &mut self.outbox);
            self.sending
                .set_members(now, group, members, (config, outbox));
        }
    }

    fn on_departure(&mut self, _now: Time, daemon: DaemonId, _site: &Site) {
        self.origins.remove(&daemon);
    }

    fn handle_timeout(&mut self, now: Time, _site: &Site) {
        let (config, outbox) = (&self.config, &mut self.outbox);
        self.sending.handle_timeout(now, (config, outbox));
        if self.report_due.is_none_or(|due| now < due) {
            return;
        }
        for (id, origin) in &mut self.origins {
            if let Some(reported) = origin.poll_report(now) {
                self.outbox.push_report(*id, reported);
            }
        }
        self.report_due = self.origins.values().filter_map(Origin::poll_timeout).min();
    }

    fn poll_timeout(&self) -> Option<Time> {
        earliest(self.report_due, self.sending.poll_timeout())
    }

    fn poll_ready(&mut self) -> Option<ClientId> {
        self.outbox.ready.pop_front()
    }

    fn poll_control(&mut self) -> Option<(Audience, Control)> {
        self.outbox.controls.pop_front()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.outbox.events.pop_front()
    }
}
