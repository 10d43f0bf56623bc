//! The metrics of `send`, `recv`, `relay` and streams.

use std::fmt;

use crate::streams;
use manyflow_files::session::{Progress, SendProgress};
use manyflow_net::amt::{HopTotals, RelayStats};
use manyflow_net::forwarder::ForwarderStatus;
use manyflow_streams::{StreamReceiveProgress, StreamSendProgress};

use super::{Metrics, Reported};

impl Reported for Progress {
    const PREFIX: &str = "manyflow_receiver";

    fn report(out: &mut Metrics<'_, Self>) -> fmt::Result {
        report_packets(out)?;
        report_objects(out)
    }
}

fn report_packets(out: &mut Metrics<'_, Progress>) -> fmt::Result {
    out.counter(
        "packets_received",
        "Packets received on joined channels.",
        |progress| progress.packets.received,
    )?;
    out.counter(
        "packets_lost",
        "Packets lost, by their sequence numbers.",
        |progress| progress.packets.lost,
    )?;
    out.counter("packets_marked", "Packets with a mark (ECN).", |progress| {
        progress.packets.marked
    })?;
    out.counters(
        "packets_dropped",
        "Datagrams that do not belong to the session, or have no valid MAC.",
        "reason",
        |Progress { packets, .. }| {
            [
                ("refused", packets.refused),
                ("unauthenticated", packets.unauthenticated),
            ]
        },
    )?;
    out.counters(
        "packets_forged",
        "Packets that the sender cannot have sent, included among those refused.",
        "reason",
        |Progress { packets, .. }| {
            [
                ("channel", packets.forged.channel),
                ("time_slot", packets.forged.time_slot),
                ("sequence_number", packets.forged.sequence_number),
            ]
        },
    )?;
    out.gauge(
        "rate_bytes_per_second",
        "Average reception rate; 0 while no packets come.",
        |progress| {
            let rate = progress.webrc.map(|status| status.received);
            Some(rate.map_or(0.0, |rate| rate.bits_per_s() as f64 / 8.0))
        },
    )?;
    out.gauge(
        "waves_joined",
        "Joined waves, besides the base channel.",
        |progress| Some(progress.webrc.map_or(0, |status| status.waves)),
    )?;
    out.gauge(
        "rtt_seconds",
        "Average multicast round-trip time.",
        |progress| progress.webrc.map(|status| status.rtt_s),
    )
}

fn report_objects(out: &mut Metrics<'_, Progress>) -> fmt::Result {
    out.gauge("files", "Announced files.", |progress| {
        Some(progress.objects.files)
    })?;
    out.gauge("files_complete", "Complete files.", |progress| {
        Some(progress.objects.files_complete)
    })?;
    out.gauge(
        "files_refused",
        "Files that cannot be received.",
        |progress| Some(progress.objects.files_refused),
    )?;
    out.gauge(
        "needed_bytes",
        "Length of all announced files, as they are sent.",
        |progress| Some(progress.objects.needed_bytes),
    )?;
    out.gauge(
        "earlier_bytes",
        "Bytes that were there before this process.",
        |progress| Some(progress.objects.earlier_bytes),
    )?;
    out.counter(
        "useful_bytes",
        "Received bytes that contributed to files.",
        |progress| progress.objects.received_bytes(),
    )?;
    out.counters(
        "symbols_unused",
        "Symbols that arrived before, of complete blocks, probably false, dropped for want of memory, or dropped before their file was announced.",
        "reason",
        |Progress { objects, .. }| {
            [
                ("duplicate", objects.duplicate_symbols),
                ("surplus", objects.surplus_symbols),
                ("withdrawn", objects.withdrawn_symbols),
                ("evicted", objects.evicted_symbols),
                ("early", objects.early_dropped),
            ]
        },
    )?;
    out.counters(
        "symbols_refused",
        "Symbols and tables of files that the object layer refused.",
        "reason",
        |Progress { objects, .. }| {
            let refused = &objects.refused;
            [
                ("oti", refused.oti),
                ("symbol_id", refused.symbol_id),
                ("payload_length", refused.payload_length),
                ("fdt", refused.fdt),
                ("table", refused.table),
                ("expired", refused.expired),
                ("contradiction", refused.contradiction),
                ("block", refused.block),
                ("memory", refused.memory),
                ("storage", refused.storage),
                ("session", objects.foreign_packets),
            ]
        },
    )
}

impl Reported for SendProgress {
    const PREFIX: &str = "manyflow_sender";

