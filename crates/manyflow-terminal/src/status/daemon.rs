//! The page of a daemon.

use manyflow_messages::{DaemonStatus, GroupStatus, LinkStatus, SlowMemberStatus, SlowVerdict};

use super::{Cell, Described, Series, Table, Unit, View};
use crate::metrics::daemon_counts;

/// The number of links whose prices and rates are drawn.
const LINKS_DRAWN: usize = 6;

impl Described for DaemonStatus {
    fn view(&self) -> View {
        let up = self.links.iter().filter(|link| link.is_up).count();
        let links = format!("{up} of {}", self.links.len());
        View {
            title: format!("{} of {}", self.name, self.overlay),
            facts: vec![
                (
                    "links up",
                    Cell::state(up == self.links.len(), &links, &links),
                ),
                (
                    "daemons that can be reached",
                    Cell::count(self.daemons.len()),
                ),
                ("clients", Cell::count(self.clients)),
                ("groups", Cell::count(self.groups)),
                ("slow members", slow(self.slow_members)),
                (
                    "not acknowledged",
                    Cell::Bytes(self.unacknowledged_bytes as f64),
                ),
                ("flow control", Cell::text(&self.controller)),
                ("up for", Cell::Seconds(self.uptime_s)),
                (
                    "topology changes",
                    Cell::Count(self.topology_version as f64),
                ),
            ],
            lines: Vec::new(),
            tables: vec![
                links_table(&self.links),
                slow_table(self),
                groups_table(self),
                Table::of_events(daemon_counts(&self.counters)),
                Table::new(
                    "Daemons that can be reached",
                    &["daemon"],
                    self.daemons.iter().map(|name| vec![Cell::text(name)]),
                ),
            ],
        }
    }

    fn series(&self) -> Vec<Series> {
        let up = self.links.iter().filter(|link| link.is_up).count();
        let counters = &self.counters;
        let mut series = vec![
            Series::growth("messages from clients", Unit::PerS, counters.published),
            Series::growth("messages to clients", Unit::PerS, counters.delivered),
            Series::now("links up", Unit::Count, up as f64),
            Series::now("slow members", Unit::Count, self.slow_members as f64),
        ];
        for link in self.links.iter().take(LINKS_DRAWN) {
            let name = &link.name;
            let (to, from) = (format!("rate to {name}"), format!("rate from {name}"));
            series.push(Series::growth(to, Unit::BitsPerS, link.sent_bytes));
            series.push(Series::growth(from, Unit::BitsPerS, link.received_bytes));
            let price = link.price_dollars;
            let price =
                price.map(|price| Series::now(format!("price of {name}"), Unit::Dollars, price));
            series.extend(price);
        }
        series
    }
}

fn slow(members: usize) -> Cell {
    let text = members.to_string();
    Cell::state(members == 0, &text, &text)
}

fn links_table(links: &[LinkStatus]) -> Table {
    let row = |link: &LinkStatus| {
        let resent = link.retransmissions.map(|count| Cell::Count(count as f64));
        vec![
            Cell::text(&link.name),
            Cell::state(link.is_up, "up", "down"),
            Cell::count(link.queue_messages),
            link.price_dollars.map_or(Cell::Empty, Cell::Dollars),
            link.rtt_ms
                .map_or(Cell::Empty, |ms| Cell::Seconds(ms / 1e3)),
            resent.unwrap_or(Cell::Empty),
            Cell::Bytes(link.sent_bytes as f64),
            Cell::Bytes(link.received_bytes as f64),
            Cell::Bytes(link.outgoing_bytes as f64),
        ]
    };
    Table::new(
        "Links",
        &[
            "neighbour",
            "state",
            "queue",
            "price",
            "RTT",
            "sent again",
            "sent",
            "received",
            "waiting",
        ],
        links.iter().map(row),
    )
}

fn slow_table(status: &DaemonStatus) -> Table {
    let row = |member: &SlowMemberStatus| {
        let number = member.client.map(|client| format!("#{client}"));
        let verdict = match member.verdict {
            SlowVerdict::Blocks => "its senders wait",
            SlowVerdict::Misses => "it misses messages",
            SlowVerdict::Evicted => "it was removed",
            _ => "",
        };
        vec![
            group(&member.pattern, member.queue.as_deref()),
            Cell::text(member.name.clone().or(number).unwrap_or_default()),
            Cell::Bad(verdict.to_owned()),
            Cell::Seconds(member.slow_for_s),
            Cell::Count(member.missed_messages as f64),
            Cell::text(member.address.clone().unwrap_or_default()),
        ]
    };
    let members = &status.first_slow_members;
    let columns = &["group", "client", "action", "for", "missed", "address"];
    let mut table = Table::new("Slow members", columns, members.iter().map(row));
    table.left_out = status.slow_members.saturating_sub(members.len());
    table
}

fn groups_table(status: &DaemonStatus) -> Table {
    let row = |shown: &GroupStatus| {
        let members = shown.members.iter();
        let members = members.map(|(daemon, count)| format!("{daemon}: {count}"));
        let allowed = shown.allowed_bits_per_s;
        vec![
            group(&shown.pattern, shown.queue.as_deref()),
            allowed.map_or(Cell::Empty, |rate| Cell::BitsPerS(rate as f64)),
            Cell::text(members.collect::<Vec<_>>().join(", ")),
        ]
    };
    let groups = &status.first_groups;
    let columns = &["group", "allowed rate", "members"];
    let mut table = Table::new("Groups", columns, groups.iter().map(row));
    table.left_out = status.groups.saturating_sub(groups.len());
    table
}

fn group(pattern: &str, queue: Option<&str>) -> Cell {
    Cell::text(match queue {
        Some(queue) => format!("{pattern} (queue {queue})"),
        None => pattern.to_owned(),
    })
}
