//! A session of a relay: its aggregator, and the requests that have passed here.

use manyflow_core::{Action, Channel, Destination, Endpoint, EndpointId, Packet, Rate, Time};

use super::config::{RelayError, SessionInfo};
use crate::sim::{Aggregator, EARLY, LATE_ROUNDS};
use crate::{Data, Feedback, GROUPS_MAX, Message};

/// The number of requests by which a packet of data may be late.
const PATIENCE_ROUNDS: u16 = 4;
/// The number of data packets in a row with old requests after which the sender has restarted.
const RESTART_PACKETS: u32 = 32;
/// The maximum of round-trip times and holding times that are believed, in microseconds. A round of
/// the session takes two of the longest round-trip times, so a child that states a false one slows
/// the control of all groups down.
const MICROS_MAX: u32 = 2_000_000;
/// The maximum number of receivers for which a child is believed to report. Without it, the sums
/// over all children saturate, and reports of honest children no longer count.
const REPORTS_MAX: u32 = 1 << 20;

/// A session of a relay.
#[derive(Debug)]
pub(super) struct RelaySession {
    pub(super) info: SessionInfo,
    id: u32,
    aggregator: Aggregator,
    /// Whether each group has requests of its own.
    is_by_group: bool,
    /// The newest request that passed here, of each group if they have their own, otherwise in a
    /// packet of any group; 0 before the first.
    newest: [u16; GROUPS_MAX as usize],
    /// The number of data packets in a row with older requests.
    old_packets: u32,
    /// The last cumulative rate of each group; 0 before its first packet.
    rates: [Rate; GROUPS_MAX as usize],
}

impl RelaySession {
    pub(super) fn new(info: SessionInfo, id: u32) -> RelaySession {
        RelaySession {
            info,
            id,
            aggregator: Aggregator::new(info.session, id, EndpointId::UNSET),
            is_by_group: false,
            newest: [0; GROUPS_MAX as usize],
            old_packets: 0,
            rates: [Rate::default(); GROUPS_MAX as usize],
        }
    }

    /// Returns the last rate of a group and those below it; 0 before the group's first packet.
    pub(super) fn rate(&self, group: u8) -> Rate {
        let known = self.rates.get(usize::from(group));
        known.copied().unwrap_or_default()
    }

    /// Returns the newest request to receivers with this top group.
    pub(super) fn newest(&self, group: u8) -> u16 {
        let known = self.newest.get(self.place(group));
        known.copied().unwrap_or_default()
    }

    /// Returns whether each group has requests of its own.
    pub(super) fn is_by_group(&self) -> bool {
        self.is_by_group
    }

    /// Returns the place of the requests to receivers with this top group.
    pub(super) fn place(&self, group: u8) -> usize {
        if self.is_by_group { group.into() } else { 0 }
    }

    /// Returns whether a data packet has a newer request than all before it that were for the same
    /// receivers.
    pub(super) fn has_new_request(&self, data: &Data) -> bool {
        let newest = self.newest(data.group);
        let ahead = data.request.wrapping_sub(newest) as i16;
        let is_new = newest == 0 || ahead > 0 || data.is_for_group != self.is_by_group;
        data.request != 0 && is_new
    }

    /// Notes the request of a data packet. Returns whether it is a new one, for which
    /// [`open_round`](RelaySession::open_round) is wanted.
    pub(super) fn observe(&mut self, data: &Data) -> bool {
        if data.request != 0 && data.is_for_group != self.is_by_group {
            *self = RelaySession::new(self.info, self.id);
            self.is_by_group = data.is_for_group;
        }
        if let Some(rate) = self.rates.get_mut(usize::from(data.group)) {
            *rate = Rate::from_bits_per_s(8 * u64::from(data.rate));
        }
        let ahead = data.request.wrapping_sub(self.newest(data.group)) as i16;
        match ahead {
            _ if data.request == 0 => false,
            _ if self.has_new_request(data) => self.accept(data),
            0 => {
                self.old_packets = 0;
                false
            }
            _ if ahead.unsigned_abs() <= PATIENCE_ROUNDS => false,
            _ => self.on_old_request(data),
        }
    }

