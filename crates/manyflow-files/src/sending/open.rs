//! Opens the sockets of a session, and describes the session.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use manyflow_amt::RelayConfig;
use manyflow_core::Ecn;
use manyflow_core::units::Rate;
use manyflow_net::amt::{RelayOptions, RelayServer, tunnel_source};
use manyflow_net::description::{HostPort, ntp_seconds};
use manyflow_net::mtu::{Egress, Tunnel, fitting_payload};
use manyflow_net::multicast::{Groups, MulticastSender};
use manyflow_object::ext_auth::EXTENSION_BYTES;
use manyflow_object::fec::FecScheme;
use manyflow_object::sender::{overhead, symbol_length};
use manyflow_webrc::{ReceiverConfig, Session, SessionConfig};

use super::resume::{ResumeError, resumed_tsi};
use super::{OpenError, RelayAddress, SendConfig};
use crate::completion::CompletionServer;
use crate::files::{Sources, find_sources};
use crate::sdp::{Completion, SessionDescription};
use crate::session::{GroupSealer, describe, flows};

/// Groups for a session that only a relay carries. They are source-specific, because joins in the
/// tunnel name the source.
const TUNNEL_GROUP_V4: Ipv4Addr = Ipv4Addr::new(232, 1, 0, 0);
const TUNNEL_GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0x8000, 0);
/// The maximum number of characters of a session's name.
const NAME_CHARACTERS_MAX: usize = 60;

/// A session whose sockets are open, and whose files are found.
#[derive(Debug)]
pub struct Opened {
    pub(super) config: SendConfig,
    pub(super) session: Session,
    pub(super) sources: Sources,
    pub(super) multicast: Option<MulticastSender>,
    pub(super) relay: Option<RelayServer>,
    pub(super) reports: Option<CompletionServer>,
    pub(super) sealer: Option<GroupSealer>,
    /// The description, which still lacks the digest of the table of files.
    pub(super) description: SessionDescription,
}

impl Opened {
    /// Finds the files, and opens the sockets. Needs a tokio runtime.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(mut config: SendConfig) -> Result<Opened, OpenError> {
        if config.multicast.is_none() && config.relay.is_none() {
            return Err(OpenError::NoOutlet);
        }
        if config.fits_mtu {
            config.webrc.packet_bytes = fitting_length(&config);
        }
        if let Some(earlier) = &config.resume {
            config.tsi = resumed_tsi(earlier, config.group.is_some())?;
        }
        if config.varies_slots {
            config.webrc = with_own_slots(&config);
        }
        let session = fit_session(&config)?;
        let sources = match &config.image {
            None => find_sources(&config.paths, &config.sources)?,
            Some(image) if config.resume.is_none() => Sources::of_image(image.length()),
            Some(_) => return Err(ResumeError::Image.into()),
        };
        let groups = config.multicast.as_ref();
        let multicast = groups.map(|groups| groups.open(config.port)).transpose()?;
        let multicast = multicast.map(|socket| socket.with_ecn(config.webrc.ecn));
        check_range(groups, &session)?;
        let mut description = describe_session(&config, &session, multicast.as_ref());
        let sealer = config.group.as_ref().map(|(key, encrypts)| match encrypts {
            true => GroupSealer::encrypting(key),
            false => GroupSealer::authenticating(key),
        });
        description.protection = sealer.as_ref().map(GroupSealer::protection);
        let (rate, ecn) = (config.webrc.session_rate, config.webrc.ecn);
        let relay = config.relay.as_ref();
        let relay = relay.map(|relay| open_relay(relay, (rate, ecn), &mut description));
        let relay = relay.transpose()?;
        let reports = open_reports(&config, &mut description).await?;
        Ok(Opened {
            config,
            session,
            sources,
            multicast,
            relay,
            reports,
            sealer,
            description,
        })
    }

    /// Returns the number of entries of folders that cannot be sent. Each was logged.
    pub fn skipped(&self) -> u64 {
        self.sources.skipped
    }
}

/// The length of the extension that each packet has, in bytes.
pub(super) fn extension_bytes(config: &SendConfig) -> usize {
    match config.group {
        Some(_) => EXTENSION_BYTES,
        None => 0,
    }
}

/// Returns the maximum length of packets that fit the MTU of the interfaces.
fn fitting_length(config: &SendConfig) -> u32 {
    if let Some(earlier) = &config.resume {
        return earlier.webrc.packet_bytes.into();
    }
    let mut length = config.webrc.packet_bytes;
    let groups = config.multicast.as_ref();
    if let Some(groups) = groups {
        let first = groups.range.first;
        let egress = Egress::of_group(first, groups.interface.as_ref());
        length = fitting_payload(length, first, egress, Tunnel::None);
    }
    if let Some(relay) = &config.relay {
        let outer = relay.listen.ip();
        let inner = groups.map_or(outer, |groups| groups.range.first);
        length = fitting_payload(length, inner, Egress::Address(outer), Tunnel::Amt(outer));
    }
    length
}

