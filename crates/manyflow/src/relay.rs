//! `manyflow relay`: forwards sessions from a sender or another relay to receivers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use manyflow_amt::{Flow, RelayConfig};
use manyflow_core::units::{Bytes, Rate};
use manyflow_files::sdp::SessionDescription;
use manyflow_files::sending::place;
use manyflow_files::session::flows;
use manyflow_layered::hop::HopKey;
use manyflow_layered::relay::{self as layered, SessionInfo};
use manyflow_net::amt::StreamsConfig;
use manyflow_net::description::HostPort;
use manyflow_net::description::load::{Trust, load_text};
use manyflow_net::forwarder::{
    Feed, Forwarder, ForwarderConfig, ForwarderError, ForwarderStatus, HostsConfig,
};
use manyflow_net::inlet::Route;
use manyflow_net::multicast::GroupRange;
use manyflow_net::way::Way;
use manyflow_streams::{StreamDescription, live_hop_config, report_address};
use serde_json::json;
use tokio::sync::watch;

use crate::address::cannot_listen;
use crate::cli::RelayArgs;
use crate::keygen::trusted_keys;
use crate::recv::{announce_route, way};
use crate::stream::read_key;
use manyflow_terminal::display::{self, Display, OutputError};
use manyflow_terminal::signals::interrupted;
use manyflow_terminal::{streams, usage};

/// Maximum number of groups in the range of `--groups`.
const GROUPS_MAX: u128 = 4_096;

pub(crate) async fn run(args: RelayArgs, display: &Display) -> Result<()> {
    let forwarder = Forwarder::open(announced(config(&args).await?, display)?).await;
    let forwarder = forwarder.map_err(|error| match error {
        ForwarderError::Listen { address, cause } => cannot_listen("--listen", address, cause),
        ForwarderError::SameInterface(_)
        | ForwarderError::Ipv6Hosts(_)
        | ForwarderError::StreamsApart
        | ForwarderError::StreamsUnserved => usage(error.to_string()),
        error => error.into(),
    })?;
    let progress = forwarder.progress();
    let pages = streams::pages("relay", progress.clone(), streams::relayed);
    let _metrics = pages.serve(args.metrics, display).await?;
    let interruption = interrupted();
    announce(&forwarder, &args, display)?;
    let (watching, unheard) = display::watch(watch_progress(progress, display.clone()));
    let stop = async {
        tokio::select! {
            () = interruption => {}
            () = unheard => {}
        }
    };
    let result = forwarder.run(stop).await;
    watching.abort();
    // An aborted watcher has printed all that it could.
    watching.await.unwrap_or(Ok(()))?;
    let status = result?;
    display.print_json(&streams::relayed("done", &status))?;
    display.print_line(&format!(
        "took {} packets, {}; sent {}",
        status.packets,
        Bytes(status.bytes),
        status.relay.counters.forwarded + status.hosts.packets,
    ))?;
    Ok(())
}

/// Prints the interfaces of multicast that the user has not named, each once.
fn announced(config: ForwarderConfig, display: &Display) -> Result<ForwarderConfig> {
    let mut sources = Vec::new();
    for feed in &config.feeds {
        let source = feed.flows.first().map(|flow| flow.source.ip());
        if let Some(source) = source.filter(|source| !sources.contains(source)) {
            announce_route(&feed.route, source, display)?;
            sources.push(source);
        }
    }
    Ok(config)
}

/// Prints what the relay serves, and how receivers use it.
fn announce(forwarder: &Forwarder, args: &RelayArgs, display: &Display) -> Result<(), OutputError> {
    let (flows, sessions) = (forwarder.flows(), args.session.len());
    display.print_line(&format!(
        "relaying {flows} channels{}",
        match sessions {
            0 => String::new(),
            1 => " of 1 session".to_owned(),
            _ => format!(" of {sessions} sessions"),
        },
    ))?;
    let address = forwarder.local_addr().map(|address| address.to_string());
    if let Some(address) = &address {
        display.print_line(&format!(
            "receivers type: manyflow recv SESSION --relay {address}"
        ))?;
    }
    if let Some(interface) = &args.multicast_interface {
        display.print_line(&format!("hosts on {interface} receive multicast"))?;
    }
    display.print_json(&json!({
        "event": "started",
        "listen": address,
        "sessions": sessions,
        "channels": flows,
    }))
}

