//! The configuration of a live daemon.

use std::net::SocketAddr;
use std::time::Duration;

use manyflow_core::ConfigError;
use manyflow_net::address::Address;
use manyflow_net::interfaces::reachable_addresses;
use manyflow_net::tls::Identity;
use manyflow_net::unix_socket;
use manyflow_overlay::cost_benefit::{Benefits, Law, price};
use manyflow_overlay::tfrc::TfrcConfig;
use manyflow_overlay::topology::WEIGHT_MAX;
use manyflow_overlay::{DaemonId, OverlayConfig, SlowPolicy};

use super::access::Access;
use super::hello::is_name;
use super::origins::is_origin;
use super::security::LinkSecurity;
use super::spread::wire::DAEMON_NAME_BYTES_MAX;

/// The number of clients that may be connected.
const CONNECTIONS_MAX: usize = 65_536;
/// The time after which a neighbour without a connection is no longer listed.
const HOLD: Duration = Duration::from_secs(5);
/// The time for which the members of daemons that cannot be reached count.
const MEMBERS_HOLD: Duration = Duration::from_secs(10);
/// The number of messages in a full queue of a link: 20 ms of a gigabit link, twice.
const QUEUE_MESSAGES: usize = 4096;
/// The number of messages that wait for a client when it counts as slow: some tenths of a second of
/// a fast group, in which the client's process may be busy.
const CLIENT_MESSAGES: usize = 2048;
/// The time between two PINGs to a client.
const PING_INTERVAL: Duration = Duration::from_secs(120);
/// The length of the longest message, headers included: nats-server's default.
const PAYLOAD_BYTES: usize = 1 << 20;
/// The maximum of [`DaemonConfig::payload_bytes_max`]: half of the messages that a daemon keeps for
/// other daemons.
const PAYLOAD_BYTES_MAX: usize = 32 << 20;
/// The time after which a member that takes no message is removed under the policy `evict`.
pub const EVICT_AFTER: Duration = Duration::from_secs(10);

/// Returns the parameters of live overlays.
fn live_overlay_config() -> OverlayConfig {
    OverlayConfig {
        queue_messages: QUEUE_MESSAGES,
        client_messages: CLIENT_MESSAGES,
        // A program that was stopped must not stop a group forever.
        slow: SlowPolicy::EvictStalled(EVICT_AFTER),
        hold: MEMBERS_HOLD,
        ..OverlayConfig::default()
    }
}

/// A daemon that this one connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// The other daemon's name.
    pub name: String,
    /// The other daemon's number, if it is not that of its name.
    pub id: Option<DaemonId>,
    /// The host and port at which the other daemon listens.
    pub address: String,
    /// The weight of the link in the shortest-path trees, 1 to 65,535.
    pub weight: u32,
}

impl LinkConfig {
    /// Returns a link of weight 1 to the daemon `name` at this host and port.
    pub fn new(name: &str, address: &str) -> LinkConfig {
        LinkConfig {
            name: name.to_owned(),
            id: None,
            address: address.to_owned(),
            weight: 1,
        }
    }

    /// Returns the other daemon's number.
    pub fn number(&self) -> DaemonId {
        self.id.unwrap_or_else(|| super::daemon_id(&self.name))
    }
}

/// The flow control of an overlay. All its daemons use the same.
#[derive(Clone, Debug, PartialEq)]
pub enum ControllerConfig {
    /// Only the back-pressure of links delays clients.
    Open,
    /// [Cost-Benefit](manyflow_overlay::cost_benefit), with the benefits of messages.
    CostBenefit(Law, Benefits),
    /// [Many-to-many TFRC](manyflow_overlay::tfrc).
    Tfrc(TfrcConfig),
}

