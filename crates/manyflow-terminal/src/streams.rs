//! Streams and relays: their objects of `--json`, and their pages.

use manyflow_core::Rate;
use manyflow_layered::hop::HopState;
use manyflow_layered::{RateReason, Reason};
use manyflow_messages::STATUS_PATH;
use manyflow_net::amt::HopTotals;
use manyflow_net::forwarder::{FlowReason, ForwarderStatus};
use manyflow_net::metrics::Page;
use manyflow_streams::{StreamReceiveProgress, StreamSendProgress};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::metrics::{JSON, Pages, Reported};
use crate::status::Described;

/// Returns the cumulative rates of a sender's groups.
pub fn rates(progress: &StreamSendProgress) -> &[Rate] {
    &progress.rates[..progress.groups.into()]
}

/// Returns the object of a sender of a stream.
pub fn sent(event: &str, progress: &StreamSendProgress) -> Value {
    let rates = rates(progress);
    let reasons = &progress.last_reasons[..rates.len()];
    let names = reasons.iter().map(|reason| reason.map(RateReason::name));
    json!({
        "event": event,
        "units": progress.cutter.units,
        "units_without_base": progress.cutter.units_without_base,
        "unit_bytes": progress.cutter.bytes,
        "unit_bytes_cut": progress.cutter.bytes_cut,
        "packets": progress.packets,
        "bytes": progress.bytes,
        "group_rates_bits_per_s": rates.iter().map(|rate| rate.bits_per_s()).collect::<Vec<_>>(),
        "group_rate_reasons": names.collect::<Vec<_>>(),
        "group_rate_changes_by_reason": counts(rate_reasons(progress)),
        "reports": progress.reports,
        "receivers": progress.receivers,
        "datagrams_unsent": progress.unsent,
        "gateways": progress.relay.gateways,
    })
}

/// Returns the object of a receiver of a stream.
pub fn received(event: &str, progress: &StreamReceiveProgress) -> Value {
    json!({
        "event": event,
        "groups": progress.groups,
        "group_changes": progress.changes,
        "group_changes_by_reason": counts(group_reasons(progress)),
        "last_change": progress.last_reason.map(Reason::name),
        "packets": progress.packets,
        "bytes": progress.bytes,
        "packets_lost": progress.lost,
        "packets_repaired": progress.repaired,
        "packets_marked": progress.marked,
        "packets_refused": progress.refused,
        "units": progress.units.units,
        "units_complete": progress.units.units_complete,
        "units_missing": progress.units.units_missing,
        "units_dropped": progress.dropped,
        "prefix_bytes": progress.units.bytes,
        "latency_s": progress.latency.as_secs_f64(),
    })
}

/// Returns the object of a relay.
pub fn relayed(event: &str, status: &ForwarderStatus) -> Value {
    let relay = &status.relay;
    json!({
        "event": event,
        "packets": status.packets,
        "bytes": status.bytes,
        "packets_foreign": status.foreign,
        "packets_undeliverable": status.undeliverable,
        "channels_joined": status.flows_joined,
        "channel_changes_by_reason": counts(flow_reasons(status)),
        "last_change": status.last_reason.map(FlowReason::name),
        "gateways": relay.gateways,
        "joins": relay.joins,
        "datagrams_forwarded": relay.counters.forwarded,
        "datagrams_over_link": relay.counters.over_link,
        "datagrams_over_rate": relay.counters.over_rate + relay.counters.over_relay_rate,
        "datagrams_unsent": relay.unsent + relay.too_long,
        "hops": relay.hops.hops,
        "hops_by_state": counts(hop_states(&relay.hops)),
        "hops_rate_bits_per_s": relay.hops.rate_bits_per_s,
        "hops_queued_bytes": relay.hops.queued_bytes,
        "hops_marked": relay.hops.marked,
        "hops_dropped": relay.hops.dropped,
        "hops_lost": relay.hops.lost,
        "hops_repairs": relay.hops.repairs,
        "hosts": status.hosts.hosts,
        "host_joins": status.hosts.joins,
        "host_packets": status.hosts.packets,
        "host_packets_unsent": status.hosts.unsent,
    })
}

/// A count with its name.
pub type Named = (&'static str, u64);

/// Returns how often the rates of a sender's groups changed for each reason.
pub fn rate_reasons(progress: &StreamSendProgress) -> [Named; RateReason::ALL.len()] {
    RateReason::ALL.map(|reason| (reason.name(), progress.reasons[reason.index()]))
}

/// Returns how often a receiver changed its groups for each reason.
pub fn group_reasons(progress: &StreamReceiveProgress) -> [Named; Reason::ALL.len()] {
    Reason::ALL.map(|reason| (reason.name(), progress.reasons[reason.index()]))
}

/// Returns how often a relay joined or left a channel for each reason.
pub fn flow_reasons(status: &ForwarderStatus) -> [Named; FlowReason::ALL.len()] {
    FlowReason::ALL.map(|reason| (reason.name(), status.reasons[reason.index()]))
}

/// Returns the numbers of hops by the reason for their rates.
pub fn hop_states(hops: &HopTotals) -> [Named; HopState::ALL.len()] {
    HopState::ALL.map(|state| (state.name(), hops.states[state.index()] as u64))
}

fn counts<const N: usize>(named: [Named; N]) -> Value {
    let entries = named.into_iter();
    let entries = entries.map(|(name, count)| (name.to_owned(), count.into()));
    Value::Object(entries.collect::<Map<_, _>>())
}

/// Returns the pages of a role with this progress: metrics, the status page, and at `/status.json`
/// the object of `--json`.
pub fn pages<P: Reported + Described>(
    role: &'static str,
    progress: watch::Receiver<P>,
    object: fn(&str, &P) -> Value,
) -> Pages {
    let latest = progress.clone();
    let status = move || {
        let mut status = object("status", &latest.borrow());
        if let Some(object) = status.as_object_mut() {
            object.remove("event");
        }
        json!({"role": role, "status": status}).to_string()
    };
    Pages::of(vec![(None, progress.clone())])
        .with(Page::new(STATUS_PATH, JSON, status))
        .with_page_of(role, progress)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_gives_the_reason_for_the_rate_of_each_of_its_groups() {
        let mut progress = StreamSendProgress {
            groups: 2,
            ..StreamSendProgress::default()
        };
        progress.last_reasons[1] = Some(RateReason::Congested);
        progress.reasons[RateReason::Congested.index()] = 3;
        let object = sent("progress", &progress);
        assert_eq!(object["group_rate_reasons"], json!([null, "congested"]));
        let changes = &object["group_rate_changes_by_reason"];
        assert_eq!(
            (&changes["congested"], &changes["calm"]),
            (&json!(3), &json!(0))
        );
    }

    #[test]
    fn a_relay_gives_the_reasons_for_its_channels_and_hops() {
        let mut status = ForwarderStatus::default();
        status.reasons[FlowReason::HostExpired.index()] = 2;
        status.last_reason = Some(FlowReason::HostExpired);
        status.relay.hops.states[HopState::Draining.index()] = 1;
        let object = relayed("done", &status);
        assert_eq!(object["channel_changes_by_reason"]["host-expired"], 2);
        assert_eq!(object["last_change"], "host-expired");
        assert_eq!(object["hops_by_state"]["draining"], 1);
    }
}
