//! A tunnel to the first of several AMT relays that answers.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use manyflow_amt::wire::AMT_PORT;
use manyflow_amt::{
    Family, GatewayConfig, GatewayEvent, JoinError, LossReason, RelayAddress, Subscription,
};
use tokio::time::{Instant, sleep_until, timeout};

use super::{FromRelay, GatewayClient, Incoming, TunnelDatagram};
use crate::address::{Address, Host, lookup};
use crate::inlet::TransportError;

/// The number of unanswered Requests after which the next relay is tried.
const ATTEMPTS_MAX: u32 = 2;
/// The first wait for an answer, which is half of RFC 7450's default. Two Requests then take 1 s to
/// 1.5 s, so that a stream continues at another relay within 3 s.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Pause after all relays have been tried, so that full relays are not flooded with Requests.
const ROUND_PAUSE: Duration = Duration::from_secs(1);

/// A tunnel to one of several relays. When a relay stays silent or is full, the next one is tried.
pub(crate) struct Tunnel {
    relays: Vec<Relay>,
    /// The relay in use.
    current: usize,
    gateway: GatewayClient,
    family: Family,
    joined: Vec<Subscription>,
    /// Whether the relay in use has answered, and was not lost since.
    is_ready: bool,
    /// Time at which to try the next relay; `None` while the current one answers.
    switch_at: Option<Instant>,
}

/// A relay's address, and its name as the user gave it.
#[derive(Clone, Debug)]
struct Relay {
    name: String,
    address: SocketAddr,
}

impl Tunnel {
    /// Opens a tunnel without waiting for a relay's answer. Each name is `host:port`, or `host` if
    /// the relay has AMT's own port. All addresses of a name are tried.
    pub(crate) async fn open(names: &[String], family: Family) -> Result<Tunnel, TransportError> {
        let relays = resolve(names).await?;
        let (current, gateway) = connect(&relays, 0, family)?;
        Ok(Tunnel {
            relays,
            current,
            gateway,
            family,
            joined: Vec::new(),
            is_ready: false,
            switch_at: None,
        })
    }

    /// Waits for a relay's answer.
    ///
    /// # Errors
    /// If no relay answers within `patience`, or the last one that answered is full.
    pub(crate) async fn wait_until_ready(
        &mut self,
        patience: Duration,
    ) -> Result<(), TransportError> {
        let mut reason = LossReason::Silent;
        match timeout(patience, self.wait_for_answer(&mut reason)).await {
            Ok(ready) => ready,
            Err(_) => {
                let names = self.names();
                Err(match reason {
                    LossReason::Silent => TransportError::Silent(names),
                    LossReason::Full => TransportError::Full(names),
                })
            }
        }
    }

    /// Whether the relay in use has answered, and was not lost since.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Returns the names of all relays, each once.
    fn names(&self) -> String {
        let mut names: Vec<&str> = self.relays.iter().map(|relay| &*relay.name).collect();
        names.dedup();
        names.join(", ")
    }

    /// Waits for a relay's answer, and keeps the reason why the last one is not used in `reason`.
    async fn wait_for_answer(&mut self, reason: &mut LossReason) -> Result<(), TransportError> {
        loop {
            match self.next_incoming().await? {
                Some(Incoming::Event(GatewayEvent::Ready)) => return Ok(()),
                Some(Incoming::Event(GatewayEvent::RelayLost(lost))) => *reason = lost,
                _ => {}
            }
        }
    }

    pub(crate) fn join(&mut self, subscription: Subscription) -> Result<(), JoinError> {
        self.gateway.join(subscription)?;
        self.joined.push(subscription);
        Ok(())
    }

    pub(crate) fn leave(&mut self, subscription: Subscription) {
        self.joined.retain(|joined| *joined != subscription);
        self.gateway.leave(subscription);
    }

    /// Asks the relay whether it is alive, since no packets come.
    pub(crate) fn check_relay(&mut self) {
        self.gateway.check_relay();
    }

    /// Follows a change of this host's addresses or interfaces.
    pub(crate) fn follow_network(&mut self) {
        self.gateway.follow_network();
    }

    /// Waits for datagrams, which [`next_received`](Self::next_received) returns. Cancel safe.
    pub(crate) async fn wait(&mut self) -> Result<(), TransportError> {
        while self.next_incoming().await? != Some(Incoming::Datagrams) {}
        Ok(())
    }

