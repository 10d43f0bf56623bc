//! A stream to send: its sockets, and its description for receivers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::SystemTime;

use manyflow_amt::RelayConfig;
use manyflow_core::units::Rate;
use manyflow_core::{ConfigError, Ecn};
use manyflow_layered::hop::HopKey;
use manyflow_layered::relay::{self, SessionInfo};
use manyflow_net::amt::{RelayOptions, RelayServer, StreamsConfig, tunnel_source};
use manyflow_net::description::{HostPort, ntp_seconds};
use manyflow_net::mtu::{Egress, Tunnel, fitting_packet};
use manyflow_net::multicast::{Groups, MulticastError, MulticastSender};
use manyflow_net::outlets::Outlets;

use super::config::{live_hop_config, live_multicast_sender_config, live_sender_config};
use super::description::{StreamDescription, StreamProtocol};
use super::send::{SendControl, StreamSender};

/// The first group of a stream that only relays carry. It is source-specific, because joins in a
/// tunnel name the source.
const TUNNEL_GROUP: Ipv4Addr = Ipv4Addr::new(232, 1, 3, 0);
/// The UDP port of groups, unless the caller chooses another.
pub const GROUP_PORT: u16 = 5446;
/// The maximum rate of the relay, to one gateway and to all: hops find the rate of each receiver.
const RELAY_RATE_MAX: Rate = Rate::from_bits_per_s(10_000_000_000);
/// The maximum number of gateways at one address.
const GATEWAYS_PER_ADDRESS_MAX: usize = 1024;

/// A stream to send.
#[derive(Clone, Debug)]
pub struct StreamSendConfig {
    /// The stream's name for people: 1 to 255 bytes without control characters.
    pub name: String,
    /// The rate control.
    pub control: SendControl,
    /// Whether packets are shortened to the MTU of the interfaces by which they leave.
    pub fits_mtu: bool,
    /// The groups to send to; `None` without multicast.
    pub multicast: Option<Groups>,
    /// The UDP port of the groups.
    pub port: u16,
    /// The address of a relay for receivers without multicast. Reports come there; without it, to
    /// a free port.
    pub listen: Option<SocketAddr>,
    /// Whether the relay takes any free port if that of `listen` is taken.
    pub or_any_port: bool,
    /// The key that seals reports.
    pub key: Option<HopKey>,
}

impl StreamSendConfig {
    /// Returns a stream of SIM with default values. It lacks a way to receivers: `multicast`,
    /// `listen`, or both.
    pub fn new(name: &str, multicast: Option<Groups>) -> StreamSendConfig {
        let control = match multicast {
            Some(_) => live_multicast_sender_config(),
            None => live_sender_config(),
        };
        StreamSendConfig {
            name: name.to_owned(),
            control: SendControl::Sim(control),
            fits_mtu: true,
            multicast,
            port: GROUP_PORT,
            listen: None,
            or_any_port: false,
            key: None,
        }
    }

    /// Returns the maximum length of packets that fit the MTU of the interfaces.
    fn fitting_length(&self) -> u32 {
        let mut length = self.control.packet_bytes();
        if let Some(groups) = &self.multicast {
            let egress = Egress::of_group(groups.range.first, groups.interface.as_ref());
            length = fitting_packet(length, egress, Tunnel::None);
        }
        if let Some(outer) = self.listen.map(|listen| listen.ip()) {
            length = fitting_packet(length, Egress::Address(outer), Tunnel::Amt(outer));
        }
        length
    }
}

/// The reason why a stream cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamOpenError {
    /// A parameter of the rate control is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The groups cannot be sent to.
    #[error(transparent)]
    Multicast(#[from] MulticastError),
    /// The range of groups is too short.
    #[error("the stream has {groups} groups, more than the range of multicast has")]
    Range {
        /// The stream's number of groups.
        groups: u8,
    },
    /// The relay has an IPv6 address, and there are no groups.
    #[error("without multicast, the relay needs an IPv4 address: give one, or groups of IPv6")]
    Version,
    /// The relay's address cannot be bound.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        cause: io::Error,
    },
}

