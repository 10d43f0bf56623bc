//! What a daemon tells the others of its own links (section V).

use core::time::Duration;
use std::collections::VecDeque;

use super::config::CostBenefitConfig;
use crate::message::{CostUpdate, LinkId, LinkState};
use manyflow_core::time::Time;

/// The time constant of a queue's average. Long enough that a burst which a link sends within
/// milliseconds has no price, short beside the time between updates, as each millisecond of it is
/// one more until senders know.
const AVERAGE: Duration = Duration::from_millis(20);
/// An average queue below half a message has no price: that is one message now and then, and the
/// link is not congested.
const NOTICEABLE: f64 = 0.5;

/// One of this daemon's links.
#[derive(Debug)]
struct OwnLink {
    link: LinkId,
    /// Messages that wait, since a time, and the average until then.
    messages: u32,
    since: Time,
    average: f64,
    /// What others were told, in sixteenths.
    told: u16,
}

impl OwnLink {
    /// The exponentially weighted average over time, in messages.
    fn average(&self, now: Time) -> f64 {
        let age = (now - self.since).as_secs_f64() / AVERAGE.as_secs_f64();
        let messages = f64::from(self.messages);
        messages + (self.average - messages) * libm::exp(-age)
    }

    /// What there is to tell, in sixteenths.
    fn sixteenths(&self, now: Time) -> u16 {
        let average = self.average(now);
        if average < NOTICEABLE {
            return 0;
        }
        (average * 16.0 + 0.5) as u16
    }
}

/// The links of this daemon that are not idle, and what was told of them.
#[derive(Debug)]
pub(super) struct Updates {
    config: (Duration, Duration),
    at_once: bool,
    links: Vec<OwnLink>,
    /// When the links were last looked at, and when they will be.
    last: Time,
    next: Option<Time>,
    /// When others were last told anything. A daemon that has never had a price to tell is silent,
    /// as all links are taken for idle until something else is heard.
    told: Option<Time>,
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
            told: None,
            pending: VecDeque::new(),
        }
    }

    /// So many messages wait for a link now.
    pub(super) fn on_queue(&mut self, now: Time, link: LinkId, messages: usize) {
        let messages = u32::try_from(messages).unwrap_or(u32::MAX);
        match self.links.iter_mut().find(|own| own.link == link) {
            Some(own) => {
                own.average = own.average(now);
                own.since = now;
                own.messages = messages;
            }
            None if messages > 0 => self.links.push(OwnLink {
                link,
                messages,
                since: now,
                average: 0.0,
                told: 0,
            }),
            None => return,
        }
        // A queue that has just begun is told of when its average shows it.
        let soon = (now + AVERAGE).max(self.last + self.config.0);
        self.next = Some(self.next.map_or(soon, |next| next.min(soon)));
    }

    /// The links that have a price, with the messages that wait there.
    pub(super) fn waiting(&self, now: Time) -> impl Iterator<Item = (LinkId, f64)> {
        self.links.iter().map(move |own| match self.at_once {
            true => (own.link, own.average(now)),
            false => (own.link, f64::from(own.told) / 16.0),
        })
    }

    /// When [`look`](Updates::look) is wanted.
    pub(super) fn next(&self) -> Option<Time> {
        self.next
    }

    /// Tells what has a price, and once what has none any more; returns whether it was time to
    /// look.
    pub(super) fn look(&mut self, now: Time) -> bool {
        if self.next.is_none_or(|next| now < next) {
            return false;
        }
        let mut update = CostUpdate {
            links: [None; CostUpdate::LINKS],
        };
        let mut count = 0;
        for own in &mut self.links {
            let queue = own.sixteenths(now);
            if queue > 0 || own.told > 0 {
                let link = own.link;
                update.links[count % CostUpdate::LINKS] = Some(LinkState { link, queue });
                count += 1;
                if count.is_multiple_of(CostUpdate::LINKS) {
                    self.pending.push_back(update);
                    update.links = [None; CostUpdate::LINKS];
                }
            }
            own.told = queue;
        }
        // Without a link, the update says that none is congested still.
        let (congested, idle) = self.config;
        let heartbeat = self.told.is_some_and(|told| now >= told + idle);
        if !count.is_multiple_of(CostUpdate::LINKS) || count == 0 && heartbeat {
            self.pending.push_back(update);
        }
        if count > 0 || heartbeat {
            self.told = Some(now);
        }
        self.links.retain(|own| {
            own.messages > 0 || own.told > 0 || own.average(now) >= NOTICEABLE / 16.0
        });
        self.last = now;
        self.next = match self.links.is_empty() {
            true => self.told.map(|told| told + idle),
            false => Some(now + congested),
        };
        true
    }

    pub(super) fn poll(&mut self) -> Option<CostUpdate> {
        self.pending.pop_front()
    }

    /// How many links it keeps something of.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.links.len()
    }
}
