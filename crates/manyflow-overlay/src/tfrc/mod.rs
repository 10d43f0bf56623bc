//! Many-to-many TFRC: each group's messages at the rate that TCP would have to the slowest daemon
//! with members (Anker, Dolev, Shnayderman and Sukhov, "TCP-Friendly Many-to-Many End-to-End
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
//! The paper is an overview; RFC 5348 is what it builds on. What it leaves open, and what was
//! chosen:
//!
//! - **Losses end to end.** Links repair what they lose, so a receiving daemon gets every message.
//!   It sees a loss as a gap in an origin's numbers, and the copy that fills it says that it was
//!   [repaired](super::Message::repaired). As in the paper, a gap is a loss at once: a message that
//!   was only late counts as lost.
//! - **Repaired copies** say nothing about round-trip times, and count neither as received nor as
//!   lost a second time. Whether they belong to the sending rate the paper leaves to future work.
//!   Here they do: a TCP connection's rate has its retransmissions in it, and so has Eq. (1). What
//!   may be sent anew is the reported rate times (1 - share of repaired copies), for each receiving
//!   daemon, and the minimum of those. [`count_repairs`](TfrcConfig::count_repairs)` = false` is
//!   the paper's measurement.
//! - **An interval** has the lost packet that begins it. The paper counts what arrived between loss
//!   events, and no more: p is then too high by a factor of 1 / (1 - p), and 1 after three losses
//!   in a row at a high loss rate, where Eq. (1) gives a message in 134 round-trip times: it takes
//!   minutes to come back from there. [`count_losses`](TfrcConfig::count_losses)` = false` is the
//!   paper's letter.
//! - **Eq. (2) forgets quickly**: half of p is the last interval. The rate scatters for it, and
//!   since low rates last longer, its mean lies below that of Eq. (1) at the mean p: by some 10 %
//!   at p = 0.01, by a quarter and more at 0.05 and above (`tests.rs` prints it). RFC 5348's
//!   average over eight intervals would not; a [`loss_history`](TfrcConfig::loss_history) of 0.75
//!   or more comes near it. That is a choice between two of the paper's figures: with 0.75 fewer
//!   minutes beside TCP are off by a factor of two (`scenarios/xp-8.toml`), but the rate takes four
//!   times as long to fall when a slower member joins (`scenarios/xp-6.toml`). The paper's half
//!   stays.
//! - **The first loss.** Eq. (2) needs an I_past. The number of packets until the first loss says
//!   how slow start went; RFC 5348 section 6.3.1 takes the interval at which Eq. (1) gives the
//!   highest rate that was received until then, which is what is done.
//! - **Slow start.** A daemon that has seen no loss reports no limit. Its limit at the sender then
//!   grows in each round-trip time, at most to twice itself and twice the rate at which
//!   acknowledged messages arrive (RFC 5348 section 4.3), and grows no further while it is not
//!   used. Where losses are known, a limit at most doubles in a round-trip time as well: so the
//!   rate comes back from silence as it does at first.
//! - **Silence.** RFC 5348 section 4.4, but for 3 s/X instead of 2: without a report for max(4 RTT,
//!   3 s/X), and 2 s before the first one, a daemon's limit is halved, down to a message in 64 s.
//!   After 2 s/X a single lost report or message would do that, wherever answers come message by
//!   message. Where nothing was sent in that time, down to the initial rate only.
//! - **Members that come and go.** A daemon whose last member leaves counts no more, from the
//!   moment at which that is heard. One that joins counts from its first report on, or from when it
//!   should have come. Until then the others' minimum bounds the rate, and the initial rate where
//!   there are none: at worst, its path gets for one round-trip time what the others take. Its
//!   limit begins at the group's allowed rate.
//! - **Before the round-trip time is known** a receiving daemon reports each message, and takes
//!   half a second for it.
//! - **Groups whose members are all here.** Messages do not leave the machine, so there is no
//!   network to be fair to: every message is admitted. What holds a client up is that it has one
//!   message at a time at its daemon, and that the daemon takes none for a group whose members are
//!   full. The paper has TCP's window there, which between processes is this same back-pressure.
//! - **The average round-trip time** weighs the past by one half instead of RFC 5348's 0.9: the RFC
//!   asks for a low weight where its section 4.5 (slower sending while queues grow) is left out,
//!   and the paper wants a change to take effect within a round-trip time.
//! - **Demands.** A client's window is the one message that may wait at its daemon: see
//!   `allocation.rs`. Priorities are not used, as the paper has none.

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

