//! Many-to-many TFRC: each group's messages enter at the rate that TCP would have to the slowest
//! daemon with members (Anker, Dolev, Shnayderman and Sukhov, "TCP-Friendly Many-to-Many End-to-End
//! Congestion Control", sections 3 and 4).
//!
//! ```text
//!   local clients                 sending daemon (SD)                                       receiving daemon (RD)
//!     | one message                 RTT = (T_now - T_out) - Delta   <---- Report ----         loss events, I_mean, p = 1 / I_mean
//!     v                             X = min over RDs                 rate, p, ack, Delta      rate = Eq. (1) of p and RTT
//!   token bucket <-- max-min of X                                   ---- RoundTrip -->        RTT
//! ```
//!
//! | step | who, how often | section | file |
//! |---|---|---|---|
//! | round-trip times | SD, each report, for each remote daemon and group | 4.1 | `rtt.rs` |
//! | loss event rate | RD, each message, for each origin and group | 4.2 | `loss.rs` |
//! | acceptable rate, its report | RD, once a round-trip time and at each new loss event | 4.2 | `rate.rs`, `receiver.rs` |
//! | allowed rate, slow start | SD, each report | 4.2, 4.4 | `sender.rs` |
//! | demands, max-min, token buckets | SD, each half second and each new rate | 4.3 | `allocation.rs` |
//!
//! The paper is an overview and builds on RFC 5348. It leaves these points open; the choices are:
//!
//! - **Losses end to end.** Links repair losses, so that a receiving daemon gets every message. It
//!   observes a loss as a gap in an origin's numbers; the copy that fills the gap is flagged as
//!   [repaired](super::Message::repaired). As in the paper, a gap counts as a loss at once: a
//!   message that was only late counts as lost.
//! - **Repaired copies** give no samples of the round-trip time. They count neither as received nor
//!   as lost a second time. The paper leaves to future work whether they are part of the sending
//!   rate. Here they are, because a TCP connection's rate includes its retransmissions, and so does
//!   Eq. (1). New messages may be sent at the reported rate times (1 - share of repaired copies);
//!   the group's rate is the minimum over all receiving daemons.
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
//!   limit at the sender then grows at most to twice itself and to twice the rate at which
//!   acknowledged messages arrive (RFC 5348 section 4.3); an unused limit does not grow. After
//!   losses, a limit at most doubles in a round-trip time as well, so that the rate recovers from
//!   silence as it starts.
//! - **Silence.** As in RFC 5348 section 4.4, but with 3 s/X instead of 2 s/X: a daemon's limit is
//!   halved after max(4 RTT, 3 s/X) without a report, or after 2 s before its first report, down to
//!   a message in 64 s. With 2 s/X, a single lost report or message would halve the limit wherever
//!   each message is answered separately. If nothing was sent in that time, the limit falls only to
//!   the initial rate.
//! - **Members that join and leave.** A daemon no longer counts once the sender learns that its
//!   last member has left. A daemon that joins counts from its first report on, or from the
//!   time-out of that report. Until then, the minimum of the others limits the rate, or the initial
//!   rate if there are no others: at worst, its path carries the rate of the others for one
//!   round-trip time. Its own limit starts at the group's allowed rate.
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
//!   of the latest sample, and the group has the minimum of these products.
//! - **Demands.** A client's window is the one message that may wait at its daemon
//!   (`allocation.rs`). Priorities have no effect, because the paper has none.

mod allocation;
mod config;
mod loss;
mod rate;
mod receiver;
mod rtt;
mod sender;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

pub use config::{LossAverage, TfrcConfig};
use receiver::{ReceivedFlow, Reported};
use sender::Group;

use super::controller::{Audience, Controller, Request, Site};
use super::message::{ClientId, Control, DaemonId, Data, GroupId, LinkId, Report, RoundTrip};
use crate::Event;
use manyflow_core::ConfigError;
use manyflow_core::time::Time;
use manyflow_core::units::Rate;

/// The many-to-many TFRC controller of one daemon, as a sender and as a receiver.
#[derive(Debug)]
pub struct Tfrc {
    config: TfrcConfig,
    here: DaemonId,
    /// The groups to which local clients send.
    groups: BTreeMap<GroupId, Group>,
    /// The flows that arrive for local members.
    flows: BTreeMap<(DaemonId, GroupId), ReceivedFlow>,
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
            groups: BTreeMap::new(),
            flows: BTreeMap::new(),
            outbox: Outbox::default(),
        })
    }

    /// Returns the number of groups and flows with state. It is zero without members and senders.
    pub fn state_size(&self) -> usize {
        self.groups.len() + self.flows.len()
    }

    /// Returns the rate at which local clients may send to a group together; `None` if none of them
    /// sends to it, or if no other daemon has members.
    pub fn allowed_rate(&self, group: GroupId) -> Option<Rate> {
        let group = self.groups.get(&group)?;
        Some(rate(group.allowed()))
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

    /// Handles a change of the daemons with members of a group to which local clients send.
    fn update_members(&mut self, now: Time, id: GroupId, site: &Site) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        group.set_members(Tfrc::remote_members(self.here, id, site));
        if group.is_remote() {
            self.outbox.update_allowed(now, id, group, &self.config);
        } else {
            self.outbox.ready.extend(group.allocation.release());
            self.groups.remove(&id);
        }
    }

    fn on_report(&mut self, now: Time, from: DaemonId, report: &Report) {
        let Some(group) = self.groups.get_mut(&report.group) else {
            return;
        };
        let Some(measured) = group.on_report(now, from, report, &self.config) else {
            return;
        };
        self.outbox.events.push_back(Event::Acceptable {
            by: from,
            group: report.group,
            rate: sender::acceptable(report, &self.config).map(rate),
        });
        if let Some((sample, average)) = measured {
            self.outbox.events.push_back(Event::Rtt {
                sample_s: sample.as_secs_f64(),
                average_s: average.as_secs_f64(),
            });
            let answer = Control::RoundTrip(RoundTrip {
                group: report.group,
                rtt_us: u32::try_from(average.as_micros()).unwrap_or(u32::MAX),
            });
            self.outbox
                .controls
                .push_back((Audience::One(from), answer));
        }
        self.outbox
            .update_allowed(now, report.group, group, &self.config);
    }

    /// Sends the report on a flow, if one is due.
    fn send_due_report(&mut self, now: Time, key: (DaemonId, GroupId)) {
        let flow = self.flows.get_mut(&key);
        if let Some(reported) = flow.and_then(|flow| flow.poll_report(now)) {
            self.outbox.push_report(key.0, reported);
        }
    }
}