impl ControllerConfig {
    /// Returns the controller's name in files.
    pub fn name(&self) -> &'static str {
        match self {
            ControllerConfig::Open => "none",
            ControllerConfig::CostBenefit(..) => "cost-benefit",
            ControllerConfig::Tfrc(_) => "tfrc",
        }
    }

    /// Returns whether the controller observes losses, and therefore needs links of datagrams.
    pub(super) fn needs_datagrams(&self) -> bool {
        matches!(self, ControllerConfig::Tfrc(_))
    }

    /// Returns the price in dollars of a link whose queue has this average length; `None` if links
    /// have no prices. Under the live law, this is the price of an idle link.
    pub(super) fn price(&self, queue_messages: usize) -> Option<f64> {
        match self {
            ControllerConfig::CostBenefit(Law::Paper(config), _) => {
                Some(price(queue_messages as f64, config))
            }
            ControllerConfig::CostBenefit(Law::Live, _) => Some(0.0),
            ControllerConfig::Open | ControllerConfig::Tfrc(_) => None,
        }
    }
}

/// A live daemon.
#[derive(Clone)]
pub struct DaemonConfig {
    /// The name of the overlay. Daemons connect only to daemons of the same overlay.
    pub overlay_name: String,
    /// The daemon's name, which no other daemon of the overlay has.
    pub name: String,
    /// The daemon's number; that of its name if `None`. Two daemons must not have the same.
    pub id: Option<DaemonId>,
    /// The host and port for other daemons, if they may connect.
    pub listen: Option<String>,
    /// The host and port for clients, if there are any; or a Unix socket for those on this machine,
    /// such as `unix:/run/manyflow.sock`, without `advertise` and `client_tls`.
    pub clients: Option<String>,
    /// The host and port for clients that speak NATS over WebSocket, as browsers do, if there are
    /// any. With `client_tls`, they have to use TLS (`wss://`).
    pub clients_ws: Option<String>,
    /// The host and port, or the Unix socket, for clients that speak Spread's protocol, if there
    /// are any. They send no credentials, so there can be no users, and do not use TLS.
    pub clients_spread: Option<String>,
    /// The host and port that clients of other daemons get for this one. If `None`, that of
    /// `clients`; for an unspecified address, those of this machine's interfaces.
    pub advertise: Option<String>,
    /// The host and port over WebSocket that clients of other daemons get for this one, as with
    /// `advertise`.
    pub advertise_ws: Option<String>,
    /// The origins of pages in browsers that may connect over WebSocket, such as
    /// `https://www.example.net`, besides the pages of the host and port that they connect to; `*`
    /// stands for all. Without this check, any page that a browser of this network shows could use
    /// a daemon without users.
    pub origins: Vec<String>,
    /// The daemons that this one connects to.
    pub links: Vec<LinkConfig>,
    /// The names of daemons that may connect besides those of `links`; every name if `None`.
    pub accepts: Option<Vec<String>>,
    /// The protection of links.
    pub security: LinkSecurity,
    /// The certificate for clients, which then have to use TLS; without it, they cannot. It can
    /// require that clients [show a certificate](Identity::read_verifying), too.
    pub client_tls: Option<Identity>,
    /// The clients that may connect, and what they may do.
    pub access: Access,
    /// The number of clients that may be connected.
    pub connections_max: usize,
    /// The time for which the status lists a neighbour whose connection has broken and that is not
    /// one of `links`. The members behind it count for [`OverlayConfig::hold`].
    pub hold: Duration,
    /// The time between two PINGs to a client, 100 ms to 1 d. A client that has not answered two is
    /// disconnected at the third.
    pub ping_interval: Duration,
    /// The length of the longest message that clients may publish, headers included, 1 KiB to
    /// 32 MiB. Clients of other daemons get longer ones if these accept them.
    pub payload_bytes_max: usize,
    /// The parameters of the overlay.
    pub overlay: OverlayConfig,
    /// The flow control.
    pub controller: ControllerConfig,
}

impl DaemonConfig {
    /// Returns a daemon of the overlay "manyflow" to which nobody can connect yet: set `listen`,
    /// `clients` and `links`. The other values are those of `manyflow daemon` without options:
    /// Cost-Benefit, clients without passwords, and members that are removed from a group when they
    /// take no message for 10 s.
    pub fn new(name: &str, security: LinkSecurity) -> DaemonConfig {
        DaemonConfig {
            overlay_name: "manyflow".to_owned(),
            name: name.to_owned(),
            id: None,
            listen: None,
            clients: None,
            clients_ws: None,
            clients_spread: None,
            advertise: None,
            advertise_ws: None,
            origins: Vec::new(),
            links: Vec::new(),
            accepts: None,
            security,
            client_tls: None,
            access: Access::Open,
            connections_max: CONNECTIONS_MAX,
            hold: HOLD,
            ping_interval: PING_INTERVAL,
            payload_bytes_max: PAYLOAD_BYTES,
            overlay: live_overlay_config(),
            controller: ControllerConfig::CostBenefit(Law::Live, Benefits::default()),
        }
    }