    fn report(out: &mut Metrics<'_, Self>) -> fmt::Result {
        out.counter("packets", "Packets passed to an outlet.", |progress| {
            progress.packets
        })?;
        out.counter("bytes", "UDP payload of these packets.", |progress| {
            progress.bytes
        })?;
        out.counter(
            "packets_unwanted",
            "Packets of channels that nobody had joined.",
            |progress| progress.unwanted,
        )?;
        out.counter(
            "packets_skipped",
            "Packets skipped because the machine was busy or suspended.",
            |progress| progress.skipped,
        )?;
        out.counter(
            "datagrams_unsent",
            "Datagrams dropped because of a full socket or a gateway's maximum rate.",
            |progress| progress.unsent,
        )?;
        out.gauge(
            "receivers_done",
            "Receivers that have reported that they have all files.",
            |progress| Some(progress.receivers.done()),
        )?;
        out.gauges(
            "receivers",
            "Receivers by the state that they have reported; with a list, those of the list.",
            "state",
            |progress| {
                let counts = progress.receivers.by_name();
                counts.map(|(name, count)| (name, count.into()))
            },
        )?;
        out.gauge(
            "receivers_unexpected",
            "Receivers that have reported and are not in the list.",
            |progress| Some(progress.receivers.unexpected),
        )?;
        report_relay(out, "relay_", |progress| progress.relay)
    }
}

impl Reported for ForwarderStatus {
    const PREFIX: &str = "manyflow_relay";

    fn report(out: &mut Metrics<'_, Self>) -> fmt::Result {
        out.counter(
            "packets",
            "Packets received from upstream on joined channels.",
            |status| status.packets,
        )?;
        out.counter("bytes", "UDP payload of these packets.", |status| {
            status.bytes
        })?;
        out.counters(
            "packets_dropped",
            "Packets of other sessions, and packets that have crossed too many relays.",
            "reason",
            |status| {
                [
                    ("foreign", status.foreign),
                    ("undeliverable", status.undeliverable),
                ]
            },
        )?;
        out.gauge(
            "channels_joined",
            "Channels that are joined upstream.",
            |status| Some(status.flows_joined),
        )?;
        out.counters(
            "channel_changes_by_reason",
            "Joins and leaves upstream by their reason.",
            "reason",
            streams::flow_reasons,
        )?;
        report_hosts(out)?;
        report_relay(out, "", |status| status.relay)
    }
}

impl Reported for StreamSendProgress {
    const PREFIX: &str = "manyflow_stream_send";

    fn report(out: &mut Metrics<'_, Self>) -> fmt::Result {
        out.counter("units", "Units of the source.", |sent| sent.cutter.units)?;
        out.counter(
            "units_without_base",
            "Units of which the lowest group has no byte.",
            |sent| sent.cutter.units_without_base,
        )?;
        out.counter("packets", "Packets sent.", |sent| sent.packets)?;
        out.counter("bytes", "UDP payload of these packets.", |sent| sent.bytes)?;
        out.counter("reports", "Reports that have arrived.", |sent| sent.reports)?;
        out.gauge(
            "receivers",
            "Receivers that the last reports describe.",
            |sent| Some(sent.receivers),
        )?;
        out.gauge(
            "rate_bits_per_second",
            "Rate of all groups together.",
            |sent| {
                let top = usize::from(sent.groups).checked_sub(1)?;
                Some(sent.rates[top].bits_per_s())
            },
        )?;
        out.counters(
            "group_rate_changes_by_reason",
            "Changes of the groups' rates by their reason.",
            "reason",
            streams::rate_reasons,
        )?;
        report_relay(out, "relay_", |sent| sent.relay)
    }
}

impl Reported for StreamReceiveProgress {
    const PREFIX: &str = "manyflow_stream_recv";

    fn report(out: &mut Metrics<'_, Self>) -> fmt::Result {
        out.gauge("groups", "Joined groups.", |got| {
            Some(u32::from(got.groups))
        })?;
        out.counter("group_changes", "Joins and leaves.", |got| got.changes)?;
        out.counters(
            "group_changes_by_reason",
            "Joins and leaves by their reason.",
            "reason",
            streams::group_reasons,
        )?;
        out.counter("packets", "Packets received.", |got| got.packets)?;
        out.counter("bytes", "IP bytes of these packets.", |got| got.bytes)?;
        out.counter("packets_lost", "Packets lost at first.", |got| got.lost)?;
        out.counter("packets_repaired", "Packets that came late.", |got| {
            got.repaired
        })?;
        out.counter("packets_marked", "Packets with a mark.", |got| got.marked)?;
        out.counter("units", "Units delivered.", |got| got.units.units)?;
        out.counter(
            "units_missing",
            "Units of which nothing came in time.",
            |got| got.units.units_missing,
        )?;
        out.counter(
            "units_dropped",
            "Units that the consumer was too slow to take.",
            |got| got.dropped,
        )?;
        out.counter("prefix_bytes", "Bytes of delivered prefixes.", |got| {
            got.units.bytes
        })?;
        out.gauge(
            "latency_milliseconds",
            "Time from the first possible arrival of a unit to its delivery.",
            |got| Some(got.latency.as_millis() as u64),
        )
    }
}