/// Returns the parameters with the time slots of this session, or of the one that it continues.
fn with_own_slots(config: &SendConfig) -> SessionConfig {
    let webrc = config.webrc.clone();
    match &config.resume {
        None => webrc.with_slots_of(config.tsi),
        Some(earlier) => SessionConfig {
            time_slot: Duration::from_secs_f64(earlier.webrc.time_slot_s),
            ..webrc
        },
    }
}

/// Returns the session whose packets have symbols of the greatest length that fits.
fn fit_session(config: &SendConfig) -> Result<Session, OpenError> {
    let mut webrc = config.webrc.clone();
    let session = Session::new(webrc.clone())?;
    let cci_length = session.cci_format().wire_bytes();
    let extension = extension_bytes(config);
    let packet = webrc.packet_bytes;
    let symbol = (packet as usize)
        .checked_sub(extension)
        .and_then(|packet| symbol_length(packet, cci_length))
        .ok_or(OpenError::Packet(packet))?;
    // Symbols are multiples of four bytes, so packets may be slightly shorter than requested.
    webrc.packet_bytes = u32::from(symbol) + (overhead(cci_length) + extension) as u32;
    webrc.cci_format = Some(session.cci_format());
    Ok(Session::new(webrc)?)
}

fn check_range(groups: Option<&Groups>, session: &Session) -> Result<(), OpenError> {
    let channels = session.wave_channels() + 1;
    let size = groups.and_then(|groups| groups.range.size());
    match size {
        Some(size) if size < channels.into() => Err(OpenError::Range { channels }),
        _ => Ok(()),
    }
}

fn describe_session(
    config: &SendConfig,
    session: &Session,
    multicast: Option<&MulticastSender>,
) -> SessionDescription {
    let listen = config.relay.as_ref().map(|relay| relay.listen);
    let source = multicast.map_or_else(|| tunnel_source(listen), MulticastSender::source);
    let groups = config.multicast.as_ref();
    let first_group = groups.map_or_else(|| tunnel_group(source), |groups| groups.range.first);
    let hop_limit = groups.map_or(1, |groups| groups.hop_limit);
    SessionDescription {
        name: session_name(config),
        tsi: config.tsi.into(),
        version: ntp_seconds(SystemTime::now()),
        source,
        first_group,
        port: config.port,
        ttl: first_group.is_ipv4().then_some(hop_limit),
        fec_encoding_id: match config.scheme {
            FecScheme::RaptorQ => 6,
            FecScheme::NoCode => 0,
        },
        table_sha256: None,
        table_key: None,
        protection: None,
        amt_relay: None,
        completion: None,
        webrc: describe(session, ReceiverConfig::default().epoch(session)),
    }
}

/// Returns the name of the first path. An encrypted session does not publish the name of a file.
fn session_name(config: &SendConfig) -> String {
    let is_encrypted = config.group.as_ref().is_some_and(|(_, encrypts)| *encrypts);
    let image = config.image.as_ref().map(|image| Path::new(&image.name));
    let first = config.paths.first().map(PathBuf::as_path);
    let name = image.or(first).filter(|_| !is_encrypted);
    let name = name.and_then(Path::file_name);
    let name = name.map_or_else(|| "files".into(), |name| name.to_string_lossy());
    let characters = name.chars().filter(|c| !c.is_control());
    characters.take(NAME_CHARACTERS_MAX).collect()
}

/// Returns the first group of a session that only a relay carries, from this source address.
fn tunnel_group(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V4(_) => TUNNEL_GROUP_V4.into(),
        IpAddr::V6(_) => TUNNEL_GROUP_V6.into(),
    }
}

fn open_relay(
    relay: &RelayAddress,
    (rate, ecn): (Rate, Ecn),
    description: &mut SessionDescription,
) -> Result<RelayServer, OpenError> {
    let config = RelayConfig {
        // Each gateway may receive the whole session; the tunnel adds up to 20 %.
        gateway_rate_max: Rate::from_bits_per_s(rate.bits_per_s() / 10 * 12),
        rate_max: relay.rate_max,
        gateways_per_address_max: relay.gateways_per_address_max,
        ..RelayConfig::default()
    };
    let address = relay.listen;
    let options = RelayOptions {
        ecn,
        or_any_port: relay.or_any_port,
        ..RelayOptions::default()
    };
    let server = RelayServer::bind_with(address, config, flows(description), options);
    let server = server.map_err(|cause| OpenError::Listen { address, cause })?;
    description.amt_relay = Some(host_port(server.local_addr()));
    Ok(server)
}

async fn open_reports(
    config: &SendConfig,
    description: &mut SessionDescription,
) -> Result<Option<CompletionServer>, OpenError> {
    let Some((address, audience)) = &config.reports else {
        return Ok(None);
    };
    let address = *address;
    let server = CompletionServer::bind(address).await;
    let server = server.map_err(|cause| OpenError::ListenForReports { address, cause })?;
    description.completion = Some(Completion {
        server: host_port(server.local_address()),
        window: audience.window(),
        progress: audience.reports_progress(),
    });
    Ok(Some(server))
}

fn host_port(address: SocketAddr) -> HostPort {
    HostPort {
        host: address.ip().to_string(),
        port: address.port(),
    }
}