    /// Returns the next of the packets that were received together. Drops hop messages.
    pub(crate) fn next_datagram(&mut self) -> Option<TunnelDatagram<'_>> {
        self.gateway.next_datagram()
    }

    /// Returns the next of the packets and hop messages that were received together.
    pub(crate) fn next_received(&mut self) -> Option<FromRelay<'_>> {
        self.gateway.next_received()
    }

    /// Sends a hop message to the relay in use.
    pub(crate) fn send_hop_message(&self, message: &[u8]) {
        self.gateway.send_hop_message(message);
    }

    /// Returns what the gateway reports, or `None` after the next relay was tried. Cancel safe.
    async fn next_incoming(&mut self) -> Result<Option<Incoming>, TransportError> {
        let switch_at = self.switch_at;
        let incoming = tokio::select! {
            incoming = self.gateway.recv() => incoming?,
            () = async { sleep_until(switch_at.unwrap_or_else(Instant::now)).await },
                if switch_at.is_some() =>
            {
                self.switch();
                return Ok(None);
            }
        };
        match incoming {
            Incoming::Event(GatewayEvent::Ready) => self.note_ready(),
            Incoming::Event(GatewayEvent::RelayLost(reason)) => self.on_lost(reason),
            Incoming::Datagrams => {}
        }
        Ok(Some(incoming))
    }

    pub(crate) fn note_ready(&mut self) {
        (self.switch_at, self.is_ready) = (None, true);
    }

    fn on_lost(&mut self, reason: LossReason) {
        self.is_ready = false;
        let trouble = match reason {
            LossReason::Silent => "does not answer",
            LossReason::Full => "accepts no more receivers",
        };
        if self.relays.len() == 1 {
            tracing::warn!("the relay {self} {trouble}; still trying");
            return;
        }
        tracing::warn!("the relay {self} {trouble}; trying the next one");
        let is_last = self.current + 1 == self.relays.len();
        let pause = if is_last { ROUND_PAUSE } else { Duration::ZERO };
        self.switch_at = Some(Instant::now() + pause);
    }

    /// Opens a tunnel to the next relay, and joins there what was joined. Tries again later if no
    /// route leads to any relay.
    fn switch(&mut self) {
        self.switch_at = None;
        match connect(&self.relays, self.current + 1, self.family) {
            Ok((current, gateway)) => (self.current, self.gateway) = (current, gateway),
            Err(error) => {
                tracing::warn!("{error}; still trying");
                self.switch_at = Some(Instant::now() + ROUND_PAUSE);
                return;
            }
        }
        for subscription in &self.joined {
            let joined = self.gateway.join(*subscription);
            debug_assert!(
                joined.is_ok(),
                "another relay's gateway has joined it before"
            );
        }
    }

    /// Ends the tunnel.
    pub(crate) async fn close(self) {
        self.gateway.close().await;
    }
}

impl fmt::Display for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Relay { name, address } = &self.relays[self.current];
        // An address that the user has written needs no second one beside it.
        let is_number = |parsed: Address| !matches!(parsed.host(), Host::Name(_));
        if Address::parse(name, Some(AMT_PORT)).is_ok_and(is_number) {
            return write!(f, "{name}");
        }
        write!(f, "{name} ({address})")
    }
}

/// Returns all addresses of the relays, in order.
///
/// # Errors
/// If no name has an address.
async fn resolve(names: &[String]) -> Result<Vec<Relay>, TransportError> {
    let unknown = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let (mut relays, mut cause) = (Vec::new(), unknown());
    for name in names {
        match lookup(name, Some(AMT_PORT)).await {
            Ok(addresses) => relays.extend(addresses.into_iter().map(|address| Relay {
                name: name.clone(),
                address,
            })),
            Err(error) => cause = error,
        }
    }
    if relays.is_empty() {
        let relay = names.join(", ");
        return Err(TransportError::Relay { relay, cause });
    }
    Ok(relays)
}

/// Opens a tunnel to the first relay from `first` on to which a route leads. Returns its place.
fn connect(
    relays: &[Relay],
    first: usize,
    family: Family,
) -> Result<(usize, GatewayClient), TransportError> {
    let mut result = None;
    for place in (first..first + relays.len()).map(|place| place % relays.len()) {
        let Relay { name, address } = &relays[place];
        let mut config = GatewayConfig::new(RelayAddress::Unicast(*address), family);
        if relays.len() > 1 {
            (config.attempts_max, config.initial_timeout) = (ATTEMPTS_MAX, FIRST_WAIT);
        }
        match GatewayClient::connect(config) {
            Ok(gateway) => return Ok((place, gateway)),
            Err(cause) => {
                result = Some(TransportError::Relay {
                    relay: name.clone(),
                    cause,
                });
            }
        }
    }
    Err(result.expect("there is a relay"))
}