/// Loads the descriptions, and returns the configuration for their sessions.
async fn config(args: &RelayArgs) -> Result<ForwarderConfig> {
    let trust = Trust {
        signers: trusted_keys(&args.trust)?,
        ca: args.ca.clone(),
    };
    let way = way(&args.relay, args.interface.as_deref());
    let (mut feeds, mut rate) = (Vec::new(), 0);
    let mut streams = Streams::default();
    for session in &args.session {
        let (text, _) = load_text(session, &trust).await?;
        let route = async |relay: Option<&HostPort>, flow: Option<&Flow>| {
            let route = way.route(session, relay, flow.copied()).await;
            route.map_err(|error| usage(error.to_string()))
        };
        if StreamDescription::is_stream(&text) {
            let (description, _) = StreamDescription::parse(&text)?;
            let flows = description.flows();
            let route = route(description.amt_relay.as_ref(), flows.first()).await?;
            feeds.push(streams.add(&description, route).await?);
            // The hop of each gateway limits its rate.
            rate += Rate::from_bits_per_s(10_000_000_000).bits_per_s();
        } else {
            let description = SessionDescription::parse(&text)?;
            let flows = flows(&description);
            let route = route(description.amt_relay.as_ref(), flows.last()).await?;
            feeds.push(Feed { flows, route });
            rate += description.webrc.session_rate_bits_per_s;
            streams.skip(feeds.last().map_or(0, |feed| feed.flows.len()));
        }
    }
    let own = args
        .listen
        .map_or_else(place::any_address, |listen| listen.ip());
    let rate_max = args
        .relay_rate_max
        .unwrap_or_else(|| place::relay_rate(own));
    // Each gateway may receive all sessions; the tunnel adds up to 20 %.
    let mut gateway_rate_max = Rate::from_bits_per_s(rate / 10 * 12);
    if let Some((groups, source)) = args.groups.zip(args.source) {
        feeds.push(Feed {
            flows: flows_to(groups, (source, args.port).into())?,
            route: route_of_groups(&way),
        });
        gateway_rate_max = rate_max;
        streams.skip(feeds.last().map_or(0, |feed| feed.flows.len()));
    }
    let reports_to = streams.reports_to;
    Ok(ForwarderConfig {
        feeds,
        listen: args.listen,
        relay: RelayConfig {
            gateway_rate_max,
            rate_max,
            gateways_max: args.relay_gateways,
            gateways_per_address_max: args.relay_gateways_per_address,
            ..RelayConfig::default()
        },
        links: args.link.iter().map(|link| link.0).collect(),
        hosts: hosts(args),
        streams: streams.finish(read_key(args.key.as_deref())?)?,
        reports_to,
    })
}

/// The streams among the sessions of a relay.
#[derive(Default)]
struct Streams {
    sessions: Vec<SessionInfo>,
    groups: Vec<Option<(usize, u8)>>,
    needs_key: bool,
    reports_to: Option<SocketAddr>,
}

impl Streams {
    /// Adds a stream, and returns its flows.
    async fn add(&mut self, description: &StreamDescription, route: Route) -> Result<Feed> {
        let place = self.sessions.len();
        self.sessions.push(SessionInfo {
            session: description.session,
            groups: description.groups,
        });
        self.groups
            .extend((0..description.groups).map(|group| Some((place, group))));
        self.needs_key |= description.needs_key;
        if let Route::Multicast(_) = route {
            self.reports_to = Some(report_address(description).await?);
        }
        Ok(Feed {
            flows: description.flows(),
            route,
        })
    }

    /// Adds flows of a session without layers.
    fn skip(&mut self, flows: usize) {
        self.groups.extend(vec![None; flows]);
    }