    fn accept(&mut self, data: &Data) -> bool {
        let place = self.place(data.group);
        if let Some(newest) = self.newest.get_mut(place) {
            *newest = data.request;
        }
        self.old_packets = 0;
        true
    }

    /// Begins again after the sender has: its requests are then old ones for a long time.
    fn on_old_request(&mut self, data: &Data) -> bool {
        self.old_packets += 1;
        if self.old_packets < RESTART_PACKETS {
            return false;
        }
        *self = RelaySession {
            is_by_group: data.is_for_group,
            ..RelaySession::new(self.info, self.id)
        };
        self.accept(data)
    }

    /// Begins the round of a new request, to which `awaited` children will answer.
    pub(super) fn open_round(&mut self, now: Time, data: &Data, awaited: usize) {
        self.aggregator.set_awaited(data, awaited);
        let channel = Channel {
            session: self.info.session,
            number: data.group.into(),
        };
        let packet = Packet::new(Destination::Channel(channel), Message::Data(*data), 0);
        self.aggregator.handle_packet(now, &packet);
    }

    /// Checks that feedback answers a request that passed here.
    ///
    /// # Errors
    /// If the group is not known, or the request is old or has not passed here.
    pub(super) fn check(&self, feedback: &Feedback) -> Result<(), RelayError> {
        if feedback.group >= self.info.groups {
            return Err(RelayError::NoSession);
        }
        let newest = self.newest(feedback.group);
        let age = newest.wrapping_sub(feedback.request);
        if newest == 0 || feedback.request == 0 || age >= LATE_ROUNDS {
            return Err(RelayError::Stale);
        }
        Ok(())
    }

    /// Adds feedback of the reporter `source` to the round.
    pub(super) fn add(&mut self, now: Time, source: u32, feedback: &Feedback) {
        debug_assert!(self.check(feedback).is_ok());
        let scale = |count: u32| match feedback.reports {
            ..=REPORTS_MAX => count,
            all => (u64::from(count) * u64::from(REPORTS_MAX) / u64::from(all)) as u32,
        };
        let feedback = Feedback {
            source,
            reports: scale(feedback.reports),
            congested: scale(feedback.congested),
            population: feedback.population.min(REPORTS_MAX),
            hold_us: feedback.hold_us.min(MICROS_MAX),
            rtt_us: feedback.rtt_us.min(MICROS_MAX),
            ..*feedback
        };
        let to = Destination::Endpoint(EndpointId::UNSET);
        let packet = Packet::new(to, Message::Feedback(feedback), 0);
        self.aggregator.handle_packet(now, &packet);
    }

    /// Reports at once that a hop has dropped a packet of the lowest group, if the hop carries far
    /// less than the group's rate.
    pub(super) fn report_early(&mut self, now: Time, carried: Rate) {
        let [carried, rate] = [carried, self.rate(0)].map(|rate| rate.bits_per_s() / 8);
        let request = self.newest(0);
        if request == 0 || carried as f64 >= EARLY * rate as f64 {
            return;
        }
        let carried = u32::try_from(carried).unwrap_or(u32::MAX);
        let feedback = Feedback {
            source: self.id,
            session: self.info.session,
            group: 0,
            more: false,
            request,
            reports: 0,
            congested: 0,
            minimum: carried,
            maximum: carried,
            population: 1,
            hold_us: 0,
            rtt_us: 0,
        };
        self.add(now, self.id, &feedback);
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.aggregator.handle_timeout(now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.aggregator.poll_timeout()
    }

    /// Returns the next summary for the parent.
    pub(super) fn poll_feedback(&mut self, now: Time) -> Option<Feedback> {
        loop {
            // Joins and leaves of the lowest group are left to the driver, which knows what its
            // children have joined.
            let action = self.aggregator.poll_action(now)?;
            if let Action::Send(packet) = action
                && let Message::Feedback(feedback) = packet.header
            {
                return Some(feedback);
            }
        }
    }
}