/// A stream whose sockets are open.
pub struct OpenedStream {
    /// The description for receivers.
    pub description: StreamDescription,
    /// The sender, which has not begun.
    pub sender: StreamSender,
}

impl OpenedStream {
    /// Opens the sockets of a stream. Needs a tokio runtime.
    ///
    /// # Errors
    /// See [`StreamOpenError`].
    pub fn open(mut config: StreamSendConfig) -> Result<OpenedStream, StreamOpenError> {
        if config.fits_mtu {
            let length = config.fitting_length();
            config.control.set_packet_bytes(length);
        }
        let groups = config.multicast.as_ref();
        let multicast = groups.map(|groups| groups.open(config.port)).transpose()?;
        let multicast = multicast.map(|multicast| multicast.with_ecn(Ecn::Capable));
        let mut description = describe(&config, multicast.as_ref())?;
        let server = open_server(&config, &mut description)?;
        let outlets = Outlets::new(&description.flows(), multicast, Some(server));
        let sender = StreamSender::new(description.session, &config.control, outlets)?;
        Ok(OpenedStream {
            description,
            sender,
        })
    }
}

fn describe(
    config: &StreamSendConfig,
    multicast: Option<&MulticastSender>,
) -> Result<StreamDescription, StreamOpenError> {
    let source = multicast.map_or_else(|| tunnel_source(config.listen), MulticastSender::source);
    let range = config.multicast.as_ref().map(|groups| &groups.range);
    let first_group = range.map_or(IpAddr::V4(TUNNEL_GROUP), |range| range.first);
    let groups = config.control.groups();
    if let Some(size) = range.and_then(|range| range.size())
        && size < groups.into()
    {
        return Err(StreamOpenError::Range { groups });
    }
    if source.is_ipv4() != first_group.is_ipv4() {
        return Err(StreamOpenError::Version);
    }
    let hop_limit = config
        .multicast
        .as_ref()
        .map_or(1, |groups| groups.hop_limit);
    Ok(StreamDescription {
        name: config.name.clone(),
        session: rand::random(),
        version: ntp_seconds(SystemTime::now()),
        source,
        first_group,
        port: config.port,
        ttl: first_group.is_ipv4().then_some(hop_limit),
        protocol: match config.control {
            SendControl::Sim(_) => StreamProtocol::Sim,
            SendControl::Rlm(_) => StreamProtocol::Rlm,
        },
        groups,
        reports: HostPort {
            host: source.to_string(),
            port: 1,
        },
        needs_key: config.key.is_some(),
        amt_relay: None,
    })
}

/// Opens the socket that serves receivers and takes reports, and completes the description.
fn open_server(
    config: &StreamSendConfig,
    description: &mut StreamDescription,
) -> Result<RelayServer, StreamOpenError> {
    let info = SessionInfo {
        session: description.session,
        groups: description.groups,
    };
    let streams = StreamsConfig {
        relay: relay::RelayConfig {
            key: config.key.clone(),
            id: rand::random(),
            hop: live_hop_config(),
            ..relay::RelayConfig::default()
        },
        sessions: vec![info],
        groups: (0..info.groups).map(|group| Some((0, group))).collect(),
    };
    let options = RelayOptions {
        streams: Some(streams),
        or_any_port: config.or_any_port,
        ..RelayOptions::default()
    };
    // Reports of receivers of IP multicast come here, too.
    let address = config
        .listen
        .unwrap_or_else(|| SocketAddr::new(description.source, 0));
    let limits = RelayConfig {
        gateway_rate_max: RELAY_RATE_MAX,
        rate_max: RELAY_RATE_MAX,
        gateways_per_address_max: GATEWAYS_PER_ADDRESS_MAX,
        ..RelayConfig::default()
    };
    let server = RelayServer::bind_with(address, limits, description.flows(), options);
    let server = server.map_err(|cause| StreamOpenError::Listen { address, cause })?;
    let local = HostPort {
        host: server.local_addr().ip().to_string(),
        port: server.local_addr().port(),
    };
    description.reports = local.clone();
    description.amt_relay = config.listen.map(|_| local);
    Ok(server)
}
