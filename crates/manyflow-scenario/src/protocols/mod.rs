//! The protocols: for each a folder with its parameters (the papers' values are the defaults), with
//! what its events say of observables, and with its packets in captures and traces. `list.rs` is
//! the one list of them.

mod acp;
mod cbr;
mod layered;
mod list;
mod overlay;
mod report;
mod tcp;
mod tfmcc;
mod webrc;

use serde::Deserialize;

pub use acp::{AcpTable, RuleTable, SoftTable, SquareTable, SwitchTable};
pub(crate) use acp::{Direction, PolicyName};
pub use cbr::{CbrPattern, CbrTable};
pub use layered::{OutageTable, RlmTable, SimTable};
pub use list::{AnyEvent, AnyHeader, IntoBoxed, Network, Packet};
pub use overlay::{
    ControllerName, CostBenefitTable, OverlayLinkEntry, OverlayLinkTable, OverlaySessionTable,
    OverlayTable, TfrcTable,
};
pub(crate) use report::{Observed, Reported, Wire};
pub use tcp::{TcpTable, TcpVariant};
pub use tfmcc::TfmccTable;
#[cfg(test)]
pub(crate) use webrc::TOI;
pub use webrc::{Cci, RttRuleName, Rule, WebrcTable, WeightsTable};

use super::observe::Topic;

/// Which protocol a session speaks.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Wave and equation based rate control, RFC 3738.
    Webrc,
    /// TCP, one connection to each receiver.
    Tcp,
    /// A constant bit rate to each receiver, without congestion control.
    Cbr,
    /// Layered multicast with marks, feedback and a menu (Gorinsky, Ramakrishnan and Vin).
    Sim,
    /// Receiver-driven layered multicast (McCanne, Jacobson and Vetterli).
    Rlm,
    /// Single-rate multicast, equation-based: TFMCC, RFC 4654.
    Tfmcc,
    /// Anypoint's transport of frames, point to point or between a peer and an ensemble (Yocum and
    /// Chase).
    Acp,
    /// Messages to a group of an overlay.
    Overlay,
}

impl Protocol {
    /// Whether its packets go to channels that receivers join.
    pub(crate) fn is_multicast(self) -> bool {
        match self {
            Protocol::Webrc | Protocol::Sim | Protocol::Rlm | Protocol::Tfmcc => true,
            Protocol::Tcp | Protocol::Cbr | Protocol::Acp | Protocol::Overlay => false,
        }
    }
}

/// Puts a value that is given in the place of a default.
fn set<T>(target: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *target = value;
    }
}