    fn finish(self, key: Option<HopKey>) -> Result<Option<StreamsConfig>> {
        if self.sessions.is_empty() {
            return Ok(None);
        }
        if self.needs_key && key.is_none() {
            return Err(usage(
                "a stream's reports need a shared key (a=report-key): get it from the sender, and give it with --key",
            ));
        }
        Ok(Some(StreamsConfig {
            relay: layered::RelayConfig {
                key,
                id: rand::random(),
                has_parent: true,
                hop: live_hop_config(),
                ..layered::RelayConfig::default()
            },
            sessions: self.sessions,
            groups: self.groups,
        }))
    }
}

/// Returns the flows from `source` to all groups of a range.
fn flows_to(groups: GroupRange, source: SocketAddr) -> Result<Vec<Flow>> {
    if groups.first.is_ipv4() != source.is_ipv4() {
        return Err(usage("--groups and --source have different IP versions"));
    }
    let count = groups.size().filter(|count| *count <= GROUPS_MAX);
    let count = count.ok_or_else(|| {
        usage(format!(
            "--groups needs a prefix that leaves at most {GROUPS_MAX} groups, such as 232.1.2.0/24"
        ))
    })?;
    // The number of groups is a power of two.
    let group = |number: u128| match groups.first {
        IpAddr::V4(first) => {
            let first = first.to_bits() & !(count as u32 - 1);
            IpAddr::from(Ipv4Addr::from_bits(first + number as u32))
        }
        IpAddr::V6(first) => {
            let first = first.to_bits() & !(count - 1);
            Ipv6Addr::from_bits(first + number).into()
        }
    };
    Ok((0..count)
        .map(|number| Flow {
            source,
            group: (group(number), source.port()).into(),
        })
        .collect())
}

/// Chooses the route of packets to --groups, of which any may be silent.
fn route_of_groups(way: &Way) -> Route {
    match way.relays.is_empty() {
        true => Route::Multicast(way.interface.clone()),
        false => Route::Relays(way.relays.clone()),
    }
}

/// Returns the network of hosts that the command line names.
fn hosts(args: &RelayArgs) -> Option<HostsConfig> {
    let Ok(interface) = args.multicast_interface.as_ref()?.parse();
    Some(HostsConfig {
        interface,
        hop_limit: args.ttl,
    })
}

/// Prints each second what the relay does, until the line cannot be printed.
async fn watch_progress(
    progress: watch::Receiver<ForwarderStatus>,
    display: Display,
) -> Result<(), OutputError> {
    let spinner = display.spinner("waiting for receivers".to_owned());
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut last = ForwarderStatus::default();
    loop {
        tick.tick().await;
        let now = *progress.borrow();
        let rate = Rate::from_bits_per_s((now.bytes - last.bytes) * 8);
        let sent =
            |status: &ForwarderStatus| status.relay.counters.forwarded + status.hosts.packets;
        let forwarded = sent(&now) - sent(&last);
        last = now;
        spinner.set_message(format!(
            "{rate} from upstream on {} channels; {forwarded} packets/s to {} gateways and {} hosts",
            now.flows_joined, now.relay.gateways, now.hosts.hosts
        ));
        display.print_json(&streams::relayed("progress", &now))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(range: &str, source: &str) -> Result<Vec<String>> {
        let flows = flows_to(range.parse().unwrap(), source.parse().unwrap())?;
        Ok(flows.iter().map(|flow| flow.group.to_string()).collect())
    }

    #[test]
    fn a_range_has_all_groups_of_its_prefix() {
        let v4 = groups("239.255.255.255/31", "10.0.0.1:7").unwrap();
        assert_eq!(v4, ["239.255.255.254:7", "239.255.255.255:7"]);
        let v6 = groups("ff3e::8000:0/127", "[2001:db8::1]:7").unwrap();
        assert_eq!(v6, ["[ff3e::8000:0]:7", "[ff3e::8000:1]:7"]);
    }

    #[test]
    fn a_range_without_bound_or_of_the_other_version_is_refused() {
        for (range, source) in [
            ("232.1.2.0", "10.0.0.1:7"),
            ("232.0.0.0/8", "10.0.0.1:7"),
            ("232.1.2.0/24", "[2001:db8::1]:7"),
        ] {
            assert!(groups(range, source).is_err(), "{range} from {source}");
        }
    }
}
