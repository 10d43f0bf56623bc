//! The pages of switches, gateways and members.

use manyflow_ensembles::anypoint::switch::{MemberStatus, SwitchStatus};
use manyflow_ensembles::http::{GATEWAY_COUNTERS, GatewayStatus, MEMBER_COUNTERS, MemberCounters};

use super::{Cell, Described, Series, Table, Unit, View};
use crate::metrics::switch_counts;

/// The number of members whose rates are drawn.
const MEMBERS_DRAWN: usize = 12;

impl Described for SwitchStatus {
    fn view(&self) -> View {
        let present = self.members.iter().filter(|member| member.is_present);
        let (up, present) = (present.clone().filter(|member| member.is_up), present);
        let (up, present) = (up.count(), present.count());
        let members = format!("{up} of {present}");
        View {
            facts: vec![
                ("members up", Cell::state(up == present, &members, &members)),
                (
                    "accepts connections",
                    Cell::state(!self.is_draining, "yes", "no: it drains"),
                ),
                ("connections", Cell::Count(self.connections as f64)),
                ("congestion windows", Cell::Bytes(self.window_bytes as f64)),
            ],
            tables: vec![
                members_table(&self.members),
                Table::of_events(switch_counts(&self.counters)),
            ],
            ..View::default()
        }
    }

    fn series(&self) -> Vec<Series> {
        let mut series = vec![
            Series::now("connections", Unit::Count, self.connections as f64),
            Series::growth("connections opened", Unit::PerS, self.counters.opened),
        ];
        for member in self.members.iter().take(MEMBERS_DRAWN) {
            let name = format!("frames to {}", member.name);
            series.push(Series::growth(name, Unit::PerS, member.frames_to));
        }
        series
    }
}

fn members_table(members: &[MemberStatus]) -> Table {
    let all: u64 = members.iter().map(|member| member.frames_to).sum();
    let row = |member: &MemberStatus| {
        let state = match (member.is_present, member.is_up, member.is_resting) {
            (false, _, _) => Cell::Dim("has left".to_owned()),
            (true, false, _) => Cell::Bad("down".to_owned()),
            (true, true, true) => Cell::Bad("rests: it kept frames without an answer".to_owned()),
            (true, true, false) => Cell::Good("up".to_owned()),
        };
        vec![
            Cell::text(&member.name),
            state,
            Cell::Share(member.frames_to as f64 / all.max(1) as f64),
            Cell::Count(member.connections as f64),
            Cell::Count(member.outstanding as f64),
            Cell::Count(member.stalled as f64),
            Cell::Bytes(member.bytes_to as f64),
            Cell::Bytes(member.bytes_from as f64),
            Cell::Count(member.failures as f64),
            Cell::text(&member.address),
        ]
    };
    Table::new(
        "Members",
        &[
            "member",
            "state",
            "share of frames",
            "connections",
            "frames on the way",
            "stalled",
            "sent",
            "received",
            "failures",
            "address",
        ],
        members.iter().map(row),
    )
}

impl Described for GatewayStatus {
    fn view(&self) -> View {
        let counts = GATEWAY_COUNTERS.map(|(_, help, value)| (help, value(&self.counters)));
        let members = self.switch.iter().map(|own| members_table(&own.members));
        View {
            facts: vec![
                (
                    "switch",
                    Cell::state(self.is_connected, "connected", "no connection"),
                ),
                ("members whose servers answer", Cell::count(self.members)),
                ("requests in progress", Cell::count(self.requests)),
                ("connections of clients", Cell::count(self.clients)),
            ],
            tables: members.chain([Table::of_events(counts)]).collect(),
            ..View::default()
        }
    }

    fn series(&self) -> Vec<Series> {
        let counters = &self.counters;
        let failed = counters.failed + counters.unavailable + counters.aborted;
        vec![
            Series::growth("requests", Unit::PerS, counters.requests),
            Series::growth("requests that failed", Unit::PerS, failed),
            Series::now("requests in progress", Unit::Count, self.requests as f64),
            Series::now(
                "members whose servers answer",
                Unit::Count,
                self.members as f64,
            ),
        ]
    }
}

impl Described for MemberCounters {
    fn view(&self) -> View {
        let counts = MEMBER_COUNTERS.map(|(_, help, value)| (help, value(self)));
        View {
            facts: vec![
                (
                    "server",
                    Cell::state(self.is_serving, "answers", "does not answer"),
                ),
                ("requests in progress", Cell::Count(self.in_progress as f64)),
            ],
            tables: vec![Table::of_events(counts)],
            ..View::default()
        }
    }

    fn series(&self) -> Vec<Series> {
        let failed = self.failed + self.late + self.refused;
        vec![
            Series::growth("requests", Unit::PerS, self.requests),
            Series::growth("requests that failed", Unit::PerS, failed),
            Series::now("requests in progress", Unit::Count, self.in_progress as f64),
        ]
    }
}
