//! The choice of the way on which a session's packets come to this host.

use std::time::Duration;

use manyflow_amt::Flow;
use tokio::time::timeout;

use crate::description::HostPort;
use crate::description::load::reachable;
use crate::dns::Nameservers;
use crate::inlet::{Inlet, Route, TransportError};
use crate::multicast::Interface;

/// The time in which multicast has to arrive, before relays that the DNS names are used.
const MULTICAST_TIMEOUT: Duration = Duration::from_secs(5);

/// The user's wishes for the way of packets. Without any, the description decides.
#[derive(Clone, Debug, Default)]
pub struct Way {
    /// AMT relays to use, even if the description names another, each as `host[:port]`.
    pub relays: Vec<String>,
    /// The interface to receive multicast on, even if the description names a relay.
    pub interface: Option<Interface>,
}

/// The description names a relay on an address that only its server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the description does not give the address of its relay: name it with --relay HOST:PORT")]
pub struct NoRelayAddress;

impl Way {
    /// Chooses the route of a session's packets: the relays or the interface that the user names,
    /// else the description's relay, else multicast. If neither user nor description decides, and
    /// no multicast arrives, relays that the DNS names for the source are chosen (RFC 8777).
    ///
    /// `session` is where the description was loaded from, and `flow` one of the session that
    /// always has packets.
    ///
    /// # Errors
    /// If the description names a relay without its address.
    pub async fn route(
        &self,
        session: &str,
        described: Option<&HostPort>,
        flow: Option<Flow>,
    ) -> Result<Route, NoRelayAddress> {
        if !self.relays.is_empty() {
            return Ok(Route::Relays(self.relays.clone()));
        }
        if self.interface.is_some() {
            return Ok(Route::Multicast(self.interface.clone()));
        }
        if let Some(relay) = described {
            let relay = reachable(relay, session).ok_or(NoRelayAddress)?;
            return Ok(Route::Relays(vec![relay]));
        }
        // The DNS has no relays of sources on this host.
        let Some(flow) = flow.filter(|flow| !flow.source.ip().is_loopback()) else {
            return Ok(Route::Multicast(None));
        };
        let relays = discover(flow, &Nameservers::of_system(), MULTICAST_TIMEOUT).await;
        Ok(match relays.is_empty() {
            true => Route::Multicast(None),
            false => Route::Relays(relays),
        })
    }
}

/// Returns the relays that the DNS names for the flow's source, if the flow does not arrive by
/// multicast within `patience`; none otherwise. Takes no longer than the first packet, or the
/// answer that there are no relays.
pub async fn discover(flow: Flow, nameservers: &Nameservers, patience: Duration) -> Vec<String> {
    let source = flow.source.ip();
    let by_multicast = async {
        match timeout(patience, hear(flow)).await {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => tracing::debug!(%error, "multicast cannot be received"),
            Err(_) => {}
        }
        false
    };
    let by_dns = async {
        match timeout(patience, nameservers.relays_of(source)).await {
            Ok(Ok(relays)) => return relays,
            Ok(Err(error)) => tracing::debug!(%error, "no relays by DNS"),
            Err(_) => tracing::debug!("no relays by DNS: no answer within {patience:?}"),
        }
        Vec::new()
    };
    tokio::pin!(by_multicast, by_dns);
    let relays = tokio::select! {
        heard = &mut by_multicast => match heard {
            true => return Vec::new(),
            false => by_dns.await,
        },
        relays = &mut by_dns => match relays.is_empty() || by_multicast.await {
            true => return Vec::new(),
            false => relays,
        },
    };
    if !relays.is_empty() {
        tracing::warn!(
            "no multicast of {source} arrives; the DNS names its relays: {}",
            relays.join(", ")
        );
    }
    relays
}

/// Waits for a packet of the flow by multicast.
async fn hear(flow: Flow) -> Result<(), TransportError> {
    let (source, port) = (flow.source.ip(), flow.group.port());
    let mut inlet = Inlet::open(source, port, &Route::Multicast(None)).await?;
    inlet.join(flow)?;
    while inlet.next_packet().is_none() {
        inlet.wait().await?;
    }
    Ok(())
}