pub use config::TfrcConfig;
use receiver::{ReceivedFlow, Reported};
use sender::Group;

use super::controller::{Audience, Controller, Request, Site};
use super::message::{ClientId, Control, DaemonId, Data, GroupId, LinkId, Report, RoundTrip};
use crate::Event;
use manyflow_core::ConfigError;
use manyflow_core::time::Time;
use manyflow_core::units::Rate;

/// One daemon's part of many-to-many TFRC, as a sender and as a receiver.
#[derive(Debug)]
pub struct Tfrc {
    config: TfrcConfig,
    here: DaemonId,
    /// Groups that local clients send to.
    groups: BTreeMap<GroupId, Group>,
    /// What arrives for local members.
    flows: BTreeMap<(DaemonId, GroupId), ReceivedFlow>,
    outbox: Outbox,
}

/// What the daemon is to hear.
#[derive(Debug, Default)]
struct Outbox {
    ready: VecDeque<ClientId>,
    controls: VecDeque<(Audience, Control)>,
    events: VecDeque<Event>,
}

impl Tfrc {
    /// The controller of the daemon `here`.
    ///
    /// # Errors
    /// Where a parameter is outside its range.
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

    /// Groups and flows that it keeps something of: none without members and senders.
    pub fn state_size(&self) -> usize {
        self.groups.len() + self.flows.len()
    }

    /// Other daemons with members of a group.
    fn remote_members(
        here: DaemonId,
        group: GroupId,
        site: &Site,
    ) -> impl Iterator<Item = DaemonId> {
        let daemons = site.groups.daemons(group);
        daemons.filter(move |daemon| *daemon != here)
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
        self.outbox.settle(now, report.group, group, &self.config);
    }

    /// Sends the report on a flow, if it is due.
    fn report(&mut self, now: Time, key: (DaemonId, GroupId)) {
        let flow = self.flows.get_mut(&key);
        if let Some(reported) = flow.and_then(|flow| flow.report(now)) {
            self.outbox.report(key.0, reported);
        }
    }
}

impl Outbox {
    fn report(&mut self, to: DaemonId, reported: Reported) {
        let control = Control::Report(reported.report);
        self.controls.push_back((Audience::One(to), control));
        self.events.extend(reported.rates);
    }

    /// Tells a group's allowed rate where it has changed.
    fn settle(&mut self, now: Time, id: GroupId, group: &mut Group, config: &TfrcConfig) {
        let allowed = group.settle(now, config);
        self.events.extend(allowed.map(|allowed| Event::Allowed {
            group: id,
            rate: rate(allowed),
        }));
    }
}

/// A rate of so many bytes per second.
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

    fn try_admit(&mut self, now: Time, request: &Request, site: &Site) -> bool {
        let Request {
            client,
            group: id,
            bytes,
        } = *request;
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
        self.report(now, key);
    }

    fn on_control(&mut self, now: Time, from: DaemonId, control: &Control, _site: &Site) {
        match control {
            Control::Report(report) => self.on_report(now, from, report),
            Control::RoundTrip(told) => {
                if let Some(flow) = self.flows.get_mut(&(from, told.group)) {
                    flow.on_round_trip(Duration::from_micros(u64::from(told.rtt_us)));
                }
            }
            Control::Cost(_) => {}
        }
    }

    fn on_membership(&mut self, now: Time, id: GroupId, site: &Site) {
        if !site.groups.has_member_at(id, self.here) {
            self.flows.retain(|(_, group), _| *group != id);
        }
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        group.set_members(Tfrc::remote_members(self.here, id, site));
        if group.is_remote() {
            self.outbox.settle(now, id, group, &self.config);
        } else {
            self.outbox.ready.extend(group.allocation.release());
            self.groups.remove(&id);
        }
    }

    fn handle_timeout(&mut self, now: Time, _site: &Site) {
        for (id, group) in &mut self.groups {
            group.handle_timeout(now, &self.config);
            self.outbox.settle(now, *id, group, &self.config);
            let (allowed, ready) = (group.allowed(), &mut self.outbox.ready);
            group
                .allocation
                .handle_timeout(now, allowed, &self.config, |c| ready.push_back(c));
        }
        for ((origin, _), flow) in &mut self.flows {
            if let Some(reported) = flow.report(now) {
                self.outbox.report(*origin, reported);
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