    /// Returns the daemon's number.
    pub fn number(&self) -> DaemonId {
        self.id.unwrap_or_else(|| super::daemon_id(&self.name))
    }

    /// Returns the addresses that clients of other daemons get, if this one listens at `local`, and
    /// the file has `given` for it.
    pub(super) fn advertised(local: SocketAddr, given: &Option<String>) -> Vec<String> {
        if let Some(address) = given {
            return vec![address.clone()];
        }
        let ips = match local.ip().is_unspecified() {
            true => reachable_addresses(local.ip()),
            false => vec![local.ip()],
        };
        let ips = ips.into_iter();
        ips.map(|ip| SocketAddr::new(ip, local.port()).to_string())
            .collect()
    }

    /// Checks the ranges of all parameters but those of the overlay and of the controller.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let names = self.links.iter().map(|link| &link.name);
        let is_verified = self
            .client_tls
            .as_ref()
            .is_some_and(Identity::verifies_clients);
        let in_range = |weight| (1..=WEIGHT_MAX).contains(&weight);
        let is_address = |text: &String| Address::parse(text, None).is_ok();
        let path = self.clients.as_deref().and_then(unix_socket::path_of);
        self.check_times_and_sizes()?;
        ConfigError::first_of([
            (
                "advertise, advertise-ws",
                "the host and port at which clients of other daemons reach this one",
                self.advertise
                    .iter()
                    .chain(&self.advertise_ws)
                    .all(is_address),
            ),
            (
                "origins",
                "such as https://www.example.net, null or *, and only with `clients-ws`",
                self.origins.iter().all(|text| is_origin(text))
                    && (self.origins.is_empty() || self.clients_ws.is_some()),
            ),
            (
                "clients",
                "a host and a port if there is `advertise` or `client-tls`, and not a Unix socket",
                path.is_none() || (self.advertise.is_none() && self.client_tls.is_none()),
            ),
            (
                "clients-spread",
                "only without users: Spread's clients send no credentials",
                self.clients_spread.is_none() || !self.access.is_restricted(),
            ),
            (
                "the name of a daemon with `clients-spread`",
                "1 to 19 bytes: it is a part of the names of Spread's clients",
                self.clients_spread.is_none() || self.name.len() <= DAEMON_NAME_BYTES_MAX,
            ),
            (
                "the name of a daemon or an overlay",
                "1 to 128 letters, digits, dots, hyphens and underscores",
                names
                    .chain([&self.name, &self.overlay_name])
                    .all(|name| is_name(name)),
            ),
            (
                "the name of a neighbour",
                "another than the daemon's own",
                self.links.iter().all(|link| link.name != self.name),
            ),
            (
                "a user with a certificate",
                "only with a `ca` in `client-tls`, whose certificates clients show",
                is_verified || !self.access.has_certificates(),
            ),
            (
                "a link's weight",
                "1 to 65,535",
                self.links.iter().all(|link| in_range(link.weight)),
            ),
        ])
    }

    fn check_times_and_sizes(&self) -> Result<(), ConfigError> {
        let (least, hour) = (Duration::from_millis(100), Duration::from_secs(3600));
        ConfigError::first_of([
            (
                "hold",
                "100 ms to 1 h",
                (least..=hour).contains(&self.overlay.hold),
            ),
            (
                "group-memory",
                "at least 1 MB",
                self.overlay.state_bytes >= 1_000_000,
            ),
            (
                "ping-interval",
                "100 ms to 1 d",
                (least..=24 * hour).contains(&self.ping_interval),
            ),
            (
                "max-payload",
                "1 KiB to 32 MiB",
                (1024..=PAYLOAD_BYTES_MAX).contains(&self.payload_bytes_max),
            ),
        ])
    }
}