fn report_hosts(out: &mut Metrics<'_, ForwarderStatus>) -> fmt::Result {
    out.gauge("hosts", "Hosts that have joined a channel.", |status| {
        Some(status.hosts.hosts)
    })?;
    out.gauge("host_joins", "Joins of all hosts.", |status| {
        Some(status.hosts.joins)
    })?;
    out.counter(
        "host_packets",
        "Packets sent to hosts by multicast.",
        |status| status.hosts.packets,
    )?;
    out.counter(
        "host_packets_unsent",
        "Packets to hosts that the kernel refused, or that were longer than the MTU.",
        |status| status.hosts.unsent,
    )
}

/// Writes the metrics of an AMT relay, whose names start with `prefix`.
fn report_relay<P>(
    out: &mut Metrics<'_, P>,
    prefix: &str,
    relay: impl Fn(&P) -> RelayStats,
) -> fmt::Result {
    let named = |name: &str| format!("{prefix}{name}");
    out.gauge(
        &named("gateways"),
        "Gateways that have joined a channel.",
        |progress| Some(relay(progress).gateways),
    )?;
    out.gauge(&named("joins"), "Joins of all gateways.", |progress| {
        Some(relay(progress).joins)
    })?;
    out.counter(
        &named("datagrams_forwarded"),
        "Datagrams of data for gateways.",
        |progress| relay(progress).counters.forwarded,
    )?;
    out.counters(
        &named("datagrams_dropped"),
        "Datagrams above the maximum rate of a gateway or of the relay, for which a link's queue had no room, longer than the MTU, or refused by the kernel.",
        "reason",
        |progress| {
            let relay = relay(progress);
            [
                ("gateway_rate", relay.counters.over_rate),
                ("relay_rate", relay.counters.over_relay_rate),
                ("link", relay.counters.over_link),
                ("too_long", relay.too_long),
                ("unsent", relay.unsent),
            ]
        },
    )?;
    report_hops(out, named, &relay)?;
    out.counters(
        &named("refusals"),
        "Messages that are none for a relay, have no valid MAC, exceed the maximum of gateways or joins, or exceed the rate of answers to their prefix.",
        "reason",
        |progress| {
            let counters = relay(progress).counters;
            [
                ("ignored", counters.ignored),
                ("unauthenticated", counters.unauthenticated),
                ("gateways", counters.gateways_refused),
                ("joins", counters.joins_refused),
                ("unanswered", counters.unanswered),
            ]
        },
    )
}

/// Writes the sums over a relay's hops. They are gauges, because a hop ends with its gateway.
fn report_hops<P>(
    out: &mut Metrics<'_, P>,
    named: impl Fn(&str) -> String,
    relay: impl Fn(&P) -> RelayStats,
) -> fmt::Result {
    out.gauges(
        &named("hops_by_state"),
        "Gateways of streams by the reason for the rates of their hops.",
        "state",
        |progress| {
            let states = streams::hop_states(&relay(progress).hops);
            states.map(|(name, hops)| (name, hops as f64))
        },
    )?;
    let mut gauge = |name: &str, help: &str, value: fn(&HopTotals) -> u64| {
        out.gauge(&named(name), help, |progress| {
            Some(value(&relay(progress).hops))
        })
    };
    gauge("hops", "Gateways of streams.", |hops| hops.hops as u64)?;
    gauge(
        "hops_rate_bits_per_second",
        "Sum of the rates of hops to gateways of streams.",
        |hops| hops.rate_bits_per_s,
    )?;
    gauge(
        "hops_queued_bytes",
        "Bytes that wait for gateways of streams.",
        |hops| hops.queued_bytes,
    )?;
    gauge(
        "hops_marked",
        "Messages marked for the present gateways of streams.",
        |hops| hops.marked,
    )?;
    gauge(
        "hops_dropped",
        "Messages that queues dropped for the present gateways of streams.",
        |hops| hops.dropped,
    )?;
    gauge(
        "hops_lost",
        "Messages that the present gateways of streams have not received.",
        |hops| hops.lost,
    )?;
    gauge(
        "hops_repairs",
        "Messages sent again to the present gateways of streams.",
        |hops| hops.repairs,
    )
}
