//! The pages of senders and receivers of streams, and of relays.

use manyflow_core::Rate;
use manyflow_layered::hop::HopState;
use manyflow_layered::{RateReason, Reason};
use manyflow_net::amt::HopTotals;
use manyflow_net::forwarder::{FlowReason, ForwarderStatus};
use manyflow_streams::{StreamReceiveProgress, StreamSendProgress};

use super::{Cell, Described, Series, Table, Unit, View};
use crate::streams::rates;

impl Described for StreamSendProgress {
    fn view(&self) -> View {
        let groups = rates(self).iter().zip(self.last_reasons).enumerate();
        let group = |(group, (rate, reason)): (usize, (&Rate, Option<RateReason>))| {
            let because = reason.map_or("it has not changed", RateReason::because);
            let rate = Cell::BitsPerS(rate.bits_per_s() as f64);
            vec![Cell::text(format!("{group}")), rate, Cell::text(because)]
        };
        let changes = RateReason::ALL.map(|of| (of.because(), self.reasons[of.index()]));
        View {
            facts: vec![
                ("receivers that report", Cell::Count(self.receivers as f64)),
                ("gateways", Cell::count(self.relay.gateways)),
                ("units", Cell::Count(self.cutter.units as f64)),
                (
                    "units without their base",
                    Cell::Count(self.cutter.units_without_base as f64),
                ),
                ("bytes cut off", Cell::Bytes(self.cutter.bytes_cut as f64)),
                ("sent", Cell::Bytes(self.bytes as f64)),
                ("datagrams not sent", Cell::Count(self.unsent as f64)),
                ("reports", Cell::Count(self.reports as f64)),
            ],
            tables: vec![
                Table::new(
                    "Groups",
                    &["group", "rate with those below", "last change, because"],
                    groups.map(group),
                ),
                Table::of_counts("Changes of the groups' rates, by reason", changes),
                hop_table(&self.relay.hops),
            ],
            ..View::default()
        }
    }

    fn series(&self) -> Vec<Series> {
        let top = rates(self).last().map_or(0, |rate| rate.bits_per_s());
        vec![
            Series::growth("sending rate", Unit::BitsPerS, self.bytes),
            Series::now("rate of all groups", Unit::BitsPerS, top as f64),
            Series::growth("units", Unit::PerS, self.cutter.units),
            Series::now("receivers that report", Unit::Count, self.receivers as f64),
        ]
    }
}

impl Described for StreamReceiveProgress {
    fn view(&self) -> View {
        let changes = Reason::ALL.map(|of| (of.because(), self.reasons[of.index()]));
        let last = self
            .last_reason
            .map_or("they have not changed", Reason::because);
        let units = &self.units;
        View {
            facts: vec![
                ("groups", Cell::Count(f64::from(self.groups))),
                ("last change, because", Cell::text(last)),
                ("units", Cell::Count(units.units as f64)),
                ("units complete", Cell::Count(units.units_complete as f64)),
                ("units missing", Cell::Count(units.units_missing as f64)),
                ("units dropped", Cell::Count(self.dropped as f64)),
                ("latency", Cell::Seconds(self.latency.as_secs_f64())),
                ("packets", Cell::Count(self.packets as f64)),
                ("packets lost", Cell::Count(self.lost as f64)),
                ("packets repaired", Cell::Count(self.repaired as f64)),
                ("packets marked (ECN)", Cell::Count(self.marked as f64)),
                ("packets refused", Cell::Count(self.refused as f64)),
            ],
            tables: vec![Table::of_counts(
                "Changes of the groups, by reason",
                changes,
            )],
            ..View::default()
        }
    }

    fn series(&self) -> Vec<Series> {
        vec![
            Series::growth("reception rate", Unit::BitsPerS, self.bytes),
            Series::now("groups", Unit::Count, f64::from(self.groups)),
            Series::growth("packets lost", Unit::PerS, self.lost),
            Series::now("latency", Unit::Seconds, self.latency.as_secs_f64()),
        ]
    }
}

impl Described for ForwarderStatus {
    fn view(&self) -> View {
        let changes = FlowReason::ALL.map(|of| (of.because(), self.reasons[of.index()]));
        let last = self.last_reason.map_or("none was", FlowReason::because);
        let (relay, hosts) = (&self.relay, &self.hosts);
        View {
            facts: vec![
                ("gateways", Cell::count(relay.gateways)),
                ("joins", Cell::count(relay.joins)),
                ("hosts", Cell::count(hosts.hosts)),
                ("channels joined", Cell::count(self.flows_joined)),
                ("last joined or left, because", Cell::text(last)),
                ("received", Cell::Bytes(self.bytes as f64)),
            ],
            tables: vec![
                Table::of_counts("Channels joined or left, by reason", changes),
                hop_table(&relay.hops),
                Table::of_counts("Packets", packet_counts(self)),
            ],
            ..View::default()
        }
    }

    fn series(&self) -> Vec<Series> {
        let (counters, hops) = (&self.relay.counters, &self.relay.hops);
        let mut series = vec![
            Series::growth("reception rate", Unit::BitsPerS, self.bytes),
            Series::growth("datagrams forwarded", Unit::PerS, counters.forwarded),
            Series::growth("datagrams dropped", Unit::PerS, dropped(self)),
            Series::now("gateways", Unit::Count, self.relay.gateways as f64),
            Series::now("channels joined", Unit::Count, self.flows_joined as f64),
        ];
        if hops.hops > 0 {
            let (rate, queued) = (hops.rate_bits_per_s as f64, hops.queued_bytes as f64);
            series.push(Series::now("rates of all hops", Unit::BitsPerS, rate));
            series.push(Series::now("queued for hops", Unit::Bytes, queued));
        }
        series
    }
}

/// Returns the number of datagrams for gateways that were dropped.
fn dropped(status: &ForwarderStatus) -> u64 {
    let (relay, counters) = (&status.relay, &status.relay.counters);
    let over = counters.over_link + counters.over_rate + counters.over_relay_rate;
    over + relay.unsent + relay.too_long
}

fn packet_counts(status: &ForwarderStatus) -> [(&'static str, u64); 10] {
    let (relay, counters) = (&status.relay, &status.relay.counters);
    [
        ("received from upstream", status.packets),
        ("of other sessions", status.foreign),
        (
            "dropped: they have crossed too many relays",
            status.undeliverable,
        ),
        ("forwarded to gateways", counters.forwarded),
        (
            "dropped: no room in the queue of a link",
            counters.over_link,
        ),
        (
            "dropped: over the maximum rate of a gateway",
            counters.over_rate,
        ),
        (
            "dropped: over the maximum rate of the relay",
            counters.over_relay_rate,
        ),
        (
            "refused by the kernel, or too long",
            relay.unsent + relay.too_long,
        ),
        ("sent to hosts", status.hosts.packets),
        ("not sent to hosts", status.hosts.unsent),
    ]
}

fn hop_table(hops: &HopTotals) -> Table {
    let states = HopState::ALL.map(|of| (of.because(), hops.states[of.index()] as u64));
    Table::of_counts("Hops, by the reason for their rate", states)
}
