//! A daemon's reports to all others about its own links (section V).

use core::time::Duration;
use std::collections::VecDeque;

use super::config::CostBenefitConfig;
use crate::controller::Site;
use crate::message::{CostUpdate, LinkId, LinkState};
use manyflow_core::time::Time;

/// The time constant of a queue's average. It is long enough that a burst which leaves within
/// milliseconds has no price. It is short compared with the time between updates, because each
/// millisecond delays the price by a millisecond.
const AVERAGE: Duration = Duration::from_millis(20);
/// An average queue below this has no price. Such a queue is one message now and then on a link
/// that is not congested.
const NOTICEABLE: f64 = 0.5;

/// The state of one of this daemon's links.
#[derive(Debug)]
struct OwnLink {
    link: LinkId,
    /// The number of messages that have waited since `since`, and the average up to then.
    messages: u32,
    since: Time,
    average: f64,
    /// The queue that was last reported to other daemons, in sixteenths of a message.
    reported: u16,
}

impl OwnLink {
    /// Returns the exponentially weighted average of the queue in messages.
    fn average(&self, now: Time) -> f64 {
        let age = (now - self.since).as_secs_f64() / AVERAGE.as_secs_f64();
        let messages = f64::from(self.messages);
        messages + (self.average - messages) * libm::exp(-age)
    }

    /// Handles a change of the queue.
    fn set(&mut self, now: Time, messages: u32) {
        self.average = self.average(now);
        self.since = now;
        self.messages = messages;
    }

    /// Returns the queue to report, in sixteenths of a message.
    fn sixteenths(&self, now: Time) -> u16 {
        let average = self.average(now);
        if average < NOTICEABLE {
            return 0;
        }
        (average * 16.0 + 0.5) as u16
    }
}

/// The links of this daemon that are not idle, and the reports about them.
#[derive(Debug)]
pub(super) struct Updates {
    config: (Duration, Duration),
    at_once: bool,
    links: Vec<OwnLink>,
    /// The times of the last and the next check of the links.
    last: Time,
    next: Option<Time>,
    /// The time at which this daemon last sent an update. A daemon that has never had a price to
    /// report stays silent, because all links count as idle until an update says otherwise.
    reported_at: Option<Time>,
    pending: VecDeque<CostUpdate>,
}

impl Updates {
    pub(super) fn new(config: &CostBenefitConfig) -> Updates {
        Updates {
            config: (config.update_min, config.update_max),
            at_once: config.own_queues_at_once,
            links: Vec::new(),
            last: Time::ZERO,
            next: None,
            reported_at: None,
            pending: VecDeque::new(),
        }
    }

    /// Handles a change of the number of messages that wait for a link.
    pub(super) fn on_queue(&mut self, now: Time, link: LinkId, messages: usize) {
        let messages = u32::try_from(messages).unwrap_or(u32::MAX);
        match self.links.iter_mut().find(|own| own.link == link) {
            Some(own) => own.set(now, messages),
            None if messages > 0 => self.links.push(OwnLink {
                link,
                messages,
                since: now,
                average: 0.0,
                reported: 0,
            }),
            None => return,
        }
        // A new queue is reported when its average has become noticeable.
        let soon = (now + AVERAGE).max(self.last + self.config.0);
        self.next = Some(self.next.map_or(soon, |next| next.min(soon)));
    }

    /// Forgets links that no longer exist.
    pub(super) fn handle_topology(&mut self, site: &Site) {
        let exists = |link: LinkId| site.topology.link(link.from, link.to).is_some();
        self.links
            .retain(|own| own.messages > 0 || exists(own.link));
    }

    /// Returns the links that may have a price, with the number of messages that wait for each.
    pub(super) fn waiting(&self, now: Time) -> impl Iterator<Item = (LinkId, f64)> {
        self.links.iter().map(move |own| match self.at_once {
            true => (own.link, own.average(now)),
            false => (own.link, f64::from(own.reported) / 16.0),
        })
    }

    /// Returns when [`handle_timeout`](Updates::handle_timeout) is wanted next, if at all.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.next
    }

    /// Checks the links if it is time, and queues updates for those that have a price or just lost
    /// it. Returns whether it was time.
    pub(super) fn handle_timeout(&mut self, now: Time) -> bool {
        if self.next.is_none_or(|next| now < next) {
            return false;
        }
        let mut update = CostUpdate {
            version: 0,
            links: [None; CostUpdate::LINKS],
        };
        let mut count = 0;
        for own in &mut self.links {
            let queue = own.sixteenths(now);
            if queue > 0 || own.reported > 0 {
                let to = own.link.to;
                update.links[count % CostUpdate::LINKS] = Some(LinkState { to, queue });
                count += 1;
                if count.is_multiple_of(CostUpdate::LINKS) {
                    self.pending.push_back(update);
                    update.links = [None; CostUpdate::LINKS];
                }
            }
            own.reported = queue;
        }
        // An update without links reports that no link is congested.
        let (congested, idle) = self.config;
        let heartbeat = self.reported_at.is_some_and(|last| now >= last + idle);
        if !count.is_multiple_of(CostUpdate::LINKS) || count == 0 && heartbeat {
            self.pending.push_back(update);
        }
        if count > 0 || heartbeat {
            self.reported_at = Some(now);
        }
        self.links.retain(|own| {
            own.messages > 0 || own.reported > 0 || own.average(now) >= NOTICEABLE / 16.0
        });
        self.last = now;
        self.next = match self.links.is_empty() {
            true => self.reported_at.map(|last| last + idle),
            false => Some(now + congested),
        };
        true
    }

    pub(super) fn pop_update(&mut self) -> Option<CostUpdate> {
        self.pending.pop_front()
    }

    /// Returns the number of links with state.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.links.len()
    }
}
