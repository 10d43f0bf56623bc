//! The interface between a scenario and the protocols of its sessions.

use crate::builder::Builder;
use manyflow_model::error::{Fault, Problem};
use manyflow_model::observables::Observable;

/// A protocol that sessions use. Each protocol implements this in its `session.rs`.
pub(crate) trait SessionProtocol: Sync {
    /// Adds a session's endpoints to the network, in the order in which
    /// [`Allotment`](crate::plan::endpoints::Allotment) numbers them.
    ///
    /// # Errors
    /// Returns the errors that [`SessionTable::check`](crate::schema::SessionTable) finds.
    fn add(&self, builder: &mut Builder) -> Result<(), Fault>;

    /// Returns whether receivers send packets to other endpoints.
    fn receivers_send(&self) -> bool {
        true
    }

    /// Returns the observables of a receiver.
    fn receiver(&self) -> Reporter;

    /// Returns the observables of a session as a whole.
    fn sender(&self) -> Reporter;

    /// Returns the observables of the endpoints that a session has at a node besides its receivers,
    /// or `None` if measures cannot name them. With `is_end` the endpoint is a sender or an
    /// initiator, and otherwise a switch or a client.
    fn staff(&self, _is_end: bool) -> Option<Reporter> {
        None
    }
}

/// A kind of endpoint that reports observables.
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    /// The name in errors.
    name: &'static str,
    reports: Vec<Observable>,
}

impl Reporter {
    pub(crate) fn new(name: &'static str, reports: &[&[Observable]]) -> Reporter {
        Reporter {
            name,
            reports: reports.concat(),
        }
    }

    /// Refuses an observable that is never reported, because its values would silently be 0 or
    /// missing.
    ///
    /// # Errors
    /// Returns an error that lists the observables that are reported.
    pub(crate) fn check(&self, what: Observable, of: &str) -> Result<(), Fault> {
        if self.reports.contains(&what) {
            return Ok(());
        }
        let names = self.reports.iter();
        let names: Vec<String> = names.map(|known| format!("`{}`", known.name())).collect();
        let instead = match names.as_slice() {
            [] => String::new(),
            names => format!("; it reports {}", names.join(", ")),
        };
        let message = format!(
            "{} (`{of}`) does not report `{}`{instead}",
            self.name,
            what.name()
        );
        Err(Fault::at(&["what"], Problem::Value(message)))
    }
}

/// Observables that the network counts at every endpoint.
pub(crate) const COUNTED: &[Observable] = &[Observable::ReceivedRate, Observable::ReceivedPackets];

/// Observables that the network counts where packets are addressed to endpoints. A multicast packet
/// that is lost has no particular receiver.
pub(crate) const LOST: &[Observable] = &[Observable::Drops, Observable::Loss];

/// Observables of receivers that join channels.
pub(crate) const MEMBERSHIP: &[Observable] = &[
    Observable::Joins,
    Observable::Channels,
    Observable::Instability,
];

/// Observables of senders with a congestion window.
pub(crate) const WINDOW: &[Observable] = &[
    Observable::Cwnd,
    Observable::Rtt,
    Observable::RttSample,
    Observable::LossEvents,
    Observable::Timeouts,
    Observable::Retransmissions,
];

/// Observables of all receivers of a session together.
pub(crate) const TOGETHER: &[Observable] = &[Observable::Efficiency];
