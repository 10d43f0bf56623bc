//! The session that the options of `manyflow send` describe, and its errors in terms of options.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Error, Result};
use manyflow_core::Ecn;
use manyflow_core::units::Rate;
use manyflow_files::files::{Selection, SourceOptions};
use manyflow_files::load::load;
use manyflow_files::sdp::SessionDescription;
use manyflow_files::sending::{
    Difference, OpenError, RelayAddress, ResumeError, SendConfig, place,
};
use manyflow_net::description::load::Trust;
use manyflow_net::group_key::GroupKey;
use manyflow_net::keys::SigningKey;
use manyflow_net::multicast::{GroupRange, Groups};
use manyflow_object::fec::FecScheme;
use manyflow_webrc::SessionConfig;

use crate::address::cannot_listen;
use crate::cli::{Fec, Profile, SendArgs};
use crate::parameters;
use manyflow_terminal::usage;

/// Length of a packet from its LCT header on, in bytes. In an AMT tunnel over IPv4 it has 58 more,
/// which leaves room for further headers below the MTU of Ethernet.
const PACKET_BYTES: u32 = 1400;

impl SendArgs {
    /// Reads the files that the options name, and returns the session.
    pub(super) async fn config(&self) -> Result<SendConfig> {
        let resume = self.earlier_session().await?;
        let multicast = groups(self.multicast, self.interface.as_deref(), self.ttl);
        let relay = self.relay_address(resume.as_ref());
        let webrc = self.rate_control(resume.as_ref(), multicast.as_ref(), relay.as_ref())?;
        let group = self.group_key.as_deref().map(GroupKey::read).transpose();
        let group = group.map_err(|error| usage(format!("--group-key: {error}")))?;
        let signing = signing_key(self.sign.as_deref())?;
        let selection = Selection::new(&self.include, &self.exclude);
        let defaults = SendConfig::new(self.paths.clone(), webrc);
        let scratch = self.scratch.clone();
        Ok(SendConfig {
            image: crate::imaging::input(&self.paths, &self.image)?,
            sources: SourceOptions {
                bundle_max: self.bundle.0,
                scratch: scratch.unwrap_or(defaults.sources.scratch),
                selection: selection.map_err(|error| usage(error.to_string()))?,
                archive: self.archive,
            },
            fits_mtu: self.packet.is_none(),
            varies_slots: !self
                .parameters
                .iter()
                .any(|given| given.starts_with("TSD=")),
            tsi: self.tsi.unwrap_or(defaults.tsi),
            resume,
            multicast,
            port: self.port,
            relay,
            reports: self.audience.audience()?,
            signing,
            group: group.map(|key| (key, self.encrypt)),
            scheme: match self.fec {
                Fec::Raptorq => FecScheme::RaptorQ,
                Fec::None => FecScheme::NoCode,
            },
            content_md5: self.content_md5,
            memory_max: self.memory.0,
            threads: self.threads.unwrap_or(defaults.threads),
            ..defaults
        })
    }

    /// Returns the parameters of the session, which has the rate of an `earlier` one that it
    /// continues, unless the user gives another.
    fn rate_control(
        &self,
        earlier: Option<&SessionDescription>,
        groups: Option<&Groups>,
        relay: Option<&RelayAddress>,
    ) -> Result<SessionConfig> {
        let earlier = earlier.map(|earlier| earlier.webrc.session_rate_bits_per_s);
        let relay = relay.map(|relay| relay.listen.ip());
        let found = || {
            let earlier = earlier.map(Rate::from_bits_per_s);
            earlier.unwrap_or_else(|| place::session_rate(groups, relay))
        };
        let rate = self.rate.unwrap_or_else(found);
        let mut config = match self.profile {
            Profile::Lan => place::lan(rate),
            Profile::Wan => SessionConfig::wan(rate),
        };
        config.packet_bytes = self.packet.map_or(PACKET_BYTES, u32::from);
        let classic = if self.ecn { Ecn::Capable } else { config.ecn };
        config.ecn = if self.l4s { Ecn::L4s } else { classic };
        parameters::set_session(&mut config, &self.parameters)
            .map_err(|error| usage(format!("{error:#}")))?;
        Ok(config)
    }

    /// Reads the description of the session to continue.
    async fn earlier_session(&self) -> Result<Option<SessionDescription>> {
        let Some(session) = &self.resume else {
            return Ok(None);
        };
        Ok(Some(load(session, &Trust::default()).await?.description))
    }

    /// Whether the user leaves the way to receivers open: packets then go through a relay, and the
    /// description is published.
    pub(super) fn leaves_way_open(&self) -> bool {
        self.multicast.is_none() && self.listen.is_none()
    }

    /// Returns the address of the relay. A session that continues an `earlier` one listens on the
    /// same port as that.
    fn relay_address(&self, earlier: Option<&SessionDescription>) -> Option<RelayAddress> {
        let relay = match (self.listen, earlier) {
            (Some(address), _) => RelayAddress::new(address),
            (None, _) if !self.leaves_way_open() => return None,
            (None, Some(earlier)) => {
                let port = earlier.amt_relay.as_ref()?.port;
                RelayAddress::new(SocketAddr::new(place::any_address(), port))
            }
            (None, None) => RelayAddress::anywhere(),
        };
        Some(RelayAddress {
            rate_max: self.relay_rate_max.unwrap_or(relay.rate_max),
            gateways_per_address_max: self.relay_gateways_per_address,
            ..relay
        })
    }

    /// Describes an error of the session by the options to change.
    pub(super) fn explain(&self, error: OpenError) -> Error {
        match error {
            OpenError::NoOutlet => usage(
                "no way to reach receivers: use --multicast 232.1.2.0/24 --interface NAME, or without multicast \
                 --listen 0.0.0.0:2268",
            ),
            OpenError::Packet(bytes) => usage(format!(
                "--packet {bytes} leaves no room for data: use 200 or more"
            )),
            OpenError::Resume(error) => usage(self.explain_resume(error)),
            OpenError::Session(_) | OpenError::Range { .. } | OpenError::Description(_) => {
                usage(error.to_string())
            }
            OpenError::Multicast(error) if !error.may_pass() => usage(error.to_string()),
            OpenError::Listen { address, cause } => cannot_listen("--listen", address, cause),
            OpenError::ListenForReports { address, cause } => {
                cannot_listen("--reports", address, cause)
            }
            error => error.into(),
        }
    }

    fn explain_resume(&self, error: ResumeError) -> String {
        let session = self.resume.as_deref().unwrap_or_default();
        match error {
            ResumeError::GroupKey => format!("{session}: {error} without --resume"),
            ResumeError::Differs(difference) => {
                let options = match difference {
                    Difference::Relay => " (--listen)",
                    Difference::Reports => " (--until-done, --expect, --reports)",
                    _ => "",
                };
                format!(
                    "the session cannot be continued with other {difference}{options}: repeat what was sent, or start a new session without --resume"
                )
            }
            error => format!("{session}: {error}"),
        }
    }
}

/// Reads the key of `--sign`, if there is one.
pub(crate) fn signing_key(path: Option<&Path>) -> Result<Option<SigningKey>> {
    let key = path.map(SigningKey::read).transpose();
    key.map_err(|error| usage(format!("--sign: {error}")))
}

/// Returns the groups of `--multicast` and the way to them, if there are any.
pub(crate) fn groups(
    range: Option<GroupRange>,
    interface: Option<&str>,
    hop_limit: u8,
) -> Option<Groups> {
    Some(Groups {
        range: range?,
        interface: interface.map(|name| {
            let Ok(interface) = name.parse();
            interface
        }),
        hop_limit,
    })
}
