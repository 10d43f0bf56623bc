//! The tables of `top`.

use std::fmt::Write as _;
use std::time::Duration;

use manyflow_messages::{DaemonStatus, LinkStatus, SlowMemberStatus, SlowVerdict};

use super::Seen;
use super::rates::{LinkRates, Rates};
use manyflow_terminal::shown::shown;

/// The number of characters of a cell, at most.
const CELL_CHARS_MAX: usize = 40;
/// A value that is not known.
const UNKNOWN: &str = "-";

/// A table: titles of columns, and rows. A column is aligned to the right if its title begins with
/// a space.
struct Table {
    titles: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

/// Returns the tables of all daemons and other roles.
pub(super) fn render(seen: &[Seen<'_>]) -> String {
    let mut text = daemon_table(seen).render();
    for one in seen {
        if let Err(error) = &one.answer {
            let url = one.url;
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{url} does not answer: {error}");
        }
    }
    let answering = || {
        seen.iter()
            .filter_map(|one| Some((one.daemon()?, one.rates.as_ref())))
    };
    let links = answering().flat_map(|(status, rates)| link_rows(status, rates));
    let links = Table {
        titles: &[
            "link",
            "state",
            " queue",
            " price",
            " RTT",
            " again",
            " sent/s",
            " received/s",
            " sent Mbit/s",
            " received Mbit/s",
        ],
        rows: links.collect(),
    };
    let slow = answering().flat_map(|(status, _)| slow_rows(status));
    let slow = Table {
        titles: &[
            "slow member",
            "daemon",
            "group",
            "action",
            " for",
            " missed",
        ],
        rows: slow.collect(),
    };
    let others = Table {
        titles: &["role", "address", "figure", "now"],
        rows: seen.iter().flat_map(other_rows).collect(),
    };
    for table in [links, slow, others] {
        if !table.rows.is_empty() {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&table.render());
        }
    }
    text
}

fn daemon_table(daemons: &[Seen<'_>]) -> Table {
    let rows = daemons.iter().filter_map(|daemon| {
        let status = daemon.daemon()?;
        let rate = |value: fn(&Rates) -> f64| {
            known(
                daemon
                    .rates
                    .as_ref()
                    .map(|rates| format!("{:.0}", value(rates))),
            )
        };
        let counters = &status.counters;
        Some(vec![
            status.name.clone(),
            status.overlay.clone(),
            time(status.uptime_s),
            status.topology_version.to_string(),
            status.daemons.len().to_string(),
            status.clients.to_string(),
            status.groups.to_string(),
            rate(|rates| rates.published_per_s),
            rate(|rates| rates.delivered_per_s),
            counters.dropped.to_string(),
            counters.blocked.to_string(),
            counters.evicted.to_string(),
        ])
    });
    Table {
        titles: &[
            "daemon",
            "overlay",
            " up",
            " topology",
            " daemons",
            " clients",
            " groups",
            " published/s",
            " delivered/s",
            " dropped",
            " pauses",
            " evicted",
        ],
        rows: rows.collect(),
    }
}

fn link_rows(status: &DaemonStatus, rates: Option<&Rates>) -> Vec<Vec<String>> {
    let row = |link: &LinkStatus| {
        let rates = rates.and_then(|rates| rates.links.get(&link.name));
        let rate = |value: fn(&LinkRates) -> f64, digits: usize| {
            known(rates.map(|rates| format!("{:.digits$}", value(rates))))
        };
        vec![
            format!("{} > {}", status.name, link.name),
            if link.is_up { "up" } else { "DOWN" }.to_owned(),
            link.queue_messages.to_string(),
            known(link.price_dollars.map(|price| format!("${price:.2}"))),
            known(link.rtt_ms.map(|rtt| format!("{rtt:.2} ms"))),
            known(link.retransmissions.map(|again| again.to_string())),
            rate(|rates| rates.sent_messages_per_s, 0),
            rate(|rates| rates.received_messages_per_s, 0),
            rate(|rates| rates.sent_bytes_per_s * 8e-6, 2),
            rate(|rates| rates.received_bytes_per_s * 8e-6, 2),
        ]
    };
    status.links.iter().map(row).collect()
}

fn slow_rows(status: &DaemonStatus) -> Vec<Vec<String>> {
    let row = |member: &SlowMemberStatus| {
        let queue = member.queue.as_ref();
        let group = match queue {
            Some(queue) => format!("{} (queue {queue})", member.pattern),
            None => member.pattern.clone(),
        };
        let number = member.client.map(|number| format!("client {number}"));
        let name = member
            .name
            .clone()
            .or(number)
            .unwrap_or_else(|| "queue group".to_owned());
        let member_name = match &member.address {
            Some(address) => format!("{name} ({address})"),
            None => name,
        };
        let action = match member.verdict {
            SlowVerdict::Blocks => "blocks",
            SlowVerdict::Misses => "misses",
            SlowVerdict::Evicted => "evicted",
            _ => UNKNOWN,
        };
        vec![
            member_name,
            status.name.clone(),
            group,
            action.to_owned(),
            time(member.slow_for_s),
            member.missed_messages.to_string(),
        ]
    };
    let mut rows: Vec<_> = status.first_slow_members.iter().map(row).collect();
    let others = status.slow_members.saturating_sub(rows.len());
    if others > 0 {
        rows.push(vec![format!("{others} others"), status.name.clone()]);
    }
    rows
}

/// Returns a row for each figure of a role that is no daemon, of which the first names the role.
fn other_rows(seen: &Seen<'_>) -> Vec<Vec<String>> {
    let Some(snapshot) = seen.other() else {
        return Vec::new();
    };
    let role = match &*snapshot.title {
        "" => snapshot.role.clone(),
        title => format!("{} {title}", snapshot.role),
    };
    let mut figures = snapshot.figures();
    if figures.is_empty() {
        figures.push((UNKNOWN, UNKNOWN.to_owned()));
    }
    let mut names = Some([role, seen.url.to_string()]);
    let row = |(name, value): (&str, String)| {
        let [role, url] = names.take().unwrap_or_default();
        vec![role, url, name.to_owned(), value]
    };
    figures.into_iter().map(row).collect()
}

fn known(value: Option<String>) -> String {
    value.unwrap_or_else(|| UNKNOWN.to_owned())
}

/// `12 s`, `3 min`, `5 h`, `2 d`: the largest unit of which there are at least two, rounded down.
fn time(seconds: f64) -> String {
    let seconds = Duration::try_from_secs_f64(seconds)
        .unwrap_or_default()
        .as_secs();
    let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
    let unit = units.iter().find(|(length, _)| seconds >= 2 * length);
    let (length, unit) = unit.unwrap_or(&(1, "s"));
    format!("{} {unit}", seconds / length)
}

/// Returns text that a terminal shows as it is: names of clients and groups come from strangers.
fn printable(text: &str) -> String {
    shown(text).chars().take(CELL_CHARS_MAX).collect()
}

impl Table {
    fn render(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let titles = self
            .titles
            .iter()
            .map(|title| title.trim_start().to_owned());
        let mut lines = vec![titles.collect::<Vec<_>>()];
        let cells = |row: &Vec<String>| row.iter().map(|cell| printable(cell)).collect();
        lines.extend(self.rows.iter().map(cells));
        let width = |column: usize| {
            let cells = lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..self.titles.len()).map(width).collect();
        let mut text = String::new();
        for line in &lines {
            let mut padded = String::new();
            for ((cell, width), title) in line.iter().zip(&widths).zip(self.titles) {
                // Writing to a String cannot fail.
                let _ = match title.starts_with(' ') {
                    true => write!(padded, "{cell:>width$}  "),
                    false => write!(padded, "{cell:<width$}  "),
                };
            }
            text.push_str(padded.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_control_characters_are_escaped() {
        let table = Table {
            titles: &["name", " value"],
            rows: vec![
                vec!["a".to_owned(), "1000".to_owned()],
                vec!["\x1b[2Jb".to_owned(), "7".to_owned()],
            ],
        };
        let expected = "name        value\na            1000\n\\u{1b}[2Jb      7\n";
        assert_eq!(table.render(), expected);
    }

    #[test]
    fn times_have_the_unit_of_which_there_are_two() {
        for (seconds, expected) in [
            (0.4, "0 s"),
            (119.9, "119 s"),
            (120.0, "2 min"),
            (7_300.0, "2 h"),
            (172_800.0, "2 d"),
        ] {
            assert_eq!(time(seconds), expected);
        }
        assert_eq!(time(-1.0), "0 s");
    }
}
