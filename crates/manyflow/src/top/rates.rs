//! Rates between two states of a daemon.

use std::collections::BTreeMap;

use manyflow_messages::{DaemonStatus, LinkStatus};
use serde::Serialize;

/// The work of a daemon in a second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Rates {
    pub(super) published_per_s: f64,
    pub(super) delivered_per_s: f64,
    /// By the neighbour's name.
    pub(super) links: BTreeMap<String, LinkRates>,
}

/// The traffic of a link in a second.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub(super) struct LinkRates {
    pub(super) sent_messages_per_s: f64,
    pub(super) received_messages_per_s: f64,
    pub(super) sent_bytes_per_s: f64,
    pub(super) received_bytes_per_s: f64,
}

impl Rates {
    /// Returns the rates between two states, by the daemon's clock. `None` without two states, and
    /// if the daemon has restarted between them.
    pub(super) fn between(
        before: Option<&DaemonStatus>,
        after: Option<&DaemonStatus>,
    ) -> Option<Rates> {
        let (before, after) = (before?, after?);
        let seconds = after.uptime_s - before.uptime_s;
        let has_restarted = after.name != before.name
            || after.counters.published < before.counters.published
            || after.counters.delivered < before.counters.delivered;
        if seconds <= 0.0 || has_restarted {
            return None;
        }
        let per_second = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
        let link_rates = |before: &LinkStatus, after: &LinkStatus| LinkRates {
            sent_messages_per_s: per_second(before.sent_messages, after.sent_messages),
            received_messages_per_s: per_second(before.received_messages, after.received_messages),
            sent_bytes_per_s: per_second(before.sent_bytes, after.sent_bytes),
            received_bytes_per_s: per_second(before.received_bytes, after.received_bytes),
        };
        let links = after.links.iter().filter_map(|link| {
            let known = before.links.iter().find(|known| known.name == link.name)?;
            Some((link.name.clone(), link_rates(known, link)))
        });
        let (old, new) = (&before.counters, &after.counters);
        Some(Rates {
            published_per_s: per_second(old.published, new.published),
            delivered_per_s: per_second(old.delivered, new.delivered),
            links: links.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(uptime_s: f64, published: u64, sent: u64) -> DaemonStatus {
        let link = json!({"name": "b", "sent_messages": sent});
        let counters = json!({"published": published});
        let status = json!({"uptime_s": uptime_s, "counters": counters, "links": [link]});
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn rates_are_by_the_daemons_own_clock() {
        let (before, after) = (status(10.0, 100, 7), status(12.5, 350, 107));
        let rates = Rates::between(Some(&before), Some(&after)).unwrap();
        assert_eq!(rates.published_per_s, 100.0);
        assert_eq!(rates.links["b"].sent_messages_per_s, 40.0);
    }

    #[test]
    fn a_daemon_without_a_state_before_has_no_rates() {
        let (before, restarted) = (status(10.0, 100, 7), status(0.5, 0, 0));
        assert_eq!(Rates::between(None, Some(&before)), None);
        assert_eq!(Rates::between(Some(&before), None), None);
        assert_eq!(Rates::between(Some(&before), Some(&restarted)), None);
        assert_eq!(Rates::between(Some(&before), Some(&before)), None);
    }
}
