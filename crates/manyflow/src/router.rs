//! `manyflow router`: a link with an XCP router in front of one address.

use std::fmt;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use manyflow_core::link::{Counters, LinkConfig, QueueLimit};
use manyflow_core::units::Bytes;
use manyflow_core::xcp::XcpConfig;
use manyflow_net::last_mile::LastMile;
use manyflow_net::metrics::MetricsServer;
use serde_json::{Value, json};

use crate::address::{cannot_listen, resolve};
use crate::cli::RouterArgs;
use crate::metrics::{Metrics, Pages, Reported};
use manyflow_terminal::Display;
use manyflow_terminal::signals::interrupted;
use manyflow_terminal::status::{Cell, Described, Series, Table, Unit, View};
use manyflow_terminal::usage;

/// The shortest queue in bytes: two packets.
const QUEUE_BYTES_MIN: u64 = 3000;

pub(crate) async fn run(args: &RouterArgs, display: &Display) -> Result<()> {
    let server = resolve(&args.to).await.context("--to")?;
    let link = link(args)?;
    let seed = rand::random();
    let router = LastMile::listen(args.listen, server, link.clone(), link, seed).await;
    let router = router.map_err(|cause| cannot_listen("--listen", args.listen, cause))?;
    let router = Arc::new(router);
    let _metrics = serve_metrics(args, &router, display).await?;
    let at = router.address();
    let control = if args.drop_tail { "drop tail" } else { "XCP" };
    let interrupted = interrupted();
    display.print_line(&format!(
        "router: {at} leads to {server} at {}, {control}",
        args.rate
    ))?;
    display.print_json(&json!({
        "event": "started",
        "listen": at.to_string(),
        "to": server.to_string(),
    }))?;
    interrupted.await;
    for (direction, counters) in directions(&router) {
        display.print_line(&format!(
            "{direction}: {} packets, {}, {} dropped",
            counters.delivered,
            Bytes(counters.delivered_bytes),
            counters.dropped
        ))?;
    }
    display.print_json(&json!({
        "event": "done",
        "up": to_json(router.upstream()),
        "down": to_json(router.downstream()),
    }))?;
    Ok(())
}

fn link(args: &RouterArgs) -> Result<LinkConfig> {
    let bytes_per_s = args.rate.bits_per_s() as f64 / 8.0;
    if bytes_per_s < 1.0 {
        return Err(usage("--rate must be at least 8 bit/s"));
    }
    let queue = (bytes_per_s * args.queue.as_secs_f64()) as u64;
    Ok(LinkConfig {
        rate: Some(args.rate),
        delay: args.delay,
        queue: QueueLimit::Bytes(queue.max(QUEUE_BYTES_MIN)),
        xcp: (!args.drop_tail).then(XcpConfig::default),
        ..LinkConfig::default()
    })
}

/// The counts of the link towards the server, and of that towards the clients.
fn directions(router: &LastMile) -> [(&'static str, Counters); 2] {
    [("up", router.upstream()), ("down", router.downstream())]
}

fn to_json(counters: Counters) -> Value {
    json!({
        "packets": counters.delivered,
        "bytes": counters.delivered_bytes,
        "dropped": counters.dropped,
    })
}

/// Serves the metrics, if an address is given, until the returned value is dropped.
async fn serve_metrics(
    args: &RouterArgs,
    router: &Arc<LastMile>,
    display: &Display,
) -> Result<Option<MetricsServer>> {
    let router = Arc::clone(router);
    let read = move || Directions(directions(&router));
    let pages = Pages::new(read.clone()).with_page("router", read);
    pages.serve(args.metrics, display).await
}

/// The counts of both links, by their directions.
#[derive(Clone)]
struct Directions([(&'static str, Counters); 2]);

impl Reported for Directions {
    const PREFIX: &str = "manyflow_router";

    fn report(out: &mut Metrics<'_, Self>) -> fmt::Result {
        type Count = fn(&Counters) -> u64;
        let counts: [(&str, &str, Count); 3] = [
            ("packets", "Packets that have crossed the link.", |count| {
                count.delivered
            }),
            ("bytes", "Bytes of these packets.", |count| {
                count.delivered_bytes
            }),
            (
                "packets_dropped",
                "Packets that the queue had no room for.",
                |count| count.dropped,
            ),
        ];
        for (name, help, value) in counts {
            out.counters(name, help, "direction", |Directions(links)| {
                links.map(|(direction, counters)| (direction, value(&counters)))
            })?;
        }
        Ok(())
    }
}

impl Described for Directions {
    fn view(&self) -> View {
        let row = |(direction, counters): (&str, Counters)| {
            let name = match direction {
                "up" => "to the server",
                _ => "to the clients",
            };
            vec![
                Cell::text(name),
                Cell::Count(counters.delivered as f64),
                Cell::Bytes(counters.delivered_bytes as f64),
                Cell::Count(counters.dropped as f64),
            ]
        };
        let columns = &["link", "packets", "bytes", "dropped"];
        View {
            tables: vec![Table::new("Links", columns, self.0.map(row))],
            ..View::default()
        }
    }

    fn series(&self) -> Vec<Series> {
        let [(_, up), (_, down)] = self.0;
        vec![
            Series::growth("to the server", Unit::BitsPerS, up.delivered_bytes),
            Series::growth("to the clients", Unit::BitsPerS, down.delivered_bytes),
            Series::growth("dropped", Unit::PerS, up.dropped + down.dropped),
        ]
    }
}
