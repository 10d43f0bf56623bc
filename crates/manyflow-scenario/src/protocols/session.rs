//! What a scenario needs of a protocol to run its sessions.

use crate::error::{Fault, Problem};
use crate::plan::sessions::Session;
use crate::scene::{Builder, Member};
use crate::schema::SessionTable;
use crate::schema::observables::Observable;

/// A protocol that sessions use. Each protocol implements this in its `session.rs`.
pub(crate) trait SessionProtocol: Sync {
    /// Checks the parameters of a session.
    ///
    /// # Errors
    /// A table that is missing, or parameters out of their ranges.
    fn check(&self, table: &SessionTable) -> Result<(), Fault>;

    /// Adds a session's endpoints to the network. Returns those of its receivers.
    ///
    /// # Errors
    /// Those that [`check`](SessionProtocol::check) finds.
    fn add(&self, builder: &mut Builder) -> Result<Vec<Member>, Fault>;

    /// Returns how many endpoints a session has, without SIM's aggregators. `stays` is the number
    /// of the stays of all its receivers.
    fn endpoints(&self, session: &Session, stays: usize) -> usize;

    /// Returns whether packets go to channels that receivers join.
    fn is_multicast(&self) -> bool {
        false
    }

    /// Returns whether receivers send packets to other endpoints.
    fn receivers_send(&self) -> bool {
        true
    }

    /// Returns the quantities of a receiver.
    fn receiver(&self) -> Reporter;

    /// Returns the quantities of a session as a whole.
    fn sender(&self) -> Reporter;

    /// Returns the quantities of the endpoints that a session has at a node besides its receivers;
    /// `None` if measures cannot name them.
    fn staff(&self, _is_sender: bool) -> Option<Reporter> {
        None
    }
}

/// Something that reports quantities.
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    /// Its name in errors.
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

    /// Refuses a quantity that is never reported: it would be 0 or missing in silence.
    ///
    /// # Errors
    /// The error lists what is reported instead.
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

/// Quantities that the network counts at every endpoint.
pub(crate) const COUNTED: &[Observable] = &[Observable::ReceivedRate, Observable::ReceivedPackets];

/// Quantities of receivers that join channels.
pub(crate) const MEMBERSHIP: &[Observable] = &[
    Observable::Joins,
    Observable::Channels,
    Observable::Instability,
];

/// Quantities of senders with a congestion window.
pub(crate) const WINDOW: &[Observable] = &[
    Observable::Cwnd,
    Observable::Rtt,
    Observable::RttSample,
    Observable::LossEvents,
    Observable::Timeouts,
];

/// Quantities of all receivers of a session together.
pub(crate) const TOGETHER: &[Observable] = &[Observable::Efficiency];

/// Returns the parameters of a protocol that has no defaults.
///
/// # Errors
/// The table is missing.
pub(crate) fn required<'a, T>(table: Option<&'a T>, key: &str) -> Result<&'a T, Fault> {
    table.ok_or_else(|| Fault::value(format!("the table `{key}` is missing: its parameters")))
}