impl Outbox {
    fn push_report(&mut self, to: DaemonId, reported: Reported) {
        let control = Control::Report(reported.report);
        self.controls.push_back((Audience::One(to), control));
        self.events.extend(reported.rates);
    }

    /// Updates a group's allowed rate, and reports it if it has changed noticeably.
    fn update_allowed(&mut self, now: Time, id: GroupId, group: &mut Group, config: &TfrcConfig) {
        let allowed = group.update_allowed(now, config);
        self.events.extend(allowed.map(|allowed| Event::Allowed {
            group: id,
            rate: rate(allowed),
        }));
    }
}

/// Converts bytes per second to a [`Rate`].
fn rate(bytes_per_s: f64) -> Rate {
    Rate::from_bits_per_s((bytes_per_s * 8.0 + 0.5) as u64)
}

impl Controller for Tfrc {
    fn add_client(&mut self, _now: Time, _client: ClientId, _priority: f64) {}

    fn remove_client(&mut self, now: Time, client: ClientId) {
        for group in self.groups.values_mut() {
            let allowed = group.allowed();
            group.allocation.remove(now, client, allowed);
        }
    }

    /// Each group has a rate of its own, so that a message enters for each of its groups when this
    /// one's turn comes.
    fn shares_copies(&self) -> bool {
        false
    }

    fn try_admit(&mut self, now: Time, request: &Request, site: &Site) -> bool {
        let Request { client, bytes, .. } = *request;
        let id = request.groups.first();
        if Tfrc::remote_members(self.here, id, site).next().is_none() {
            return true;
        }
        let (here, config) = (self.here, &self.config);
        let group = self.groups.entry(id).or_insert_with(|| {
            let mut group = Group::new(config);
            group.set_members(Tfrc::remote_members(here, id, site));
            group
        });
        let allowed = group.allowed();
        group
            .allocation
            .try_admit(now, client, f64::from(bytes), allowed, config)
    }

    fn on_sent(&mut self, now: Time, data: &Data, bytes: u32, _site: &Site) {
        if let Some(group) = self.groups.get_mut(&data.group) {
            group.on_sent(now, data.sequence, bytes, &self.config);
        }
    }

    fn on_queue(&mut self, _now: Time, _link: LinkId, _messages: usize) {}

    fn on_arrival(&mut self, now: Time, origin: DaemonId, data: &Data, repaired: bool, bytes: u32) {
        let key = (origin, data.group);
        let config = &self.config;
        let flow = self.flows.entry(key);
        let flow = flow.or_insert_with(|| ReceivedFlow::new(now, data.group, config));
        if flow.on_arrival(now, data.sequence, repaired, bytes) {
            self.outbox.events.push_back(Event::LossEvent);
        }
        self.send_due_report(now, key);
    }

    fn on_control(&mut self, now: Time, from: DaemonId, control: &Control, _site: &Site) {
        match control {
            Control::Report(report) => self.on_report(now, from, report),
            Control::RoundTrip(round_trip) => {
                if let Some(flow) = self.flows.get_mut(&(from, round_trip.group)) {
                    flow.on_round_trip(Duration::from_micros(u64::from(round_trip.rtt_us)));
                }
            }
            Control::Cost(_) => {}
        }
    }

    fn on_membership(&mut self, now: Time, id: GroupId, site: &Site) {
        if !site.groups.has_member_at(id, self.here) {
            self.flows.retain(|(_, group), _| *group != id);
        }
        self.update_members(now, id, site);
    }

    fn on_topology(&mut self, now: Time, site: &Site) {
        self.flows
            .retain(|(origin, _), _| site.topology.contains(*origin));
        // A daemon that cannot be reached sends no reports. It must not limit the others.
        let groups: Vec<_> = self.groups.keys().copied().collect();
        for group in groups {
            self.update_members(now, group, site);
        }
    }

    fn on_departure(&mut self, _now: Time, daemon: DaemonId, _site: &Site) {
        self.flows.retain(|(origin, _), _| *origin != daemon);
    }

    fn handle_timeout(&mut self, now: Time, _site: &Site) {
        for (id, group) in &mut self.groups {
            group.handle_timeout(now, &self.config);
            self.outbox.update_allowed(now, *id, group, &self.config);
            let (allowed, ready) = (group.allowed(), &mut self.outbox.ready);
            group
                .allocation
                .handle_timeout(now, allowed, &self.config, |c| ready.push_back(c));
        }
        for ((origin, _), flow) in &mut self.flows {
            if let Some(reported) = flow.poll_report(now) {
                self.outbox.push_report(*origin, reported);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let groups = self.groups.values().filter_map(Group::poll_timeout);
        let flows = self.flows.values().filter_map(ReceivedFlow::poll_timeout);
        groups.chain(flows).min()
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
